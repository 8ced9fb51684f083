"""The base class of the sections of the configuration, and how msgspec converts documents into them.

msgspec stops at the first error, whose message has neither the value nor keys of maps. If a document is invalid, its
parts are therefore converted one by one, so that the error of each invalid part is found with its path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    Self,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)

import msgspec
from msgspec.structs import FieldInfo

from cfo.runtime.objects import format_duration
from cfo.runtime.process import printable

_MAX_PROBLEMS: Final = 20
_MAX_VALUE_CHARACTERS: Final = 100


class ConfigurationError(ValueError):
    """Raised for an invalid configuration; the message is one line that names the first invalid fields.

    ``problems`` has one line for each of them, of at most 1000 printable characters; ``warnings`` are those of its
    document.
    """

    def __init__(self, *problems: str, warnings: Sequence[str] = ()) -> None:
        # One more is the line that counts the others, if these problems are those of an error that was raised before.
        if len(problems) > _MAX_PROBLEMS + 1:
            problems = (
                *problems[:_MAX_PROBLEMS],
                f"and {len(problems) - _MAX_PROBLEMS} more problems",
            )
        self.problems = tuple(map(printable, problems))
        self.warnings = tuple(warnings)
        super().__init__("; ".join(self.problems))

    def within(self, where: str) -> ConfigurationError:
        """Return the same error with ``where`` in front of each problem and warning."""
        return ConfigurationError(
            *(f"{where}: {problem}" for problem in self.problems),
            warnings=[f"{where}: {warning}" for warning in self.warnings],
        )


class SettingConflicts(ValueError):
    """Raised by a section of which some settings are not allowed together; ``problems`` has one line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Section(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """A section of the document, whose keys are in camelCase. Instances are immutable.

    A setting is annotated with its type, with its :class:`msgspec.Meta`, and with its description. The type is one that
    msgspec converts, or a class with a method ``parse``, which returns an instance or raises :class:`ValueError` with
    what is allowed. :meth:`conflicts` checks settings that depend on each other.
    """

    def __post_init__(self) -> None:
        problems = tuple(self.conflicts())
        if problems:
            raise SettingConflicts(problems)

    def conflicts(self) -> Iterator[str]:
        """Yield a line for each problem of settings that are valid, but not together."""
        yield from ()

    @classmethod
    def from_document(cls, data: Mapping[str, Any]) -> Self:
        """Return the section with the settings ``data`` by their keys, and defaults for others.

        Raises :class:`ConfigurationError` with the path of each unknown key and each invalid or missing value.
        """
        try:
            section: Self = _convert(data, cls)
        except msgspec.ValidationError as error:
            raise ConfigurationError(*_explain(data, cls, "", error)) from None
        return section

    @classmethod
    def normalized(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the settings of a document in the form of :meth:`from_document`, without those that mean "unset"."""
        return data

    def to_document(self) -> dict[str, Any]:
        """Return every setting under its key; those that are unset are ``None``."""
        document: dict[str, Any] = msgspec.to_builtins(self, enc_hook=_plain)
        return document


@cache
def settings_of(model: type[Section]) -> Mapping[str, FieldInfo]:
    """Return the settings of a section by their keys."""
    return {field.encode_name: field for field in msgspec.structs.fields(model)}


def section_model(annotation: Any) -> type[Section] | None:
    """Return the model of a setting that is a section, which may be unset; ``None`` if the setting is a value."""
    kind = value_type(annotation)
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def value_type(annotation: Any) -> Any:
    """Return the type of the values of a setting that is set."""
    return value_layers(annotation)[-1]


_UNIONS: Final = (Union, UnionType)
_ALLOWED: Final = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "a mapping",
}


_BOOLEANS: Final = {
    True: "true (YAML reads on and yes as true)",
    False: "false (YAML reads off and no as false)",
}
"""A boolean where none is allowed: what the user typed is not known anymore."""


def value_layers(annotation: Any) -> list[Any]:
    """Return an annotation, then what is left of it without its metadata or without ``None``, down to the bare type.

    Each layer can have metadata of its own. The only unions in the models are with ``None``.
    """
    layers = [annotation]
    while True:
        origin = get_origin(layers[-1])
        arguments = get_args(layers[-1])
        if origin is Annotated:
            layers.append(arguments[0])
        elif origin in _UNIONS:
            layers.append(next(one for one in arguments if one is not NoneType))
        else:
            return layers


def _convert(value: object, kind: Any) -> Any:
    return msgspec.convert(value, kind, dec_hook=_parse)


def _parse(kind: Any, value: object) -> object:
    """Return ``value`` as an instance of ``kind``, a class that msgspec does not know."""
    return kind.parse(value)


def _plain(value: object) -> str:
    """Return the form in documents of a value that msgspec does not know."""
    return format_duration(value) if isinstance(value, timedelta) else str(value)


def _validate(value: object, kind: Any, path: str) -> Iterator[str]:
    """Yield a line for each invalid part of ``value``."""
    try:
        _convert(value, kind)
    except msgspec.ValidationError as error:
        yield from _explain(value, kind, path, error)


def _explain(value: object, kind: Any, path: str, error: msgspec.ValidationError) -> Sequence[str]:
    """Return a line for each invalid part of ``value``; if no part is invalid, the ``error`` is about all of it."""
    problems = list(_explain_parts(value, kind, path))
    if problems:
        return problems
    if isinstance(error.__cause__, SettingConflicts):
        return [_format_problem(path, value, problem) for problem in error.__cause__.problems]
    return [_format_problem(path, value, _allowed(kind, error))]


def _explain_parts(value: object, kind: Any, path: str) -> Iterator[str]:
    kind = value_type(kind)
    arguments = get_args(kind)
    section = section_model(kind)
    if section is not None and isinstance(value, Mapping):
        yield from _explain_settings(value, section, path)
    elif get_origin(kind) is list and isinstance(value, Sequence) and not isinstance(value, str):
        for index, item in enumerate(value):
            yield from _validate(item, arguments[0], f"{path}[{index}]")
    elif get_origin(kind) is dict and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _validate(key, arguments[0], path)
            yield from _validate(item, arguments[1], f"{path}.{key}")


def _explain_settings(given: Mapping[Any, Any], section: type[Section], path: str) -> Iterator[str]:
    settings = settings_of(section)
    prefix = f"{path}." if path else ""
    for key in given:
        if key not in settings:
            yield f"{prefix}{key}: is unknown"
    for key, setting in settings.items():
        if key in given:
            yield from _validate(given[key], setting.type, f"{prefix}{key}")
        elif setting.required:
            yield f"{prefix}{key}: is required"


def _allowed(annotation: Any, error: msgspec.ValidationError) -> str:
    """Say what is allowed instead of a value that msgspec refuses with ``error``."""
    if error.__cause__ is not None:  # of a method `parse` or `__post_init__`
        return str(error.__cause__)
    for each in value_layers(annotation):
        for item in get_args(each):
            if isinstance(item, msgspec.Meta) and item.description is not None:
                return f"must be {item.description}"
    kind = value_type(annotation)
    if get_origin(kind) is Literal:
        *others, last = map(repr, get_args(kind))
        return f"must be {', '.join(others)} or {last}" if others else f"must be {last}"
    if section_model(kind) is not None:
        return "must be a mapping"
    return f"must be {_ALLOWED[get_origin(kind) or kind]}"


def _format_problem(path: str, value: object, allowed: str) -> str:
    """Return a line that names path, beginning of the value and what is allowed."""
    where = f"{path}: " if path else ""
    is_container = isinstance(value, dict | list) and len(value) > 0
    shown = "" if is_container else f"{printable(repr(value), _MAX_VALUE_CHARACTERS)}: "
    # The message of a method `parse` may begin with the value.
    allowed = allowed.removeprefix(shown)
    if isinstance(value, bool):
        return f"{where}{_BOOLEANS[value]}: {allowed}"
    return f"{where}{shown}{allowed}"
