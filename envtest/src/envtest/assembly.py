"""Assembles an embedded API server: creates every part, in the order of their dependencies."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from envtest.admission.standard import standard_chain
from envtest.admission.webhook_client import ServiceEndpoints, WebhookClient
from envtest.audit import AuditLog
from envtest.auth.authenticator import Authenticator
from envtest.auth.bootstrap import install_policy
from envtest.auth.rbac import RBACAuthorizer
from envtest.auth.reviews import Reviews
from envtest.builtins.table import register_builtins
from envtest.clock import Clock
from envtest.clock_page import clock_page
from envtest.context import RequestContext, User
from envtest.create_update import create_object
from envtest.dispatch import Dispatcher
from envtest.errors import GroupResource
from envtest.event_ttl import EventTTL
from envtest.fault_injection import faults_page
from envtest.faults import Faults
from envtest.health import HealthChecks, RequestMetrics
from envtest.objects import Object
from envtest.pages import object_counts, standard_pages
from envtest.server import Server
from envtest.server_core import Core
from envtest.service_network import DEFAULT_SERVICE_NETWORK
from envtest.storage import ADDED, Change
from envtest.strategy import Strategy

if TYPE_CHECKING:
    from envtest.builtins.catalog import Resource
    from envtest.builtins.strategy import BuiltinStrategy
    from envtest.crd.lifecycle import CRDController, Track

__all__ = ["NAMESPACES", "SYSTEM", "APIServer", "assemble", "create_initial_objects", "fork", "resume"]

_SERVICES = GroupResource("", "services")
_CRDS = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
SYSTEM = User("system:apiserver", groups=("system:masters",))


@dataclass(slots=True)
class APIServer:
    """The parts of a running API server, for its control plane and for tests."""

    core: Core
    authenticator: Authenticator
    authorizer: RBACAuthorizer
    server: Server
    health: HealthChecks
    audit: AuditLog
    faults: Faults
    webhooks: WebhookClient
    endpoints: ServiceEndpoints
    crds: _CRDs
    events: EventTTL
    settings: _Settings


class _Settings(NamedTuple):
    """What the options of a control plane determine."""

    service_accounts: bool
    service_network: IPv4Network


def assemble(
    *,
    admin_token: str,
    users: dict[str, User],
    audit_log: Path | None,
    service_accounts: bool = False,
    token_key: bytes | None = None,
    service_network: IPv4Network = DEFAULT_SERVICE_NETWORK,
    clock: Clock | None = None,
) -> APIServer:
    """Create the parts without starting them or storing anything.

    ``service_accounts`` enables their admission plugin; ``token_key`` (PEM) is the key that signs their tokens;
    ``service_network`` contains the cluster IPs; ``clock`` is the time of the plane.
    """
    core = Core(token_key=token_key, clock=clock or Clock())
    factories: dict[tuple[str, str], Callable[[Resource], BuiltinStrategy]] = {
        ("apiextensions.k8s.io", "CustomResourceDefinition"): _crd_strategy,
        ("", "Service"): partial(_service_strategy, service_network),
    }
    register_builtins(core.registry, factories)
    endpoints = ServiceEndpoints(core.store)
    webhooks = WebhookClient(endpoints)
    crds = _CRDs(core, webhooks)
    authenticator = Authenticator(core.tokens, admin_token=admin_token, users=users, clock=core.clock)
    events = EventTTL(core.store, core.clock)
    settings = _Settings(service_accounts, service_network)
    return _connect(core, webhooks, endpoints, crds, events, authenticator, AuditLog(audit_log), settings)


def fork(source: APIServer) -> APIServer:
    """Return a copy of a running API server that shares no state with it that either of them changes.

    The copy has the same objects, history, CRDs, allocated addresses, users, tokens, webhook Services and time. It has
    no faults and an empty audit log, and is not started.
    """
    core = source.core.fork()
    endpoints = source.endpoints.fork(core.store)
    webhooks = WebhookClient(endpoints)
    crds = source.crds.fork(core, webhooks)
    authenticator = source.authenticator.fork(core.tokens, core.clock)
    events = source.events.fork(core.store, core.clock)
    return _connect(core, webhooks, endpoints, crds, events, authenticator, AuditLog(), source.settings)


def _connect(
    core: Core,
    webhooks: WebhookClient,
    endpoints: ServiceEndpoints,
    crds: _CRDs,
    events: EventTTL,
    authenticator: Authenticator,
    audit: AuditLog,
    settings: _Settings,
) -> APIServer:
    """Create the parts that have no state of their own."""
    core.store.followers.append(crds.follow)
    authorizer = RBACAuthorizer(core.store)
    core.reviews = Reviews(authorizer, authenticator)
    core.admission = standard_chain(
        core.store, core.registry, authorizer, webhooks, service_accounts=settings.service_accounts
    )
    health = HealthChecks()
    metrics = RequestMetrics(lambda: object_counts(core))
    faults = Faults(core.clock.time)
    pages = [*standard_pages(core, health, metrics), faults_page(faults), clock_page(core.clock)]
    server = Server(Dispatcher(core, metrics), authenticator, authorizer, pages, audit, faults, core.clock)
    return APIServer(
        core, authenticator, authorizer, server, health, audit, faults, webhooks, endpoints, crds, events, settings
    )


def _crd_strategy(resource: Resource) -> BuiltinStrategy:
    from envtest.crd.crd_strategy import CRDStrategy

    return CRDStrategy(resource)


def _service_strategy(network: IPv4Network, resource: Resource) -> BuiltinStrategy:
    from envtest.builtins.services import ServiceStrategy

    return ServiceStrategy(resource, network)


class _CRDs:
    """Follows the store and serves custom resources; the code for them is imported with the first CRD."""

    def __init__(self, core: Core, webhooks: WebhookClient) -> None:
        self._core = core
        self._webhooks = webhooks
        self._controller: CRDController | None = None

    def follow(self, resource: GroupResource, change: Change) -> None:
        """Handle a change of the store."""
        if self._controller is None:
            if resource != _CRDS:
                return
            from envtest.crd.lifecycle import CRDController

            core = self._core
            self._controller = CRDController(
                core.store, core.registry, self._webhooks, _track_status(core), now=core.clock.timestamp
            )
        self._controller.follow(resource, change)

    def fork(self, core: Core, webhooks: WebhookClient) -> _CRDs:
        """Return the same served resources for a copy of the control plane."""
        copy = _CRDs(core, webhooks)
        if self._controller is not None:
            copy._controller = self._controller.fork(
                core.store, core.registry, webhooks, _track_status(core), now=core.clock.timestamp
            )
        return copy


def _track_status(core: Core) -> Track:
    crds = core.registry.lookup("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    assert crds is not None
    return core.trackers.of(crds, "status").track


def _own_service(now: str, address: str) -> Object:
    """Return the Service ``kubernetes`` of the API server; no pods use it, but clients look it up."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "uid": str(uuid.uuid4()),
            "creationTimestamp": now,
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "clusterIP": address,
            "clusterIPs": [address],
            "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
            "sessionAffinity": "None",
            "type": "ClusterIP",
        },
        "status": {"loadBalancer": {}},
    }


def resume(api_server: APIServer) -> None:
    """Restore the derived state of objects that an earlier process stored: served CRDs, allocated addresses."""
    core = api_server.core
    for record in core.store.list(_CRDS):
        for follower in core.store.followers:
            follower(_CRDS, Change(ADDED, record, None))
    for info in core.registry.stored():
        records = core.store.list(info.storage)
        if records and type(info.strategy).adopt is not Strategy.adopt:
            for record in records:
                info.strategy.adopt(record.obj())
    api_server.events.adopt()


async def create_initial_objects(api_server: APIServer) -> None:
    """Store the objects that every control plane has: its namespaces, its own Service and the bootstrap RBAC policy."""
    core = api_server.core
    info = core.registry.lookup("", "v1", "namespaces")
    assert info is not None
    for name in NAMESPACES:
        if core.store.get(GroupResource("", "namespaces"), "", name) is None:
            namespace: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            ctx = RequestContext(SYSTEM, "create", info, "", "", operation="CREATE", field_manager="kube-apiserver")
            ctx.moment = core.clock.now()
            info.strategy.decode(namespace, ctx)
            await create_object(core, ctx, namespace)
    now = core.clock.timestamp()
    if core.store.get(_SERVICES, "default", "kubernetes") is None:
        core.store.create(_SERVICES, _own_service(now, str(api_server.settings.service_network[1])))
    install_policy(core.store, now)
    core.store.compact()
