"""Assembles an embedded API server: creates every part, in the order of their dependencies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from envtest.admission.plugin_names import DEFAULT_PLUGINS
from envtest.admission.standard import standard_chain
from envtest.admission.webhook_client import ServiceEndpoints, WebhookClient
from envtest.apply.trackers import Trackers
from envtest.audit import AuditLog
from envtest.auth.authenticator import Authenticator
from envtest.auth.bootstrap import install_policy
from envtest.auth.rbac import RBACAuthorizer
from envtest.auth.reviews import Reviews
from envtest.auth.tokens import TokenSettings
from envtest.builtins.system_priorities import system_priority_classes
from envtest.builtins.table import register_builtins
from envtest.context import RequestContext, User
from envtest.create_update import create_object
from envtest.dispatch import Dispatcher
from envtest.errors import GroupResource, method_not_allowed_here, not_acceptable_here, resource_not_found
from envtest.fault_injection import faults_page
from envtest.faults import Faults
from envtest.health import HealthChecks, RequestMetrics, version_response
from envtest.http import Page, PageResponse, Request, Response, json_response
from envtest.initial_objects import create_initial_objects_in
from envtest.objects import Object
from envtest.registry import Registry
from envtest.server import Server
from envtest.server_core import Core
from envtest.service_network import DEFAULT_SERVICE_NETWORK
from envtest.storage import ADDED, Change, Store
from envtest.strategy import Strategy

if TYPE_CHECKING:
    from envtest.builtins.catalog import Resource
    from envtest.builtins.strategy import BuiltinStrategy
    from envtest.crd.lifecycle import CRDController
    from envtest.discovery import Discovery
    from envtest.openapi import OpenAPI

__all__ = ["NAMESPACES", "SYSTEM", "APIServer", "Cluster", "assemble", "create_initial_objects", "resume"]

_KEY_SET = "application/jwk-set+json"
_CRDS = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
SYSTEM = User("system:apiserver", groups=("system:masters",))


class Cluster:
    """What the API servers of one cluster share: objects, served resources, RBAC rules and allocated addresses.

    ``service_network`` contains the cluster IPs.
    """

    def __init__(self, service_network: IPv4Network = DEFAULT_SERVICE_NETWORK) -> None:
        self.service_network = service_network
        self.store = Store()
        self.registry = Registry()
        factories: dict[tuple[str, str], Callable[[Resource], BuiltinStrategy]] = {
            ("apiextensions.k8s.io", "CustomResourceDefinition"): _crd_strategy,
            ("", "Service"): partial(_service_strategy, service_network),
        }
        register_builtins(self.registry, factories)
        self.endpoints = ServiceEndpoints(self.store)
        self.webhooks = WebhookClient(self.endpoints)
        self.store.followers.append(_crd_follower(self.store, self.registry, self.webhooks))
        self.authorizer = RBACAuthorizer(self.store)


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
    service_network: IPv4Network


def assemble(
    *,
    admin_token: str,
    users: dict[str, User],
    audit_log: Path | None,
    plugins: Collection[str] = DEFAULT_PLUGINS,
    token_settings: TokenSettings | None = None,
    anonymous: bool = True,
    cluster: Cluster | None = None,
) -> APIServer:
    """Create the parts without starting them or storing anything.

    ``plugins`` names the admission plugins to run; ``anonymous`` accepts requests without credentials; ``cluster`` is a
    new one by default. Raises ValueError for unusable keys, OSError for the audit log.
    """
    cluster = cluster or Cluster()
    core = Core(cluster.store, cluster.registry, token_settings=token_settings or TokenSettings())
    authorizer, webhooks = cluster.authorizer, cluster.webhooks
    authenticator = Authenticator(core.tokens, admin_token=admin_token, users=users, anonymous=anonymous)
    core.reviews = Reviews(authorizer, authenticator)
    core.admission = standard_chain(core.store, core.registry, authorizer, webhooks, enabled=plugins)
    health = HealthChecks()
    metrics = RequestMetrics(lambda: _object_counts(core))
    audit = AuditLog(audit_log)
    faults = Faults()
    server = Server(
        Dispatcher(core, metrics),
        authenticator,
        authorizer,
        [*_pages(core, health, metrics), faults_page(faults)],
        audit,
        faults,
    )
    return APIServer(
        core,
        authenticator,
        authorizer,
        server,
        health,
        audit,
        faults,
        webhooks,
        cluster.endpoints,
        cluster.service_network,
    )


def _crd_strategy(resource: Resource) -> BuiltinStrategy:
    from envtest.crd.crd_strategy import CRDStrategy

    return CRDStrategy(resource)


def _service_strategy(network: IPv4Network, resource: Resource) -> BuiltinStrategy:
    from envtest.builtins.services import ServiceStrategy

    return ServiceStrategy(resource, network)


def _crd_follower(store: Store, registry: Registry, webhooks: WebhookClient) -> Callable[[GroupResource, Change], None]:
    """Return a follower of the store that serves custom resources; its code is imported with the first CRD."""
    controller: CRDController | None = None

    def follow(resource: GroupResource, change: Change) -> None:
        nonlocal controller
        if controller is None:
            if resource != _CRDS:
                return
            from envtest.crd.lifecycle import CRDController

            crds = registry.lookup("apiextensions.k8s.io", "v1", "customresourcedefinitions")
            assert crds is not None
            track = Trackers(registry).of(crds, "status").track
            controller = CRDController(store, registry, webhooks, track)
        controller.follow(resource, change)

    return follow


def _object_counts(core: Core) -> Iterator[tuple[str, int]]:
    for resource in core.store.resources():
        yield str(resource), core.store.count(resource)


def _response(response: PageResponse) -> Response:
    headers = dict(response.headers)
    content_type = headers.pop("Content-Type", "application/json")
    return Response(response.body, response.code, content_type, headers)


def _pages(core: Core, health: HealthChecks, metrics: RequestMetrics) -> list[Page]:
    @cache
    def discovery() -> Discovery:
        from envtest.discovery import Discovery

        return Discovery(core.registry)

    @cache
    def openapi() -> OpenAPI:
        from envtest.openapi import OpenAPI

        return OpenAPI(core.registry)

    async def documents(request: Request) -> Response | None:
        headers = request.headers
        accept, known = headers.get("Accept", ""), headers.get("If-None-Match", "")
        if request.path.startswith("/openapi/v"):
            response = openapi().respond(request.path, accept, known, request.query.get("hash", ""))
        else:
            response = discovery().respond(request.path, accept, known, address=headers.get("Host", ""))
        if response is None:
            return None
        if request.method not in {"GET", "HEAD"}:
            raise method_not_allowed_here()
        return _response(response)

    async def status(request: Request) -> Response | None:
        if request.path.rstrip("/") == "/version":
            if request.method != "GET":
                raise method_not_allowed_here()
            return _response(version_response())
        if request.path.startswith("/version/"):
            raise resource_not_found()
        if request.path == "/metrics":
            return _response(metrics.respond())
        response = health.respond(
            request.path, verbose="verbose" in request.query, exclude=request.query.getall("exclude", [])
        )
        return None if response is None else _response(response)

    async def issuer(request: Request) -> Response | None:
        if request.path == "/.well-known/openid-configuration":
            return json_response(core.tokens.configuration(request.headers.get("Host", "")))
        if request.path == "/openid/v1/jwks":
            accept = request.headers.get("Accept", "")
            if accept and not any(each in accept for each in ("*/*", "application/*", _KEY_SET)):
                raise not_acceptable_here((_KEY_SET,))
            return Response(orjson.dumps(core.tokens.key_set()), content_type=_KEY_SET)
        return None

    return [status, issuer, documents]


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


async def _create_missing(core: Core, plural: str, obj: Object) -> None:
    """Create a cluster-scoped object unless it exists."""
    group, _, version = obj["apiVersion"].rpartition("/")
    info = core.registry.lookup(group, version, plural)
    assert info is not None
    if core.store.get(info.resource, "", obj["metadata"]["name"]) is None:
        ctx = RequestContext(SYSTEM, "create", info, "", "", operation="CREATE", field_manager="kube-apiserver")
        info.strategy.decode(obj, ctx)
        await create_object(core, ctx, obj)


async def create_initial_objects(api_server: APIServer) -> None:
    """Store the objects that every control plane has: its namespaces, priority classes, own Service and RBAC policy."""
    core = api_server.core
    for name in NAMESPACES:
        await _create_missing(core, "namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for priority_class in system_priority_classes():
        await _create_missing(core, "priorityclasses", priority_class)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    create_initial_objects_in(core.store, core.registry, api_server.service_network, now)
    install_policy(core.store, now)
