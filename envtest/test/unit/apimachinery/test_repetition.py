"""Lists of clients are checked for repeated items in linear time."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from envtest.apimachinery.repetition import identity, repeated_positions
from envtest.builtins.service_rules import address_errors
from envtest.writes.create_update import dedupe_owners

MANY = 20_000


def test_positions_of_repeated_items() -> None:
    assert repeated_positions("abcab") == {3, 4}
    assert repeated_positions(map(identity, ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1}))) == {1}


def _owners() -> None:
    owners = [{"uid": str(number)} for number in range(MANY)]
    obj: dict[str, Any] = {"metadata": {"ownerReferences": [*owners, {"uid": "0"}]}}
    warnings: list[str] = []
    dedupe_owners(obj, cast("Any", SimpleNamespace(warn=warnings.append)))
    assert obj["metadata"]["ownerReferences"] == owners
    assert warnings[0].endswith("duplicate UID(s) observed: 0")


def _families() -> None:
    errors = address_errors(
        {
            "clusterIPs": ["None"],
            "clusterIP": "None",
            "ipFamilies": ["a", *map(str, range(4 * MANY))],
        }
    )
    assert sum(1 for _ in errors) >= 4 * MANY


@pytest.mark.parametrize("check", [_owners, _families])
def test_many_items_are_checked_quickly(check: Callable[[], None]) -> None:
    started = time.process_time()
    check()
    assert time.process_time() - started < 2
