"""Tests that objects in other namespaces are never found as the children of a stack, whatever uid they name."""

from __future__ import annotations

import orjson
import pytest

from cfo.controllers.inferencestack.children import _index_owner, _owner_value
from cfo.runtime import CONFIG_MAP
from cfo.runtime.cache.entry import EntryDecoder


@pytest.mark.parametrize(("namespace", "is_found"), [("victim", True), ("attacker", False)])
def test_child_is_found_only_in_the_namespace_of_its_stack(namespace: str, is_found: bool) -> None:
    owner = {"apiVersion": "v1", "kind": "S", "name": "s", "uid": "u", "controller": True}
    metadata = {"name": "c", "namespace": namespace, "ownerReferences": [owner]}
    child = EntryDecoder(CONFIG_MAP).decode(orjson.dumps({"metadata": metadata}))
    stack = {"metadata": {"name": "s", "namespace": "victim", "uid": "u"}}
    assert (_owner_value(stack) in _index_owner(child)) is is_found
