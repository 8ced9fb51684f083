"""The signer of approved CertificateSigningRequests for the signers ``kubernetes.io/...``, with the plane's CA.

Certificates are valid for one year, or for ``expirationSeconds`` if that is less (at least 10 minutes), from five
minutes ago by the plane's clock. Requests that their signer does not accept get the condition ``Failed``.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object, find_condition
from envtest.controllers.controller import Controller
from envtest.formats.certificate_authority import CertificateAuthority
from envtest.storage import Change

__all__ = ["SIGNERS", "CertificateSigning", "refusal", "sign_request"]

REQUESTS: Final = GroupResource("certificates.k8s.io", "certificatesigningrequests")

_YEAR: Final = timedelta(days=365)
_BACKDATE: Final = timedelta(minutes=5)
_SHORT: Final = timedelta(hours=8)
_MIN: Final = timedelta(minutes=10)
_OPTIONAL_USAGES: Final = ("digital signature", "key encipherment")
_EXTENDED: Final = {
    "any": ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "code signing": ExtendedKeyUsageOID.CODE_SIGNING,
    "email protection": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "ocsp signing": ExtendedKeyUsageOID.OCSP_SIGNING,
    "s/mime": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
    "timestamping": ExtendedKeyUsageOID.TIME_STAMPING,
}
_USAGES: Final = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "data encipherment": "data_encipherment",
    "key agreement": "key_agreement",
    "cert sign": "key_cert_sign",
    "crl sign": "crl_sign",
    "encipher only": "encipher_only",
    "decipher only": "decipher_only",
}


def _names(request: x509.CertificateSigningRequest) -> x509.SubjectAlternativeName | None:
    try:
        return request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def _client(request: x509.CertificateSigningRequest, usages: Collection[str]) -> str:
    for usage in usages:
        if usage != "client auth" and usage not in _OPTIONAL_USAGES:
            return f"invalid usage for client certificate: {usage}"
    return (
        ""
        if "client auth" in usages
        else "missing required usage for client certificate: client auth"
    )


_ALTERNATIVES: Final[dict[str, type[x509.GeneralName]]] = {
    "DNS": x509.DNSName,
    "Email": x509.RFC822Name,
    "IP": x509.IPAddress,
    "URI": x509.UniformResourceIdentifier,
}


def _node(
    request: x509.CertificateSigningRequest,
    usages: Collection[str],
    required: str,
    refused: Sequence[str],
) -> str:
    """Return why a node's certificate is refused; it has the usage ``required`` and none of the ``refused`` names."""
    organizations = [
        str(each.value)
        for each in request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    ]
    if organizations != ["system:nodes"]:
        return "subject organization is not system:nodes"
    found = {type(name) for name in _names(request) or ()}
    if required == "server auth" and not found & {x509.DNSName, x509.IPAddress}:
        return "DNS or IP subjectAltName is required"
    for label in refused:
        if _ALTERNATIVES[label] in found:
            return f"{label} subjectAltNames are not allowed"
    if {*usages} - {"key encipherment"} != {"digital signature", required}:
        allowed = " ".join(sorted((*_OPTIONAL_USAGES, required)))
        return f"usages did not match [{allowed}]"
    names = request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if not names or not str(names[0].value).startswith("system:node:"):
        return "subject common name does not begin with system:node: "
    return ""


SIGNERS: Final[dict[str, Callable[[x509.CertificateSigningRequest, Collection[str]], str]]] = {
    "kubernetes.io/kube-apiserver-client": _client,
    "kubernetes.io/kube-apiserver-client-kubelet": lambda request, usages: _node(
        request, usages, "client auth", ("DNS", "Email", "IP", "URI")
    ),
    "kubernetes.io/kubelet-serving": lambda request, usages: _node(
        request, usages, "server auth", ("Email", "URI")
    ),
    "kubernetes.io/legacy-unknown": lambda request, usages: "",
}
"""The rules of each signer: why a request is refused, or an empty string."""


def refusal(signer: str, request: x509.CertificateSigningRequest, usages: Collection[str]) -> str:
    """Return why a signer refuses a request, or an empty string."""
    return SIGNERS[signer](request, usages)


def _validity(seconds: int | None, now: datetime, latest: datetime) -> tuple[datetime, datetime]:
    duration = _YEAR if seconds is None else min(max(timedelta(seconds=seconds), _MIN), _YEAR)
    end = now + duration - (timedelta() if duration < _SHORT else _BACKDATE)
    return now - _BACKDATE, min(end, latest)


def sign_request(
    authority: CertificateAuthority,
    request: x509.CertificateSigningRequest,
    usages: Collection[str],
    seconds: int | None,
    now: datetime,
) -> bytes:
    """Return a certificate (PEM) with the subject and names of a request, and the usages of its object."""
    start, end = _validity(seconds, now, authority.expires)
    flags = {_USAGES[usage] for usage in usages if usage in _USAGES}
    if not flags & {"key_agreement"}:
        flags -= {"encipher_only", "decipher_only"}
    builder = (
        x509.CertificateBuilder()
        .subject_name(request.subject)
        .public_key(request.public_key())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )
    if flags:
        names = sorted({*_USAGES.values()})
        usage = x509.KeyUsage(**{name: name in flags for name in names})
        builder = builder.add_extension(usage, critical=True)
    extended = [_EXTENDED[usage] for usage in usages if usage in _EXTENDED]
    if extended:
        builder = builder.add_extension(
            x509.ExtendedKeyUsage(list(dict.fromkeys(extended))), critical=False
        )
    alternatives = _names(request)
    if alternatives is not None:
        builder = builder.add_extension(alternatives, critical=False)
    return authority.sign(builder)


class CertificateSigning(Controller[str]):
    """Signs requests that are approved. Keys are the names of CertificateSigningRequests."""

    account = "certificate-controller"

    def enqueue_all(self) -> None:
        """Enqueue all requests."""
        for record in self.client.records(REQUESTS):
            self.queue.add(record.name)

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Enqueue a request that changed."""
        if resource == REQUESTS and change.type != "DELETED":
            self.queue.add(change.record.name)

    async def reconcile(self, key: str) -> None:
        """Sign a request, or report why its signer refuses it."""
        obj = await self.client.read(REQUESTS, "", key)
        if obj is None or self.authority is None or not _is_waiting(obj):
            return
        spec = obj["spec"]
        usages = spec.get("usages") or ()
        request = x509.load_pem_x509_csr(base64.b64decode(spec["request"]))
        problem = refusal(spec["signerName"], request, usages)
        certificate = ""
        if not problem:
            now = self.core.clock.now()
            pem = sign_request(self.authority, request, usages, spec.get("expirationSeconds"), now)
            certificate = base64.b64encode(pem).decode()

        def change(latest: Object) -> bool:
            if not _is_waiting(latest):
                return False
            status = latest["status"]
            if problem:
                status.setdefault("conditions", []).append(_failure(problem, self.client.now()))
            else:
                status["certificate"] = certificate
            return True

        await self.client.modify(
            REQUESTS, "", key, change, uid=obj["metadata"]["uid"], subresource="status"
        )


def _is_waiting(obj: Object) -> bool:
    """Return whether a request of a known signer is approved, and has neither a certificate nor failed."""
    status = obj.get("status") or {}
    if status.get("certificate"):
        return False
    conditions = status.get("conditions")
    if not _is_true(conditions, "Approved"):
        return False
    if _is_true(conditions, "Denied") or _is_true(conditions, "Failed"):
        return False
    return _is_known(obj)


def _is_true(conditions: Sequence[Mapping[str, Any]] | None, kind: str) -> bool:
    condition = find_condition(conditions, kind)
    return condition is not None and condition.get("status") == "True"


def _is_known(obj: Object) -> bool:
    return (obj.get("spec") or {}).get("signerName") in SIGNERS


def _failure(message: str, now: str) -> dict[str, Any]:
    return {
        "type": "Failed",
        "status": "True",
        "reason": "SignerValidationFailure",
        "message": message,
        "lastUpdateTime": now,
    }
