"""Which controllers there are, and what each hears of.

Every kind has one informer, which all controllers share; what the cluster need not serve (Routes, Open Data Hub's and
OpenShift's settings) is joined when it is. A status update of a RayCluster reaches no queue, but for the name of the
head's Service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec
import structlog

from cfo.api.raycluster.cluster import HEAD_LABELS, POD_CLUSTER_LABEL
from cfo.api.raycluster.kinds import DSC_INITIALIZATION, INGRESS_CONFIG, RAY_CLUSTER, ROUTE
from cfo.api.raycluster.naming import CLUSTER_LABEL, FIELD_MANAGER, NAMESPACE_LABEL
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster.host_collisions import add_indexes, labelled
from cfo.controllers.raycluster.ingress import IngressReconciler
from cfo.controllers.raycluster.ingress_domain import IngressDomain
from cfo.controllers.raycluster.mtls import MTLSReconciler
from cfo.controllers.raycluster.networkpolicy import NetworkPolicyReconciler
from cfo.controllers.raycluster.oauth import OAuthReconciler, OpenShiftInformers
from cfo.controllers.raycluster.operator_namespaces import OperatorNamespaces, service_account_of
from cfo.controllers.raycluster.platform import OptionalKind, Platform
from cfo.runtime.builder import Builder
from cfo.runtime.cache.entry import Entry
from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.store import Event
from cfo.runtime.controller import Controller
from cfo.runtime.handler import EnqueueRequestForOwner, EnqueueRequestsFromMapFunc
from cfo.runtime.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    INGRESS,
    NETWORK_POLICY,
    POD,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
)
from cfo.runtime.manager import Manager
from cfo.runtime.objects import NamespacedName
from cfo.runtime.predicate import AnnotationChanged, GenerationChanged, LabelChanged, Predicate, on_update, or_
from cfo.runtime.reconcile import Request, Rule
from cfo.runtime.source import Channel, Kind

__all__ = ["Surroundings", "rules", "setup"]

_log = structlog.get_logger("cfo.controllers.raycluster")


class _Head(msgspec.Struct):
    serviceName: str = ""  # noqa: N815 (the API's spelling)


class _Status(msgspec.Struct):
    head: _Head | None = None


class _Cluster(msgspec.Struct):
    status: _Status | None = None


_cluster = msgspec.json.Decoder(_Cluster)


def _head_service(entry: Entry) -> str:
    status = _cluster.decode(entry.raw).status
    return status.head.serviceName if status and status.head else ""


def _once(predicate: Predicate) -> Predicate:
    """Remembers the last answer: the controllers ask about one event one after the other."""
    last: Event | None = None
    answer = False

    def remembering(event: Event) -> bool:
        nonlocal last, answer
        if event is not last:
            last, answer = event, predicate(event)
        return answer

    return remembering


# What is asked for has changed; deletion raises the generation too.
_ASKED = or_(GenerationChanged(), LabelChanged(), AnnotationChanged())
_HEAD_SERVICE = on_update(lambda old, new: _head_service(old) != _head_service(new))
_FINALIZERS = on_update(lambda old, new: old.meta.finalizers != new.meta.finalizers)
# A child has changed otherwise than by what its own controllers report in its status.
_CHILD: Predicate = or_(
    GenerationChanged(),
    AnnotationChanged(),
    LabelChanged(),
    on_update(lambda old, new: old.meta.owner_references != new.meta.owner_references),
)


def rules() -> list[Rule]:
    """The rights that the RayCluster controllers need."""
    reconcilers = (OAuthReconciler, IngressReconciler, NetworkPolicyReconciler, MTLSReconciler)
    return [rule for reconciler in reconcilers for rule in reconciler.rules]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the controllers know of where they run; admission goes by the same."""

    platform: Platform
    domain: IngressDomain


def setup(manager: Manager, config: KubeRayConfiguration) -> Surroundings:
    """Adds the four controllers to ``manager``; they start when the API server serves RayClusters."""
    # What is served is found out in this order: the sources of settings come before those who follow them.
    dsci = OptionalKind(manager, DSC_INITIALIZATION)
    domain_settings = OptionalKind(manager, INGRESS_CONFIG, field_selector="metadata.name=cluster")

    async def start(manager: Manager) -> None:
        await _Controllers(manager, config, dsci, domain_settings, routes, around).start()

    routes = OptionalKind(manager, ROUTE, label_selector=CLUSTER_LABEL)
    around = Surroundings(Platform(manager.mapper, routes), IngressDomain(config, domain_settings, manager.clock))
    manager.when_available(RAY_CLUSTER, start)
    return around


class _Controllers:
    """Builds the controllers, once RayClusters are served."""

    def __init__(
        self,
        manager: Manager,
        config: KubeRayConfiguration,
        dsci: OptionalKind,
        domain_settings: OptionalKind,
        routes: OptionalKind,
        around: Surroundings,
    ) -> None:
        self._manager = manager
        self._config = config
        self._client = manager.client.with_field_manager(FIELD_MANAGER)
        self._dsci = dsci
        self._domain_settings = domain_settings
        self._routes = routes
        self._platform = around.platform
        self._domain = around.domain
        self._asked = _once(_ASKED)
        self._asked_or_moved = _once(or_(self._asked, _HEAD_SERVICE))
        self._clusters = manager.cache.informer(RAY_CLUSTER)
        add_indexes(self._clusters)

    async def start(self) -> None:
        """Adds all four to the manager."""
        self._mtls()
        credentials = await self._manager.transport.config.authenticate()
        self._networkpolicy(service_account_of(credentials.authorization))
        self._ingress()
        if self._config.ray_dashboard_oauth_enabled or not self._is_limited:
            self._oauth()  # it cannot do without rights to ClusterRoleBindings

    @property
    def _is_limited(self) -> bool:
        """Whether the operator looks at some namespaces only."""
        return self._manager.options.namespaces is not None

    def _mtls(self) -> None:
        manager = self._manager
        secrets = manager.cache.informer(SECRET, label_selector=CLUSTER_LABEL)
        name = "raycluster-mtls"
        reconciler = MTLSReconciler(self._client, manager.events(name), manager.clock, self._config, secrets.reader)
        (
            Builder(manager, name)
            .for_(RAY_CLUSTER, self._asked)
            .owns(SECRET, label_selector=CLUSTER_LABEL)
            .complete(reconciler)
        )

    def _networkpolicy(self, own_account: NamespacedName | None) -> None:
        manager = self._manager
        # who may look at some namespaces only may not look at what is in none
        asks = not self._config.operator_namespaces and not self._is_limited
        roles = manager.cache.informer(CLUSTER_ROLE) if asks else None
        bindings = manager.cache.informer(CLUSTER_ROLE_BINDING) if asks else None
        namespaces = OperatorNamespaces(
            self._config,
            self._platform,
            roles=roles,
            bindings=bindings,
            dsci=self._dsci,
            own_account=own_account,
        )
        moved = EnqueueRequestsFromMapFunc(lambda entry: self._all() if namespaces.changed_by(entry) else ())
        name = "raycluster-networkpolicy"
        reconciler = NetworkPolicyReconciler(
            self._client,
            manager.events(name),
            self._config,
            namespaces,
            policies=manager.cache.informer(NETWORK_POLICY),
        )
        controller = (
            Builder(manager, name).for_(RAY_CLUSTER, self._asked).owns(NETWORK_POLICY, _CHILD).complete(reconciler)
        )
        for source in (roles, bindings):
            if source is not None:
                controller.watch(Kind(source, moved, mapper=manager.mapper, optional=True))
        self._dsci.subscribe(controller, moved)
        self._when_openshift(controller)

    def _ingress(self) -> None:
        manager = self._manager
        name = "raycluster-ingress"
        # any Ingress may hold a host; where none is made, those that are to go carry our label
        selector = CLUSTER_LABEL if self._config.ray_dashboard_oauth_enabled else ""
        reconciler = IngressReconciler(
            self._client,
            manager.events(name),
            self._config,
            self._platform,
            self._domain,
            clusters=self._clusters,
            ingresses=manager.cache.informer(INGRESS, label_selector=selector),
        )
        controller = (
            Builder(manager, name)
            .for_(RAY_CLUSTER, self._asked_or_moved)
            .owns(INGRESS, _CHILD, label_selector=selector)
            .watches(
                INGRESS,
                EnqueueRequestsFromMapFunc(reconciler.clusters_of_hosts),
                _CHILD,
                label_selector=selector,
            )
            .complete(reconciler)
        )
        self._domain_settings.subscribe(controller, EnqueueRequestsFromMapFunc(lambda _: self._all()))
        self._when_openshift(controller)

    def _oauth(self) -> None:
        manager = self._manager
        name = "raycluster-oauth"
        reconciler = OAuthReconciler(
            self._client,
            manager.events(name),
            manager.clock,
            self._config,
            self._platform,
            clusters=self._clusters,
            secrets=manager.cache.informer(SECRET, label_selector=CLUSTER_LABEL),
            bindings=manager.cache.informer(CLUSTER_ROLE_BINDING),
        )
        controller = (
            Builder(manager, name)
            .for_(RAY_CLUSTER, or_(self._asked_or_moved, _FINALIZERS))
            .owns(SECRET, label_selector=CLUSTER_LABEL)
            .watches(CLUSTER_ROLE_BINDING, EnqueueRequestsFromMapFunc(self._of_binding), _CHILD)
            .complete(reconciler)
        )

        def follow(routes: Informer) -> None:
            owned = EnqueueRequestForOwner(RAY_CLUSTER)
            services = manager.cache.informer(SERVICE, label_selector=CLUSTER_LABEL)
            accounts = manager.cache.informer(SERVICE_ACCOUNT, label_selector=CLUSTER_LABEL)
            pods = None
            if self._config.ray_dashboard_oauth_enabled:
                pods = manager.cache.informer(POD, label_selector=HEAD_LABELS)
                moved = on_update(lambda old, new: old.meta.is_deleting != new.meta.is_deleting)
                watch = Kind(pods, EnqueueRequestsFromMapFunc(self._of_pod), moved, mapper=manager.mapper)
                controller.watch(watch)
            controller.watch(Kind(routes, owned, _CHILD, mapper=manager.mapper))
            controller.watch(Kind(services, owned, _CHILD, mapper=manager.mapper))
            controller.watch(Kind(accounts, owned, mapper=manager.mapper))
            reconciler.openshift = OpenShiftInformers(routes=routes, services=services, accounts=accounts, pods=pods)

        self._routes.when_served(follow)
        self._when_openshift(controller)

    def _of_binding(self, entry: Entry) -> Iterable[Request]:
        namespace, label = entry.meta.labels.get(NAMESPACE_LABEL), entry.meta.labels.get(CLUSTER_LABEL)
        if not namespace or not label:
            return ()
        # without a cluster it is a leftover, which is collected under the name that it carries
        return labelled(self._clusters.reader, namespace, label) or (Request(namespace, label),)

    def _of_pod(self, entry: Entry) -> Iterable[Request]:
        return labelled(self._clusters.reader, entry.key.namespace, entry.meta.labels.get(POD_CLUSTER_LABEL, ""))

    def _all(self) -> Iterable[Request]:
        return [entry.key for entry in self._clusters.reader.entries()]

    def _when_openshift(self, controller: Controller) -> None:
        """Reconciles every cluster anew when it turns out that this is OpenShift."""
        channel = Channel()
        controller.watch(channel)
        act: Callable[[object], None] = lambda _: channel.enqueue(self._all())  # noqa: E731
        self._routes.when_served(act)
