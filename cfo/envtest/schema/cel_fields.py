"""Which names and fields an expression uses, and whether the schema has them.

The CEL library checks types, but objects are maps to it: it takes any field. Here the checked expression (a protobuf
message, read field by field: no protobuf library is needed for that) is walked with the schema in hand, so that
``self.nope`` is an error when a definition is created, as it is on the real server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from cfo.envtest.schema.node import Schema

__all__ = ["escape", "undefined_fields", "used_names"]

Fields: TypeAlias = dict[int, list[Any]]

_RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "namespace",
        "null",
        "package",
        "return",
        "true",
        "var",
        "void",
        "while",
    ]
)
_ESCAPES = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))
_IDENTITY = Schema(
    {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}},
            },
        },
    }
)
_IDENT, _SELECT, _CALL, _LIST, _STRUCT, _COMPREHENSION, _CONST = 4, 5, 6, 7, 8, 9, 3


def escape(name: str) -> str | None:
    """The identifier of a property in expressions (``a-b`` is ``a__dash__b``); ``None`` where it has none."""
    if not name or name[0].isdigit() or not all(c.isascii() and (c.isalnum() or c in "_.-/") for c in name):
        return None
    if name in _RESERVED:
        return f"__{name}__"
    for plain, escaped in _ESCAPES:
        name = name.replace(plain, escaped) if plain in name else name
    return name


def used_names(serialized: bytes) -> set[str]:
    """The variables that a checked expression refers to."""
    return set(_idents(_root(serialized)))


def undefined_fields(serialized: bytes, scope: Mapping[str, Schema | None], *, resource_root: bool) -> list[str]:
    """The fields of the ``scope``'s variables that a checked expression selects and their schemas do not have."""
    undefined: list[str] = []
    _infer(_root(serialized), dict(scope), undefined, resource_root)
    return undefined


def _root(serialized: bytes) -> Fields:
    content = _fields(serialized)
    checked = _fields(content[2][0]) if 1 in content and content[1][0].startswith(b"type.") else content
    return _fields(checked[4][0])


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _fields(data: bytes) -> Fields:
    """The fields of a protobuf message, by number."""
    found: Fields = {}
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        value: Any
        match tag & 7:
            case 0:
                value, position = _varint(data, position)
            case 1:
                value, position = data[position : position + 8], position + 8
            case 2:
                size, position = _varint(data, position)
                value, position = data[position : position + size], position + size
            case _:
                value, position = data[position : position + 4], position + 4
        found.setdefault(tag >> 3, []).append(value)
    return found


def _text(fields: Fields, number: int) -> str:
    return fields[number][0].decode() if number in fields else ""


def _below(fields: Fields, *numbers: int) -> Iterator[Fields]:
    for number in numbers:
        for data in fields.get(number, ()):
            yield _fields(data)


def _idents(expression: Fields) -> Iterator[str]:
    if _IDENT in expression:
        yield _text(_fields(expression[_IDENT][0]), 1)
    for kind, numbers in ((_SELECT, (1,)), (_CALL, (1, 3)), (_LIST, (1,)), (_COMPREHENSION, (2, 4, 5, 6, 7))):
        for part in _below(expression, kind):
            for inner in _below(part, *numbers):
                yield from _idents(inner)
    for struct in _below(expression, _STRUCT):
        for entry in _below(struct, 2):
            for inner in _below(entry, 3, 4):
                yield from _idents(inner)


def _infer(expression: Fields, scope: dict[str, Schema | None], undefined: list[str], root: bool) -> Schema | None:
    """The schema of an expression's value, where it is known."""
    if _IDENT in expression:
        return scope.get(_text(_fields(expression[_IDENT][0]), 1))
    if _SELECT in expression:
        part = _fields(expression[_SELECT][0])
        operand = _fields(part[1][0])
        return _select(_infer(operand, scope, undefined, root), _text(part, 2), undefined, root and _is_self(operand))
    if _CALL in expression:
        return _call(_fields(expression[_CALL][0]), scope, undefined, root)
    if _COMPREHENSION in expression:
        return _comprehension(_fields(expression[_COMPREHENSION][0]), scope, undefined, root)
    for part in _below(expression, _LIST):
        for inner in _below(part, 1):
            _infer(inner, scope, undefined, root)
    for struct in _below(expression, _STRUCT):
        for entry in _below(struct, 2):
            for inner in _below(entry, 3, 4):
                _infer(inner, scope, undefined, root)
    return None


def _is_self(operand: Fields) -> bool:
    return _IDENT in operand and _text(_fields(operand[_IDENT][0]), 1) in ("self", "oldSelf")


def _select(schema: Schema | None, field: str, undefined: list[str], at_root: bool) -> Schema | None:
    if schema is None or schema.type != "object":
        return None
    if at_root or schema.embedded:
        for name, node in _IDENTITY.properties.items():
            if name == field:
                return node
    if schema.additional_allowed:
        return schema.additional
    for name in schema.properties:
        if escape(name) == field:
            return schema.properties[name]
    if not (schema.preserve_unknown and not schema.properties):
        undefined.append(field)
    return None


def _call(part: Fields, scope: dict[str, Schema | None], undefined: list[str], root: bool) -> Schema | None:
    function = _text(part, 2)
    for target in _below(part, 1):
        _infer(target, scope, undefined, root)
    arguments = list(_below(part, 3))
    kinds = [_infer(argument, scope, undefined, root) for argument in arguments]
    if function == "_[_]" and kinds[0] is not None:
        return kinds[0].items if kinds[0].type == "array" else kinds[0].additional
    if function == "_?._" and kinds[0] is not None and _CONST in arguments[1]:
        field = _text(_fields(arguments[1][_CONST][0]), 6)
        _select(kinds[0], field, undefined, root and _is_self(arguments[0]))
        return None
    if function == "_?_:_" and kinds[1] is kinds[2]:
        return kinds[1]
    return None


def _comprehension(part: Fields, scope: dict[str, Schema | None], undefined: list[str], root: bool) -> Schema | None:
    (range_,) = _below(part, 2)
    (start,) = _below(part, 4)
    over = _infer(range_, scope, undefined, root)
    initial = _infer(start, scope, undefined, root)
    inner = dict(scope)
    inner[_text(part, 1)] = over.items if over is not None and over.type == "array" else None
    inner[_text(part, 3)] = initial
    result: Schema | None = None
    for number in (5, 6, 7):
        for expression in _below(part, number):
            result = _infer(expression, inner, undefined, root)
    return result
