"""The environment of tests of the RayCluster controllers: a control plane, a user's client, and the controllers."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import orjson
from msgspec import structs

from cfo.api.raycluster.names import (
    CLUSTER_LABEL,
    FIELD_MANAGER,
    NAMESPACE_LABEL,
    ROUTE,
    VERSION_ANNOTATION,
)
from cfo.config.kuberay import KubeRayConfiguration
from cfo.config.model import OperatorConfiguration
from cfo.controllers import raycluster
from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.selectors import Selection
from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.errors import NotFound
from cfo.runtime.client.transport import Exchange, Transport
from cfo.runtime.manager.leaderelection import LeaderElectionOptions
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.kinds import (
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    EVENT,
    INGRESS,
    NETWORK_POLICY,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
)
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    resource_version_of,
)
from cfo.runtime.process.clock import Clock
from envtest import ControlPlane, EmbeddedControlPlane
from envtest.apimachinery.errors import GroupResource
from envtest.endpoints.audit import AuditLog
from test.support.clocks import SkippingClock
from test.support.operator_roles import install_roles
from test.support.planes import apply_all, local_config, new_plane

TIMEOUT_SECONDS = 120.0
"""How long a test waits for a condition before it fails."""


def crd(
    group: str,
    version: str,
    kind: str,
    plural: str,
    *,
    scope: str = "Namespaced",
    **properties: Any,
) -> Object:
    """Return a CRD that accepts any spec and status; ``properties`` adds schemas of fields below ``spec``."""
    any_object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {
        "type": "object",
        "properties": {"spec": {**any_object, "properties": properties}, "status": any_object},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group,
            "scope": scope,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
            },
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


RAY_CLUSTER_CRD = crd("ray.io", "v1", "RayCluster", "rayclusters")
ROUTE_CRD = crd(
    "route.openshift.io",
    "v1",
    "Route",
    "routes",
    to={
        "type": "object",
        "properties": {
            "kind": {"type": "string"},
            "name": {"type": "string"},
            "weight": {"type": "integer", "default": 100},
        },
    },
)
DSC_INITIALIZATION_CRD = crd(
    "dscinitialization.opendatahub.io",
    "v1",
    "DSCInitialization",
    "dscinitializations",
    scope="Cluster",
)
INGRESS_CONFIG_CRD = crd("config.openshift.io", "v1", "Ingress", "ingresses", scope="Cluster")
AUTHENTICATION_CONFIG_CRD = crd(
    "config.openshift.io", "v1", "Authentication", "authentications", scope="Cluster"
)

VANILLA_CRDS = (RAY_CLUSTER_CRD,)
OPENSHIFT_CRDS = (RAY_CLUSTER_CRD, ROUTE_CRD)

PLAIN_SETTINGS = {"rayDashboardOAuthEnabled": False, "ingressDomain": "apps.test"}
OAUTH_SETTINGS = {"rayDashboardOAuthEnabled": True, "ingressDomain": "apps.test"}


def kuberay_config(**settings: Any) -> KubeRayConfiguration:
    """Return the ``kuberay`` section of the configuration with these settings, validated as if a user had set them."""
    return KubeRayConfiguration.from_document(settings)


def ray_cluster(
    name: str = "rc", namespace: str = "ns", *, version: str | None = "test", **spec: Any
) -> Object:
    """Return a minimal RayCluster; ``spec`` adds or replaces fields of its spec."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if version is not None:
        metadata["annotations"] = {VERSION_ANNOTATION: version}
    head = {
        "rayStartParams": {},
        "template": {"spec": {"containers": [{"name": "ray-head", "image": "ray"}]}},
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": metadata,
        "spec": {"rayVersion": "2.52.0", "headGroupSpec": head, **spec},
    }


class Environment:
    """A control plane and a client for a test; :attr:`manager` is set while the controllers run.

    :attr:`client` acts as a user (field manager ``tester``) and reads from the API server, never from the cache of the
    controllers. :attr:`exchanges` records all requests of the controllers.
    """

    installations: ClassVar[list[AuditLog] | None] = None
    """The audit logs of planes on which operators have the roles of the manifests; ``None``: they are admins."""

    def __init__(self, plane: ControlPlane, client: Client) -> None:
        self.plane = plane
        self.client = client
        self.manager: Manager | None = None
        self.exchanges: list[Exchange] = []
        self._collects_garbage: bool | None = None
        self._current: WeakKeyDictionary[Informer, int] = WeakKeyDictionary()

    async def operator_config(
        self, configuration: OperatorConfiguration, *, namespace: str = "default", token: str = ""
    ) -> ClientConfig:
        """Return the connection of an operator with ``configuration`` in ``namespace``: with ``token``, or by default.

        The default is the administrator's or, if :attr:`installations` is a list, that of the operator's account.
        """
        if not token and self.installations is not None:
            token = await install_roles(self, configuration, namespace)
            if isinstance(self.plane, EmbeddedControlPlane):
                self.installations.append(self.plane.audit)
        return local_config(self.plane, token=token or None)

    async def create_namespace(self, name: str = "ns") -> str:
        """Create a namespace and return its name."""
        await self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return name

    async def create(self, obj: Object) -> Object:
        """Create an object."""
        return await self.client.create(obj)

    async def get(self, gvk: GVK, name: str, namespace: str = "ns") -> Object:
        """Return an object; fail if it does not exist."""
        found = await self.client.get(gvk, NamespacedName(namespace, name))
        assert found is not None, f"{gvk.kind} {namespace}/{name} does not exist"
        return found

    async def find(self, gvk: GVK, name: str, namespace: str = "ns") -> Object | None:
        """Return an object, or ``None`` if it does not exist."""
        return await self.client.get(gvk, NamespacedName(namespace, name))

    async def child_names(self, gvk: GVK, namespace: str = "ns") -> set[str]:
        """Return the names of a kind's objects that have the label of a RayCluster."""
        found = await self.client.list(gvk, namespace=namespace, label_selector=CLUSTER_LABEL)
        return {name_of(item) for item in found}

    async def children(
        self, namespace: str = "ns", *, openshift: bool = False
    ) -> dict[tuple[str, str], Object]:
        """Return the namespace's objects with the label of a RayCluster, and its ClusterRoleBindings, by kind and name.

        Routes are included only on OpenShift; ClusterRoleBindings are found by their label with the namespace.
        """
        return (await self.all_children(namespace, openshift=openshift))[namespace]

    async def all_children(
        self, namespace: str = "", *, openshift: bool = False
    ) -> dict[str, dict[tuple[str, str], Object]]:
        """Return the same for one namespace or (without ``namespace``) each of them, with one list for each kind.

        The children of a namespace without any are an empty dictionary.
        """
        found: dict[str, dict[tuple[str, str], Object]] = defaultdict(dict)
        for kind in (
            SECRET,
            SERVICE,
            SERVICE_ACCOUNT,
            INGRESS,
            NETWORK_POLICY,
            *([ROUTE] if openshift else []),
        ):
            for item in await self.client.list(
                kind, namespace=namespace, label_selector=CLUSTER_LABEL
            ):
                found[namespace_of(item)][item["kind"], name_of(item)] = item
        selector = f"{NAMESPACE_LABEL}={namespace}" if namespace else NAMESPACE_LABEL
        for item in await self.client.list(CLUSTER_ROLE_BINDING, label_selector=selector):
            found[labels_of(item)[NAMESPACE_LABEL]][item["kind"], name_of(item)] = item
        return found

    async def patch(self, obj: Object, patch: Any, *, subresource: str = "") -> Object:
        """Apply a merge patch to an object."""
        gvk = GVK.parse(obj["apiVersion"], obj["kind"])
        return await self.client.patch(gvk, key_of(obj), patch, subresource=subresource)

    async def delete(self, obj: Object) -> None:
        """Delete an object."""
        await self.client.delete(GVK.parse(obj["apiVersion"], obj["kind"]), key_of(obj))

    async def events(self, namespace: str = "ns") -> list[tuple[str, str, str]]:
        """Return type, reason and note of each Event in a namespace."""
        found = await self.client.list(EVENT, namespace=namespace)
        return [
            (item.get("type", ""), item.get("reason", ""), item.get("note", "")) for item in found
        ]

    async def wait_for_event(self, reason: str, *parts: str, namespace: str = "ns") -> str:
        """Wait for an Event with this reason whose note contains all of ``parts``, and return the note."""

        async def matching_note() -> str | None:
            for _, found, note in await self.events(namespace):
                if found == reason and all(part in note for part in parts):
                    return note
            return None

        found: str = await eventually(matching_note, f"an Event {reason} that contains {parts}")
        return found

    async def collects_garbage(self) -> bool:
        """Report whether the control plane deletes objects whose owner does not exist.

        kube-apiserver without kube-controller-manager does not.
        """
        if self._collects_garbage is None:
            owner = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": "never",
                "uid": "11111111-2222-3333-4444-555555555555",
            }
            metadata = {
                "name": "probe-for-garbage",
                "namespace": "default",
                "ownerReferences": [owner],
            }
            probe = await self.create(
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
            )
            self._collects_garbage = False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2.0):
                    while await self.client.get(CONFIG_MAP, key_of(probe)) is not None:  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
                    self._collects_garbage = True
        return self._collects_garbage

    async def wait_until_idle(self) -> None:
        """Wait until the controllers have nothing left to do for the current state of the API server.

        That is: their caches contain this state, their queues are empty, and no request was sent meanwhile.
        """
        assert self.manager is not None
        before = -1
        while len(self.exchanges) != before:
            before = len(self.exchanges)
            for informer in self.manager.cache.informers:
                if informer.has_synced:
                    await self._wait_for_informer(informer)
            await self.wait_until_queues_are_empty()

    async def wait_until_queues_are_empty(self) -> None:
        """Wait until no controller has anything to do for what it has seen; when it returns, none has begun since."""
        await _until(self._is_idle, "idle controllers")

    async def _wait_for_informer(self, informer: Informer) -> None:
        """Wait until the informer contains the versions that a list returns now, or newer ones.

        It is not listed again while nothing of its kind changes, which only the embedded control plane reports.
        """
        changes = self._count_changes(informer.gvk)
        if changes is not None and self._current.get(informer) == changes:
            return
        listed = (
            {}
            if self._stored_versions(informer) is not None
            else await self._listed_versions(informer)
        )

        def is_current() -> bool:
            cached = {
                entry.key: int(entry.meta.resource_version) for entry in informer.reader.entries()
            }
            # read again each time: an object that is deleted meanwhile may never be seen in the cache
            stored = self._stored_versions(informer)
            if stored is None:
                # what is newer than all listed objects may have been created after the list
                wanted = listed
                newest = max(listed.values(), default=0)
                unexpected = {key for key, version in cached.items() if version <= newest}
            else:
                wanted = stored
                unexpected = set(cached)
            return unexpected <= wanted.keys() and all(
                cached.get(key, 0) >= version or informer.store.is_left_out(key)
                for key, version in wanted.items()
            )

        await _until(is_current, f"the controllers' cache of {informer.gvk.kind}")
        if changes is not None:
            self._current[informer] = changes

    async def _listed_versions(self, informer: Informer) -> dict[NamespacedName, int]:
        """Return the versions of the objects in the selection of the informer, as the API server lists them."""
        selection = informer.selection
        items = await self.client.list(
            informer.gvk,
            label_selector=str(selection.label_selector),
            field_selector=str(selection.field_selector),
        )
        return {
            key_of(item): int(resource_version_of(item))
            for item in items
            if _is_watched(selection, key_of(item))
            and not 0
            < selection.max_bytes
            < _stored_size(item, metadata_only=selection.metadata_only)
        }

    def _stored_versions(self, informer: Informer) -> dict[NamespacedName, int] | None:
        """Return the same from the store of the embedded control plane, which needs no request; ``None`` if unknown."""
        selection, resource = informer.selection, self.client.mapper.cached(informer.gvk)
        if resource is None or not isinstance(self.plane, EmbeddedControlPlane):
            return None
        if not selection.field_selector.decidable:
            return None
        records = self.plane.store.list(GroupResource(informer.gvk.group, resource.plural))
        if any(0 < selection.max_bytes < len(record.data) for record in records):
            return None  # without managedFields it may fit
        versions = {
            NamespacedName(*record.key): (record.revision, record.labels or {})
            for record in records
        }
        return {
            key: version
            for key, (version, labels) in versions.items()
            if _is_watched(selection, key) and selection.matches(key, labels)
        }

    def _count_changes(self, gvk: GVK) -> int | None:
        """Return a number that differs after each change of an object of the kind, or ``None`` if it is unknown."""
        resource = self.client.mapper.cached(gvk)
        if resource is None or not isinstance(self.plane, EmbeddedControlPlane):
            return None
        return self.plane.store.changes(GroupResource(gvk.group, resource.plural))

    def _is_idle(self) -> bool:
        assert self.manager is not None
        return all(
            len(controller.queue) == 0 and controller.queue.processing == 0
            for controller in self.manager.controllers
        )

    def requests(self) -> list[tuple[str, str]]:
        """Return verb and resource of the controllers' requests since :meth:`clear_requests`.

        Lists, watches and requests for Events are left out.
        """
        return [
            (exchange.verb, exchange.resource)
            for exchange in self.exchanges
            if exchange.verb not in ("list", "watch")
            and "events" not in exchange.resource
            and exchange.resource
        ]

    def clear_requests(self) -> None:
        """Forget the requests recorded so far."""
        self.exchanges.clear()


def _stored_size(item: Object, *, metadata_only: bool) -> int:
    """Return the size of an object in a cache."""
    metadata = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
    rest = {"apiVersion": item["apiVersion"], "kind": item["kind"]} if metadata_only else item
    return len(orjson.dumps({**rest, "metadata": metadata}))


async def _until(condition: Callable[[], bool], description: str) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not condition():  # noqa: ASYNC110 (another part of this process changes it, without an event to wait for)
            await asyncio.sleep(0.005)
    assert condition(), description


async def eventually(condition: Callable[[], Any], description: str = "") -> Any:
    """Call ``condition`` until it returns a true value, and return that value.

    An ``AssertionError`` in ``condition`` counts as a false value. Fails after :data:`TIMEOUT_SECONDS` with the
    description and the last such error. At most a third of the time is spent in ``condition``, because the control
    plane and the controllers that it waits for usually run in this process.
    """
    last: object = None
    pause = 0.01
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                started = loop.time()
                try:
                    found = await condition()
                except AssertionError as error:
                    last, found = error, None
                if found:
                    return found
                await asyncio.sleep(max(pause, 2 * (loop.time() - started)))
                pause = min(1.5 * pause, 0.1)
    except TimeoutError:
        raise AssertionError(
            f"timed out after {TIMEOUT_SECONDS:g} s: {description} {last or ''}"
        ) from None


@asynccontextmanager
async def start_environment(
    *crds: Object, clock: Clock | None = None, objects: Sequence[Object] = ()
) -> AsyncIterator[Environment]:
    """Run a control plane with these CRDs and then ``objects``, without the RayCluster controllers.

    The user's client waits by ``clock`` before it repeats a request.
    """
    async with (
        new_plane(crds, objects=objects) as plane,
        Transport(local_config(plane), clock=clock) as transport,
    ):
        client = Client(
            transport, RESTMapper(transport, clock=SkippingClock()), field_manager="tester"
        )
        if not isinstance(plane, EmbeddedControlPlane):
            await apply_all(plane, objects)
        yield Environment(plane, client)


def _is_watched(selection: Selection, key: NamespacedName) -> bool:
    watched = selection.namespaces
    return not key.namespace or "" in watched or key.namespace in watched


@asynccontextmanager
async def run_controllers(
    env: Environment,
    config: KubeRayConfiguration,
    *,
    clock: Clock | None = None,
    wait: bool = True,
    token: str = "",
    election: LeaderElectionOptions | None = None,
    namespaces: Collection[str] | None = None,
) -> AsyncIterator[Manager]:
    """Run the RayCluster controllers until the end of the block; as admin, or with ``token``.

    With ``wait``, the block starts when they have nothing left to do. With ``election``, they run on the leader. They
    reconcile RayClusters in ``namespaces`` (``None``: in all).
    """
    env.clear_requests()
    configuration = structs.replace(OperatorConfiguration(), kuberay=config)
    client_config = await env.operator_config(configuration, token=token)
    async with Transport(client_config, observe=env.exchanges.append) as transport:
        manager = Manager(
            transport,
            ManagerOptions(
                field_manager="codeflare-operator",
                field_managers=[FIELD_MANAGER],
                leader_election=election,
                namespaces=namespaces,
            ),
            clock=clock,
        )
        raycluster.setup(manager, config)
        env.manager = manager
        try:
            async with manager:
                if wait:
                    await manager.started()
                    await env.wait_until_idle()
                yield manager
        finally:
            env.manager = None


async def wait_until_deleted(
    env: Environment, items: Iterable[tuple[GVK, str]], namespace: str = "ns"
) -> None:
    """Wait until none of the objects exists."""
    for gvk, name in items:

        async def is_deleted(gvk: GVK = gvk, name: str = name) -> bool:
            try:
                return await env.client.get(gvk, NamespacedName(namespace, name)) is None
            except NotFound:
                return True

        await eventually(is_deleted, f"{gvk.kind} {name} is deleted")
