"""Reads objects whose JSON is nested more deeply than decoders accept, or is not valid Unicode.

The attack: API servers store managedFields as they are in a request, with up to 10,000 levels and any bytes, also those
in the pod template of a Job, where a string can be half of a surrogate pair. Decoders fail after about 1,000 levels, so
such an object would be hidden from its readers, and would fail each list and watch that contains it. It is read without
managedFields, wherever they are: no reader needs those of another client. They are found without recursion: by a
pattern, which takes some milliseconds for 1.5 MB, the largest object in etcd, or by counting brackets, which takes
0.3 s. Both run in a thread.

Custom resources with free-form fields can be nested as deeply in other fields; these stay unreadable.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

import msgspec
import orjson
from anyio import to_thread

from cfo.runtime.process.arguments import require_plain_function

MAX_LEVELS: Final = 1024
"""The number of levels that orjson decodes; msgspec decodes about 100 fewer with Python 3.11."""

RESERVED_FRAMES: Final = 64
"""How many more frames than a decoder its readers may have on their stack; until Python 3.11 they count as depth."""

_FEW_LEVELS: Final = 800
"""The number of levels that all decoders accept on any stack."""

_TOKEN: Final = re.compile(rb'("(?:[^"\\]++|\\.)*+")(\s*:)?|[\[\]{}]', re.DOTALL)
_STRING: Final = ord('"')
_OPENING: Final = frozenset(b"[{")
_BETWEEN: Final = b" \t\r\n,"

_MANAGED_FIELDS: Final = re.compile(rb'"managedFields"\s*+:\s*+\[')
"""The start of managedFields. A string cannot contain it, because quotes in strings are escaped."""

_UNTIL_BRACKET: Final = re.compile(rb'(?:[^"\]]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
"""What is before the first closing bracket that is in no string."""

_NO_MANAGED_FIELDS: Final = b'"managedFields":[]'

UNREADABLE: Final = (RecursionError, msgspec.MsgspecError, ValueError)
"""What decoders raise for JSON that they do not accept."""


class UnreadableObject(Exception):
    """Raised for an object that is stored as JSON, and that its readers could not decode."""


_string = msgspec.json.Decoder(str)
_raw = msgspec.json.Decoder(msgspec.Raw)

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")


async def readable_object(raw: bytes) -> bytes:
    """Return the JSON of an object without managedFields if this makes it readable, otherwise as it is."""
    has_few_levels = raw.count(b"{") + raw.count(b"[") <= _FEW_LEVELS
    if has_few_levels and raw.isascii() and b"\\u" not in raw:
        return raw
    try:
        with_reserved_depth(_require_readable, raw, 2 * RESERVED_FRAMES)
    except UNREADABLE:
        with suppress(RecursionError):
            return await decode_without_managed_fields(_require_readable, raw)
    return raw


def _require_readable(raw: bytes) -> bytes:
    _raw.decode(raw)
    # Also checks the encoding of strings, and from Python 3.12 on it accepts fewer levels.
    orjson.loads(raw)
    return raw


async def decode_object(decode: Callable[[bytes], _Result], raw: bytes) -> _Result:
    """Decode the JSON of an object, without managedFields if it cannot be decoded with them.

    Raises the errors in :data:`UNREADABLE`, and :class:`TypeError` for an async function.
    """
    require_plain_function("decode_object: decode", decode, "a function that decodes bytes")
    try:
        return decode(raw)
    except UNREADABLE as error:
        try:
            return await decode_without_managed_fields(decode, raw)
        except RecursionError:
            raise error from None


async def decode_without_managed_fields(decode: Callable[[bytes], _Result], raw: bytes) -> _Result:
    """Decode JSON without the managedFields of all objects in it. Raises :class:`RecursionError` if that fails, too."""
    for end_of_array in (_first_bracket, _matching_bracket):
        cut = await to_thread.run_sync(_without_managed_fields, raw, end_of_array)
        try:
            return with_reserved_depth(decode, cut)
        except UNREADABLE:
            continue
    raise RecursionError("nested too deeply")


def with_reserved_depth(
    function: Callable[[_Argument], _Result], argument: _Argument, frames: int = RESERVED_FRAMES
) -> _Result:
    """Call ``function`` with ``frames`` more frames on the stack.

    An object that it decodes can later be decoded by readers with up to so many more frames.
    """
    if frames:
        return with_reserved_depth(function, argument, frames - 1)
    return function(argument)


def _without_managed_fields(raw: bytes, end_of_array: Callable[[bytes, int], int]) -> bytes:
    kept: list[bytes] = []
    position = 0
    for found in _MANAGED_FIELDS.finditer(raw):
        if found.start() < position:
            continue  # a part of the last ones
        kept += [raw[position : found.start()], _NO_MANAGED_FIELDS]
        position = end_of_array(raw, found.end())
    kept.append(raw[position:])
    return b"".join(kept)


def _first_bracket(raw: bytes, start: int) -> int:
    """Return the end of the array whose content begins at ``start``, and has no array, as API servers maintain them."""
    content = _UNTIL_BRACKET.match(raw, start)
    assert content is not None  # the pattern also matches nothing
    return content.end() + 1


def _matching_bracket(raw: bytes, start: int) -> int:
    """Like :func:`_first_bracket`, for content with arrays, as the managedFields of a pod template can have."""
    depth = 1
    for token in _TOKEN.finditer(raw, start):
        character = raw[token.start()]
        if character == _STRING:
            continue
        depth += 1 if character in _OPENING else -1
        if depth == 0:
            return token.end()
    return len(raw)


def join_members(members: dict[str, bytes]) -> bytes:
    """Return the JSON of an object with these values, each of which is JSON."""
    return msgspec.json.encode({key: msgspec.Raw(value) for key, value in members.items()})


def split_items(array: bytes) -> list[bytes]:
    """Return the JSON of each item in an array of objects; an empty list for ``null``."""
    items: list[bytes] = []
    depth = 0
    start = 0
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
    key = ""
    value_start = 0  # the first key ends after the opening brace, so 0 means that there is none
    depth = 0
    for token in _TOKEN.finditer(raw):
        character = raw[token.start()]
        if character == _STRING:
            is_key = depth == 1 and token[2] is not None
            if not is_key:
                continue
            if value_start:
                members[key] = raw[value_start : token.start()].strip(_BETWEEN)
            key = _string.decode(token[1])
            value_start = token.end()
        elif character in _OPENING:
            depth += 1
        else:
            depth -= 1
            if depth == 0 and value_start:
                members[key] = raw[value_start : token.start()].strip(_BETWEEN)
                break
    return members
