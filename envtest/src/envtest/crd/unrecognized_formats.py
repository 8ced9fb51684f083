"""The warnings about formats in the schemas of a CRD that kube-apiserver ignores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from envtest.apimachinery.field_errors import go_quote
from envtest.schema.formats import format_check

__all__ = ["format_warnings"]

_SINGLE: Final = ("items", "not", "additionalProperties", "additionalItems")
_LISTS: Final = ("items", "allOf", "anyOf", "oneOf")
_MAPS: Final = ("properties", "patternProperties", "definitions", "dependencies")
_NUMBER_FORMATS: Final[Mapping[str, tuple[str, ...]]] = {
    "integer": ("int32", "int64"),
    "number": ("float", "double"),
}


def format_warnings(spec: Mapping[str, Any], old: Mapping[str, Any] | None) -> Sequence[str]:
    """Return a warning for each unrecognized format in the schemas of ``spec``, but not for those in ``old``."""
    found = _unrecognized(spec)
    known = {} if old is None or not found else _unrecognized(old)
    return [f"unrecognized format {go_quote(name)}" for name in found if name not in known]


def _unrecognized(spec: Mapping[str, Any]) -> dict[str, None]:
    """Return the unrecognized formats, each once, in the order of the schemas."""
    names: dict[str, None] = {}
    for version in spec.get("versions") or ():
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        for node in _nodes(schema):
            name = node.get("format")
            if name and not _is_recognized(node.get("type") or "string", name):
                names[name] = None
    return names


def _is_recognized(kind: str, name: str) -> bool:
    if kind == "string":
        return format_check(name) is not None
    return name in _NUMBER_FORMATS.get(kind, ())


def _nodes(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and all schemas in it."""
    todo = [schema]
    while todo:
        node = todo.pop()
        if not isinstance(node, Mapping):
            continue
        yield node
        todo += (node.get(name) for name in _SINGLE)
        for name in _LISTS:
            members = node.get(name)
            if isinstance(members, list):
                todo += reversed(members)
        for name in _MAPS:
            members = node.get(name)
            if isinstance(members, Mapping):
                todo += reversed(list(members.values()))
