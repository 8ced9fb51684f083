"""RayClusters to admit, and accessors for their pod templates."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from cfo.api.raycluster.naming import VERSION_ANNOTATION
from cfo.webhooks.raycluster.defaulting import DefaultingResult, default
from cfo.webhooks.raycluster.injection_settings import InjectionSettings

Cluster = dict[str, Any]


BOTH = InjectionSettings(version="v1", oauth=True, mtls=True, ingress_domain="apps.test")


def ray_cluster(*workers: Cluster, head: Cluster | None = None, version: str | None = None, **spec: Any) -> Cluster:
    metadata: Cluster = {"name": "rc", "namespace": "ns"}
    if version is not None:
        metadata["annotations"] = {VERSION_ANNOTATION: version}
    pod = {"containers": [{"name": "ray-head", "image": "ray"}], **(head or {})}
    groups = {"headGroupSpec": {"rayStartParams": {}, "template": {"spec": pod}}, "workerGroupSpecs": list(workers)}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": {**groups, **spec}}


def worker(name: str = "w", **pod: Any) -> Cluster:
    return {"groupName": name, "template": {"spec": {"containers": [{"name": "ray-worker", "image": "ray"}], **pod}}}


def head_of(cluster: Cluster) -> Cluster:
    return cluster["spec"]["headGroupSpec"]["template"]["spec"]


def worker_of(cluster: Cluster, at: int = 0) -> Cluster:
    return cluster["spec"]["workerGroupSpecs"][at]["template"]["spec"]


def named(items: list[Cluster], name: str) -> Cluster:
    (item,) = [item for item in items if item["name"] == name]
    return item


def names(items: list[Cluster] | None) -> list[str]:
    return [item["name"] for item in items or []]


def create(cluster: Cluster, settings: InjectionSettings = BOTH) -> DefaultingResult:
    before = copy.deepcopy(cluster)
    made = default(cluster, None, settings)
    assert cluster == before, "what was given is not changed"
    return made


def created(*workers: Cluster, settings: InjectionSettings = BOTH, **rest: Any) -> Cluster:
    return create(ray_cluster(*workers, **rest), settings).cluster


OAUTH = replace(BOTH, mtls=False)


MTLS = replace(BOTH, oauth=False)


NOTHING = replace(BOTH, oauth=False, mtls=False)


HEAD = "spec.headGroupSpec.template.spec"


WORKER = "spec.workerGroupSpecs[0].template.spec"
