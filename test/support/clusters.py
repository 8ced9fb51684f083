"""A manager with a local cluster and several provided ones, each a control plane of its own."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Any

from cfo.runtime import (
    CONFIG_MAP,
    SECRET,
    Builder,
    Client,
    ClientConfig,
    Cluster,
    ClusterAware,
    ClusterScope,
    EngagedClusters,
    EnqueueForEachCluster,
    EnqueueRequestForObject,
    Manager,
    NamespacedName,
    Object,
    Request,
    Result,
)
from cfo.runtime.clusters.kubeconfig_secrets import KUBECONFIG_SECRET_LABEL
from envtest import ControlPlane

NAMESPACE = "default"
SOURCE = NamespacedName(NAMESPACE, "colors")


def config_map(
    name: str = SOURCE.name, *, namespace: str = NAMESPACE, data: dict[str, str] | None = None, **labels: str
) -> Object:
    metadata = {"namespace": namespace, "name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data or {}}


def kubeconfig_secret(name: str, kubeconfig: str) -> Object:
    data = {"kubeconfig": base64.b64encode(kubeconfig.encode()).decode()}
    metadata = {"namespace": NAMESPACE, "name": name, "labels": {KUBECONFIG_SECRET_LABEL: "true"}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


class StaticClusters:
    """A provider that engages the clusters that the test passes to it."""

    def __init__(self, **planes: ControlPlane) -> None:
        self.configs = {name: ClientConfig.for_control_plane(plane) for name, plane in planes.items()}
        self.aware: ClusterAware | None = None

    async def run(self, aware: ClusterAware) -> None:
        self.aware = aware
        for name, config in self.configs.items():
            aware.engage(name, config)

    def engage(self, name: str, plane: ControlPlane) -> None:
        assert self.aware is not None
        self.aware.engage(name, ClientConfig.for_control_plane(plane))

    def disengage(self, name: str) -> None:
        assert self.aware is not None
        self.aware.disengage(name)


class Distributor:
    """Copies each ConfigMap of the local cluster that has the label ``distribute=true`` to all provided clusters."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.reconciled: list[Request] = []

    async def reconcile(self, request: Request) -> Result:
        self.reconciled.append(request)
        source = await self.manager.client.get(CONFIG_MAP, request)
        member = self.manager.cluster(request.cluster).client
        if source is None:
            await member.delete(CONFIG_MAP, request)
        else:
            copy = config_map(request.name, namespace=request.namespace, data=source.get("data"), distributed="true")
            await member.apply(copy)
        return Result()


def distribute(manager: Manager) -> Distributor:
    """Add a controller with a :class:`Distributor`."""
    reconciler = Distributor(manager)
    sources = manager.cache.informer(CONFIG_MAP, label_selector="distribute=true")

    def all_sources(_: Cluster) -> Iterable[Request]:
        return [entry.key for entry in sources.reader.entries()]

    (
        Builder(manager, "distributor")
        .watches(CONFIG_MAP, EnqueueForEachCluster(manager.clusters), label_selector="distribute=true")
        .watches(
            CONFIG_MAP,
            EnqueueRequestForObject(),
            clusters=ClusterScope.PROVIDED,
            label_selector="distributed=true",
        )
        .watches_source(EngagedClusters(manager.clusters, all_sources))
        .complete(reconciler)
    )
    return reconciler


def recording(manager: Manager, reconcile: Callable[[Request], Any], **selection: Any) -> None:
    """Add a controller for the ConfigMaps with the label ``app`` of all provided clusters."""

    class Recorder:
        async def reconcile(self, request: Request) -> Result:
            await reconcile(request)
            return Result()

    scope = selection.pop("clusters", ClusterScope.PROVIDED)
    Builder(manager, "recorder").for_(CONFIG_MAP, clusters=scope, label_selector="app", **selection).complete(
        Recorder()
    )


async def data_of(client: Client, key: NamespacedName = SOURCE) -> Any:
    """Return the data of a ConfigMap as the API server has it; ``None`` if it does not exist."""
    found = await client.get(CONFIG_MAP, key, live=True)
    return None if found is None else found.get("data") or {}


async def replace_kubeconfig(client: Client, name: str, kubeconfig: str) -> None:
    """Change the kubeconfig in a Secret."""
    data = kubeconfig_secret(name, kubeconfig)["data"]
    await client.patch(SECRET, NamespacedName(NAMESPACE, name), {"data": data})
