"""Reads JSON that is nested too deeply for the decoders, which recurse and raise :class:`RecursionError`.

Custom resources with free-form fields can be nested as deeply as their size allows, and their managedFields are just as
deep. Such an object is found in a list page or watch line, and its metadata is read, without recursion. This takes
about 0.3 s for 1.5 MB, the largest object in etcd, so it runs in a thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

__all__ = ["object_without_nesting", "split_items", "split_members", "with_reserved_depth"]

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")

RESERVED_FRAMES: Final = 64
"""How many more frames than the reflector a reader may have on its stack; until Python 3.11 they count as depth."""

_TOKEN: Final = re.compile(rb'("(?:[^"\\]++|\\.)*+")(\s*:)?|[\[\]{}]', re.DOTALL)
_STRING: Final = ord('"')
_OPENING: Final = frozenset(b"[{")
_BETWEEN: Final = b" \t\r\n,"

_string = msgspec.json.Decoder(str)


def with_reserved_depth(
    function: Callable[[_Argument], _Result], argument: _Argument, frames: int = RESERVED_FRAMES
) -> _Result:
    """Call ``function`` with so many frames on the stack that what it decodes can be decoded anywhere later."""
    return with_reserved_depth(function, argument, frames - 1) if frames else function(argument)


def split_items(array: bytes) -> list[bytes]:
    """Return the JSON of each item in an array of objects; an empty list for ``null``."""
    items, depth, start = [], 0, 0
    for token in _TOKEN.finditer(array):
        character = array[token.start()]
        if character == _STRING:
            continue
        if character in _OPENING:
            depth += 1
            if depth == 2:
                start = token.start()
        else:
            depth -= 1
            if depth == 1:
                items.append(array[start : token.end()])
    return items


def split_members(raw: bytes) -> dict[str, bytes]:
    """Return the JSON of each value of an object, by key. Raises :class:`msgspec.DecodeError` for an invalid key."""
    members: dict[str, bytes] = {}
    key, depth, start = "", 0, 0
    for token in _TOKEN.finditer(raw):
        character = raw[token.start()]
        if character == _STRING:
            if depth == 1 and token[2] is not None:
                if start:
                    members[key] = raw[start : token.start()].strip(_BETWEEN)
                key, start = _string.decode(token[1]), token.end()
        elif character in _OPENING:
            depth += 1
        else:
            depth -= 1
            if depth == 0 and start:
                members[key] = raw[start : token.start()].strip(_BETWEEN)
                break
    return members


def object_without_nesting(raw: bytes) -> bytes:
    """Return an object's apiVersion, kind and metadata without managedFields; nothing else of it can be trusted."""
    parts = split_members(raw)
    metadata = split_members(parts.get("metadata", b"{}"))
    metadata.pop("managedFields", None)
    kept: dict[str, msgspec.Raw] = {
        field: msgspec.Raw(parts[field]) for field in ("apiVersion", "kind") if field in parts
    }
    kept["metadata"] = msgspec.Raw(msgspec.json.encode({key: msgspec.Raw(value) for key, value in metadata.items()}))
    return msgspec.json.encode(kept)
