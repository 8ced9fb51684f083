"""Checks of the literals in a CEL expression that kube-apiserver makes after type checking.

The items of a list literal, and the keys and values of a map literal, must have one type: ``{'a': 'b', 'c': object.x}``
is an error because ``object.x`` has no static type. A literal argument of ``matches``, ``duration`` and ``timestamp``
must be valid. These are validators of cel-go; the CEL library does not have them, so the checks run on the checked
expression that it exports. So does the check of a literal pattern of ``find`` and ``findAll``, for which kube-apiserver
creates no program.

A map as the argument of ``string`` is an error, too, which the type checker does not find, because an IP or a CIDR is a
map here (``cel_functions``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from envtest.schema.cel import CELCompileError, CELProgramError, Program
from envtest.schema.cel_checked import checked_expression
from envtest.schema.cel_workload import direct_parts
from envtest.schema.formats import parse_duration
from envtest.schema.patterns import PatternError, compile_pattern

__all__ = ["check_literals"]

_EXEMPT: Final = frozenset({"format"})
"""Functions whose arguments can be lists of mixed types."""

_FIND: Final = frozenset({"find", "findAll"})

_ADDRESS: Final = "map(string, dyn)"
"""The static type of an IP or a CIDR."""

_PRIMITIVES: Final = ("", "bool", "int", "uint", "double", "string", "bytes")
_WELL_KNOWN: Final = ("", "any", "timestamp", "duration")
_CHECKED: Final = re.compile(r"[\[{]|matches|find|duration|timestamp|string\s*\(")


def check_literals(program: Program, source: str, *, dynamic_matches: bool = False) -> None:
    """Check the literals of an expression. Raises :class:`CELCompileError` and :class:`CELProgramError`.

    ``dynamic_matches`` is whether a value without a static type can be in one list with those of other types. It is
    necessary if the program has fewer static types than in kube-apiserver.
    """
    if not _CHECKED.search(source):
        return
    checked = checked_expression(program.checked())
    if checked is None:
        return
    types = _Types({entry.key: entry.value for entry in checked.types}, dynamic_matches)
    errors = sorted((position, text) for position, text in _errors(checked, types))
    if errors:
        raise CELCompileError(
            "\n".join(_format(source, position, text) for position, text in errors)
        )
    for expression in _expressions(checked):
        _check_found_pattern(expression)


class _Types:
    """The static types of an expression by the identifiers of its parts."""

    def __init__(self, types: Mapping[int, Any], dynamic_matches: bool) -> None:
        self._types = types
        self._dynamic_matches = dynamic_matches

    def of(self, expression: Any, *, is_optional: bool) -> Any:
        kind = self._types.get(expression.id)
        if is_optional and kind is not None and kind.abstract.parameters:
            return kind.abstract.parameters[0]
        return kind

    def equal(self, first: Any, second: Any) -> bool:
        """Report whether two types are the same."""
        if not self._dynamic_matches:
            return _type_name(first) == _type_name(second)
        names = [_name_of_kind(kind) for kind in (first, second)]
        if "" in names:
            return True
        if names[0] != names[1]:
            return False
        match names[0]:
            case "list":
                return self.equal(first.list.element, second.list.element)
            case "map":
                return self.equal(first.map.key, second.map.key) and self.equal(
                    first.map.value, second.map.value
                )
            case "abstract":
                pairs = zip(first.abstract.parameters, second.abstract.parameters, strict=False)
                return first.abstract.name == second.abstract.name and all(
                    self.equal(*pair) for pair in pairs
                )
        return _type_name(first) == _type_name(second)


def _format(source: str, position: int, text: str) -> str:
    before = source[:position]
    line = before.count("\n")
    column = position - (before.rfind("\n") + 1)
    return f"ERROR: <input>:{line + 1}:{column + 1}: {text}\n | {source.splitlines()[line]}\n | {'.' * column}^"


def _expressions(checked: Any) -> Iterator[Any]:
    todo = [checked.expr]
    while todo:
        expression = todo.pop()
        yield expression
        todo += reversed(list(_parts(expression)))


def _check_found_pattern(expression: Any) -> None:
    """Check the pattern of ``find`` and ``findAll``. Raises :class:`CELProgramError`."""
    if expression.call.function not in _FIND or not expression.call.args:
        return
    pattern = expression.call.args[0]
    if not pattern.HasField("constant"):
        return
    try:
        compile_pattern(pattern.constant.text)
    except PatternError as error:
        raise CELProgramError(str(error)) from None


def _errors(checked: Any, types: _Types) -> Iterator[tuple[int, str]]:
    positions = {entry.key: entry.value for entry in checked.source.positions}
    todo: list[tuple[Any, bool]] = [(checked.expr, False)]
    while todo:
        expression, is_exempt = todo.pop()
        if not is_exempt:
            for part, text in _literal_errors(expression, types):
                yield positions.get(part.id, 0), text
        is_exempt = is_exempt or expression.call.function in _EXEMPT
        todo += ((part, is_exempt) for part in _parts(expression))


def _parts(expression: Any) -> Iterator[Any]:
    """Yield the direct parts of an expression, also of a loop."""
    if expression.HasField("loop"):
        loop = expression.loop
        yield from (loop.range, loop.initial, loop.condition, loop.step, loop.result)
    else:
        yield from direct_parts(expression)


def _literal_errors(expression: Any, types: _Types) -> Iterator[tuple[Any, str]]:
    if expression.HasField("list"):
        optional = set(expression.list.optional)
        items = [(each, index in optional) for index, each in enumerate(expression.list.elements)]
        mixed = next(_mixed(items, types), None)
        if mixed is not None:
            yield mixed
    elif expression.HasField("struct") and not expression.struct.message_name:
        entries = expression.struct.entries
        yield from _mixed([(entry.map_key, False) for entry in entries], types)
        yield from _mixed([(entry.value, entry.optional) for entry in entries], types)
    elif expression.call.function in _ARGUMENT_CHECKS and expression.call.args:
        argument = expression.call.args[0]
        name = expression.call.function
        if argument.HasField("constant") and not _ARGUMENT_CHECKS[name](argument.constant):
            yield argument, f"invalid {name} argument"
    elif expression.call.function == "string":
        kind = types.of(expression.call.args[0], is_optional=False)
        name = _type_name(kind)
        if _name_of_kind(kind) == "map" and name != _ADDRESS:
            yield expression, f"found no matching overload for 'string' applied to '({name})'"


def _is_pattern(constant: Any) -> bool:
    try:
        compile_pattern(constant.text)
    except PatternError:
        return False
    return True


def _is_duration(constant: Any) -> bool:
    return parse_duration(constant.text) is not None if constant.HasField("text") else True


def _is_timestamp(constant: Any) -> bool:
    if not (constant.HasField("integer") or constant.HasField("text")):
        return True
    from envtest.schema.cel_times import new_timestamp  # lazy: needs protobuf

    try:
        new_timestamp(constant.integer if constant.HasField("integer") else constant.text)
    except ValueError:
        return False
    return True


_ARGUMENT_CHECKS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "duration": _is_duration,
    "matches": _is_pattern,
    "timestamp": _is_timestamp,
}


def _mixed(items: list[tuple[Any, bool]], types: _Types) -> Iterator[tuple[Any, str]]:
    """Yield the items whose type differs from the first one's."""
    if not items:
        return
    first = types.of(items[0][0], is_optional=items[0][1])
    for item, is_optional in items[1:]:
        kind = types.of(item, is_optional=is_optional)
        if not types.equal(first, kind):
            yield item, f"expected type '{_type_name(first)}' but found '{_type_name(kind)}'"


def _name_of_kind(kind: Any) -> str:
    """Return the name of the field that is set in a type; empty for a dynamic type."""
    return "" if kind is None else next((name for name in _FORMATS if kind.HasField(name)), "")


def _type_name(kind: Any) -> str:
    """Return the name of a type as cel-go prints it."""
    name = _name_of_kind(kind)
    return _FORMATS[name](getattr(kind, name)) if name else "dyn"


_FORMATS: Final[Mapping[str, Callable[[Any], str]]] = {
    "null": lambda _: "null",
    "primitive": lambda number: _PRIMITIVES[number],
    "wrapper": lambda number: f"wrapper({_PRIMITIVES[number]})",
    "well_known": lambda number: _WELL_KNOWN[number],
    "list": lambda kind: f"list({_type_name(kind.element)})",
    "map": lambda kind: f"map({_type_name(kind.key)}, {_type_name(kind.value)})",
    "message": str,
    "abstract": lambda kind: f"{kind.name}({', '.join(map(_type_name, kind.parameters))})",
}
