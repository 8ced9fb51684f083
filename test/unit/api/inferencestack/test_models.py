"""The CRDs of InferenceStacks, on an API server, and the table of types."""

from __future__ import annotations

import json
from typing import Any

from cfo.api.builtin_types import builtin_types
from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.api.inferencestack.models import inference_stack_crds
from cfo.api.inferencestack.validation.fields import stack_types
from envtest import ControlPlane
from envtest.api_client import APIClient
from hack.generate import stack_types as generator
from hack.generate.stack_types import table
from test.support.inference_stacks import needs_samples, samples, stack

PATH = "/apis/doublewordai.co/v1alpha1/namespaces/default/inferencestacks"


def test_crds_of_both_groups_differ_only_in_the_group() -> None:
    one, other = inference_stack_crds()
    assert [crd["spec"].pop("group") for crd in (one, other)] == [gvk.group for gvk in INFERENCE_STACKS]
    assert [crd["metadata"]["name"] for crd in (one, other)] == [
        "inferencestacks.models.takeoff.co",
        "inferencestacks.doublewordai.co",
    ]
    assert one["spec"] == other["spec"]


def test_table_of_types_refers_only_to_existing_types() -> None:
    own = json.loads(table())
    assert not own.keys() & builtin_types().keys()
    scalars = {"string", "boolean", "int32", "int64", "Quantity", "IntOrString", "scalar", "object"}
    shapes = {shape.strip("[]{}") for fields in own.values() for shape in fields.values()}
    assert shapes <= scalars | own.keys() | builtin_types().keys()
    assert own.items() <= stack_types().items()
    assert generator.files() == {generator.TARGET: table()}


async def test_crd_accepts_existing_stacks_and_rejects_what_cel_rules_forbid() -> None:
    async with ControlPlane.auto(crds=inference_stack_crds()) as plane, APIClient(plane) as api:

        async def create(spec: Any, name: str = "s", **fields: Any) -> Any:
            body = {**stack(name=name), "spec": spec, **fields}
            body["metadata"] = {"name": name}
            return await api.post(PATH, body)

        spec = {
            "gateway": {"image": {"tag": None}, "config": None, "livenessProbe": {}, "future": {"a": [1]}},
            "applicationTemplate": {"env": None, "service": {"type": "ClusterIP"}, "livenessProbe": None},
            "applications": {"a": {"readerConfig": {"maxBatchSize": "8", "unknown": True}, "cache": {"size": 1}}},
        }
        created = await create(spec)
        assert (created.code, created.body["spec"]) == (201, spec), created.body

        changed = created.body
        changed["spec"]["applications"]["a"]["cache"] = {"size": 2, "storageClass": "fast"}
        answer = await api.request("PUT", f"{PATH}/s", changed)
        assert "storageClass of an existing volume cannot be changed" in answer.body["message"]

        for wrong, message in (
            ({"applications": {"a": {"cache": {"size": 1}, "modelsVolume": {"name": "m"}}}}, "must not both be set"),
            ({"gateway": {"podDisruptionBudget": {"minAvailable": 1, "maxUnavailable": 1}}}, "must not both be set"),
            ({"applications": {"a": {"engine": "vllm"}}}, 'supported values: "takeoff", "external"'),
            ({"securityProfile": "none"}, 'supported values: "restricted"'),
            ({"applications": {str(number): {} for number in range(101)}}, "must have at most 100 items"),
            ({"gateway": {"replicaCount": "two"}}, "must be of type integer"),
            ({"gateway": {"httpRoute": {"parentRefs": []}}}, "should have at least 1 items"),
        ):
            answer = await create(wrong, "wrong")
            assert answer.code == 422, wrong
            assert message in answer.body["message"], answer.body["message"]

        # a status of the original operator stays valid
        status = {
            "conditions": [{"type": "Initialized", "status": "True", "lastTransitionTime": "2025-04-01T00:00:00Z"}],
            "deployedRelease": {"name": "s", "manifest": "---"},
        }
        latest = (await api.get(f"{PATH}/s")).body
        answer = await api.request("PUT", f"{PATH}/s/status", {**latest, "status": status})
        assert (answer.code, answer.body.get("status")) == (200, status), answer.body


@needs_samples
async def test_samples_are_stored_unchanged() -> None:
    async with ControlPlane.auto(crds=inference_stack_crds()) as plane, APIClient(plane) as api:
        for name in ("01-seed", "02-seed-v2", "04-empty"):
            for sample in samples(name):
                path = f"/apis/{sample['apiVersion']}/namespaces/default/inferencestacks"
                answer = await api.post(path, sample)
                assert (answer.code, answer.body["spec"]) == (201, sample["spec"]), answer.body
