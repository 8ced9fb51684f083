"""Macros and functions that the CEL library checks but cannot evaluate, or not safely.

:func:`rewrite_macros` rewrites an expression for evaluation, in time linear in its length:

- ``m.transformMap(k, v, e)`` becomes ``m.transformList(k, v, {k: e}).mergeEntries()``. The library has no
  implementation of the function that adds an entry to a map.
- ``m.transformMapEntry(k, v, e)`` becomes ``m.transformList(k, v, e).mergeEntries()``.
- ``lists.range(n)`` becomes ``lists.limitedRange(n)``. The library allocates any number of items.
"""

from __future__ import annotations

import threading
from typing import Any, Final, NamedTuple

from envtest.schema.cel_tokens import Token, tokens

__all__ = [
    "COST_EXCEEDED",
    "COST_LIMIT",
    "begin_evaluation",
    "limited_range",
    "merge_entries",
    "rewrite_macros",
]

_MACROS: Final = frozenset({"transformMap", "transformMapEntry"})
COST_LIMIT: Final = 1_000_000
"""The limit of kube-apiserver for the cost of an evaluation; each item of a range costs 1."""

COST_EXCEEDED: Final = "operation cancelled: actual cost limit exceeded"


class _Bracket(NamedTuple):
    """An open bracket; ``macro`` is the name before it if the bracket contains the arguments of a rewritten macro."""

    macro: Token | None
    arguments: list[Token]
    """The first token of each argument."""


def rewrite_macros(source: str) -> str:
    """Return the expression to evaluate instead of ``source``."""
    edits: list[tuple[int, int, str]] = []
    brackets: list[_Bracket] = []
    before: list[Token] = []  # the last two tokens
    starts_argument = False
    for token in tokens(source):
        if starts_argument and brackets:
            brackets[-1].arguments.append(token)
        starts_argument = token.mark == "," or token.mark in ("(", "[", "{")
        if token.mark in ("(", "[", "{"):
            is_macro = (
                token.mark == "("
                and len(before) == 2
                and before[0].mark == "."
                and before[1].word in _MACROS
            )
            macro = before[1] if is_macro else None
            brackets.append(_Bracket(macro, []))
        elif token.mark in (")", "]", "}") and brackets:
            bracket = brackets.pop()
            if bracket.macro is not None and len(bracket.arguments) in (3, 4):
                edits += _macro_edits(bracket.macro, bracket.arguments, token)
        elif (
            token.word == "range"
            and len(before) == 2
            and before[0].word == "lists"
            and before[1].mark == "."
        ):
            edits.append((token.start, token.end, "limitedRange"))
        before = [*before[-1:], token]
    parts: list[str] = []
    position = 0
    for start, end, text in sorted(edits, key=lambda edit: edit[0]):
        parts += (source[position:start], text)
        position = end
    return "".join((*parts, source[position:]))


def _macro_edits(macro: Token, arguments: list[Token], end: Token) -> list[tuple[int, int, str]]:
    edits = [(macro.start, macro.end, "transformList")]
    if macro.word == "transformMap":
        value = arguments[-1].start
        edits += [(value, value, f"{{{arguments[0].word}: "), (end.start, end.start, "}")]
    return [*edits, (end.end, end.end, ".mergeEntries()")]


def merge_entries(maps: list[dict[Any, Any]]) -> dict[Any, Any]:
    """Return the entries of all maps. Raises ValueError for a duplicate key."""
    merged: dict[Any, Any] = {}
    for entries in maps:
        for key, value in entries.items():
            if key in merged:
                raise ValueError(f"insert failed: key {key} already exists")
            merged[key] = value
    return merged


class _Evaluation(threading.local):
    """The evaluation of an expression: how many items its ranges have."""

    items = 0


_EVALUATION: Final = _Evaluation()


def begin_evaluation() -> None:
    """Begin to count the items of ranges."""
    _EVALUATION.items = 0


def limited_range(size: int) -> list[int]:
    """Return the integers below ``size``.

    Raises ValueError if the ranges of an evaluation have more items than kube-apiserver's cost limit permits.
    """
    _EVALUATION.items += max(size, 0)
    if _EVALUATION.items > COST_LIMIT:
        raise ValueError(COST_EXCEEDED)
    return list(range(size))
