"""Checks the CertificateSigningRequest of a pod, and determines what its certificate may contain.

All functions are pure. Who made a request is what the API server writes into its spec: the user, and for the token of a
pod the pod's name and uid. Everything else in a request is the requester's choice. Only its public key gets into the
certificate: the names are those of the pod, and a request with any other name is refused.

A user who can create pods in a namespace can create one that looks like a node of a RayCluster in that namespace,
including its owner reference. Such a user gets a certificate for the addresses of that pod, and can mount the CA's
Secret anyway.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final, TypeAlias

import msgspec

from cfo.api.raycluster.certificates import CERTIFICATE_USAGES
from cfo.api.raycluster.cluster import pod_labels
from cfo.api.raycluster.names import RAY_CLUSTER, all_head_host_names
from cfo.runtime import (
    NamespacedName,
    Object,
    controller_of,
    is_controlled_by,
    is_deleting,
    labels_of,
    namespace_of,
    uid_of,
)
from cfo.runtime.pki import (
    MAX_REQUEST_BYTES,
    CertificateRequest,
    InvalidCertificateRequest,
    parse_certificate_request,
)

_USERNAME_PREFIX: Final = "system:serviceaccount:"
_POD_NAME: Final = "authentication.kubernetes.io/pod-name"
_POD_UID: Final = "authentication.kubernetes.io/pod-uid"
_OPTIONAL_USAGES: Final = {"key encipherment"}
_LOOPBACK: Final = (ip_address("127.0.0.1"), ip_address("::1"))

_Address: TypeAlias = IPv4Address | IPv6Address


class Refusal(Exception):
    """Raised if a request cannot be signed; ``reason`` is a word in CamelCase, the message one sentence.

    ``may_change`` is whether the cause can disappear within seconds, because the API server does not yet have the
    current state of the pod or of its RayCluster.
    """

    def __init__(self, reason: str, message: str, *, may_change: bool = False) -> None:
        self.reason = reason
        self.may_change = may_change
        super().__init__(message)


class Requester(msgspec.Struct, frozen=True):
    """The pod that made a request, and its ServiceAccount, as the API server authenticated them."""

    pod: NamespacedName
    pod_uid: str
    service_account: str


class NodeNames(msgspec.Struct, frozen=True):
    """The names of one node: the addresses of its pod, loopback addresses, and host names."""

    pod_addresses: frozenset[_Address]
    hosts: tuple[str, ...]

    @property
    def addresses(self) -> tuple[_Address, ...]:
        """All addresses."""
        return (
            *_LOOPBACK,
            *sorted(self.pod_addresses, key=lambda address: (address.version, int(address))),
        )


def requester_of(spec: Mapping[str, Any]) -> Requester:
    """Return the requester in the ``spec`` of a CertificateSigningRequest. Raises :class:`Refusal`."""
    username = str(spec.get("username") or "")
    namespace = namespace_of_user(username)
    account = username.removeprefix(_USERNAME_PREFIX).partition(":")[2]
    is_account = bool(namespace and account)
    extra = spec.get("extra") or {}
    names = list(extra.get(_POD_NAME) or ())
    uids = list(extra.get(_POD_UID) or ())
    if not is_account or len(names) != 1 or len(uids) != 1 or not names[0] or not uids[0]:
        raise Refusal(
            "RequesterIsNotAPod",
            "The request was not made with the token of a pod's ServiceAccount.",
        )
    return Requester(NamespacedName(namespace, str(names[0])), str(uids[0]), account)


def namespace_of_user(username: str) -> str:
    """Return the namespace of a ServiceAccount by its user name; empty for other users."""
    if not username.startswith(_USERNAME_PREFIX):
        return ""
    return username.removeprefix(_USERNAME_PREFIX).partition(":")[0]


def parse_request(spec: Mapping[str, Any]) -> CertificateRequest:
    """Return the content of the request in the ``spec`` of a CertificateSigningRequest. Raises :class:`Refusal`.

    The signature proves that the requester has the private key.
    """
    usages = spec.get("usages") or ()
    if len(usages) > len(CERTIFICATE_USAGES) + 1 or set(usages) - _OPTIONAL_USAGES != set(
        CERTIFICATE_USAGES
    ):
        raise Refusal(
            "UsagesNotAllowed",
            f"The usages of the request must be: {', '.join(CERTIFICATE_USAGES)}.",
        )
    encoded = str(spec.get("request") or "")
    if len(encoded) > MAX_REQUEST_BYTES * 4 // 3 + 4:
        raise Refusal("RequestTooLarge", f"The request is larger than {MAX_REQUEST_BYTES} bytes.")
    try:
        pem = b64decode(encoded, validate=True)
    except ValueError:
        raise Refusal("InvalidRequest", "The request is not encoded in base64.") from None
    try:
        request = parse_certificate_request(pem)
    except InvalidCertificateRequest as error:
        raise Refusal(error.reason, str(error)) from None
    if not request.addresses and not request.hosts:
        raise Refusal("NoNames", "The request has no subject alternative names.")
    return request


def check_pod(pod: Object | None, requester: Requester) -> Object:
    """Return ``pod`` if it is the requester, and runs with the requester's ServiceAccount. Raises :class:`Refusal`."""
    if pod is None or uid_of(pod) != requester.pod_uid or is_deleting(pod):
        raise Refusal(
            "PodNotFound", f"The pod {requester.pod.name} that made the request no longer exists."
        )
    account = (pod.get("spec") or {}).get("serviceAccountName") or "default"
    if account != requester.service_account:
        raise Refusal(
            "ServiceAccountMismatch", "The request was not made with the pod's own ServiceAccount."
        )
    return pod


def cluster_of_pod(pod: Object) -> tuple[NamespacedName, str]:
    """Return the name and uid of the RayCluster that controls ``pod``. Raises :class:`Refusal`."""
    owner = controller_of(pod) or {}
    group = str(owner.get("apiVersion") or "").partition("/")[0]
    if group != RAY_CLUSTER.group or owner.get("kind") != RAY_CLUSTER.kind:
        raise Refusal("PodOfNoRayCluster", "The controller of the pod is not a RayCluster.")
    return NamespacedName(namespace_of(pod), str(owner.get("name") or "")), str(
        owner.get("uid") or ""
    )


def node_names(pod: Object, cluster: Object, domain: str) -> NodeNames:
    """Return the names of the node ``pod`` of ``cluster``; ``domain`` is the domain of the client's host.

    Raises :class:`Refusal` if the pod is not a node of the cluster, or has no address yet.
    """
    labels = labels_of(pod)
    if not is_controlled_by(pod, cluster) or not pod_labels(cluster).items() <= labels.items():
        raise Refusal(
            "PodOfNoRayCluster",
            "The labels or owner references of the pod are not those of its RayCluster.",
        )
    if is_deleting(cluster):
        raise Refusal("RayClusterDeleted", "The RayCluster of the pod is being deleted.")
    addresses = frozenset(_pod_addresses(pod.get("status") or {}))
    if not addresses:
        raise Refusal(
            "PodHasNoAddress",
            "The status of the pod does not contain its address.",
            may_change=True,
        )
    hosts = ["localhost"]
    is_head = pod_labels(cluster, "head").items() <= labels.items()
    if is_head:
        hosts += all_head_host_names(cluster, domain)
    return NodeNames(addresses, tuple(dict.fromkeys(hosts)))


def _pod_addresses(status: Mapping[str, Any]) -> Iterable[_Address]:
    texts = [status.get("podIP")]
    texts += [(item or {}).get("ip") for item in status.get("podIPs") or ()]
    for text in texts:
        try:
            yield ip_address(str(text or ""))
        except ValueError:
            continue


def check_names(request: CertificateRequest, names: NodeNames) -> None:
    """Raise :class:`Refusal` unless ``request`` has an address of the pod, and only names in ``names``."""
    for host in sorted(request.hosts - set(names.hosts)):
        raise Refusal(
            "NameNotAllowed", f"The pod may not have the name {host[:253]!r} in its certificate."
        )
    foreign = request.addresses - set(names.addresses)
    if foreign or not request.addresses & names.pod_addresses:
        # The kubelet reports the address of a new sandbox a moment after it started the containers.
        message = "The addresses in the request are not those in the status of the pod."
        raise Refusal("AddressNotAllowed", message, may_change=True)
