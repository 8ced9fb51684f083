"""The strategy of certificates.k8s.io CertificateSigningRequest.

Approvers change the conditions through the subresource ``approval``, signers the certificate and the condition
``Failed`` through ``status``. Messages of parsers, such as Go's for invalid DER, are not reproduced.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

from envtest.apimachinery.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    index,
    invalid,
    not_supported,
    required,
)
from envtest.apimachinery.objects import Object
from envtest.apimachinery.repetition import repeated_positions
from envtest.builtins.signer_rules import signer_errors
from envtest.builtins.strategy import PathSegmentNameStrategy
from envtest.registry.resource import RequestContext
from envtest.schema.shaping import copy_json

__all__ = ["CertificateRequestStrategy"]

_USAGES: Final = (
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
)
_APPROVED: Final = "Approved"
_DENIED: Final = "Denied"
_FINAL: Final = (_APPROVED, _DENIED, "Failed")
_MIN_SECONDS: Final = 600
_LEGACY_SIGNER: Final = "kubernetes.io/legacy-unknown"
_PEM_TYPE: Final = re.compile(rb"-----BEGIN ([^-]+)-----")
_NOT_A_REQUEST: Final = "PEM block type must be CERTIFICATE REQUEST"


class CertificateRequestStrategy(PathSegmentNameStrategy):
    """Strategy of certificates.k8s.io/v1 CertificateSigningRequest."""

    def set_defaults(self, obj: Object) -> None:
        """Set no defaults: the v1 API has none."""

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """Fill in the requesting user from the authenticated user, replacing any values that the client sent."""
        super().prepare_create(obj, ctx)
        spec = obj["spec"]
        for name in ("username", "uid", "groups", "extra"):
            spec.pop(name, None)
        spec["username"] = ctx.user.name
        if ctx.user.uid:
            spec["uid"] = ctx.user.uid
        groups = list(ctx.user.groups)
        spec["groups"] = (
            groups if "system:authenticated" in groups else [*groups, "system:authenticated"]
        )
        if ctx.user.extra:
            spec["extra"] = {name: list(values) for name, values in ctx.user.extra.items()}

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        """Restore the spec, which is immutable, and the fields that the subresource does not change."""
        super().prepare_update(new, old, ctx)
        new["spec"] = copy_json(old["spec"])
        if not ctx.subresource:
            return
        status = new.setdefault("status", {})
        if ctx.subresource == "approval":
            status.pop("certificate", None)
            if (old.get("status") or {}).get("certificate"):
                status["certificate"] = old["status"]["certificate"]
        _set_times(status, old.get("status") or {}, ctx.now)

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors in the spec, and in an update of the status."""
        spec = obj["spec"]
        if old is None:
            sent_spec = ctx.sent.get("spec") or {}
            yield from _spec_errors(spec, sent_spec.get("request"))
            return
        status = obj.get("status") or {}
        before = old.get("status") or {}
        yield from _condition_errors(status.get("conditions") or [])
        yield from _transition_errors(
            status.get("conditions") or [], before.get("conditions") or [], ctx.subresource
        )
        certificate = status.get("certificate")
        if certificate != before.get("certificate"):
            yield from _certificate_errors(certificate)
            if before.get("certificate"):
                yield forbidden(
                    "status.certificate", "updates may not modify existing certificate content"
                )


def _set_times(status: dict[str, Any], before: dict[str, Any], now: str) -> None:
    known = {item.get("type"): item for item in before.get("conditions") or ()}
    for condition in status.get("conditions") or ():
        if not condition.get("lastUpdateTime"):
            condition["lastUpdateTime"] = now
        if not condition.get("lastTransitionTime"):
            former = known.get(condition.get("type"), {})
            is_same = former.get("status") == condition.get("status")
            condition["lastTransitionTime"] = (
                former.get("lastTransitionTime") if is_same else None
            ) or now


def _spec_errors(spec: dict[str, Any], sent: Any) -> Iterator[FieldError]:
    """Yield the errors of the spec; ``sent`` is the request before an empty one was dropped."""
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < _MIN_SECONDS:
        why = "may not specify a duration less than 600 seconds (10 minutes)"
        yield invalid("spec.expirationSeconds", seconds, why)
    request = spec.get("request") or ""
    problem = _request_problem(request)
    if problem:
        yield invalid("spec.request", request or sent, problem)
    yield from _signer_errors(spec.get("signerName") or "")
    usages = spec.get("usages") or ()
    if not usages:
        yield required("spec.usages")
    repeated = repeated_positions(usages)
    for position, usage in enumerate(usages):
        path = index("spec.usages", position)
        if usage not in _USAGES:
            yield not_supported(path, usage, _USAGES)
        if position in repeated:
            yield duplicate(path, usage)


def _request_problem(request: str) -> str:
    pem = _decoded(request)
    found = _PEM_TYPE.search(pem)
    if found is None or found[1] != b"CERTIFICATE REQUEST":
        return _NOT_A_REQUEST
    try:
        return (
            ""
            if x509.load_pem_x509_csr(pem).is_signature_valid
            else "x509: signature verification failed"
        )
    except (
        ValueError,
        TypeError,
        InvalidSignature,
        UnsupportedAlgorithm,
        x509.InvalidVersion,
    ) as error:
        return f"x509: malformed certificate request: {error}"


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text)
    except (binascii.Error, ValueError):
        return b""


def _signer_errors(signer: str) -> Iterator[FieldError]:
    path = "spec.signerName"
    if signer == _LEGACY_SIGNER:
        yield invalid(path, signer, "the legacy signerName is not allowed via this API version")
    else:
        yield from signer_errors(signer, path)


def _condition_errors(conditions: list[dict[str, Any]]) -> Iterator[FieldError]:
    types = [condition.get("type") or "" for condition in conditions]
    repeated = repeated_positions(types)
    for position, (type_, condition) in enumerate(zip(types, conditions, strict=True)):
        path = index("status.conditions", position)
        if not type_:
            yield required(f"{path}.type")
        allowed = ("True",) if type_ in _FINAL else ("False", "True", "Unknown")
        if not condition.get("status"):
            yield required(f"{path}.status")
        elif condition["status"] not in allowed:
            yield not_supported(f"{path}.status", condition["status"], allowed)
        if position in repeated:
            yield duplicate(f"{path}.type", type_)
    if _APPROVED in types and _DENIED in types:
        last = max((_APPROVED, _DENIED), key=types.index)
        yield invalid(
            "status.conditions", last, "Approved and Denied conditions are mutually exclusive"
        )


def _transition_errors(
    new: list[dict[str, Any]], old: list[dict[str, Any]], subresource: str
) -> Iterator[FieldError]:
    path = "status.conditions"
    for type_ in _FINAL:
        after = [item for item in new if item.get("type") == type_]
        before = [item for item in old if item.get("type") == type_]
        if len(after) < len(before):
            yield forbidden(path, f'updates may not remove a condition of type "{type_}"')
        elif subresource == "status" and type_ in (_APPROVED, _DENIED) and after != before:
            verb = "add" if len(after) > len(before) else "modify"
            yield forbidden(path, f'updates may not {verb} a condition of type "{type_}"')


def _certificate_errors(certificate: str | None) -> Iterator[FieldError]:
    if not certificate:
        return
    pem = _decoded(certificate)
    types = _PEM_TYPE.findall(pem)
    problem = "" if types else "must contain at least one CERTIFICATE PEM block"
    for type_ in types:
        if type_ != b"CERTIFICATE":
            problem = (
                f'only CERTIFICATE PEM blocks are allowed, found "{type_.decode(errors="replace")}"'
            )
            break
    if not problem:
        try:
            x509.load_pem_x509_certificates(pem)
        except ValueError as error:
            problem = f"x509: malformed certificate: {error}"
    if problem:
        yield invalid("status.certificate", "<certificate data>", problem)
