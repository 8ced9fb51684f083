"""Tests of the index by controller."""

from __future__ import annotations

import orjson
import pytest

from cfo.runtime import CONFIG_MAP
from cfo.runtime.cache import by_controller, controller_key
from cfo.runtime.cache.entry import EntryDecoder


@pytest.mark.parametrize(("namespace", "is_found"), [("victim", True), ("attacker", False)])
def test_object_is_found_only_in_the_namespace_of_its_controller(
    namespace: str, is_found: bool
) -> None:
    owner = {"apiVersion": "v1", "kind": "S", "name": "s", "uid": "u", "controller": True}
    metadata = {"name": "c", "namespace": namespace, "ownerReferences": [owner]}
    child = EntryDecoder(CONFIG_MAP).decode(orjson.dumps({"metadata": metadata}))
    assert (controller_key("victim", "u") in by_controller(child)) is is_found


def test_object_without_controller_is_not_indexed() -> None:
    owner = {"apiVersion": "v1", "kind": "S", "name": "s", "uid": "u"}
    metadata = {"name": "c", "namespace": "n", "ownerReferences": [owner]}
    child = EntryDecoder(CONFIG_MAP).decode(orjson.dumps({"metadata": metadata}))
    assert list(by_controller(child)) == []
