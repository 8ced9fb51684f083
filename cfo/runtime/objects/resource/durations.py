"""The type of durations in typed resources: Go durations such as ``30s`` on the wire, timedeltas in Python."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, GetJsonSchemaHandler, PlainSerializer
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from cfo.runtime.objects.parsers import (
    DURATION_PATTERN,
    MAX_DURATION,
    MAX_LENGTH,
    format_duration,
    parse_duration,
)

_ALLOWED: Final = "must be a duration such as 30s or 1h30m"


class _ReadDuration(timedelta):
    """A duration that was read, and its string, so that an unchanged field is written as it was read."""

    text: str = ""

    def __repr__(self) -> str:
        """Return the form of other timedeltas, for logs."""
        return repr(timedelta() + self)

    def __deepcopy__(self, memo: object) -> Self:
        """Return the duration itself, which is immutable; a copy would not have the string."""
        return self


class _DurationSchema:
    """The annotation of :data:`Duration` for its schema in the CRD."""

    def __get_pydantic_json_schema__(
        self,
        schema: CoreSchema,
        handler: GetJsonSchemaHandler,
    ) -> JsonSchemaValue:
        """Return the schema in the CRD; the format alone also allows ``2 weeks``, which is no Go duration."""
        described = handler(schema)
        return {
            **described,
            "type": "string",
            "format": "duration",
            "maxLength": MAX_LENGTH,
            "pattern": f"^{DURATION_PATTERN}$",
        }


def _read(value: object) -> timedelta:
    """Return the duration of a field: a timedelta that a program set, or a string of an object."""
    if isinstance(value, timedelta) and abs(value) <= MAX_DURATION:
        return value
    if not isinstance(value, str):
        raise PydanticCustomError("duration", _ALLOWED)
    try:
        parsed = parse_duration(value)
    except ValueError:
        raise PydanticCustomError("duration", _ALLOWED) from None
    read = _ReadDuration(parsed.days, parsed.seconds, parsed.microseconds)
    read.text = value
    return read


def _write(value: timedelta) -> str:
    text = value.text if isinstance(value, _ReadDuration) else ""
    return text or format_duration(value)


Duration = Annotated[
    timedelta,
    BeforeValidator(_read),
    PlainSerializer(_write, when_used="json-unless-none"),
    _DurationSchema(),
]
"""A Go duration such as 30s or 1h30m, which is a timedelta in Python; a string that was read is written unchanged."""
