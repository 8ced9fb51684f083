"""InferenceStacks: whatever an API server stores is rendered or invalid, and ``cfo plan`` shows it or says why not."""

from __future__ import annotations

import json
from typing import Any

import yaml
from hypothesis import strategies as st

from test.fuzz.checks.inferencestack import CORPUS, REVIEWER, STACKS, check_plan, check_stack
from test.fuzz.mutations import mutated
from test.fuzz.profiles import fuzz
from test.fuzz.stored_objects import as_stored


@fuzz(0.06, STACKS)
def test_each_stored_stack_is_rendered_or_invalid(obj: Any) -> None:
    check_stack(obj)


@fuzz(0.06, STACKS, st.data())
def test_each_creation_and_update_is_answered(obj: Any, data: st.DataObject) -> None:
    old = as_stored(obj)
    if old is None:
        return
    REVIEWER.admit(old)
    new = as_stored(data.draw(mutated(CORPUS, 2, only=old)))
    if new is not None:
        REVIEWER.admit(new, old)


@fuzz(0.03, STACKS, STACKS, st.sampled_from(["diff", "summary", "objects"]), st.booleans())
def test_each_document_is_planned_or_rejected(
    one: Any, other: Any, output: str, as_json: bool
) -> None:
    documents = [one, other]
    try:
        text = json.dumps({"items": documents}) if as_json else yaml.safe_dump_all(documents)
    except (yaml.YAMLError, RecursionError):
        return
    check_plan(text, output)
