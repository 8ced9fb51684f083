"""Selectors of shards: ``shardSelector`` of lists and watches (KEP-5866, feature gate ``ShardedListAndWatch``).

A selector is one or more ranges of the 64-bit FNV-1a hash of the uid or the namespace, joined by ``||``:
``shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')``. kube-apiserver parses it with its CEL
parser, and accepts nothing but these calls. An invalid one is a 500, as there; syntax errors have other messages.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from envtest.apimachinery.errors import StatusError, plain_error
from envtest.storage import Record

__all__ = ["ShardSelector", "parse_shard_selector"]

_MAX_LENGTH: Final = 64 * 1024
_UID: Final = "object.metadata.uid"
_NAMESPACE: Final = "object.metadata.namespace"
_END: Final = "0x10000000000000000"
_DIGITS: Final = 16

_CALL: Final = re.compile(r"\s*(?P<function>[A-Za-z_][A-Za-z0-9_]*)\s*\((?P<arguments>[^()]*)\)\s*")
_STRING: Final = re.compile(r"'([^'\\\n]*)'|\"([^\"\\\n]*)\"")
_PATH: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\s*\.\s*[A-Za-z_][A-Za-z0-9_]*)*")

_OFFSET: Final = 0xCBF29CE484222325
_PRIME: Final = 0x100000001B3
_MASK: Final = 2**64 - 1


class _Range(NamedTuple):
    key: str
    start: str
    end: str

    def contains(self, value: int) -> bool:
        return int(self.start, 16) <= value < int(self.end, 16)


class ShardSelector:
    """The ranges of one field."""

    __slots__ = ("_ranges", "text")

    def __init__(self, ranges: list[_Range]) -> None:
        self._ranges = ranges
        self.text = " || ".join(
            f"shardRange({key}, '{start}', '{end}')" for key, start, end in ranges
        )
        """The selector in the form in which the server returns it (``shardInfo`` of a list)."""

    def matches(self, record: Record) -> bool:
        """Return whether the hash of the record is in one of the ranges."""
        hashed = record.uid if self._ranges[0].key == _UID else record.namespace
        value = _hash(hashed)
        return any(each.contains(value) for each in self._ranges)


def parse_shard_selector(text: str) -> ShardSelector:
    """Parse a selector. Raises StatusError (500)."""
    stripped = text.strip()
    if not stripped:
        raise _invalid(
            "empty shard selector is not allowed; omit the parameter for unfiltered lists"
        )
    if len(stripped) > _MAX_LENGTH:
        raise _invalid("CEL parse error: expression is too long")
    ranges: list[_Range] = []
    position = 0
    while True:
        call = _CALL.match(stripped, position)
        if call is None:
            raise _invalid("unexpected expression; expected shardRange() call or || operator")
        ranges.append(_range(call["function"], call["arguments"]))
        position = call.end()
        if position == len(stripped):
            break
        if not stripped.startswith("||", position):
            raise _invalid("unsupported function; only shardRange() and || are allowed")
        position += 2
    for each in ranges[1:]:
        if each.key != ranges[0].key:
            raise _invalid(
                f'all shard ranges must use the same field, got "{ranges[0].key}" and "{each.key}"'
            )
    return ShardSelector(ranges)


def _range(function: str, text: str) -> _Range:
    if function != "shardRange":
        raise _invalid(f'unsupported function "{function}"; only shardRange() and || are allowed')
    arguments = [argument.strip() for argument in text.split(",")] if text.strip() else []
    if len(arguments) != 3:
        raise _invalid(f"shardRange() requires exactly 3 arguments, got {len(arguments)}")
    if _PATH.fullmatch(arguments[0]) is None:
        raise _invalid(
            "shardRange() first argument: expected field path (e.g. object.metadata.uid)"
        )
    path = re.sub(r"\s", "", arguments[0])
    if path not in (_UID, _NAMESPACE):
        raise _invalid(f'unsupported field path "{path}"; supported: {_UID}, {_NAMESPACE}')
    start = _hexadecimal(arguments[1], "hexStart")
    end = _hexadecimal(arguments[2], "hexEnd")
    if int(start, 16) >= int(end, 16):
        raise _invalid(f"shard range start {start} must be less than end {end}")
    return _Range(path, start, end)


def _hexadecimal(argument: str, name: str) -> str:
    literal = _STRING.fullmatch(argument)
    if literal is None:
        raise _invalid(f"{name} must be a string literal (e.g. '0xff')")
    value = literal[1] if literal[1] is not None else literal[2]
    if not value.startswith("0x"):
        raise _invalid(f"{name} must have '0x' prefix, got \"{value}\"")
    digits = value[2:]
    if not digits:
        raise _invalid(f"{name}: hex value is required after '0x'")
    if len(digits) > _DIGITS + 1:
        raise _invalid(
            f'{name}: hex value too long ({len(digits)} chars, max {_DIGITS + 1}): "{digits}"'
        )
    wrong = next((character for character in digits if character not in "0123456789abcdef"), None)
    if wrong is not None:
        raise _invalid(f'{name}: invalid hex character "{wrong}" in "{value}"')
    if len(digits) == _DIGITS + 1 and value != _END:
        raise _invalid(
            f"{name}: {_DIGITS + 1}-digit hex value must be '{_END}' (2^64), got \"{value}\""
        )
    if len(digits) < _DIGITS:
        padded = f"0x{digits.rjust(_DIGITS, '0')}"
        raise _invalid(
            f'{name} must be a 0x-prefixed {_DIGITS}-digit hex value, got "{value}" (did you mean "{padded}"?)'
        )
    return value


def _hash(text: str) -> int:
    """Return the 64-bit FNV-1a hash, as Go's ``hash/fnv.New64a``."""
    value = _OFFSET
    for byte in text.encode():
        value = (value ^ byte) * _PRIME & _MASK
    return value


def _invalid(why: str) -> StatusError:
    return plain_error(f"invalid shard selector: {why}")
