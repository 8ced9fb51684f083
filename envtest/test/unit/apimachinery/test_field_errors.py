"""Values in the messages of field errors."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.apimachinery.field_errors import Absent, as_sent, invalid, required

SENT = {
    "spec": {
        "scopes": [],
        "hard": {"cpu": []},
        "items": [{"labels": {}}],
        "full": ["x"],
        "empty": {},
        "text": "",
    }
}


@pytest.mark.parametrize(
    ("path", "value", "shown"),
    [
        ("spec.scopes", None, "[]"),
        ("spec.empty", None, "{}"),
        ("spec.items[0].labels", None, "{}"),
        ("spec.hard[cpu]", None, "[]"),
        ("spec", Absent("spec.scopes"), "[]"),
        ("spec", Absent("spec.none"), "null"),
        ("spec.full", None, "null"),
        ("spec.text", None, "null"),
        ("spec.items[7].labels", None, "null"),
        ("spec.items.labels", None, "null"),
        ("other.path", None, "null"),
        ("spec.scopes", "kept", '"kept"'),
    ],
)
def test_absent_values_are_shown_as_they_were_sent(path: str, value: Any, shown: str) -> None:
    (error,) = as_sent([invalid(path, value, "reason")], SENT)
    assert str(error) == f"{path}: Invalid value: {shown}: reason"


def test_errors_without_a_value_are_kept() -> None:
    assert as_sent([required("spec.scopes")], SENT) == [required("spec.scopes")]
