"""InferenceStacks: whatever an API server stores is rendered or invalid."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from test.fuzz.checks.inferencestack import CORPUS, REVIEWER, STACKS, check_stack
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
