"""The static types of schemas in CEL, so that expressions are type-checked as in kube-apiserver.

The CEL library evaluates objects as maps. For type checking each object of the schema becomes a protobuf message, so
that ``self.nope`` and ``self.replicas + 'a'`` are errors when a CRD is created. Only the fields that occur in the
expression are declared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from envtest.schema.cel import CELCompileError, CELType, Program, type_check
from envtest.schema.schema_node import Schema

__all__ = ["RESERVED_WORDS", "TYPE_NAME", "check_types", "escape", "escape_keywords"]

RESERVED_WORDS = frozenset(
    {
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
    }
)
"""The words that cannot be identifiers in CEL."""

_KEYWORDS = "|".join(sorted(RESERVED_WORDS - {"false", "in", "null", "true"}))
_HAS_KEYWORD = re.compile(rf"\b(?:{_KEYWORDS})\b")
_FIELD_OR_TEXT = re.compile(
    r"//[^\n]*"  # a comment
    r"|[rR]?(?:\"{3}.*?\"{3}|'{3}.*?'{3})"
    r"|[rR](?:\"[^\"\n]*\"|'[^'\n]*')"
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
    rf"|(\.\s*+\??\s*+)({_KEYWORDS})\b(?!\s*\()",  # a selected field, which is not a function
    re.DOTALL,
)
_ESCAPES = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))
_PACKAGE = "schema"
TYPE_NAME = "x-envtest-type"
"""The key of a schema with the name of its type, which its objects have in errors."""
_TIME_FORMATS = {"date": "Timestamp", "date-time": "Timestamp", "duration": "Duration"}
_WORD = re.compile(r"\w+")
_STRING = Schema({"type": "string"})
_KINDS: Mapping[CELType, Schema | None] = {"string": _STRING, "dyn": None}
_METADATA = Schema(
    {"type": "object", "properties": {"name": _STRING.raw, "generateName": _STRING.raw}}
)
_STRUCT_SUFFIX = re.compile(r" not found in struct '[^']*'")


def escape(name: str) -> str | None:
    """Return the CEL identifier of a property (``a-b`` is ``a__dash__b``); ``None`` when it has none."""
    if (
        not name
        or name[0].isdigit()
        or not all(c.isascii() and (c.isalnum() or c in "_.-/") for c in name)
    ):
        return None
    if name in RESERVED_WORDS:
        return f"__{name}__"
    for plain, escaped in _ESCAPES:
        name = name.replace(plain, escaped) if plain in name else name
    return name


def escape_keywords(source: str) -> str:
    """Return an expression in which field names that are reserved words are escaped.

    Since Kubernetes 1.31 ``self.namespace`` and ``self.?namespace`` select the property ``namespace``, which has the
    identifier ``__namespace__``. The words that are also literals or operators (``true``, ``false``, ``null``, ``in``)
    remain syntax errors.
    """
    if not _HAS_KEYWORD.search(source):
        return source
    return _FIELD_OR_TEXT.sub(_escaped_field, source)


def _escaped_field(match: re.Match[str]) -> str:
    if not match[2]:
        return match[0]
    return f"{match[1]}__{match[2]}__"


def check_types(
    source: str,
    schemas: Mapping[str, Schema],
    others: Mapping[str, CELType],
    *,
    resource_root: bool = False,
    escapes: bool = True,
    messages: Mapping[str, Mapping[str, CELType]] | None = None,
    bindings: bool = False,
) -> Program:
    """Return the checked program for an expression over values of ``schemas`` and variables of other kinds.

    ``escapes`` is whether the names of fields are escaped as in the rules of CRDs (``a-b`` is ``a__dash__b``).
    ``messages`` are types that the expression constructs, with the kinds of their fields (``string`` or ``dyn``); with
    them the expression can use the functions of mutating policies. ``bindings`` adds the macro ``cel.bind``. Raises
    :class:`CELCompileError`.
    """
    file = _DescriptorFile(frozenset(_WORD.findall(source)), escapes=escapes)
    kinds = {name: file.kind(schema, root=resource_root) for name, schema in schemas.items()}
    try:
        return type_check(
            source,
            {**kinds, **others},
            file.pool(messages or {}),
            patches=messages is not None,
            bindings=bindings,
        )
    except CELCompileError as error:
        raise CELCompileError(_STRUCT_SUFFIX.sub("", str(error))) from None


def _entry_name(field: str) -> str:
    """Return the name of the entry message of a map field; protobuf requires that it derives from the field's name."""
    return "".join(word[0].upper() + word[1:] for word in field.split("_") if word) + "Entry"


class _DescriptorFile:
    """The protobuf messages for one expression; ``words`` are the identifiers that occur in it."""

    def __init__(self, words: frozenset[str], *, escapes: bool) -> None:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        self._escapes = escapes
        self._words = words
        self._file = FileDescriptorProto(name="schema.proto", package=_PACKAGE, syntax="proto2")
        self._known: dict[str | int, tuple[Schema, str]] = {}
        """The messages by the name of their type, or by the identity of their schema, which is kept for that."""

    def pool(self, constructed: Mapping[str, Mapping[str, CELType]]) -> Any:
        """Return a descriptor pool with all messages and those that the expression constructs."""
        from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2
        from google.protobuf.descriptor_pb2 import FileDescriptorProto
        from google.protobuf.descriptor_pool import DescriptorPool

        pool = DescriptorPool()
        for module in (duration_pb2, struct_pb2, timestamp_pb2):
            pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
            self._file.dependency.append(module.DESCRIPTOR.name)
        pool.AddSerializedFile(self._file.SerializeToString())
        if constructed:
            file = FileDescriptorProto(
                name="constructed.proto", syntax="proto2", dependency=self._file.dependency
            )
            for name, fields in constructed.items():
                message = file.message_type.add(name=name)
                for number, (field, kind) in enumerate(fields.items(), 1):
                    self._type(
                        message.field.add(name=field, number=number, label=1, json_name=field),
                        _KINDS[kind],
                    )
            pool.AddSerializedFile(file.SerializeToString())
        return pool

    def kind(self, schema: Schema, *, root: bool = False) -> CELType:
        """Return the kind of a variable with this schema."""
        if schema.int_or_string or schema.is_schemaless:
            return "dyn"
        match schema.type:
            case "array":
                return f"list({self.kind(schema.items) if schema.items is not None else 'dyn'})"
            case "object":
                if schema.additional is not None and not schema.properties:
                    return f"map(string, {self.kind(schema.additional)})"
                return self._message(schema, root=root)
            case "string" if schema.format in _TIME_FORMATS:
                return _TIME_FORMATS[schema.format].lower()
            case "string" if schema.format == "byte":
                return "bytes"
            case "integer":
                return "int"
            case "number":
                return "double"
            case "boolean":
                return "bool"
            case "string":
                return "string"
        return "dyn"

    def _message(self, schema: Schema, *, root: bool = False) -> str:
        key = schema.raw.get(TYPE_NAME) or id(schema)
        known = self._known.get(key)
        if known is not None:
            return known[1]
        name = schema.raw.get(TYPE_NAME) or f"Object{len(self._known)}"
        self._known[key] = schema, f"{_PACKAGE}.{name}"
        message = self._file.message_type.add(name=name)
        fields = dict(schema.properties.items())
        if root or schema.embedded:
            fields = {**fields, "apiVersion": _STRING, "kind": _STRING, "metadata": _METADATA}
        for field, node in fields.items():
            identifier = escape(field) if self._escapes else field
            if identifier is not None and identifier in self._words:
                self._field(message, identifier, node)
        return f"{_PACKAGE}.{name}"

    def _field(self, message: Any, name: str, schema: Schema) -> None:
        field = message.field.add(name=name, number=len(message.field) + 1, label=1, json_name=name)
        node: Schema | None = schema
        if schema.type == "array":
            node = schema.items
            field.label = field.LABEL_REPEATED
        elif schema.type == "object" and schema.additional is not None and not schema.properties:
            node = schema.additional
            entry = message.nested_type.add(name=_entry_name(name))
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, label=1, type=field.TYPE_STRING)
            field.label = field.LABEL_REPEATED
            field.type = field.TYPE_MESSAGE
            field.type_name = f".{_PACKAGE}.{message.name}.{entry.name}"
            field = entry.field.add(name="value", number=2, label=1)
        self._type(field, node)

    def _type(self, field: Any, schema: Schema | None) -> None:
        """Set the type of a single value; a value without a protobuf type, such as a list of lists, is dynamic."""
        kind = "dyn" if schema is None else self.kind(schema)
        if kind in ("bool", "int", "double", "string", "bytes"):
            field.type = getattr(field, f"TYPE_{'INT64' if kind == 'int' else kind.upper()}")
            return
        field.type = field.TYPE_MESSAGE
        if kind.startswith("list("):
            field.type_name = ".google.protobuf.ListValue"
        elif kind.startswith("map("):
            field.type_name = ".google.protobuf.Struct"
        elif kind in ("timestamp", "duration"):
            field.type_name = f".google.protobuf.{kind.capitalize()}"
        else:
            field.type_name = ".google.protobuf.Value" if kind == "dyn" else f".{kind}"
