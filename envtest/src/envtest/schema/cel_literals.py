"""Checks of the literals in a CEL expression that kube-apiserver makes after type checking.

The items of a list literal, and the keys and values of a map literal, must have one type: ``{'a': 'b', 'c': object.x}``
is an error because ``object.x`` has no static type. A literal argument of ``matches`` must be a valid pattern. These
are validators of cel-go; the CEL library does not have them, so the checks run on the checked expression that it
exports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from envtest.schema.cel import CELCompileError, Program
from envtest.schema.patterns import compile_pattern

__all__ = ["check_literals"]

_PACKAGE: Final = "checked"
_EXEMPT: Final = frozenset({"format"})
"""Functions whose arguments can be lists of mixed types."""

_PRIMITIVES: Final = ("", "bool", "int", "uint", "double", "string", "bytes")
_WELL_KNOWN: Final = ("", "any", "timestamp", "duration")
_FIELDS: Final[Mapping[str, Mapping[str, tuple[int, str]]]] = {
    "Envelope": {"value": (2, "bytes")},
    "Checked": {"types": (3, "*TypeEntry"), "expr": (4, "Expr"), "source": (5, "Source")},
    "TypeEntry": {"key": (1, "int64"), "value": (2, "Type")},
    "Source": {"positions": (4, "*Position")},
    "Position": {"key": (1, "int64"), "value": (2, "int32")},
    "Constant": {"text": (6, "string")},
    "Expr": {
        "id": (2, "int64"),
        "constant": (3, "Constant"),
        "select": (5, "Select"),
        "call": (6, "Call"),
        "list": (7, "List"),
        "struct": (8, "Struct"),
        "loop": (9, "Loop"),
    },
    "Select": {"operand": (1, "Expr")},
    "Call": {"target": (1, "Expr"), "function": (2, "string"), "args": (3, "*Expr")},
    "List": {"elements": (1, "*Expr"), "optional": (2, "*int32")},
    "Struct": {"message_name": (1, "string"), "entries": (2, "*Entry")},
    "Entry": {"map_key": (3, "Expr"), "value": (4, "Expr"), "optional": (5, "bool")},
    "Loop": {
        "range": (2, "Expr"),
        "initial": (4, "Expr"),
        "condition": (5, "Expr"),
        "step": (6, "Expr"),
        "result": (7, "Expr"),
    },
    "Nothing": {},
    "Type": {
        "null": (2, "int32"),
        "primitive": (3, "int32"),
        "wrapper": (4, "int32"),
        "well_known": (5, "int32"),
        "list": (6, "ListType"),
        "map": (7, "MapType"),
        "message": (9, "string"),
        "abstract": (14, "Abstract"),
    },
    "ListType": {"element": (1, "Type")},
    "MapType": {"key": (1, "Type"), "value": (2, "Type")},
    "Abstract": {"name": (1, "string"), "parameters": (2, "*Type")},
}
"""The part of ``cel.expr.CheckedExpr`` that the checks read: the number and type of each field; ``*`` is repeated."""


@cache
def _message(name: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    file = FileDescriptorProto(name="checked.proto", package=_PACKAGE, syntax="proto2")
    for message_name, fields in _FIELDS.items():
        message = file.message_type.add(name=message_name)
        for field_name, (number, kind) in fields.items():
            field = message.field.add(name=field_name, number=number, label=3 if kind.startswith("*") else 1)
            kind = kind.removeprefix("*")
            if kind in _FIELDS:
                field.type, field.type_name = field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = getattr(field, f"TYPE_{kind.upper()}")
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


def check_literals(program: Program, source: str) -> None:
    """Check the literals of an expression. Raises :class:`CELCompileError`."""
    checked = _message("Checked").FromString(_message("Envelope").FromString(program.checked()).value)
    types = {entry.key: entry.value for entry in checked.types}
    errors = sorted((position, text) for position, text in _errors(checked, types))
    if errors:
        raise CELCompileError("\n".join(_format(source, position, text) for position, text in errors))


def _format(source: str, position: int, text: str) -> str:
    before = source[:position]
    line = before.count("\n")
    column = position - (before.rfind("\n") + 1)
    return f"ERROR: <input>:{line + 1}:{column + 1}: {text}\n | {source.splitlines()[line]}\n | {'.' * column}^"


def _errors(checked: Any, types: Mapping[int, Any]) -> Iterator[tuple[int, str]]:
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
    if expression.HasField("select"):
        yield expression.select.operand
    elif expression.HasField("call"):
        if expression.call.HasField("target"):
            yield expression.call.target
        yield from expression.call.args
    elif expression.HasField("list"):
        yield from expression.list.elements
    elif expression.HasField("struct"):
        for entry in expression.struct.entries:
            if entry.HasField("map_key"):
                yield entry.map_key
            yield entry.value
    elif expression.HasField("loop"):
        loop = expression.loop
        yield from (loop.range, loop.initial, loop.condition, loop.step, loop.result)


def _literal_errors(expression: Any, types: Mapping[int, Any]) -> Iterator[tuple[Any, str]]:
    if expression.HasField("list"):
        optional = set(expression.list.optional)
        items = [(each, index in optional) for index, each in enumerate(expression.list.elements)]
        yield from _mixed(items, types)
    elif expression.HasField("struct") and not expression.struct.message_name:
        entries = expression.struct.entries
        yield from _mixed([(entry.map_key, False) for entry in entries], types)
        yield from _mixed([(entry.value, entry.optional) for entry in entries], types)
    elif expression.call.function == "matches" and expression.call.args:
        pattern = expression.call.args[-1]
        if pattern.constant.HasField("text") and not _is_pattern(pattern.constant.text):
            yield pattern, "invalid matches argument"


def _is_pattern(text: str) -> bool:
    try:
        compile_pattern(text)
    except ValueError:
        return False
    return True


def _mixed(items: list[tuple[Any, bool]], types: Mapping[int, Any]) -> Iterator[tuple[Any, str]]:
    first: str | None = None
    for item, is_optional in items:
        kind = types.get(item.id)
        if is_optional and kind is not None and kind.abstract.parameters:
            kind = kind.abstract.parameters[0]
        name = _type_name(kind)
        if first is None:
            first = name
        elif name != first:
            yield item, f"expected type '{first}' but found '{name}'"
            return


def _type_name(kind: Any) -> str:
    """Return the name of a type as cel-go prints it."""
    if kind is None:
        return "dyn"
    for name, format_name in _FORMATS.items():
        if kind.HasField(name):
            return format_name(getattr(kind, name))
    return "dyn"


_FORMATS: Final[Mapping[str, Callable[[Any], str]]] = {
    "null": lambda _: "null_type",
    "primitive": lambda number: _PRIMITIVES[number],
    "wrapper": lambda number: f"wrapper({_PRIMITIVES[number]})",
    "well_known": lambda number: _WELL_KNOWN[number],
    "list": lambda kind: f"list({_type_name(kind.element)})",
    "map": lambda kind: f"map({_type_name(kind.key)}, {_type_name(kind.value)})",
    "message": str,
    "abstract": lambda kind: f"{kind.name}({', '.join(map(_type_name, kind.parameters))})",
}
