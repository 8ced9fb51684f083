"""The type of durations in typed resources: Go durations such as ``30s`` on the wire, timedeltas in Python."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Final, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from cfo.runtime.objects.parsers import (
    DURATION_PATTERN,
    MAX_DURATION,
    MAX_LENGTH,
    format_duration,
    parse_duration,
)
from cfo.runtime.objects.resource.model import PROBLEM

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


class _GoDuration:
    """The annotation of :data:`Duration`, for pydantic."""

    def __get_pydantic_core_schema__(
        self, source: type[Any], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the schema of a timedelta that is read from, and written as, a Go duration."""
        return core_schema.no_info_before_validator_function(
            _read,
            handler(source),
            serialization=core_schema.plain_serializer_function_ser_schema(
                _write, when_used="json-unless-none"
            ),
        )

    def __get_pydantic_json_schema__(
        self,
        schema: CoreSchema,
        handler: GetJsonSchemaHandler,
    ) -> JsonSchemaValue:
        """Return the schema in the CRD; the format alone also allows ``2 weeks``, which is no Go duration."""
        described = handler(schema)
        described.pop(PROBLEM, None)
        return {
            **described,
            "type": "string",
            "format": "duration",
            "maxLength": MAX_LENGTH,
            "pattern": f"^{DURATION_PATTERN}$",
        }


Duration = Annotated[timedelta, _GoDuration()]
"""A Go duration such as 30s or 1h30m, which is a timedelta in Python; a string that was read is written unchanged."""


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
