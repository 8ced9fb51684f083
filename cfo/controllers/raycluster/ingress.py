"""Vanilla Kubernetes: the dashboard and the client of a RayCluster through Ingresses.

They carry no authentication, so they are made only where the configuration says that there is to be none. A host
belongs to whoever had it first. Two clusters whose hosts would be the same (``a-b`` in ``c``, ``a`` in ``b-c``) get
different ones: the later one's has a hash in it, and an Event says so. Where anybody else has the host already,
nothing is made, and an Event says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from cfo.api.raycluster.cluster import is_suspended
from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.api.raycluster.naming import client_host, dashboard_host, digest, names_of
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster.children import Children, belongs_to
from cfo.controllers.raycluster.host_collisions import address_of, at_address, older_namesakes
from cfo.controllers.raycluster.ingress_domain import IngressDomain
from cfo.controllers.raycluster.platform import UNKNOWN_RETRY_SECONDS, Platform
from cfo.controllers.raycluster.resources import desired_client_ingress, desired_dashboard_ingress
from cfo.runtime.cache.entry import Entry
from cfo.runtime.cache.informer import Informer
from cfo.runtime.client.client import Client
from cfo.runtime.discovery import DiscoveryIncomplete
from cfo.runtime.events import EventRecorder
from cfo.runtime.kinds import INGRESS
from cfo.runtime.objects import NamespacedName, Object, is_deleting, key_of, namespace_of
from cfo.runtime.reconcile import READ, Request, Result, Rule

__all__ = ["IngressReconciler"]

_HOST_INDEX = "host"
_LABEL_LIMIT = 63


class _RuleHost(msgspec.Struct):
    host: str = ""


class _Spec(msgspec.Struct):
    rules: list[_RuleHost] | None = None


class _Ingress(msgspec.Struct):
    spec: _Spec | None = None


_hosts = msgspec.json.Decoder(_Ingress)


def _hosts_of(entry: Entry) -> list[str]:
    spec = _hosts.decode(entry.raw).spec
    return [rule.host for rule in (spec.rules if spec else None) or () if rule.host]


class IngressReconciler:
    """Makes and takes away the two Ingresses of a cluster.

    ``clusters`` has the indexes of :mod:`~cfo.controllers.raycluster.host_collisions`; ``ingresses`` are all
    Ingresses, for every one of them may hold a host.
    """

    rules = (
        Rule("ray.io", "rayclusters", READ),
        Rule("networking.k8s.io", "ingresses", (*READ, "create", "patch", "delete")),
        *IngressDomain.rules,
    )

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        config: KubeRayConfiguration,
        platform: Platform,
        domain: IngressDomain,
        *,
        clusters: Informer,
        ingresses: Informer,
    ) -> None:
        self._client = client
        self._events = events
        self._config = config
        self._platform = platform
        self._domain = domain
        self._clusters = clusters.reader
        self._ingresses = ingresses.add_index(_HOST_INDEX, _hosts_of).reader

    async def reconcile(self, request: Request) -> Result:
        """Brings the Ingresses of one cluster up to date."""
        cluster = await self._client.get(RAY_CLUSTER, request)
        if cluster is None or is_deleting(cluster):
            return Result()
        try:
            openshift = await self._platform.is_openshift()
        except DiscoveryIncomplete:
            return Result(requeue_after=UNKNOWN_RETRY_SECONDS)
        children = Children(self._client, self._events, cluster)
        names = names_of(cluster)
        if openshift or self._config.ray_dashboard_oauth_enabled:
            for name in (names.dashboard, names.client):
                await children.delete(INGRESS, self._ingresses.get(NamespacedName(namespace_of(cluster), name)))
            return children.result()
        if is_suspended(cluster):
            return Result()
        domain = await self._domain.read(self._client)
        if not domain:
            children.warn("IngressDomainMissing", _NO_DOMAIN)
            return children.result()
        for name, host_of, desired in (
            (names.dashboard, dashboard_host, desired_dashboard_ingress),
            (names.client, client_host, desired_client_ingress),
        ):
            own_hash = digest(str(key_of(cluster)))
            hosts = {suffix: host_of(cluster, domain, suffix) for suffix in ("", own_hash)}
            suffix = await self._suffix(children, name, hosts)
            if suffix is not None:
                await children.apply(desired(cluster, domain, self._config.ingress, suffix))
        return children.result()

    def clusters_of_hosts(self, entry: Entry) -> Iterable[Request]:
        """The clusters that are, or want to be, at the hosts of an Ingress, which may stand in their way."""
        domain = self._domain.current()
        for host in _hosts_of(entry):
            label = host.removesuffix(f".{domain}")
            for prefix in ("ray-dashboard-", "rayclient-"):
                if label.startswith(prefix):
                    yield from at_address(self._clusters, label.removeprefix(prefix))

    async def _suffix(self, children: Children, name: str, hosts: dict[str, str]) -> str | None:
        """Which of ``hosts`` (by its suffix) the Ingress ``name`` gets; ``None`` when it can have none."""
        cluster = children.cluster
        key = NamespacedName(namespace_of(cluster), name)
        own = self._ingresses.entry(key)
        for suffix, host in hosts.items():
            if own is not None and host in _hosts_of(own) and not _older(self._others(host, key), own):
                return suffix
        (usual, other_host), own_hash = hosts.values(), next(reversed(hosts))
        holders = self._others(usual, key)
        older = older_namesakes(self._clusters, cluster)
        if not holders and not older:
            if max(map(len, usual.split("."))) > _LABEL_LIMIT:
                children.warn("HostTooLong", f"Ingress {name}: a part of host {usual} is too long for DNS to resolve")
            return ""
        if all(self._is_of_namesake(holder, cluster) for holder in holders) and not self._others(other_host, key):
            whose = holders[0].key if holders else f"RayCluster {key_of(older[0])}"
            children.warn("HostTaken", f"Ingress {name}: host {usual} is that of {whose}, so {other_host} is used")
            return own_hash
        blockers = [holder for holder in holders if not self._is_of_namesake(holder, cluster)]
        blocker = (blockers or self._others(other_host, key))[0].key
        children.refuse("HostTaken", f"Ingress {name} is not made: host {usual} is taken by Ingress {blocker}")
        if own is not None and any(host in _hosts_of(own) for host in hosts.values()):
            await children.delete(INGRESS, own.object(), belongs=lambda obj: belongs_to(obj, cluster))
        return None

    def _others(self, host: str, key: NamespacedName) -> list[Entry]:
        return [entry for entry in self._ingresses.entries(index=(_HOST_INDEX, host)) if entry.key != key]

    @staticmethod
    def _is_of_namesake(holder: Entry, cluster: Object) -> bool:
        owner = holder.meta.controller
        return (
            owner is not None
            and owner.kind == RAY_CLUSTER.kind
            and f"{owner.name}-{holder.key.namespace}" == address_of(cluster)
        )


def _older(others: Sequence[Entry], own: Entry) -> bool:
    age = (own.meta.creation_timestamp, own.key)
    return any((other.meta.creation_timestamp, other.key) < age for other in others)


_NO_DOMAIN = (
    "kuberay.ingressDomain is not set, and there is no ingresses.config.openshift.io/cluster that says one: "
    "no Ingress is made"
)
