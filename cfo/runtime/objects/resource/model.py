"""The base class of API types: camelCase on the wire, and unknown fields are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Final, cast, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    Json,
    PlainSerializer,
    WrapSerializer,
)
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from cfo.runtime.objects.errors import SchemaError

VALIDATIONS = "x-kubernetes-validations"

_UNCHANGED: Final = frozenset(
    {
        Any,
        Mapping,
        NoneType,
        Sequence,
        UnionType,
        bool,
        dict,
        float,
        frozenset,
        int,
        list,
        object,
        set,
        str,
        tuple,
    }
)
"""The classes whose values pydantic writes as it has read them, besides enums and API types."""

_REPLACED: Final[Mapping[Any, str]] = {
    timedelta: "timedelta reads no Go durations such as 30s: use Duration of cfo.runtime",
    bytes: "bytes are not decoded from base64: use str",
    datetime: "datetime drops nanoseconds: use Time of cfo.runtime.objects",
    Decimal: "Decimal is a number or a string: use Quantity of cfo.runtime",
}
"""Types that pydantic reads otherwise than Kubernetes writes them, and what an API type uses instead."""


def _problem_of(part: Any) -> str:
    """Return why a class cannot be the type of a field; empty if it can."""
    if part in _UNCHANGED or issubclass(part, APIModel | Enum):
        return ""
    if issubclass(part, BaseModel) or is_dataclass(part):
        return (
            f"{part.__name__} has no camelCase names and drops unknown fields: must be a subclass of APIModel of "
            "cfo.runtime"
        )
    return _REPLACED.get(part) or (
        f"{part.__name__} can be written in another form than it was read: use str, or add a PlainSerializer"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CELRule:
    """A validation rule of a CRD, which the API server evaluates (`x-kubernetes-validations`_).

    ``rule`` is a CEL expression in which ``self`` is the value, and ``oldSelf`` the previous one. ``message`` or the
    CEL expression ``message_expression`` explains the error. ``reason`` and ``field_path`` are part of the cause.
    ``optional_old_self``: the rule also applies to creations, with ``oldSelf`` as an optional value.

    .. _x-kubernetes-validations: https://kubernetes.io/docs/reference/using-api/cel/
    """

    rule: str
    message: str = ""
    message_expression: str = ""
    reason: str = ""
    field_path: str = ""
    optional_old_self: bool = False

    def entry(self) -> dict[str, Any]:
        """Return the entry of the schema's list of validations."""
        fields = {
            "fieldPath": self.field_path,
            "message": self.message,
            "messageExpression": self.message_expression,
            "optionalOldSelf": self.optional_old_self,
            "reason": self.reason,
            "rule": self.rule,
        }
        return {name: value for name, value in fields.items() if value}


def validations(*rules: CELRule) -> Any:
    """Return the annotation of a field with CEL rules: ``Annotated[int, validations(CELRule(rule="self > 0"))]``."""
    return Field(json_schema_extra={VALIDATIONS: [rule.entry() for rule in rules]})


def require_items(class_name: str, keyword: str, values: Any, expected: type) -> None:
    """Raise :class:`SchemaError` unless ``values``, which a class keyword has, is a list of ``expected`` instances."""
    is_list = isinstance(values, Sequence)
    if not is_list or not all(isinstance(value, expected) for value in values):
        raise SchemaError(
            f"class {class_name}: {keyword}: {values!r:.200}: must be a list of {expected.__name__}(...)"
        )


def _unknown_keywords(cls: type, keywords: Iterable[str]) -> str:
    """Return the error for class keywords that no class takes."""
    parameters = signature(cls.__init_subclass__).parameters.values()
    allowed = [each.name for each in parameters if each.kind is Parameter.KEYWORD_ONLY]
    return (
        f"class {cls.__name__}: keyword {', '.join(keywords)}: must be one of {', '.join(allowed)}"
    )


class APIModel(BaseModel):
    """Base class of API types and their parts: camelCase on the wire, unknown fields are preserved.

    A field whose type pydantic can write in another form than it was read, such as SecretStr, HttpUrl or datetime,
    raises :class:`SchemaError`: an update would change the field of the user. Allowed are the types of JSON, enums, API
    types, and types with a serializer. A computed field, and one with ``exclude``, raises it, too.
    The class keyword ``validations`` has CEL rules of the whole part:
    ``class Spec(APIModel, validations=[CELRule(rule="self.min <= self.max")])``.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")

    _validations: ClassVar[tuple[CELRule, ...]] = ()

    def __init_subclass__(cls, *, validations: Sequence[CELRule] = (), **keywords: Any) -> None:
        try:
            super().__init_subclass__(**keywords)
        except TypeError as error:
            if not keywords:
                raise
            raise SchemaError(_unknown_keywords(cls, keywords)) from error
        require_items(cls.__name__, "validations", validations, CELRule)
        cls._validations = (*cls._validations, *validations)

    @classmethod
    def __pydantic_init_subclass__(cls, **keywords: Any) -> None:
        """Check the fields; ``__init_subclass__`` has processed the class keywords.

        Raises :class:`SchemaError` for a field that :func:`check_fields` finds.
        """
        check_fields(cls)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the JSON Schema of the class with its CEL rules."""
        described = handler(schema)
        if cls._validations:
            resolved = handler.resolve_ref_schema(described)
            resolved[VALIDATIONS] = [rule.entry() for rule in cls._validations]
        return described


def check_fields(model: type[APIModel]) -> None:
    """Raise :class:`SchemaError` for a field that an update could change, drop or add.

    A type that is not defined yet is not checked.
    """
    for name in model.model_computed_fields:
        raise SchemaError(
            f"class {model.__name__}: {name}: a computed field would be written to the object: use a property"
        )
    for name, field in model.model_fields.items():
        if field.exclude:
            raise SchemaError(
                f"class {model.__name__}: {name}: exclude: an update would drop the field"
            )
        for part in _parts(field.annotation, field.metadata):
            problem = _problem_of(part)
            if problem:
                raise SchemaError(f"class {model.__name__}: {name}: {problem}")


def _parts(
    annotation: Any, metadata: Sequence[Any], aliases: tuple[Any, ...] = ()
) -> Iterator[type]:
    """Yield each class in an annotation, except classes with their own serializer; ``aliases`` contain it."""
    if any(isinstance(item, PlainSerializer | WrapSerializer) for item in metadata):
        return
    if any(type(item) is Json for item in metadata):
        yield Json
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is Annotated:
        yield from _parts(arguments[0], arguments[1:], aliases)
        return
    for argument in arguments:
        yield from _parts(argument, (), aliases)
    part = origin or annotation
    if isinstance(part, type):
        yield part
        return
    alias = getattr(part, "__value__", None)
    if alias is not None and part not in aliases:
        yield from _parts(alias, (), (*aliases, part))


def mark_changes(value: Any) -> None:
    """Mark the fields inside ``value`` that an encoder has to write, and no others, as set.

    Pydantic regards a field as set if it was assigned, which misses a default value that was changed in place
    (``spec.hosts.append(...)``). A field that is ``None`` is unset: it has no counterpart on the wire.
    """
    if isinstance(value, BaseModel):
        factories = _factories(type(value))
        assigned = value.model_fields_set
        for name in type(value).model_fields:
            current = getattr(value, name)
            mark_changes(current)
            if current is None:
                assigned.discard(name)
            elif name not in assigned and _is_changed(current, factories.get(name)):
                assigned.add(name)
        unknown = value.model_extra or {}
        for extra in unknown.values():
            mark_changes(extra)
    elif isinstance(value, Mapping):
        for item in value.values():
            mark_changes(item)
    elif isinstance(value, list | tuple):
        for item in value:
            mark_changes(item)


@cache
def _factories(model: type[BaseModel]) -> Mapping[str, Callable[[], Any]]:
    """Return a function for the default of each field; it takes 1 ms, because pydantic inspects the factories.

    Fields whose default depends on other fields are left out.
    """
    return {
        name: _default_factory(field)
        for name, field in model.model_fields.items()
        if not field.default_factory_takes_validated_data
    }


def _default_factory(field: FieldInfo) -> Callable[[], Any]:
    factory: Any = field.default_factory
    if factory is None:
        return lambda: field.default
    return cast("Callable[[], Any]", factory)


def _is_changed(current: Any, factory: Callable[[], Any] | None) -> bool:
    if factory is None:
        return True
    if isinstance(current, BaseModel) and current.model_fields_set:
        return True
    return bool(current != factory())
