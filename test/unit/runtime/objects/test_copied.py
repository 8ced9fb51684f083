"""The copies of JSON."""

from __future__ import annotations

import copy
from typing import Any

from cfo.runtime.objects import copied


def test_copy_shares_no_dict_and_no_list() -> None:
    original: dict[str, Any] = {"a": {"b": [{"c": 1}, "text", None, 1.5, True]}}
    before = copy.deepcopy(original)
    found = copied(original)
    assert found == original
    found["a"]["b"][0]["c"] = 2
    found["a"]["b"].append("more")
    found["a"]["d"] = {}
    assert original == before
