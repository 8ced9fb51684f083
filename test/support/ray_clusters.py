"""RayClusters for tests of the webhooks, and accessors for their pod templates."""

from __future__ import annotations

import copy
from typing import Any

from msgspec.structs import replace

from cfo.api.raycluster.names import VERSION_ANNOTATION
from cfo.webhooks.raycluster.defaulting import DefaultingResult, default
from cfo.webhooks.raycluster.injection_plan import InjectionSettings

Cluster = dict[str, Any]

OAUTH_AND_MTLS = InjectionSettings(version="v1", oauth=True, mtls=True, ingress_domain="apps.test")
OAUTH_ONLY = replace(OAUTH_AND_MTLS, mtls=False)
MTLS_ONLY = replace(OAUTH_AND_MTLS, oauth=False)
NO_INJECTION = replace(OAUTH_AND_MTLS, oauth=False, mtls=False)

HEAD_PATH = "spec.headGroupSpec.template.spec"
WORKER_PATH = "spec.workerGroupSpecs[0].template.spec"


def ray_cluster(
    *workers: Cluster, head: Cluster | None = None, version: str | None = None, **spec: Any
) -> Cluster:
    """Return a RayCluster with these worker groups; ``head`` adds to the head's pod spec, ``spec`` to the spec."""
    metadata: Cluster = {"name": "rc", "namespace": "ns"}
    if version is not None:
        metadata["annotations"] = {VERSION_ANNOTATION: version}
    pod = {"containers": [{"name": "ray-head", "image": "ray"}], **(head or {})}
    groups = {
        "headGroupSpec": {"rayStartParams": {}, "template": {"spec": pod}},
        "workerGroupSpecs": list(workers),
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": metadata,
        "spec": {**groups, **spec},
    }


def worker(name: str = "w", **pod: Any) -> Cluster:
    """Return a worker group; ``pod`` adds to its pod spec."""
    return {
        "groupName": name,
        "template": {"spec": {"containers": [{"name": "ray-worker", "image": "ray"}], **pod}},
    }


def head_pod(cluster: Cluster) -> Cluster:
    """Return the pod spec of the head."""
    spec: Cluster = cluster["spec"]["headGroupSpec"]["template"]["spec"]
    return spec


def worker_pod(cluster: Cluster, index: int = 0) -> Cluster:
    """Return the pod spec of a worker group."""
    spec: Cluster = cluster["spec"]["workerGroupSpecs"][index]["template"]["spec"]
    return spec


def find_by_name(items: list[Cluster], name: str) -> Cluster:
    """Return the only item with this name."""
    (item,) = [item for item in items if item["name"] == name]
    return item


def names_in(items: list[Cluster] | None) -> list[str]:
    """Return the names of the items, in their order."""
    return [item["name"] for item in items or []]


def default_on_create(
    cluster: Cluster, settings: InjectionSettings = OAUTH_AND_MTLS
) -> DefaultingResult:
    """Run the defaulting of a new RayCluster; assert that it does not modify its argument."""
    before = copy.deepcopy(cluster)
    defaulted = default(cluster, None, settings)
    assert cluster == before, "the argument was modified"
    return defaulted


def defaulted_cluster(
    *workers: Cluster, settings: InjectionSettings = OAUTH_AND_MTLS, **fields: Any
) -> Cluster:
    """Return a new RayCluster after defaulting; see :func:`ray_cluster`."""
    return default_on_create(ray_cluster(*workers, **fields), settings).cluster
