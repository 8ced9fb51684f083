"""Finds duplicate keys in YAML mappings and reports them with kube-apiserver's messages."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import yaml

from envtest.formats.yaml_codec import first_node

__all__ = ["repeated_keys", "unmarshal_errors"]


def repeated_keys(data: bytes) -> list[str]:
    """Return ``line 4: key "a" already set in map`` for each duplicate key; the line is the line of its value."""
    return list(_walk(first_node(data)))


def _walk(node: yaml.Node | None) -> Iterator[str]:
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _walk(item)
    if not isinstance(node, yaml.MappingNode):
        return
    seen: set[str] = set()
    for key, value in node.value:
        yield from _walk(value)
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen:
                shown = (
                    orjson.dumps(key.value).decode()
                    if key.tag == "tag:yaml.org,2002:str"
                    else key.value
                )
                yield f"line {value.start_mark.line + 1}: key {shown} already set in map"
            seen.add(key.value)


def unmarshal_errors(lines: list[str]) -> str:
    """Return the message that combines the errors of several lines."""
    return "\n  ".join(("yaml: unmarshal errors:", *lines))
