"""The CRDs of InferenceStacks, and the table of types."""

from __future__ import annotations

import json
import re

from cfo.api.builtin_types import builtin_types
from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.api.inferencestack.models import inference_stack_crds
from cfo.api.inferencestack.validation.fields import stack_types
from hack.generate import stack_types as generator
from hack.generate.stack_types import table


def test_crds_of_both_groups_differ_only_in_the_group() -> None:
    one, other = inference_stack_crds()
    assert [crd["spec"].pop("group") for crd in (one, other)] == [
        gvk.group for gvk in INFERENCE_STACKS
    ]
    assert [crd["metadata"]["name"] for crd in (one, other)] == [
        "inferencestacks.models.takeoff.co",
        "inferencestacks.doublewordai.co",
    ]
    assert one["spec"] == other["spec"]


def test_schema_bounds_hosts() -> None:
    spec = inference_stack_crds()[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"][
        "properties"
    ]["spec"]
    gateway = spec["properties"]["gateway"]["properties"]
    ingress = gateway["ingress"]["properties"]
    for schema in (
        ingress["hosts"]["items"]["properties"]["host"],
        ingress["tls"]["items"]["properties"]["hosts"]["items"],
        gateway["httpRoute"]["properties"]["hostnames"]["items"],
    ):
        assert schema["maxLength"] == 253
        pattern = re.compile(schema["pattern"])
        assert all(map(pattern.search, ("", "*.example.com", "a.b")))
        assert not any(map(pattern.search, ("a b", "a_b", "$(x)")))


def test_table_of_types_refers_only_to_existing_types() -> None:
    own = json.loads(table())
    assert not own.keys() & builtin_types().keys()
    scalars = {"string", "boolean", "int32", "int64", "Quantity", "IntOrString", "scalar", "object"}
    shapes = {shape.strip("[]{}") for fields in own.values() for shape in fields.values()}
    assert shapes <= scalars | own.keys() | builtin_types().keys()
    assert own.items() <= stack_types().items()
    assert generator.files() == {generator.TARGET: table()}
