"""The objects that install the operators of InferenceStacks, on an API server with the CRDs of OLM v1."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from envtest import ControlPlane
from envtest.api_client import APIClient
from test.support.inference_stacks import SHARED, needs_samples

ROOT = Path(__file__).parents[2]
CATALOG = ROOT / "config/olm/inference-stack-clustercatalog.yaml"
EXTENSIONS = ROOT / "config/olm/inference-stack-clusterextensions.yaml"


def path_of(obj: dict[str, Any]) -> str:
    return f"/apis/{obj['apiVersion']}/{obj['kind'].lower()}s"


@needs_samples
async def test_samples_are_accepted_by_olm() -> None:
    crds = [
        yaml.safe_load((SHARED / "crds" / f"olm.operatorframework.io_{name}.yaml").read_text())
        for name in ("clustercatalogs", "clusterextensions")
    ]
    objects = [
        obj
        for path in (CATALOG, EXTENSIONS)
        for obj in yaml.safe_load_all(path.read_text())
        if obj["kind"] != "Namespace"
    ]
    assert [obj["kind"] for obj in objects] == [
        "ClusterCatalog",
        "ClusterExtension",
        "ClusterExtension",
    ]
    async with ControlPlane.auto(crds=crds) as plane, APIClient(plane) as api:
        for obj in objects:
            answer = await api.post(path_of(obj), obj, query={"fieldValidation": "Strict"})
            assert answer.code == 201, answer.body
        wrong = deepcopy(objects[1])
        wrong["metadata"]["name"] = "wrong"
        wrong["spec"]["source"]["catalog"]["channels"] = ["Stable V1"]
        assert (await api.post(path_of(wrong), wrong)).code == 422
