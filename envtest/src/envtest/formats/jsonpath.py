r"""Kubernetes' JSONPath (client-go's ``util/jsonpath``), as far as CRDs use it in columns and scale paths.

Supported are fields (``.spec.size``, ``['a.b']``, ``.a\.b``), indexes and slices (``[0]``, ``[-1]``, ``[0:2]``),
wildcards, recursive descent (``..name``) and filters (``[?(@.type=="Ready")]``). Missing keys have no result.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final, TypeAlias

import orjson

__all__ = ["InvalidPath", "find", "parse"]

Step: TypeAlias = Callable[[Any], Iterable[Any]]


class InvalidPath(ValueError):
    """Raised for an invalid JSONPath."""


_NAME: Final = re.compile(r"(?:\\.|[^.\[\]\\])+")
_SLICE: Final = re.compile(r"(-?\d*)(?::(-?\d*))?(?::(-?\d*))?")
_FILTER: Final = re.compile(
    r"\?\(\s*@(?P<left>[^=!<>]*)(?:(?P<op>==|!=|<=|>=|<|>)(?P<right>.+))?\)"
)
_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def find(path: str, document: Any) -> list[Any]:
    """Return the values at ``path`` in ``document``; ``path`` may have a leading ``$`` or enclosing braces.

    Raises InvalidPath.
    """
    found = [document]
    for step in parse(path):
        found = [value for each in found for value in step(each)]
    return found


@lru_cache(maxsize=4096)
def parse(path: str) -> tuple[Step, ...]:
    """Parse a path into steps. Raises InvalidPath."""
    text = path.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    text = text.removeprefix("$")
    steps: list[Step] = []
    at = 0
    while at < len(text):
        if text.startswith("..", at):
            steps.append(_descendants)
            at += 2
            if not text.startswith("[", at):
                at = _name(text, at, steps)
        elif text[at] == ".":
            at = at + 1 if text.startswith(".[", at) else _name(text, at + 1, steps)
        elif text[at] == "[":
            end = _closing(text, at)
            steps.append(_bracket(text[at + 1 : end].strip()))
            at = end + 1
        elif not steps:
            at = _name(text, at, steps)
        else:
            raise InvalidPath(path)
    return tuple(steps)


def _name(text: str, at: int, steps: list[Step]) -> int:
    match = _NAME.match(text, at)
    if match is None:
        raise InvalidPath(text)
    name = re.sub(r"\\(.)", r"\1", match[0])
    step = _every if name == "*" else _field(name)
    steps.append(step)
    return match.end()


def _closing(text: str, at: int) -> int:
    """Return the position of the bracket that closes the one at ``at``; brackets in quotes and filters do not count."""
    depth = 0
    quote = ""
    for index in range(at, len(text)):
        char = text[index]
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
            if not depth:
                return index
    raise InvalidPath(text)


def _bracket(content: str) -> Step:
    if content == "*":
        return _every
    if content[:1] in ("'", '"') and content[-1:] == content[:1]:
        return _field(content[1:-1])
    match = _FILTER.fullmatch(content)
    if match:
        return _filter(match["left"].strip(), match["op"] or "", (match["right"] or "").strip())
    match = _SLICE.fullmatch(content)
    if content and match:
        return _slice(content, match)
    raise InvalidPath(content)


def _field(name: str) -> Step:
    def step(value: Any) -> Iterable[Any]:
        return (value[name],) if isinstance(value, dict) and name in value else ()

    return step


def _every(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _descendants(value: Any) -> Iterator[Any]:
    yield value
    for item in _every(value):
        yield from _descendants(item)


def _slice(content: str, match: re.Match[str]) -> Step:
    if ":" not in content:
        index = int(content)
        return lambda value: value[index : index + 1 or None] if isinstance(value, list) else ()
    parts = [int(part) if part else None for part in match.groups()]
    return lambda value: value[slice(*parts)] if isinstance(value, list) else ()


def _filter(left: str, sign: str, right: str) -> Step:
    if not sign:
        return lambda value: [item for item in _every(value) if find(left, item)]
    test = _OPERATORS[sign]
    wanted: Any
    if right.startswith("@"):
        wanted = None
    elif right[:1] in ("'", '"'):
        wanted = right[1:-1]
    else:
        try:
            wanted = orjson.loads(right)
        except orjson.JSONDecodeError as error:
            raise InvalidPath(right) from error

    def passes(item: Any) -> bool:
        found = find(left, item)
        against = find(right[1:], item) if right.startswith("@") else [wanted]
        try:
            return bool(found and against and test(found[0], against[0]))
        except TypeError:
            return False

    return lambda value: [item for item in _every(value) if passes(item)]
