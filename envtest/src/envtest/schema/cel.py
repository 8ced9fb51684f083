"""CEL, the expression language of validation rules, match conditions and admission policies.

:func:`compile_expression` type-checks an expression against the kinds of its variables and gives a :class:`Program`.
The language itself is the reference implementation in C++ (``cel-expr-python``); Kubernetes' own functions come from
``cel_functions``.

Limits: expressions have no cost estimate, and values inside of dynamic objects stay what JSON made them, so that a
``date-time`` is a text there (``timestamp(self.at)``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

__all__ = ["CELCompileError", "CELError", "Kind", "Program", "compile_expression"]

Kind = str
"""The static type of a variable: ``dyn``, ``bool``, ``int``, ``double``, ``string``, ``bytes``, ``timestamp``,
``duration``, ``list(kind)`` or ``map(kind, kind)``."""

_SIMPLE = {
    "bool": "BOOL",
    "bytes": "BYTES",
    "double": "DOUBLE",
    "duration": "DURATION",
    "dyn": "DYN",
    "int": "INT",
    "string": "STRING",
    "timestamp": "TIMESTAMP",
}
_RUNTIME_WORDS = (
    ("Key not found in map : ", "no such key: "),
    ("No matching overloads found", "no such overload"),
    ("divide by zero", "division by zero"),
    ("index out of bounds", "index out of bounds"),
)
_INDEX = re.compile(r"index=(-?\d+) size=")


class CELCompileError(ValueError):
    """An expression is wrong: syntax, an unknown name, or types that do not fit."""


class CELError(ValueError):
    """An expression failed on the values it was given."""


class Program:
    """A compiled expression. ``kind`` is the static type of its value."""

    __slots__ = ("_expression", "kind", "source")

    def __init__(self, expression: Any, source: str) -> None:
        self._expression = expression
        self.source = source
        self.kind: str = str(expression.return_type()).lower()

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        """The value with ``variables``; raises :class:`CELError`."""
        try:
            result = self._expression.eval(data=variables)
        except (RuntimeError, TypeError, ValueError) as error:
            raise CELError(str(error)) from None
        if result.type() == _cel().Type.ERROR:
            raise CELError(_go_words(str(result.value())))
        return result.plain_value()


def _go_words(message: str) -> str:
    """A runtime error as cel-go words it."""
    index = _INDEX.search(message)
    if index:
        return f"index out of bounds: {index.group(1)}"
    text = message.partition(": ")[2] or message
    for theirs, gos in _RUNTIME_WORDS:
        if theirs in text:
            rest = text.partition(theirs)[2].strip('"')
            return f"{gos}{rest}" if gos.endswith(": ") else gos
    return text


@cache
def _cel() -> Any:
    from cel_expr_python import cel  # 14 MB that a server without rules never loads

    return cel


def _type(kind: Kind) -> Any:
    cel = _cel()
    if kind in _SIMPLE:
        return getattr(cel.Type, _SIMPLE[kind])
    if kind.startswith("list("):
        return cel.Type.List(_type(kind[5:-1]))
    if not kind.startswith("map("):
        return cel.Type(kind)
    key, _, value = kind[4:-1].partition(", ")
    return cel.Type.Map(_type(key), _type(value))


@cache
def _environment(variables: tuple[tuple[str, Kind], ...]) -> Any:
    return _new_environment(variables, None)


def _new_environment(variables: tuple[tuple[str, Kind], ...], pool: Any) -> Any:
    from cel_expr_python.ext import ext_bindings, ext_optional

    from envtest.schema.cel_functions import declarations

    return _cel().NewEnv(
        descriptor_pool=pool,
        variables={name: _type(kind) for name, kind in variables},
        extensions=[ext_optional.ExtOptional(), ext_bindings.ExtBindings()],
        functions=_declared(declarations),
    )


_DECLARED: list[Any] = []


def _declared(make: Any) -> list[Any]:
    if not _DECLARED:
        _DECLARED.extend(make())
    return _DECLARED


@lru_cache(maxsize=4096)
def _compile(expression: str, variables: tuple[tuple[str, Kind], ...]) -> Program:
    try:
        return Program(_environment(variables).compile(_expanded(expression)), expression)
    except (RuntimeError, ValueError, TypeError) as error:
        raise CELCompileError(_compile_message(error)) from None


def _expanded(expression: str) -> str:
    if "format." not in expression:
        return expression
    from envtest.schema.cel_formats import with_formats

    return with_formats(expression)


def _compile_message(error: Exception) -> str:
    return str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")


def checked_kind(expression: str, variables: Mapping[str, Kind], pool: Any) -> Kind:
    """The static type of an expression over ``variables``, whose kinds may name messages of a descriptor ``pool``.

    Raises :class:`CELCompileError`.
    """
    environment = _new_environment(tuple(variables.items()), pool)
    try:
        return Program(environment.compile(_expanded(expression)), expression).kind
    except (RuntimeError, ValueError, TypeError) as error:
        raise CELCompileError(_compile_message(error)) from None


def compile_expression(expression: str, variables: Mapping[str, Kind]) -> Program:
    """Compiles ``expression`` over ``variables``; raises :class:`CELCompileError`.

    Programs are shared by all who compile the same text over the same variables.
    """
    return _compile(expression, tuple(sorted(variables.items())))
