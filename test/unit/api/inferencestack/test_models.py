"""The CRDs of InferenceStacks, and the table of types."""

from __future__ import annotations

import json

from cfo.api.builtin_types import builtin_types
from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.api.inferencestack.models import inference_stack_crds
from cfo.api.inferencestack.validation.fields import stack_types
from hack.generate import stack_types as generator
from hack.generate.stack_types import table


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
