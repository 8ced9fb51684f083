"""Names in Go that messages contain and OpenAPI does not: of types, and of embedded structs.

``hack/generate_go_names.py`` reads them from the messages of a kube-apiserver.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Final, TypeAlias

import msgspec

__all__ = ["field_in_go", "named_type"]

_FILE: Final = "go_names.json"
_Embedded: TypeAlias = dict[str, dict[str, str]]
_Named: TypeAlias = dict[str, dict[str, dict[str, str]]]


class _GoNames(msgspec.Struct, frozen=True):
    """By type and field: the structs in which the field is embedded, and its named types by the underlying ones."""

    embedded: _Embedded
    named: _Named


@cache
def _go_names() -> _GoNames:
    data = resources.files("envtest").joinpath("data", _FILE).read_bytes()
    return msgspec.json.decode(data, type=_GoNames)


def named_type(type_name: str, field: str, underlying: str) -> str:
    """Return the Go type of a field, or of its items: ``v1.PullPolicy``, whose underlying type is ``string``."""
    return _go_names().named.get(type_name, {}).get(field, {}).get(underlying, underlying)


def field_in_go(type_name: str, field: str) -> str:
    """Return a field after the structs in which it is embedded: ``VolumeSource.secret``."""
    struct = _go_names().embedded.get(type_name, {}).get(field)
    return f"{struct}.{field}" if struct else field
