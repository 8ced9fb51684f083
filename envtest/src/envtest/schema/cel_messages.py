"""``Object{...}`` and ``JSONPatch{...}``, the message literals of mutating policies.

kube-apiserver resolves any type ``Object`` or ``Object.<path>`` with any field; the CEL library knows only types that
are declared. :func:`parse` finds the literals and rewrites the expression in two ways:

- ``checked`` has names of declared types, for the type checker: ``Object.spec{a: 1}`` becomes ``Object_spec{a: 1}``.
  Columns do not change, so that positions in compile errors are correct.
- ``evaluated`` has maps with an entry :data:`TYPE`, for evaluation: ``dyn({"\\u0000": "Object.spec", "a": 1})``.

:func:`type_errors` compares the types in a value with the paths of its fields, and :func:`plain` removes the types.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from envtest.schema.cel import CELType
from envtest.schema.cel_tokens import Token, tokens

__all__ = ["JSON_PATCH", "OBJECT", "TYPE", "Literals", "parse", "plain", "type_errors"]

OBJECT: Final = "Object"
JSON_PATCH: Final = "JSONPatch"
TYPE: Final = "\0"
"""The key of the entry that contains the name of the type."""

_JSON_PATCH_FIELDS: Final[Mapping[str, CELType]] = {
    "op": "string",
    "path": "string",
    "from": "string",
    "value": "dyn",
}
_MAX_SAFE_INTEGER: Final = 2**53 - 1


class Literals(NamedTuple):
    """An expression with message literals.

    ``types`` has the fields of each declared type with their kinds, ``names`` the name in the expression of each.
    """

    checked: str
    evaluated: str
    types: Mapping[str, Mapping[str, CELType]]
    names: Mapping[str, str]


class _Literal:
    """A literal whose closing brace was not seen yet; ``declared`` is the name of its type."""

    def __init__(self, declared: str) -> None:
        self.declared = declared
        self.expects_field = True


class _Rewriter:
    """Collects the changes to an expression, in the order of their positions."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._checked: list[str] = []
        self._evaluated: list[str] = []
        self._position = 0
        self.types: dict[str, dict[str, CELType]] = {}
        self._declared: dict[str, str] = {}

    def replace(self, start: int, end: int, checked: str, evaluated: str) -> None:
        unchanged = self._source[self._position : start]
        self._checked += (unchanged, checked)
        self._evaluated += (unchanged, evaluated)
        self._position = end

    def declare(self, name: str) -> str:
        """Return the declared name of the type ``name``, which has the same length unless two names collide."""
        declared = self._declared.get(name)
        if declared is None:
            declared = name.replace(".", "_")
            while declared in self.types:
                declared += "_"
            self._declared[name] = declared
            self.types[declared] = dict(_JSON_PATCH_FIELDS) if name == JSON_PATCH else {}
        return declared

    def literals(self) -> Literals:
        self.replace(len(self._source), len(self._source), "", "")
        names = {declared: name for name, declared in self._declared.items()}
        return Literals("".join(self._checked), "".join(self._evaluated), self.types, names)


def parse(source: str) -> Literals:
    """Find the message literals of an expression, in time linear in its length.

    An expression with syntax errors is rewritten as far as it goes; the CEL compiler reports them.
    """
    rewriter = _Rewriter(source)
    open_brackets: list[_Literal | None] = []
    path: list[Token] = []  # the names before the current token: ``a . b`` is [a, b]
    after_dot = False
    previous: Token | None = None
    for token in tokens(source):
        inner = open_brackets[-1] if open_brackets else None
        if (
            token.mark == ":"
            and inner is not None
            and inner.expects_field
            and previous is not None
            and previous.word
        ):
            rewriter.replace(previous.start, previous.end, previous.word, f'"{previous.word}"')
            if inner.declared != JSON_PATCH:
                rewriter.types[inner.declared].setdefault(previous.word, "dyn")
            inner.expects_field = False
        if token.mark == "{" and _is_message(path, previous):
            name = ".".join(part.word for part in path)
            declared = rewriter.declare(name)
            gap = source[path[-1].end : token.start]
            shown = declared.ljust(path[-1].end - path[0].start) + gap
            rewriter.replace(path[0].start, token.end, shown + "{", f'dyn({{"\\u0000": "{name}", ')
            open_brackets.append(_Literal(declared))
        elif token.mark in ("{", "(", "["):
            open_brackets.append(None)
        elif token.mark in ("}", ")", "]") and open_brackets:
            if open_brackets.pop() is not None:
                rewriter.replace(token.start, token.end, token.mark, token.mark + ")")
        elif token.mark == "," and inner is not None:
            inner.expects_field = True
        if token.word and after_dot and path:
            path.append(token)
        elif token.word:
            path = [token]
        elif token.mark != ".":
            path = []
        after_dot = token.mark == "."
        previous = token
    return rewriter.literals()


def _is_message(path: list[Token], previous: Token | None) -> bool:
    if not path or path[-1] is not previous:
        return False
    return path[0].word == OBJECT or (len(path) == 1 and path[0].word == JSON_PATCH)


def type_errors(value: Any) -> list[str]:
    """Return the errors of types that differ from the path of their fields, as in ``Object{spec: Object.status{}}``."""
    if not isinstance(value, dict) or TYPE not in value:
        return []
    errors: list[str] = []
    _collect(value, value[TYPE], errors)
    return errors


def _collect(value: Any, expected: str, errors: list[str]) -> None:
    if isinstance(value, list):
        for item in value:
            _collect(item, expected, errors)
    elif isinstance(value, dict) and TYPE in value:
        if value[TYPE] != expected:
            errors.append(
                f'unexpected type name "{value[TYPE]}", expected "{expected}", which matches field name path from '
                "root Object type"
            )
        for name, item in value.items():
            if name != TYPE:
                _collect(item, f"{expected}.{name}", errors)
    elif isinstance(value, dict):
        for item in value.values():
            _collect(item, expected, errors)


def plain(value: Any) -> Any:
    """Return a value of an evaluated expression as JSON, without the types.

    A double without a fraction becomes an integer, as Go writes it. Raises TypeError for a value without a JSON form.
    """
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= _MAX_SAFE_INTEGER else value
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, str):
                raise TypeError(f'map key "{name}" is of type {type(name).__name__}, not string')
        return {name: plain(item) for name, item in sorted(value.items()) if name != TYPE}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    from envtest.schema.cel_times import to_text  # lazy: needs protobuf

    try:
        return to_text(value)
    except TypeError:
        raise TypeError(f"unsupported value of type {type(value).__name__}") from None
