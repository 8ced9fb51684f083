"""The storages of handlers in kopf's style: any user can write the annotations and the status that they read."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from test.fuzz.checks.handlers import (
    BODIES,
    ESSENCES,
    KEYS,
    RECORDS,
    check_diff_base,
    check_progress,
    encodings,
)
from test.fuzz.mutations import mutated
from test.fuzz.profiles import fuzz


@fuzz(
    0.05,
    mutated(BODIES, 2),
    encodings(mutated(RECORDS, 3)),
    mutated(RECORDS, 2),
    st.sampled_from(KEYS),
)
def test_each_progress_is_read_or_ignored(body: Any, text: str, nested: Any, key: str) -> None:
    check_progress(body, text, nested, key)


@fuzz(0.05, mutated(BODIES, 3), encodings(mutated(ESSENCES, 3)))
def test_each_stored_configuration_is_compared_or_ignored(body: Any, text: str) -> None:
    check_diff_base(body, text)
