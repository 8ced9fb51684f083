"""Comparing the injected entries of a pod template."""

from __future__ import annotations

import pytest

from cfo.runtime import Object
from cfo.webhooks.raycluster.pod_additions import first_difference

LONG = "x" * 1000
DEEP: Object = {"a": {"a": {"a": {"a": {"a": {"a": 1}}}}}}


@pytest.mark.parametrize(
    ("found", "injected", "path"),
    [
        ({"name": "a", "image": "other"}, {"name": "a", "image": "i"}, "image"),
        ({"name": "a"}, {"name": "a", "image": "i"}, "image"),
        ({"name": "a", "resources": {}, "tty": True}, {"name": "a"}, "tty"),
        (
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "A", "value": "2"}]},
            "env[0].value",
        ),
        ({"args": ["-a", None]}, {"args": ["-a"]}, "args[1]"),
        ({"stdin": None}, {}, "stdin"),
        ({LONG: 1}, {}, f"{LONG[:62]}…"),
        (DEEP, {"a": {"a": {"a": {"a": {"a": {}}}}}}, "a.a.a.a.a"),
    ],
)
def test_first_difference_is_a_short_path(found: Object, injected: Object, path: str) -> None:
    assert first_difference(found, injected) == path
