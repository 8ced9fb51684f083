"""Approves and signs the CertificateSigningRequests of Ray nodes with the CA of their RayCluster.

CertificateSigningRequests are called CSRs here. Only those for our signer are watched. What a CSR must contain is in
:mod:`~cfo.controllers.raycluster.node_request`. A CSR that is refused gets the condition ``Denied`` (``Failed``, if
another client has approved it), and a Warning Event on the RayCluster gives the reason. Approval and signature are two
writes. After a crash in between, the CSR is checked again in full, and then signed.

CSRs are cluster-scoped, and a tenant can create any number of them. Therefore they count in the memory budget of their
requester's namespace, and namespaces take turns in the queue; objects that are too large are not
answered, a requester gets only a few decisions until Kubernetes deletes the oldest CSRs (after one hour), and further
CSRs are ignored without a request to the API server. Old CSRs are ignored, so that a restart does not answer those
whose pods have given up long ago.

A CSR without room in the memory budget is answered as well, because tenants of other namespaces can take the room. It
is read from the API server, at a limited rate for each namespace.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter, OrderedDict
from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec
import structlog

from cfo.api.raycluster.certificates import SIGNER_NAME
from cfo.api.raycluster.cluster import has_owner_reference
from cfo.api.raycluster.names import FIELD_MANAGER, RAY_CLUSTER, names_of
from cfo.config.kuberay import KubeRayConfiguration
from cfo.controllers.raycluster import ca
from cfo.controllers.raycluster.environment import ClusterEnvironment
from cfo.controllers.raycluster.node_request import (
    Refusal,
    check_names,
    check_pod,
    cluster_of_pod,
    namespace_of_user,
    node_names,
    parse_request,
    requester_of,
)
from cfo.controllers.raycluster.platform import IngressDomain
from cfo.controllers.raycluster.secrets import secret_informer
from cfo.runtime import (
    GVK,
    POD,
    READ,
    SECRET,
    Builder,
    Client,
    Entry,
    Event,
    EventHandler,
    Manager,
    NamespacedName,
    Object,
    Reader,
    Request,
    Result,
    Rule,
    find_condition,
    name_of,
    namespace_of,
    resource_version_of,
    rfc3339,
    uid_of,
)
from cfo.runtime.client import BucketRateLimiters
from cfo.runtime.manager import SelectionKeywords
from cfo.runtime.objects import parse_time
from cfo.runtime.process import Clock

CERTIFICATE_SIGNING_REQUEST: Final = GVK("certificates.k8s.io", "v1", "CertificateSigningRequest")

MAX_DECISIONS: Final = 8
"""How many CSRs of one requester are decided until Kubernetes deletes the oldest decided ones (after one hour)."""

MAX_WAITING: Final = 4
"""How many CSRs of one requester are retried at the same time; others are ignored meanwhile."""

MAX_UNCACHED: Final = 100
"""How many CSRs of a namespace that are not cached wait for their read; others are ignored."""

_READS_PER_SECOND: Final = 2.0
_READ_BURST: Final = 50
"""How many CSRs of a namespace that are not cached are read: on average, and at once."""

_MAX_BYTES: Final = 16 << 10
"""The size of a CSR above which it is ignored; an honest one has 2 KiB."""

_MAX_AGE_SECONDS: Final = 600.0
"""How old a CSR may be: twice the time that the init container waits for its certificate."""

_SETTLING_SECONDS: Final = 60.0
"""How long a refusal whose cause may disappear is retried."""

_MIN_RETRY_SECONDS: Final = 0.5
_SECONDS_PER_HOUR: Final = 3600
_DECIDED: Final = "decided"


class _Requester(msgspec.Struct, gc=False):
    """The field of a CSR's spec that the API server sets to the user who created it."""

    username: str = ""


_requester = msgspec.json.Decoder(_Requester)


def _namespace_of_requester(csr: Entry) -> str:
    return namespace_of_user(_requester.decode(csr.part("spec")).username)


_SELECTION: Final[SelectionKeywords] = {
    "field_selector": f"spec.signerName={SIGNER_NAME}",
    "max_bytes": _MAX_BYTES,
    "budget_of": _namespace_of_requester,
}

_MAX_LOADED_CAS: Final = 64
"""The number of CAs that are kept in memory: of the RayClusters whose pods start at about the same time."""

_log = structlog.get_logger("cfo.controllers.raycluster")


class NodeSigner:
    """Decides about one CSR at a time.

    If the operator is limited to some namespaces, another operator answers CSRs from other namespaces.
    """

    name = "raycluster-node-signer"
    rules = (
        Rule("certificates.k8s.io", "certificatesigningrequests", READ),
        Rule(
            "certificates.k8s.io",
            ("certificatesigningrequests/approval", "certificatesigningrequests/status"),
            "update",
        ),
        Rule("certificates.k8s.io", "signers", ("approve", "sign"), [SIGNER_NAME]),
        Rule("", "pods", "get"),
    )

    def __init__(
        self, manager: Manager, config: KubeRayConfiguration, domain: IngressDomain
    ) -> None:
        self._client = manager.client.with_field_manager(FIELD_MANAGER)
        self._events = manager.events(self.name)
        self._lifetime = config.ca.node_certificate_lifetime
        self._clock = manager.clock
        self._domain = domain
        csrs = manager.cache.informer(CERTIFICATE_SIGNING_REQUEST, **_SELECTION)
        self._csrs = csrs.add_index(_DECIDED, _index_decided).reader
        self._cas = SigningCAs(self._client, secret_informer(manager).reader)
        self._namespaces = manager.options.namespaces
        self._waiting = WaitingCSRs(MAX_WAITING)
        self._uncached = UncachedCSRs(self._clock)

    def requests(self, event: Event) -> Iterable[Request]:
        """Return the request for the CSR of an event, unless nothing has to be done.

        Whether a CSR that the cache leaves out is decided or too old is known from its event, without a request.
        """
        csr = event.current
        if csr is None:
            self._forget(event.key.name)
            return ()
        namespace = _namespace_of_requester(csr)
        if event.left_out is not None and not self._admits_uncached(csr, namespace):
            return ()
        return (Request(namespace, csr.name),)

    def _admits_uncached(self, csr: Entry, namespace: str) -> bool:
        is_ignored = len(csr.raw) > _MAX_BYTES or self._is_old(csr.meta.creation_timestamp)
        if is_ignored or _is_decided(csr.object()):
            self._forget(csr.name)
            return False
        return self._uncached.add(csr.name, namespace)

    def _forget(self, name: str) -> None:
        self._waiting.remove(name)
        self._uncached.remove(name)

    def _age(self, created: str) -> float:
        return (self._clock.now() - parse_time(created)).total_seconds()

    def _is_old(self, created: str) -> bool:
        return self._age(created) > _MAX_AGE_SECONDS

    async def reconcile(self, request: Request) -> Result:
        """Decide about one CSR; requeue while the cause of a refusal may disappear.

        The request has the namespace of the CSR's requester, because namespaces take turns in the queue.
        """
        name = request.name
        csr = self._csrs.get(NamespacedName("", name))
        is_uncached = csr is None and name in self._uncached
        if is_uncached:
            delay = self._uncached.seconds_until_read(request.namespace)
            if delay:
                return Result(requeue_after=delay)
            csr = await self._client.get(
                CERTIFICATE_SIGNING_REQUEST, NamespacedName("", name), live=True
            )
        if csr is None or not self._must_decide(csr, is_uncached=is_uncached):
            self._forget(name)
            return Result()
        identity = _identity(csr["spec"])
        if not self._waiting.admits(name, identity):
            self._uncached.remove(name)
            return Result()
        age = self._age(csr["metadata"]["creationTimestamp"])
        cluster: Object | None = None
        try:
            requester = requester_of(csr["spec"])
            if self._namespaces is not None and requester.pod.namespace not in self._namespaces:
                self._forget(name)
                return Result()
            pod = check_pod(await self._client.get(POD, requester.pod, live=True), requester)
            cluster = await self._cluster_of(pod)
            await self._sign(csr, pod, cluster)
        except Refusal as refusal:
            if refusal.may_change and age < _SETTLING_SECONDS:
                self._waiting.add(name, identity)
                # The waits grow with the age: each is half as long as the CSR has waited.
                return Result(requeue_after=max(age / 2, _MIN_RETRY_SECONDS))
            # The CSR is left to another operator if it may reconcile the RayCluster, which is not in our cache.
            if cluster is not None or not refusal.may_change:
                await self._refuse(csr, refusal, cluster)
        self._forget(name)
        return Result()

    def _must_decide(self, csr: Object, *, is_uncached: bool) -> bool:
        """Return whether a CSR is not decided or too old, and its requester has not had enough decisions."""
        if _is_decided(csr) or self._is_old(csr["metadata"]["creationTimestamp"]):
            return False
        identity = _identity(csr["spec"])
        if len(self._csrs.keys(_DECIDED, identity)) >= MAX_DECISIONS:
            return False
        if not is_uncached or name_of(csr) in self._waiting:
            return True
        return self._uncached.admits_decision(identity)

    async def _cluster_of(self, pod: Object) -> Object:
        key, uid = cluster_of_pod(pod)
        cluster = await self._client.get(RAY_CLUSTER, key)
        if cluster is None or uid_of(cluster) != uid:
            raise Refusal(
                "RayClusterNotFound",
                f"The RayCluster {key.name} of the pod does not exist.",
                may_change=True,
            )
        return cluster

    async def _sign(self, csr: Object, pod: Object, cluster: Object) -> None:
        """Check the content of the CSR, approve it and store the certificate. Raises :class:`Refusal`."""
        content = parse_request(csr["spec"])
        names = node_names(pod, cluster, await self._domain.read(self._client))
        check_names(content, names)
        now = self._clock.now()
        cluster_ca = await self._cas.load(cluster, now=now)
        certificate = ca.issue_pem(
            cluster_ca,
            content.public_key,
            addresses=names.addresses,
            hosts=names.hosts,
            lifetime=self._lifetime,
            now=now,
        )
        if find_condition(_conditions(csr), "Approved") is None:
            message = "The pod is a node of its RayCluster, and may have all requested names."
            approved = self._status_with(csr, "Approved", "PodVerified", message)
            csr = await self._update(csr, "approval", approved)
        status = {**(csr.get("status") or {}), "certificate": b64encode(certificate).decode()}
        await self._update(csr, "status", status)

    async def _refuse(self, csr: Object, refusal: Refusal, cluster: Object | None) -> None:
        _log.info(
            "Refused a certificate request",
            csr=name_of(csr),
            reason=refusal.reason,
            message=str(refusal),
        )
        if find_condition(_conditions(csr), "Approved") is None:
            denied = self._status_with(csr, "Denied", refusal.reason, str(refusal))
            await self._update(csr, "approval", denied)
        else:
            failed = self._status_with(csr, "Failed", refusal.reason, str(refusal))
            await self._update(csr, "status", failed)
        if cluster is not None:
            pod = requester_of(csr["spec"]).pod.name
            message = f"Pod {pod} got no certificate ({refusal.reason}): {refusal}"
            self._events.event(cluster, "Warning", "CertificateRequestDenied", message)

    def _status_with(self, csr: Object, type_: str, reason: str, message: str) -> Object:
        """Return the status of ``csr`` with one more condition."""
        now = rfc3339(self._clock.now())
        condition = {"type": type_, "status": "True", "reason": reason, "message": message}
        condition |= {"lastUpdateTime": now, "lastTransitionTime": now}
        return {**(csr.get("status") or {}), "conditions": [*_conditions(csr), condition]}

    async def _update(self, csr: Object, subresource: str, status: Object) -> Object:
        return await self._client.update({**csr, "status": status}, subresource=subresource)


class _EventsOfCSRs(EventHandler):
    """Enqueues the CSRs that a signer has to decide."""

    def __init__(self, signer: NodeSigner) -> None:
        self._signer = signer

    def requests(self, event: Event) -> Iterable[Request]:
        """Return the requests of the signer."""
        return self._signer.requests(event)


class WaitingCSRs:
    """The CSRs that wait, by name, and how many of them each requester has: at most ``maximum``."""

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._requesters: dict[str, str] = {}
        self._numbers: Counter[str] = Counter()

    def __contains__(self, name: str) -> bool:
        return name in self._requesters

    def number_of(self, requester: str) -> int:
        """Return how many CSRs of ``requester`` wait."""
        return self._numbers[requester]

    def admits(self, name: str, requester: str) -> bool:
        """Return whether the CSR ``name`` waits already, or may."""
        return name in self._requesters or self._numbers[requester] < self._maximum

    def add(self, name: str, requester: str) -> None:
        """Add a CSR, unless it waits already."""
        if name not in self._requesters:
            self._requesters[name] = requester
            self._numbers[requester] += 1

    def remove(self, name: str) -> None:
        """Remove a CSR, if it waits."""
        requester = self._requesters.pop(name, None)
        if requester is None:
            return
        self._numbers[requester] -= 1
        if not self._numbers[requester]:
            del self._numbers[requester]


class UncachedCSRs:
    """The CSRs that must be decided and that the cache leaves out, and how many of them are read and decided.

    Reads are limited for each namespace of requesters, and decisions for each requester as those of cached CSRs are.
    """

    def __init__(self, clock: Clock) -> None:
        self._waiting = WaitingCSRs(MAX_UNCACHED)
        self._reads = BucketRateLimiters(_READS_PER_SECOND, _READ_BURST, clock)
        self._decisions = BucketRateLimiters(
            MAX_DECISIONS / _SECONDS_PER_HOUR, MAX_DECISIONS, clock
        )

    def __contains__(self, name: str) -> bool:
        return name in self._waiting

    def add(self, name: str, namespace: str) -> bool:
        """Add a CSR; return whether it waits now, or waited already."""
        if not self._waiting.admits(name, namespace):
            return False
        self._waiting.add(name, namespace)
        return True

    def remove(self, name: str) -> None:
        """Remove a CSR, if it waits."""
        self._waiting.remove(name)

    def seconds_until_read(self, namespace: str) -> float:
        """Take a read of ``namespace`` and return 0, or return the seconds after which to ask again.

        In these seconds all waiting CSRs of the namespace can be read.
        """
        if self._reads.try_take(namespace):
            return 0.0
        return max(1, self._waiting.number_of(namespace)) / _READS_PER_SECOND

    def admits_decision(self, requester: str) -> bool:
        """Take one of the decisions of ``requester``; return whether there was one."""
        return self._decisions.try_take(requester)


class SigningCAs:
    """The CAs of RayClusters, read from their Secrets; the last ones are kept, because many pods start at once.

    ``secrets`` reads the metadata of the Secrets that have a cluster label. Like the controller of CAs, this trusts
    only Secrets that have an owner reference with the uid of the RayCluster.
    """

    def __init__(self, client: Client, secrets: Reader) -> None:
        self._client = client
        self._secrets = secrets
        self._loaded: OrderedDict[tuple[str, str], ca.ClusterCA] = OrderedDict()
        """By uid and resourceVersion of the Secret."""

    async def load(self, cluster: Object, *, now: datetime) -> ca.ClusterCA:
        """Return the CA of ``cluster``, which is valid at ``now``.

        Raises :class:`Refusal`, and the errors of :meth:`Client.get`.
        """
        cluster_ca = await self._load(cluster)
        begin = cluster_ca.certificate.not_valid_before_utc
        end = cluster_ca.certificate.not_valid_after_utc
        if begin <= now < end:
            return cluster_ca
        # It was created while the clock was ahead, or no operator ran for months; it will be renewed.
        message = f"The CA of the RayCluster is valid only from {rfc3339(begin)} to {rfc3339(end)}."
        raise Refusal("CertificateAuthorityNotValid", message, may_change=True)

    async def _load(self, cluster: Object) -> ca.ClusterCA:
        key = NamespacedName(namespace_of(cluster), names_of(cluster).ca_secret)
        missing = Refusal(
            "NoCertificateAuthority",
            f"The RayCluster has no CA in a Secret {key.name}.",
            may_change=True,
        )
        metadata = self._secrets.get(key)
        if metadata is None and self._secrets.is_complete(key.namespace):
            raise missing
        if metadata is not None:
            # Also if its CA is loaded: a RayCluster can get the name of a deleted one.
            if not has_owner_reference(metadata, cluster):
                raise missing
            loaded = self._loaded.get(_version(metadata))
            if loaded is not None:
                return loaded
        secret = await self._client.get(SECRET, key, live=True)
        if secret is None or not has_owner_reference(secret, cluster):
            raise missing
        data = secret.get("data") or {}
        try:
            certificate = b64decode(data.get(ca.CERTIFICATE_FIELD) or "")
            private_key = b64decode(data.get(ca.PRIVATE_KEY_FIELD) or "")
            cluster_ca = ca.load(certificate, private_key)
        except ValueError:
            message = f"The CA in the Secret {key.name} is invalid."
            raise Refusal("NoCertificateAuthority", message, may_change=True) from None
        self._loaded[_version(secret)] = cluster_ca
        while len(self._loaded) > _MAX_LOADED_CAS:
            self._loaded.popitem(last=False)
        return cluster_ca


def _version(secret: Object) -> tuple[str, str]:
    return uid_of(secret), resource_version_of(secret)


def _conditions(csr: Object) -> list[Object]:
    return (csr.get("status") or {}).get("conditions") or []


def _is_decided(csr: Object) -> bool:
    """Return whether nothing remains to be done; an approved CSR has to be signed."""
    conditions = _conditions(csr)
    is_refused = any(
        find_condition(conditions, type_) is not None for type_ in ("Denied", "Failed")
    )
    return is_refused or bool((csr.get("status") or {}).get("certificate"))


def _identity(spec: Object) -> str:
    """Return what identifies the requester of a CSR: the pod with whose token it was made, otherwise the user."""
    try:
        return requester_of(spec).pod_uid
    except Refusal:
        return str(spec.get("username") or "")


def _index_decided(entry: Entry) -> Iterable[str]:
    csr = entry.object()
    return (_identity(csr.get("spec") or {}),) if _is_decided(csr) else ()


def setup(manager: Manager, config: KubeRayConfiguration, environment: ClusterEnvironment) -> None:
    """Add the signer to ``manager``."""
    signer = NodeSigner(manager, config, environment.domain)
    (
        Builder(manager, NodeSigner.name)
        .watches(CERTIFICATE_SIGNING_REQUEST, _EventsOfCSRs(signer), **_SELECTION)
        .reads(secret_informer(manager), manager.cache.informer(RAY_CLUSTER))
        .complete(signer)
    )
