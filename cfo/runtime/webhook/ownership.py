"""Which operator owns a webhook configuration, and whether that operator is alive.

A webhook configuration has one address and one CA bundle, so two operators that write the same one disable each other's
webhooks. The owner is the operator that serves at the address that the webhooks name: a Service, or a URL outside the
cluster. The owner's mark, the annotation :data:`OPERATOR_ANNOTATION`, names the Lease that this operator renews: the
Lease of its leader election, or the same Lease as a heartbeat if leader election is disabled. The API server is asked,
and not the address, because the name of a Service does not resolve outside the cluster.

Replicas of one installation have the same address, so they share the mark and the Lease.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import structlog

from cfo.runtime.client.access_reviews import is_allowed
from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import Forbidden
from cfo.runtime.controller.lifecycle import ExpectedFailure
from cfo.runtime.objects.kinds import ENDPOINT_SLICE, LEASE
from cfo.runtime.objects.unstructured import NamespacedName, Object, annotations_of
from cfo.runtime.process.clock import Clock
from cfo.runtime.process.printable import printable
from cfo.runtime.webhook.certificates.client_configs import client_configs
from cfo.runtime.webhook.options import ServiceReference, WebhookURL

OPERATOR_ANNOTATION: Final = "webhooks.codeflare.dev/operator"
"""The annotation of a webhook configuration that contains the :class:`OperatorMark` of the operator that serves it."""

_log = structlog.get_logger(__name__)

_MAX_MARK: Final = 2048
_MAX_NAME: Final = 300
_REREAD: Final = 2.0
"""Seconds between two reads of a Lease whose holder may be alive."""
_MIN_DURATION: Final = 5.0
_MAX_DURATION: Final = 300.0
"""The shortest and the longest time in seconds that a Lease is observed, whatever duration it contains."""
_UNKNOWN_HOLDER: Final = "unknown, because the Lease may not be read"
_READY_PODS: Final = "none, but the Service has ready pods"


class OperatorMark(msgspec.Struct, frozen=True, rename="camel"):
    """The owner's mark: the ``address`` at which it serves, and the Lease that it renews.

    The mark is void if the webhooks name another address, as after another installation's manifests were applied.
    """

    address: str
    lease_namespace: str
    lease_name: str

    @property
    def lease(self) -> NamespacedName:
        """The Lease that the owner renews."""
        return NamespacedName(self.lease_namespace, self.lease_name)

    def encode(self) -> str:
        """Return the value of the annotation."""
        return msgspec.json.encode(self).decode()


class WebhookOwner(msgspec.Struct, frozen=True):
    """The operator that owns a webhook configuration: its address, and its Lease (``None`` if that is unknown)."""

    address: str
    lease: NamespacedName | None = None


class AnotherOperator(ExpectedFailure):
    """Raised when another living operator serves the webhooks of our webhook configurations."""


def address_of(own: WebhookURL | ServiceReference) -> str:
    """Return the address of an operator as one string: its URL, or its Service without the port."""
    if isinstance(own, WebhookURL):
        return str(own)
    return _service_address(own.namespace, own.name)


def holder_suffix(url: WebhookURL | None) -> str:
    """Return what the identity of an operator outside the cluster ends with, so that its Lease proves its URL."""
    return f"_{url}" if url is not None else ""


def addresses_of(configuration: Object) -> frozenset[str]:
    """Return the addresses of the webhooks in ``configuration``."""
    return frozenset(_address(config) for config in client_configs(configuration).values())


def mark_of(configuration: Object) -> OperatorMark | None:
    """Return the mark in the annotation; ``None`` if it is missing or malformed."""
    encoded = annotations_of(configuration).get(OPERATOR_ANNOTATION)
    if not isinstance(encoded, str) or len(encoded) > _MAX_MARK:
        return None
    try:
        return msgspec.json.decode(encoded, type=OperatorMark)
    except msgspec.DecodeError:
        return None


def owner_of(configuration: Object, own: str, lease_name: str) -> WebhookOwner | None:
    """Return the owner of ``configuration``; ``None`` if its webhooks have no address.

    ``own`` is the address of this operator, which decides if the webhooks name several addresses and none is marked.
    An operator without a mark (the Go operator) that serves at a Service has its Lease in the Service's namespace,
    with the name ``lease_name``.
    """
    addresses = addresses_of(configuration) - {""}
    if not addresses:
        return None
    mark = mark_of(configuration)
    if mark is not None and mark.address in addresses:
        return WebhookOwner(mark.address, mark.lease)
    address = own if own in addresses else min(addresses)
    namespace = _service_namespace(address)
    if not namespace or not lease_name:
        return WebhookOwner(address)
    return WebhookOwner(address, NamespacedName(namespace, lease_name))


def serves(holder: str, address: str) -> bool:
    """Return whether the holder of a Lease serves at ``address``, by its identity (:func:`holder_suffix`)."""
    _, separator, suffix = holder.rpartition("_https://")
    url = f"https://{suffix}" if separator else ""
    if _service_namespace(address):
        return bool(holder) and not url
    return url == address


class LeaseRenewal(msgspec.Struct, frozen=True):
    """What a Lease contains: its holder, when it was renewed (the API's string), and its duration in seconds."""

    holder: str = ""
    renewed: str = ""
    seconds: float = 0.0

    @classmethod
    def of(cls, lease: Object | None) -> LeaseRenewal:
        """Return the state of ``lease``; without a holder if there is no Lease, or it was released."""
        spec = (lease or {}).get("spec") or {}
        duration = spec.get("leaseDurationSeconds")
        seconds = duration if isinstance(duration, int) else 0
        return cls(
            holder=str(spec.get("holderIdentity") or ""),
            renewed=str(spec.get("renewTime") or ""),
            seconds=min(max(seconds, _MIN_DURATION), _MAX_DURATION),
        )


class OwnerProbe:
    """Finds out whether the owner of a webhook configuration is alive.

    An operator is alive if it renews its Lease while this process observes it, so that no clocks are compared. A Lease
    whose holder is dead is observed once for its duration; ``expired`` remembers it. The Go operator renews none by
    default: with ``reads_endpoints``, an operator is also alive if its Service has ready pods. That is for a process
    outside the cluster, which cannot connect to Services, and whose user may read them.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        expired: Mapping[NamespacedName, str] | None = None,
        *,
        reads_endpoints: bool = False,
    ) -> None:
        self._client = client
        self._clock = clock
        self._reads_endpoints = reads_endpoints
        self.expired: dict[NamespacedName, str] = dict(expired or {})
        """The ``renewTime`` of each Lease that was observed for its duration and not renewed."""

    async def living_holder(self, owner: WebhookOwner) -> str:
        """Return the identity of the living operator that serves at the owner's address; empty if there is none.

        Takes as long as the Lease is valid, at most 300 s, if its holder is dead. A Lease that may not be read counts
        as renewed. Raises the errors of :class:`~cfo.runtime.client.client.Client`.
        """
        if owner.lease is None:
            return ""
        try:
            holder = await self._observe(owner.lease, owner.address)
        except Forbidden:
            return _UNKNOWN_HOLDER
        if holder or not self._reads_endpoints:
            return holder
        return _READY_PODS if await has_ready_pods(self._client, owner.address) else ""

    async def _observe(self, lease: NamespacedName, address: str) -> str:
        first = await self._read(lease)
        if not first.renewed or self.expired.get(lease) == first.renewed:
            return ""
        # A released Lease has no holder; a waiting replica acquires it within seconds.
        if first.holder and not serves(first.holder, address):
            return ""
        _log.info(
            "Webhooks name another operator, checking whether it still renews its lease",
            lease=str(lease),
            holder=printable(first.holder, _MAX_NAME),
            address=printable(address, _MAX_NAME),
            seconds=first.seconds,
        )
        until = self._clock.boottime() + first.seconds
        while self._clock.boottime() < until:
            await self._clock.sleep(_REREAD)
            current = await self._read(lease)
            if current.renewed != first.renewed and serves(current.holder, address):
                return printable(current.holder, _MAX_NAME)
        self.expired[lease] = first.renewed
        return ""

    async def _read(self, lease: NamespacedName) -> LeaseRenewal:
        return LeaseRenewal.of(await self._client.get(LEASE, lease, live=True))


async def has_ready_pods(client: Client, address: str) -> bool:
    """Return whether ``address`` is that of a Service with ready pods, as far as the user of ``client`` may know.

    An administrator may, the operator's own roles do not allow it. Raises the errors of
    :class:`~cfo.runtime.client.client.Client`.
    """
    service = _service(address)
    if service is None:
        return False
    attributes = {
        "verb": "list",
        "group": ENDPOINT_SLICE.group,
        "resource": "endpointslices",
        "namespace": service.namespace,
    }
    if not await is_allowed(client, resourceAttributes=attributes):
        return False
    return await ready_endpoints(client, service) > 0


async def ready_endpoints(client: Client, service: NamespacedName) -> int:
    """Return the number of ready endpoints, such as pods, of ``service``; 0 if it does not exist.

    Raises the errors of :class:`~cfo.runtime.client.client.Client`.
    """
    selector = f"kubernetes.io/service-name={service.name}"
    slices = await client.list(
        ENDPOINT_SLICE, namespace=service.namespace, label_selector=selector, live=True
    )
    ready = 0
    for endpoint_slice in slices:
        for endpoint in endpoint_slice.get("endpoints") or ():
            # A condition that is missing counts as true.
            if (endpoint.get("conditions") or {}).get("ready") is not False:
                ready += 1
    return ready


def described_owner(owner: WebhookOwner, holder: str) -> str:
    """Return the address of ``owner``, and who renews its Lease, for a message."""
    address = printable(owner.address, _MAX_NAME)
    if not holder or owner.lease is None:
        return address
    return f"{address} (Lease {printable(str(owner.lease), _MAX_NAME)}, holder {holder})"


def _address(config: Mapping[str, Any]) -> str:
    service = config.get("service")
    if isinstance(service, dict):
        return _service_address(str(service.get("namespace")), str(service.get("name")))
    url = str(config.get("url") or "")[:_MAX_MARK]
    with suppress(ValueError):
        return str(WebhookURL.parse(f"https://{urlsplit(url).netloc}"))
    return url


_SERVICE: Final = "Service "


def _service_address(namespace: str, name: str) -> str:
    return f"{_SERVICE}{namespace}/{name}"


def is_service(address: str) -> bool:
    """Return whether ``address`` is that of a Service, not a URL."""
    return address.startswith(_SERVICE)


def _service(address: str) -> NamespacedName | None:
    """Return the Service in ``address``; ``None`` if it is a URL."""
    if not is_service(address):
        return None
    namespace, _, name = address.removeprefix(_SERVICE).partition("/")
    return NamespacedName(namespace, name)


def _service_namespace(address: str) -> str:
    """Return the namespace of the Service in ``address``; empty if it is a URL."""
    service = _service(address)
    return service.namespace if service is not None else ""
