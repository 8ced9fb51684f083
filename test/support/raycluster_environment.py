"""A small world for tests of the RayCluster controllers: a control plane, the operator, and somebody who uses both."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from cfo.api.raycluster.kinds import ROUTE
from cfo.api.raycluster.naming import CLUSTER_LABEL, NAMESPACE_LABEL, VERSION_ANNOTATION
from cfo.config import KubeRayConfiguration
from cfo.controllers import raycluster
from cfo.runtime.cache.informer import Informer
from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.errors import NotFound
from cfo.runtime.client.transport import Exchange, Transport
from cfo.runtime.clock import Clock
from cfo.runtime.discovery import RESTMapper
from cfo.runtime.kinds import (
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    EVENT,
    INGRESS,
    NETWORK_POLICY,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
)
from cfo.runtime.manager import Manager, ManagerOptions
from cfo.runtime.objects import GVK, NamespacedName, Object, key_of, name_of, resource_version_of
from envtest import ControlPlane

PATIENCE = 20.0


def crd(group: str, version: str, kind: str, plural: str, *, scope: str = "Namespaced", **properties: Any) -> Object:
    """A definition that accepts any spec; ``properties`` add schemas below spec."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": {**anything, "properties": properties}, "status": anything}}
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
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
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


RAY_CLUSTERS = crd("ray.io", "v1", "RayCluster", "rayclusters")
ROUTES = crd(
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
DSC_INITIALIZATIONS = crd(
    "dscinitialization.opendatahub.io", "v1", "DSCInitialization", "dscinitializations", scope="Cluster"
)
INGRESS_CONFIGS = crd("config.openshift.io", "v1", "Ingress", "ingresses", scope="Cluster")

VANILLA = (RAY_CLUSTERS,)
OPENSHIFT = (RAY_CLUSTERS, ROUTES)

PLAIN = {"rayDashboardOAuthEnabled": False, "ingressDomain": "apps.test"}
OAUTH = {"rayDashboardOAuthEnabled": True, "ingressDomain": "apps.test"}


def kuberay(**settings: Any) -> KubeRayConfiguration:
    """The configuration section with these settings, as a user writes them."""
    return KubeRayConfiguration.model_validate(settings)


def ray_cluster(name: str = "rc", namespace: str = "ns", *, version: str | None = "test", **spec: Any) -> Object:
    """A small RayCluster; ``spec`` adds to, or replaces, what is in it."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if version is not None:
        metadata["annotations"] = {VERSION_ANNOTATION: version}
    head = {"rayStartParams": {}, "template": {"spec": {"containers": [{"name": "ray-head", "image": "ray"}]}}}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": metadata,
        "spec": {"rayVersion": "2.52.0", "headGroupSpec": head, **spec},
    }


class World:
    """What a test does and sees. ``client`` is somebody else than the operator, and always asks the API server."""

    def __init__(self, plane: ControlPlane, client: Client) -> None:
        self.plane = plane
        self.client = client
        self.manager: Manager | None = None
        self.exchanges: list[Exchange] = []
        self._collects: bool | None = None

    async def namespace(self, name: str = "ns") -> str:
        """Makes a namespace."""
        await self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return name

    async def create(self, obj: Object) -> Object:
        """Creates an object."""
        return await self.client.create(obj)

    async def get(self, gvk: GVK, name: str, namespace: str = "ns") -> Object:
        """An object that must be there."""
        found = await self.client.get(gvk, NamespacedName(namespace, name))
        assert found is not None, f"{gvk.kind} {namespace}/{name} does not exist"
        return found

    async def find(self, gvk: GVK, name: str, namespace: str = "ns") -> Object | None:
        """An object, or ``None``."""
        return await self.client.get(gvk, NamespacedName(namespace, name))

    async def names(self, gvk: GVK, namespace: str = "ns") -> set[str]:
        """The names of all objects of a kind that bear a cluster's label (all of it, for kinds that bear none)."""
        found = await self.client.list(gvk, namespace=namespace, label_selector=CLUSTER_LABEL)
        return {name_of(item) for item in found}

    async def children(self, namespace: str = "ns", *, openshift: bool = False) -> dict[tuple[str, str], Object]:
        """All that carries a cluster's label in the namespace, and ClusterRoleBindings labelled with it."""
        kinds = [SECRET, SERVICE, SERVICE_ACCOUNT, INGRESS, NETWORK_POLICY, *([ROUTE] if openshift else [])]
        found = [
            item
            for kind in kinds
            for item in await self.client.list(kind, namespace=namespace, label_selector=CLUSTER_LABEL)
        ]
        found += await self.client.list(CLUSTER_ROLE_BINDING, label_selector=f"{NAMESPACE_LABEL}={namespace}")
        return {(item["kind"], name_of(item)): item for item in found}

    async def patch(self, obj: Object, patch: Any, *, subresource: str = "") -> Object:
        """Merges ``patch`` into an object."""
        gvk = GVK.parse(obj["apiVersion"], obj["kind"])
        return await self.client.patch(gvk, key_of(obj), patch, subresource=subresource)

    async def delete(self, obj: Object) -> None:
        """Deletes an object."""
        await self.client.delete(GVK.parse(obj["apiVersion"], obj["kind"]), key_of(obj))

    async def events(self, namespace: str = "ns") -> list[tuple[str, str, str]]:
        """Type, reason and note of the events in a namespace."""
        found = await self.client.list(EVENT, namespace=namespace)
        return [(item.get("type", ""), item.get("reason", ""), item.get("note", "")) for item in found]

    async def event(self, reason: str, *parts: str, namespace: str = "ns") -> str:
        """Waits for an event of this reason whose note contains ``parts``, and returns the note."""

        async def look() -> str | None:
            for _, found, note in await self.events(namespace):
                if found == reason and all(part in note for part in parts):
                    return note
            return None

        return await eventually(look, f"an event {reason} with {parts}")

    async def collects_garbage(self) -> bool:
        """Whether the control plane deletes what is owned by nobody any more (kube-apiserver alone does not)."""
        if self._collects is None:
            owner = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": "never",
                "uid": "11111111-2222-3333-4444-555555555555",
            }
            metadata = {"name": "probe-for-garbage", "namespace": "default", "ownerReferences": [owner]}
            probe = await self.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
            self._collects = False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2.0):
                    while await self.client.get(CONFIG_MAP, key_of(probe)) is not None:  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
                    self._collects = True
        return self._collects

    async def quiet(self) -> None:
        """Returns when the operator has nothing more to do with what there is now.

        That is: its watches have shown it all of that, and its queues are empty.
        """
        assert self.manager is not None
        before = -1
        while len(self.exchanges) != before:
            before = len(self.exchanges)
            for informer in self.manager.cache.informers:
                if informer.has_synced:
                    await self._caught_up(informer)
            await _until(self._idle, "idle controllers")

    async def _caught_up(self, informer: Informer) -> None:
        selection = informer.selection
        selectors = {"label_selector": str(selection.label_selector), "field_selector": str(selection.field_selector)}
        there = {key_of(item): resource_version_of(item) for item in await self.client.list(informer.gvk, **selectors)}

        def seen() -> bool:
            known = {entry.key: entry.meta.resource_version for entry in informer.reader.entries()}
            return all(int(known.get(key, "0")) >= int(version) for key, version in there.items()) and all(
                key in there or int(version) > max(map(int, there.values()), default=0)
                for key, version in known.items()
            )

        await _until(seen, f"the operator's view of {informer.gvk.kind}")

    def _idle(self) -> bool:
        assert self.manager is not None
        return all(
            len(controller.queue) == 0 and controller.queue.processing == 0 for controller in self.manager.controllers
        )

    def requests(self) -> list[tuple[str, str]]:
        """What the operator asked of the API server since :meth:`forget_requests`, but for lists, watches, events."""
        return [
            (exchange.verb, exchange.resource)
            for exchange in self.exchanges
            if exchange.verb not in ("list", "watch") and "events" not in exchange.resource and exchange.resource
        ]

    def forget_requests(self) -> None:
        """Starts counting anew."""
        self.exchanges.clear()


async def _until(condition: Callable[[], bool], what: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 (what is waited for is in another part of the process)
            await asyncio.sleep(0.005)
    assert condition(), what


async def eventually(look: Callable[[], Any], what: str = "") -> Any:
    """Calls ``look`` until it returns something true, and returns that; fails after :data:`PATIENCE` seconds.

    An ``AssertionError`` in ``look`` means "not yet".
    """
    last: object = None
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    found = await look()
                except AssertionError as error:
                    last, found = error, None
                if found:
                    return found
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"did not happen in {PATIENCE:g} s: {what} {last or ''}") from None


@asynccontextmanager
async def world(*crds: Object) -> AsyncIterator[World]:
    """A control plane with these definitions, and nobody's operator yet."""
    async with (
        ControlPlane.auto(crds=crds) as plane,
        Transport(ClientConfig.for_control_plane(plane)) as transport,
    ):
        client = Client(transport, RESTMapper(transport), field_manager="tester")
        yield World(plane, client)


@asynccontextmanager
async def operating(
    world: World, config: KubeRayConfiguration, *, clock: Clock | None = None, wait: bool = True, token: str = ""
) -> AsyncIterator[Manager]:
    """Runs the RayCluster controllers against the world until the end of the block; as admin, or with ``token``."""
    world.forget_requests()
    config_of_client = ClientConfig.for_control_plane(world.plane, token=token or None)
    async with Transport(config_of_client, observe=world.exchanges.append) as transport:
        manager = Manager(
            transport,
            ManagerOptions(field_manager="codeflare-operator", field_managers=[raycluster.FIELD_MANAGER]),
            clock=clock,
        )
        raycluster.setup(manager, config)
        world.manager = manager
        try:
            async with manager:
                if wait:
                    await manager.started()
                    await world.quiet()
                yield manager
        finally:
            world.manager = None


async def gone(world: World, items: Iterable[tuple[GVK, str]], namespace: str = "ns") -> None:
    """Waits until none of the objects exists."""
    for gvk, name in items:

        async def look(gvk: GVK = gvk, name: str = name) -> bool:
            try:
                return await world.client.get(gvk, NamespacedName(namespace, name)) is None
            except NotFound:
                return True

        await eventually(look, f"{gvk.kind} {name} gone")
