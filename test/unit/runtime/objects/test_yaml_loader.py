"""The loader of YAML: the parser in C, which must not get values nested so deeply that it ends the process."""

from __future__ import annotations

import pytest
import yaml

from cfo.runtime.objects.yaml_loader import MAX_YAML_LEVELS, YAML_LOADER, load_yaml


def test_the_parser_in_c_is_used() -> None:
    assert yaml.__with_libyaml__
    assert YAML_LOADER is yaml.CSafeLoader


def test_deepest_value_is_loaded() -> None:
    value = load_yaml("[" * MAX_YAML_LEVELS + "]" * MAX_YAML_LEVELS)
    for _ in range(MAX_YAML_LEVELS - 1):
        (value,) = value
    assert value == []


@pytest.mark.parametrize("level", ["[", "- ", "? ", "{a: ", "{? ", "- ? ", "[a: "])
def test_deeper_value_is_refused(level: str) -> None:
    with pytest.raises(RecursionError, match="must have at most 100 levels"):
        load_yaml(level * 100_000)


def test_siblings_are_not_levels() -> None:
    assert len(load_yaml("[[], {}, {a: []}]\n".replace(", {a: []}", ", {a: []}" * 500))) == 502
