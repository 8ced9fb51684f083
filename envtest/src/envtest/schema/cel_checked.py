"""The checked form of a CEL expression: the syntax tree with types and overloads, as the CEL library exports it.

It is a ``cel.expr.CheckedExpr``. The messages declared here have only the fields that ``cel_literals``, ``cel_cost``
and ``cel_evaluator`` read.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

__all__ = ["checked_expression"]

_PACKAGE: Final = "checked"
_FIELDS: Final[Mapping[str, Mapping[str, tuple[int, str]]]] = {
    "Envelope": {"value": (2, "bytes")},
    "Checked": {
        "references": (2, "*ReferenceEntry"),
        "types": (3, "*TypeEntry"),
        "expr": (4, "Expr"),
        "source": (5, "Source"),
    },
    "ReferenceEntry": {"key": (1, "int64"), "value": (2, "Reference")},
    "Reference": {"overloads": (3, "*string")},
    "TypeEntry": {"key": (1, "int64"), "value": (2, "Type")},
    "Source": {"positions": (4, "*Position")},
    "Position": {"key": (1, "int64"), "value": (2, "int32")},
    "Constant": {
        "null": (1, "int32"),
        "boolean": (2, "bool"),
        "integer": (3, "int64"),
        "double": (5, "double"),
        "text": (6, "string"),
        "binary": (7, "bytes"),
    },
    "Expr": {
        "id": (2, "int64"),
        "constant": (3, "Constant"),
        "identifier": (4, "Identifier"),
        "select": (5, "Select"),
        "call": (6, "Call"),
        "list": (7, "List"),
        "struct": (8, "Struct"),
        "loop": (9, "Loop"),
    },
    "Identifier": {"name": (1, "string")},
    "Select": {"operand": (1, "Expr"), "field": (2, "string"), "is_test": (3, "bool")},
    "Call": {"target": (1, "Expr"), "function": (2, "string"), "args": (3, "*Expr")},
    "List": {"elements": (1, "*Expr"), "optional": (2, "*int32")},
    "Struct": {"message_name": (1, "string"), "entries": (2, "*Entry")},
    "Entry": {"map_key": (3, "Expr"), "value": (4, "Expr"), "optional": (5, "bool")},
    "Loop": {
        "variable": (1, "string"),
        "range": (2, "Expr"),
        "accumulator": (3, "string"),
        "initial": (4, "Expr"),
        "condition": (5, "Expr"),
        "step": (6, "Expr"),
        "result": (7, "Expr"),
        "second_variable": (8, "string"),
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
"""The number and type of each field; ``*`` is repeated."""


@cache
def _message(name: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    file = FileDescriptorProto(name="checked.proto", package=_PACKAGE, syntax="proto2")
    for message_name, fields in _FIELDS.items():
        message = file.message_type.add(name=message_name)
        for field_name, (number, kind) in fields.items():
            field = message.field.add(
                name=field_name, number=number, label=3 if kind.startswith("*") else 1
            )
            kind = kind.removeprefix("*")
            if kind in _FIELDS:
                field.type = field.TYPE_MESSAGE
                field.type_name = f".{_PACKAGE}.{kind}"
            else:
                field.type = getattr(field, f"TYPE_{kind.upper()}")
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


def checked_expression(serialized: bytes) -> Any:
    """Return the ``Checked`` message of a serialized expression; ``None`` if it is nested too deeply to decode."""
    from google.protobuf.message import DecodeError

    envelope = _message("Envelope").FromString(serialized)
    try:
        return _message("Checked").FromString(envelope.value)
    except DecodeError:
        return None
