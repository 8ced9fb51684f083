"""Assembles an embedded API server: creates every part, in the order of their dependencies."""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import copy
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Network, ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Self

from envtest.admission.plugin_names import DEFAULT_PLUGINS
from envtest.admission.standard import standard_chain
from envtest.admission.webhook_client import ServiceEndpoints, WebhookClient
from envtest.aggregation.api_services import API_SERVICES, APIServices
from envtest.apimachinery.clock import Clock
from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object
from envtest.apimachinery.user import User
from envtest.apply.trackers import Trackers
from envtest.auth.authenticator import Authenticator
from envtest.auth.bootstrap import install_policy
from envtest.auth.front_proxy import ClientAuthorities, FrontProxy
from envtest.auth.rbac import RBACAuthorizer
from envtest.auth.reviews import Reviews
from envtest.auth.tokens import ServiceAccountTokens, TokenSettings
from envtest.builtins.flow_control_defaults import FLOW_SCHEMAS
from envtest.builtins.system_priorities import system_priority_classes
from envtest.builtins.table import register_builtins
from envtest.configuration.kubernetes_version import LATEST, KubernetesVersion
from envtest.configuration.service_network import DEFAULT_SERVICE_NETWORK
from envtest.endpoints.audit import AuditLog
from envtest.faults import Faults
from envtest.flow_control.flow_controller import Apply, FlowControl
from envtest.flow_control.flow_metrics import FlowMetrics
from envtest.pages.clock_page import clock_page
from envtest.pages.controllers_page import controllers_page
from envtest.pages.fault_injection import faults_page
from envtest.pages.health import HealthChecks, RequestMetrics
from envtest.pages.standard_pages import object_counts, standard_pages
from envtest.registry.registry import Registry
from envtest.registry.resource import RequestContext, Strategy
from envtest.server.dispatch import Dispatcher
from envtest.server.initial_objects import (
    create_initial_objects_in,
    publish_address_in,
    publish_authentication_in,
)
from envtest.server.server import Server
from envtest.storage import ADDED, Change, Store
from envtest.writes.create_update import create_object
from envtest.writes.event_ttl import EventTTL
from envtest.writes.server_core import Core

if TYPE_CHECKING:
    from envtest.builtins.catalog import Resource
    from envtest.builtins.strategy import BuiltinStrategy
    from envtest.crd.crd_controller import CRDController, Track

__all__ = [
    "NAMESPACES",
    "SYSTEM",
    "APIServer",
    "Cluster",
    "assemble",
    "create_initial_objects",
    "fork",
    "publish_address",
    "resume",
]

_CRDS = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
SYSTEM = User("system:apiserver", groups=("system:masters",))


class Cluster:
    """What the API servers of one cluster share: objects, served resources, RBAC rules, allocated addresses and time.

    ``service_network`` contains the cluster IPs; ``version`` is the version of Kubernetes to behave like.
    ``controllers`` are those that other programs run.
    """

    def __init__(
        self,
        service_network: IPv4Network = DEFAULT_SERVICE_NETWORK,
        clock: Clock | None = None,
        version: KubernetesVersion = LATEST,
    ) -> None:
        self.service_network = service_network
        self.version = version
        self.clock = clock or Clock()
        self.store = Store()
        self.registry = Registry()
        factories: dict[tuple[str, str], Callable[[Resource], BuiltinStrategy]] = {
            ("apiextensions.k8s.io", "CustomResourceDefinition"): _crd_strategy,
            ("", "Service"): partial(_service_strategy, service_network),
        }
        register_builtins(self.registry, factories, version)
        self.trackers = Trackers(self.registry)
        self.events = EventTTL(self.store, self.clock)
        self.endpoints = ServiceEndpoints(self.store)
        self.webhooks = WebhookClient(self.endpoints)
        self.api_services = APIServices(
            self.store, self.webhooks, partial(_track_status, self, API_SERVICES), self._now
        )
        self.authorizer = RBACAuthorizer(self.store)
        self.flow_control = FlowControl(self.store, self.clock, partial(_apply_status, self))
        self.crds = _CRDs(self)
        self.controllers: set[str] = set()

    def fork(self) -> Self:
        """Return a copy that shares no state with this cluster that either of them changes."""
        copied = copy(self)
        copied.clock = self.clock.fork()
        copied.store = self.store.fork()
        copied.registry = self.registry.fork()
        copied.trackers = self.trackers.fork(copied.registry)
        copied.events = self.events.fork(copied.store, copied.clock)
        copied.endpoints = self.endpoints.fork(copied.store)
        copied.webhooks = WebhookClient(copied.endpoints)
        track = partial(_track_status, copied, API_SERVICES)
        copied.api_services = self.api_services.fork(
            copied.store, copied.webhooks, track, copied._now
        )
        copied.authorizer = RBACAuthorizer(copied.store)
        copied.flow_control = self.flow_control.fork(
            copied.store, copied.clock, partial(_apply_status, copied)
        )
        copied.crds = self.crds.fork(copied)
        copied.controllers = set()
        return copied

    def _now(self) -> str:
        return self.clock.timestamp()

    async def close(self) -> None:
        """Close the connections to webhooks and to other API servers."""
        self.api_services.close()
        await self.webhooks.close()


class _CRDs:
    """Follows the store and serves custom resources; the code for them is imported with the first CRD."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._controller: CRDController | None = None
        cluster.store.followers.append(self._follow)

    def _follow(self, resource: GroupResource, change: Change) -> None:
        if self._controller is None:
            if resource != _CRDS:
                return
            from envtest.crd.crd_controller import CRDController

            cluster = self._cluster
            self._controller = CRDController(
                cluster.store,
                cluster.registry,
                cluster.webhooks,
                _track_status(cluster, _CRDS),
                now=cluster._now,
            )
        self._controller.follow(resource, change)

    def fork(self, cluster: Cluster) -> _CRDs:
        """Return the same served resources for a copy of the cluster."""
        copied = _CRDs(cluster)
        if self._controller is not None:
            copied._controller = self._controller.fork(
                cluster.store,
                cluster.registry,
                cluster.webhooks,
                _track_status(cluster, _CRDS),
                now=cluster._now,
            )
        return copied


def _track_status(cluster: Cluster, resource: GroupResource) -> Track:
    info = cluster.registry.lookup(resource.group, "v1", resource.resource)
    assert info is not None
    return cluster.trackers.of(info, "status").track


def _apply_status(cluster: Cluster) -> Apply:
    info = cluster.registry.lookup(FLOW_SCHEMAS.group, "v1", FLOW_SCHEMAS.resource)
    assert info is not None
    return cluster.trackers.of(info, "status").apply


@dataclass(slots=True)
class APIServer:
    """The parts of a running API server, for its control plane and for tests."""

    cluster: Cluster
    core: Core
    authenticator: Authenticator
    server: Server
    health: HealthChecks
    audit: AuditLog
    faults: Faults
    plugins: Collection[str]


def assemble(
    *,
    admin_token: str,
    users: dict[str, User],
    audit_log: Path | None,
    plugins: Collection[str] = DEFAULT_PLUGINS,
    token_settings: TokenSettings | None = None,
    anonymous: bool = True,
    cluster: Cluster | None = None,
    features: Collection[str] = (),
    authorities: ClientAuthorities | None = None,
) -> APIServer:
    """Create the parts without starting them or storing anything.

    ``plugins`` names the admission plugins to run; ``anonymous`` accepts requests without credentials; ``cluster`` is a
    new one by default; ``features`` are the feature gates that are on; ``authorities`` distinguish users from a front
    proxy. Raises ValueError for unusable keys, AuditLogError.
    """
    cluster = cluster or Cluster()
    tokens = ServiceAccountTokens(cluster.store, settings=token_settings, clock=cluster.clock.time)
    authenticator = Authenticator(
        tokens,
        admin_token=admin_token,
        users=users,
        anonymous=anonymous,
        clock=cluster.clock,
        authorities=authorities,
    )
    return _connect(cluster, tokens, authenticator, AuditLog(audit_log), plugins, features)


def fork(source: APIServer) -> APIServer:
    """Return a copy of a running API server, and of its cluster, which no other API server may share.

    The copy has the same objects, history, CRDs, allocated addresses, users, tokens, webhook Services and time. It has
    no faults and an empty audit log, and is not started. Either of them changes independently.
    """
    cluster = source.cluster.fork()
    tokens = source.core.tokens.fork(cluster.store, cluster.clock.time)
    authenticator = source.authenticator.fork(tokens, cluster.clock)
    return _connect(
        cluster, tokens, authenticator, AuditLog(), source.plugins, source.core.features
    )


def _connect(
    cluster: Cluster,
    tokens: ServiceAccountTokens,
    authenticator: Authenticator,
    audit: AuditLog,
    plugins: Collection[str],
    features: Collection[str],
) -> APIServer:
    """Create the parts that have no state of their own."""
    store = cluster.store
    registry = cluster.registry
    authorizer = cluster.authorizer
    clock = cluster.clock
    core = Core(store, registry, cluster.trackers, clock, tokens, cluster.version, features)
    core.client = cluster.webhooks
    core.reviews = Reviews(authorizer, authenticator)
    core.authorizer = authorizer
    core.admission = standard_chain(store, registry, authorizer, cluster.webhooks, enabled=plugins)
    health = HealthChecks()
    flow_control = cluster.flow_control
    flow_metrics = FlowMetrics(flow_control.levels)
    metrics = RequestMetrics(lambda: object_counts(core), flow_metrics.families)
    faults = Faults(clock.time, registry)
    pages = [
        *standard_pages(core, health, metrics, cluster.api_services),
        cluster.api_services.page,
        faults_page(faults),
        clock_page(clock),
        controllers_page(core, cluster.controllers),
    ]
    server = Server(
        Dispatcher(core, metrics, cluster.api_services),
        authenticator,
        authorizer,
        flow_control,
        flow_metrics,
        pages,
        audit,
        faults,
        clock,
    )
    return APIServer(cluster, core, authenticator, server, health, audit, faults, plugins)


def _crd_strategy(resource: Resource) -> BuiltinStrategy:
    from envtest.crd.crd_strategy import CRDStrategy

    return CRDStrategy(resource)


def _service_strategy(network: IPv4Network, resource: Resource) -> BuiltinStrategy:
    from envtest.builtins.services import ServiceStrategy

    return ServiceStrategy(resource, network)


def resume(api_server: APIServer) -> None:
    """Restore the derived state of objects that an earlier process stored: served CRDs, allocated addresses."""
    core = api_server.core
    for resource in (_CRDS, API_SERVICES):
        for record in core.store.list(resource):
            for follower in core.store.followers:
                follower(resource, Change(ADDED, record, None))
    for info in core.registry.stored():
        records = core.store.list(info.storage)
        if records and type(info.strategy).adopt is not Strategy.adopt:
            for record in records:
                info.strategy.adopt(record.obj())
    api_server.cluster.events.adopt()


async def _create_missing(core: Core, plural: str, obj: Object) -> None:
    """Create a cluster-scoped object unless it exists."""
    group, _, version = obj["apiVersion"].rpartition("/")
    info = core.registry.lookup(group, version, plural)
    assert info is not None
    if core.store.get(info.resource, "", obj["metadata"]["name"]) is None:
        ctx = RequestContext(
            SYSTEM, "create", info, "", "", operation="CREATE", field_manager="kube-apiserver"
        )
        ctx.moment = core.clock.now()
        info.strategy.decode(obj, ctx)
        await create_object(core, ctx, obj)


async def create_initial_objects(api_server: APIServer) -> None:
    """Store the objects that every control plane has: its namespaces, priority classes, own Service and RBAC policy."""
    core = api_server.core
    for name in NAMESPACES:
        await _create_missing(
            core,
            "namespaces",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        )
    for priority_class in system_priority_classes():
        await _create_missing(core, "priorityclasses", priority_class)
    now = core.clock.timestamp()
    create_initial_objects_in(core.store, core.registry, api_server.cluster.service_network, now)
    install_policy(core.store, now)


def publish_authentication(
    api_server: APIServer, client_ca: bytes | None, proxy: FrontProxy | None
) -> None:
    """Store how users are authenticated, for the API servers of aggregated APIs."""
    data: dict[str, str] = {}
    if client_ca is not None:
        data["client-ca-file"] = client_ca.decode("ascii")
    if proxy is not None:
        data |= proxy.settings()
    if data:
        core = api_server.core
        publish_authentication_in(core.store, data, core.clock.timestamp())


def publish_address(api_server: APIServer, address: str) -> None:
    """Store the endpoints of the Service ``kubernetes``: an IP address that clients can reach, and the server's port.

    As in kube-apiserver, which fails to validate such endpoints, a loopback address is not published.
    """
    if not ip_address(address).is_loopback:
        core = api_server.core
        publish_address_in(core.store, address, api_server.server.port, core.clock.timestamp())
