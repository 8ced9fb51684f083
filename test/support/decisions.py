"""Concerns of RayClusters without an API server: their informers contain the objects that a test lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.names import FIELD_MANAGER
from cfo.config.kuberay import KubeRayConfiguration, NamespaceSettings
from cfo.controllers.raycluster.concern import Decision, ObservedCluster
from cfo.controllers.raycluster.environment import ClusterEnvironment
from cfo.controllers.raycluster.platform import OptionalKind
from cfo.runtime import GVK, Informer, Manager, ManagerOptions, Object, UnknownKind
from cfo.runtime.client import ChildResult, ChildResults, ClientConfig, Outcome, Transport
from test.support.ray_clusters import ray_cluster


def offline_manager() -> Manager:
    """Return a manager that never starts."""
    transport = Transport(ClientConfig(server="https://127.0.0.1:6443", token="t"))
    return Manager(transport, ManagerOptions(field_managers=[FIELD_MANAGER]))


def list_objects(informer: Informer, objects: Sequence[Object] = ()) -> None:
    """Let an informer contain these objects, as after its first list."""
    decoder = informer._decoder
    informer._feeds.open([""])
    listing = informer._feeds[""].begin()
    for obj in objects:
        listing.add(decoder.decode(orjson.dumps(obj)))
    listing.commit("1")


def serve(kind: OptionalKind, gvk: GVK, manager: Manager, objects: Sequence[Object] = ()) -> None:
    """Let an optional kind be served, with these objects."""
    kind._on_available(gvk, manager)
    assert kind.informer is not None
    list_objects(kind.informer, objects)


def stored_cluster(name: str = "rc", namespace: str = "ns", **spec: Any) -> Object:
    """Return a RayCluster as the API server stores it."""
    cluster = ray_cluster(**spec)
    metadata = {"uid": f"{name}-uid", "creationTimestamp": "2026-01-01T00:00:00Z"}
    cluster["metadata"].update({"name": name, "namespace": namespace, **metadata})
    return cluster


def owned(obj: Object, cluster: Object, **metadata: Any) -> Object:
    """Return ``obj`` as stored, with ``cluster`` as its controller."""
    reference = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "name": cluster["metadata"]["name"],
        "uid": cluster["metadata"]["uid"],
        "controller": True,
    }
    name = obj["metadata"]["name"]
    stored = {"uid": f"{name}-uid", "ownerReferences": [reference], **metadata}
    return {**obj, "metadata": {**obj["metadata"], **stored}}


def observed_cluster(
    cluster: Object, config: KubeRayConfiguration, environment: ClusterEnvironment
) -> ObservedCluster:
    """Return what a reconcile of ``cluster`` reads; the configuration applies in its namespace."""
    return ObservedCluster(RayClusterFacts(cluster), NamespaceSettings(config), environment)


def children(decision: Decision) -> list[str]:
    """Return for each child whether it is present or absent, its kind and its name."""
    signs = {True: "-", False: "+"}
    return [
        f"{signs[child.is_absent]}{child.gvk.kind} {child.key.name}" for child in decision.children
    ]


def reasons(decision: Decision) -> list[str]:
    """Return the reasons of the Events."""
    return [notice.reason for notice in decision.notices]


def written(decision: Decision, *, unserved: str = "") -> ChildResults:
    """Return the results of a decision whose children are written as desired, except those of a kind."""
    results = ChildResults(decision.cluster)
    for child in decision.children:
        outcome = Outcome.DONE
        error: Exception | None = None
        if child.gvk.kind == unserved:
            outcome = Outcome.UNSERVED
            error = UnknownKind(unserved)
        obj = child.desired
        if child.compute is not None:
            obj = child.compute(None)
        if obj is not None:
            obj = {**obj, "metadata": {**obj["metadata"], "uid": "1", "resourceVersion": "1"}}
        results.add(ChildResult(child=child, outcome=outcome, obj=obj, error=error))
    return results
