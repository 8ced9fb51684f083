"""How long it takes to establish a big definition and to bring one of its objects into form. Prints; judges nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from cfo.envtest import ControlPlane
from cfo.envtest.context import RequestContext, User
from cfo.envtest.crd.resource import CustomResourceStrategy
from cfo.envtest.registry import ResourceInfo
from test.integration.api import Api

pytestmark = [pytest.mark.bench, pytest.mark.timeout(120)]

RUNS = 300
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def definition(shared: Path) -> dict[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    crd: dict[str, Any] = yaml.load((shared / "crds" / "ray.io_rayclusters.yaml").read_bytes(), Loader=loader)
    return crd


def template() -> dict[str, Any]:
    resources = {"cpu": "2", "memory": "8Gi"}
    container = {
        "name": "ray",
        "image": "quay.io/example/ray:1",
        "env": [{"name": f"NAME_{number}", "value": "value" * 6} for number in range(25)],
        "ports": [{"containerPort": 1000 + number, "name": f"port-{number}"} for number in range(5)],
        "resources": {"limits": resources, "requests": resources},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", "ray stop"]}}},
    }
    return {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container], "volumes": [{"name": "data"}]}}


def cluster() -> bytes:
    worker = {"groupName": "g", "replicas": 1, "minReplicas": 1, "maxReplicas": 2, "rayStartParams": {}}
    head = {"rayStartParams": {"a": "b"}, "template": template()}
    spec = {"rayVersion": "2.9", "headGroupSpec": head, "workerGroupSpecs": [{**worker, "template": template()}]}
    return orjson.dumps({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "x"}, "spec": spec})


async def test_establishing(definition: dict[str, Any]) -> None:
    body = orjson.dumps(definition)
    async with ControlPlane.embedded(controllers=()) as plane, Api(plane) as api:
        began = time.perf_counter()
        answer = await api.post(CRDS, body)
        assert answer.code == 201, answer.body
        await api.until("/apis/ray.io/v1/rayclusters", 200)
        print(f"\n{len(body) / 1e3:,.0f} kB definition: established in {time.perf_counter() - began:.3f} s")


def test_objects(definition: dict[str, Any]) -> None:
    version = next(each for each in definition["spec"]["versions"] if each["name"] == "v1")
    strategy = CustomResourceStrategy("RayCluster", "ray.io/v1", version["schema"]["openAPIV3Schema"], has_status=True)
    info = ResourceInfo("ray.io", "v1", "rayclusters", "raycluster", "RayCluster", True, strategy, is_crd=True)
    ctx = RequestContext(User("bench"), "create", info, "default", "x", operation="CREATE")
    raw = cluster()

    def once(obj: dict[str, Any]) -> None:
        assert strategy.decode(obj, ctx) == []
        strategy.default(obj)
        assert strategy.validate(obj, None, ctx) == []

    once(orjson.loads(raw))
    objects = [orjson.loads(raw) for _ in range(RUNS)]
    began = time.perf_counter()
    for obj in objects:
        once(obj)
    each = (time.perf_counter() - began) / RUNS
    print(f"\n{len(raw) / 1e3:.1f} kB object: pruned, defaulted and validated in {each * 1e6:,.0f} µs")
