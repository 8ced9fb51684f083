"""Compile errors in cel-go's words, where those of the CEL library differ.

An error is ``ERROR: <input>:1:5: message``, followed by the line of the expression and one that points at the column.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["NEXT_ERROR", "in_cel_go_words", "without_escapes"]

NEXT_ERROR: Final = re.compile(r"\n(?=ERROR: )")
"""What separates errors."""

_ERROR: Final = re.compile(r"(ERROR: <input>:\d+:)(\d+)(: [^\n]*)\n \| ([^\n]*)\n \| [^\n]*")
_NOT_A_FIELD: Final = "has() argument must be a field selection"
_OVERLOAD: Final = re.compile(
    r": found no matching overload for '(?P<name>\w+)' applied to '\((?P<types>.*)\)'"
)
_RANGE: Final = re.compile(r"(expression of type '[^'\n]*') cannot be the range of a comprehension")
_VARIABLE: Final = re.compile(r"\b(\w++)\(\) variable name must be a simple identifier")
_PLAIN_MACROS: Final = frozenset({"map", "filter"})
_ESCAPED: Final = re.compile(r"__([a-z]+)__")
_MAX_LINE: Final = 16_384


def in_cel_go_words(problem: str) -> str:
    """Return an error with cel-go's message about macros, and its types of a method that does not exist."""
    problem = problem.replace(_NOT_A_FIELD, "invalid argument to has() macro", 1)
    problem = _RANGE.sub(r"\1 cannot be range of a comprehension", problem, count=1)
    problem = _VARIABLE.sub(_variable_problem, problem, count=1)
    match = _ERROR.fullmatch(problem)
    overload = _OVERLOAD.fullmatch(match[3]) if match is not None else None
    if match is None or overload is None or len(match[4]) > _MAX_LINE:
        return problem
    before = match[4][: int(match[2]) - 1].rstrip()
    is_method = before.removesuffix(overload["name"]).rstrip().endswith(".")
    if not is_method or not before.endswith(overload["name"]):
        return problem
    target, arguments = _first_type(overload["types"].replace("*error*", "!error!"))
    return problem.replace(f"'({overload['types']})'", f"'{target}.({arguments})'", 1)


def _variable_problem(match: re.Match[str]) -> str:
    return (
        "argument is not an identifier"
        if match[1] in _PLAIN_MACROS
        else "argument must be a simple name"
    )


def _first_type(types: str) -> tuple[str, str]:
    """Return the first of the types in ``map(string, int), string``, and the rest."""
    depth = 0
    for position, character in enumerate(types):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            return types[:position], types[position + 2 :]
    return types, ""


def without_escapes(text: str, words: frozenset[str]) -> str:
    """Return errors about an expression whose fields named as ``words`` were escaped, as about what the user wrote."""
    return "\n".join(_unescaped(problem, words) for problem in NEXT_ERROR.split(text))


def _unescaped(problem: str, words: frozenset[str]) -> str:
    match = _ERROR.fullmatch(problem)
    if match is None:
        return _plain(problem, words)
    head, column, message, line = match.groups()
    offset = len(_plain(line[: int(column) - 1], words))
    message = _plain(message, words)
    line = _plain(line, words)
    return f"{head}{offset + 1}{message}\n | {line}\n | {'.' * offset}^"


def _plain(text: str, words: frozenset[str]) -> str:
    return _ESCAPED.sub(lambda match: match[1] if match[1] in words else match[0], text)
