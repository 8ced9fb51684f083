"""The base class of the sections of the configuration.

A setting is annotated with its type, with functions that check or normalize its value, and with its description.
Sections are not models of pydantic, whose import and schemas would take a fifth of the operator's start; their modules
evaluate annotations at once, because compiling them later takes longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)

import msgspec
from msgspec.structs import FieldInfo

from cfo.config.durations import format_duration
from cfo.runtime.process import printable

_MAX_PROBLEMS: Final = 20
_MAX_SHOWN: Final = 100


class ConfigurationError(ValueError):
    """Raised for an invalid configuration; the message is one line that names the first invalid fields.

    ``problems`` has one line for each of them, of at most 1000 printable characters.
    """

    def __init__(self, *problems: str) -> None:
        if len(problems) > _MAX_PROBLEMS + 1:
            problems = (
                *problems[:_MAX_PROBLEMS],
                f"and {len(problems) - _MAX_PROBLEMS} more problems",
            )
        self.problems = tuple(map(printable, problems))
        super().__init__("; ".join(self.problems))

    def within(self, where: str) -> ConfigurationError:
        """Return the same error with ``where`` in front of each problem."""
        return ConfigurationError(*(f"{where}: {problem}" for problem in self.problems))


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Section(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A section of the document: keys in camelCase, values do not change.

    ``__post_init__`` checks settings that depend on each other; it raises :class:`ValueError`.
    """

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """Return the section with the settings ``data`` by their keys, and defaults for others.

        Raises :class:`ConfigurationError` with the path of each unknown key and each invalid or missing value.
        """
        problems: list[str] = []
        section = _section(data, cls, "", problems)
        if section is None:
            raise ConfigurationError(*problems)
        return section

    @classmethod
    def without_unset(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``data`` without keys whose value means that the setting is unset."""
        return data

    def to_document(self) -> dict[str, Any]:
        """Return every setting under its key; those that are unset are ``None``."""
        document: dict[str, Any] = _plain(msgspec.to_builtins(self, builtin_types=(timedelta,)))
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
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in _UNIONS:
            annotation = _set_type(get_args(annotation))
        else:
            return annotation


def _set_type(members: Sequence[Any]) -> Any:
    return next(one for one in members if one is not NoneType)


_S = TypeVar("_S", bound=Section)
_UNIONS: Final = (Union, UnionType)
_ALLOWED: Final = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}


def _section(data: object, model: type[_S], path: str, problems: list[str]) -> _S | None:
    if not isinstance(data, Mapping):
        _problem(path, data, "must be a mapping", problems)
        return None
    prefix, settings, before = f"{path}." if path else "", settings_of(model), len(problems)
    given = model.without_unset(data)
    problems += (f"{prefix}{key}: is unknown" for key in given if key not in settings)
    values = {}
    for key, setting in settings.items():
        if key in given:
            values[setting.name] = _value(given[key], setting.type, prefix + key, problems)
        elif setting.required:
            problems.append(f"{prefix}{key}: is required")
    if len(problems) > before:
        return None
    try:
        return model(**values)
    except ValueError as error:
        problems.append(f"{path}: {error}" if path else str(error))
    return None


def _value(value: Any, annotation: Any, path: str, problems: list[str]) -> Any:
    """Return ``value`` as the type ``annotation``; add a line to ``problems`` for each part that is invalid."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        checked = value
        try:
            for check in filter(callable, arguments[1:]):
                checked = check(checked)
        except ValueError as error:
            return _problem(path, value, str(error), problems)
        return (
            checked if arguments[0] is timedelta else _value(checked, arguments[0], path, problems)
        )
    if origin in _UNIONS:
        return None if value is None else _value(value, _set_type(arguments), path, problems)
    if origin is list:
        if not isinstance(value, list):
            return _problem(path, value, "must be a list", problems)
        return [
            _value(item, arguments[0], f"{path}[{index}]", problems)
            for index, item in enumerate(value)
        ]
    if origin is dict:
        if not isinstance(value, Mapping):
            return _problem(path, value, "must be a mapping", problems)
        return {
            _value(key, arguments[0], path, problems): _value(
                item, arguments[1], f"{path}.{key}", problems
            )
            for key, item in value.items()
        }
    if origin is Literal:
        *others, last = map(repr, arguments)
        allowed = f"must be {', '.join(others)} or {last}" if others else f"must be {last}"
        return value if value in arguments else _problem(path, value, allowed, problems)
    if section_model(annotation) is not None:
        return _section(value, annotation, path, problems)
    if type(value) is annotation or (annotation is float and type(value) is int):
        return value
    return _problem(path, value, f"must be {_ALLOWED[annotation]}", problems)


def _problem(path: str, value: object, allowed: str, problems: list[str]) -> None:
    """Add a line that names path, beginning of the value and what is allowed."""
    shown = (
        ""
        if value and isinstance(value, dict | list)
        else f"{printable(repr(value), _MAX_SHOWN)}: "
    )
    problems.append((f"{path}: " if path else "") + shown + allowed.removeprefix(shown))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return format_duration(value) if isinstance(value, timedelta) else value
