"""The operator as a process with a fault at each of its writes, on RayClusters. It takes minutes."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import yaml

from cfo.console.demo import crds
from cfo.manifests.overlays import crds as own_crds
from cfo.version import CONFIG_MAP_NAME
from envtest.chaos import KINDS, OperatorCommand, Timing, explore
from test.support.operator_process import PLAIN_CONFIG
from test.support.raycluster_environment import ray_cluster

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1500)]

CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": CONFIG_MAP_NAME, "namespace": "default"},
    "data": {"config.yaml": yaml.safe_dump(PLAIN_CONFIG)},
}
CLUSTER = ray_cluster(namespace="default")
REFERENCE = {
    "apiVersion": CLUSTER["apiVersion"],
    "kind": "RayCluster",
    "name": CLUSTER["metadata"]["name"],
}


def change(**spec: Any) -> dict[str, Any]:
    return {"patch": {**REFERENCE, "patch": {"spec": spec}}}


async def test_ray_cluster_converges_after_each_fault() -> None:
    steps = [{"apply": CLUSTER}, change(suspend=True), change(suspend=False), {"delete": REFERENCE}]
    report = await explore(
        OperatorCommand([sys.executable, "-m", "cfo", "run"], {"NAMESPACE": "default"}),
        steps,
        crds=[*crds.load(), *own_crds()],
        apply=[CONFIG],
        kinds=KINDS.keys()
        - {"unobserved"},  # a cluster that is suspended from the start gets no Ingress
        jobs=4,
        budget=1200.0,
        timing=Timing(
            timeout=25.0, quiet=3.0
        ),  # conditions are written a second after the last change
    )
    print(report.text())
    assert not report.findings, report.text()
