"""Field errors with apimachinery's messages.

A :class:`FieldError` corresponds to ``field.Error`` of ``k8s.io/apimachinery/pkg/util/validation/field``: a reason, the
path of the field, the invalid value and a detail. Defaulters and validators raise :class:`FieldErrors`, whose message
and causes have the form of an ``Invalid`` Status. A :class:`Path` is built step by step:

.. code-block:: python

    worker = Path("spec", "workerGroupSpecs").index(1)
    raise FieldErrors([required(worker.child("template", "spec", "containers"), "must contain a Ray container")])

Every function also takes a plain string as a path, for code that needs a path only after it has found an error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from itertools import islice
from typing import Any, Final

from cfo.runtime.objects.parsers import format_duration
from cfo.runtime.process.arguments import require_type
from cfo.runtime.process.printable import escape, printable, replace_characters
from cfo.runtime.process.strings import require_list

__all__ = [
    "MAX_ERRORS",
    "OMIT",
    "FieldError",
    "FieldErrors",
    "Path",
    "Verbatim",
    "aggregate",
    "causes",
    "duplicate",
    "forbidden",
    "go_json",
    "go_quote",
    "go_value",
    "internal",
    "invalid",
    "not_supported",
    "required",
    "too_long",
    "too_many",
    "type_invalid",
]


MAX_ERRORS: Final = 100
"""The maximum number of errors that :class:`FieldErrors` reports."""

_MAX_SHOWN: Final = 1_000
"""A message contains at most this many characters for a value, and for a detail."""

_MAX_DEPTH: Final = 200
"""How many levels of a value are shown, as many as an object in a review can have."""


class Path:
    """The path of a field. Immutable: each step returns a new path. ``str()`` formats it as the API server does.

    A step only refers to the path before it; nothing is formatted for a field that turns out to be valid.
    """

    __slots__ = ("_parent", "_step")

    def __init__(self, *names: str) -> None:
        self._parent: Path | None = None
        self._step = ".".join(names)

    def _to(self, step: str) -> Path:
        path = Path.__new__(Path)
        path._parent = self
        path._step = step
        return path

    def child(self, *names: str) -> Path:
        """Return the path of a nested field, one name per level: ``spec.template.spec``."""
        if not names:
            return self
        return self._to("." + ".".join(names))

    def index(self, position: int) -> Path:
        """Return the path of an item of the list: ``containers[0]``."""
        return self._to(f"[{position}]")

    def key(self, name: str) -> Path:
        """Return the path of an entry of the map: ``annotations[example.com/a]``."""
        return self._to(f"[{name}]")

    def __str__(self) -> str:
        steps: list[str] = []
        path: Path | None = self
        while path is not None:
            steps.append(path._step)
            path = path._parent
        root = steps[-1]
        if not root and len(steps) > 1:  # below an empty path, no dot precedes the first name
            steps[-2] = steps[-2].removeprefix(".")
        return "".join(reversed(steps))

    def __repr__(self) -> str:
        return f"Path({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Path) and str(other) == str(self)

    def __hash__(self) -> int:
        return hash(str(self))


class Verbatim(str):
    """A value that is printed unquoted, because its creator has already formatted it as Go does."""

    __slots__ = ()


class _Omit:
    """The type of the value that is not printed (``field.OmitValueType``)."""

    def __repr__(self) -> str:
        return "OMIT"


OMIT: Final = _Omit()

_MESSAGES = {
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueInvalid": "Invalid value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
    "FieldValueTypeInvalid": "Invalid value",
    "InternalError": "Internal error",
}
_WITHOUT_VALUE = frozenset(
    {"FieldValueRequired", "FieldValueForbidden", "FieldValueTooLong", "InternalError"}
)


@dataclass(frozen=True)
class FieldError:
    """One error: its reason (``FieldValueInvalid`` ...), the field's path, its value, and a detail."""

    reason: str
    field: str
    value: Any = OMIT
    detail: str = ""

    @cached_property
    def body(self) -> str:
        """The message without the path: the ``message`` of a cause. Formatted once, because it can be long."""
        text = _MESSAGES.get(self.reason, self.reason)
        if self.reason not in _WITHOUT_VALUE and self.value is not OMIT:
            text = f"{text}: {go_value(self.value)}"
        if self.detail:
            text = f"{text}: {printable(self.detail, _MAX_SHOWN)}"
        return text

    def __str__(self) -> str:
        return f"{printable(self.field)}: {self.body}"

    def cause(self) -> dict[str, str]:
        """Return the entry for ``details.causes`` of a Status."""
        cause = {"reason": self.reason, "message": self.body}
        if self.field:
            cause["field"] = printable(self.field)
        return cause


class FieldErrors(Exception):
    """Raised for an invalid object; ``errors`` has at least one :class:`FieldError`, and at most :data:`MAX_ERRORS`.

    Further errors are left out, and not computed if ``errors`` is an iterator; the message then says so.
    The message is the aggregate of all errors, as apimachinery's ``ErrorList.ToAggregate`` prints it.
    """

    def __init__(self, errors: Iterable[FieldError]) -> None:
        found = _first(errors)
        self.errors = found[:MAX_ERRORS]
        if not self.errors:
            raise ValueError("FieldErrors needs at least one error")
        for error in self.errors:
            if not isinstance(error, FieldError):
                raise TypeError(
                    f"FieldErrors: {error!r:.200}: must be a FieldError, such as field.invalid(path, value, detail)"
                )
        message = aggregate(self.errors)
        if len(found) > MAX_ERRORS:
            message += f"; only the first {MAX_ERRORS} errors are shown"
        super().__init__(message)

    @classmethod
    def check(cls, errors: Iterable[FieldError]) -> None:
        """Raise this exception if there are any errors."""
        found = _first(errors)
        if found:
            raise cls(found)

    @property
    def causes(self) -> list[dict[str, str]]:
        """The value of ``details.causes`` of a Status that reports these errors."""
        return causes(self.errors)


def _first(errors: Iterable[FieldError]) -> tuple[FieldError, ...]:
    """Return one more than the errors that are shown. Raises :class:`TypeError` for one error."""
    allowed = "a list of FieldError, such as [field.invalid(path, value, detail)]"
    require_type("FieldErrors", errors, Iterable, allowed)
    return tuple(islice(errors, MAX_ERRORS + 1))


def causes(errors: Iterable[FieldError]) -> list[dict[str, str]]:
    """Return the value of ``details.causes`` of a Status that reports ``errors``."""
    return [error.cause() for error in errors]


def aggregate(errors: Sequence[FieldError]) -> str:
    """Return one message for all errors: a single one unchanged, several in brackets, without duplicates."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    if len(texts) == 1:
        return texts[0]
    return "[" + ", ".join(texts) + "]"


def required(path: Path | str, detail: str = "") -> FieldError:
    """Return the error for a missing value."""
    return FieldError("FieldValueRequired", str(path), "", detail)


def invalid(path: Path | str, value: Any, detail: str) -> FieldError:
    """Return the error for a value that violates a rule."""
    return FieldError("FieldValueInvalid", str(path), value, detail)


def type_invalid(path: Path | str, value: Any, detail: str) -> FieldError:
    """Return the error for a value of the wrong JSON type."""
    return FieldError("FieldValueTypeInvalid", str(path), value, detail)


def not_supported(path: Path | str, value: Any, supported: Iterable[Any]) -> FieldError:
    """Return the error for a value that is not in ``supported``, which the message lists in the given order.

    Raises :class:`TypeError` if ``supported`` is one string.
    """
    require_list("supported", supported)
    quoted = ", ".join(go_quote(str(item)) for item in supported)
    detail = f"supported values: {quoted}" if quoted else ""
    return FieldError("FieldValueNotSupported", str(path), value, detail)


def forbidden(path: Path | str, detail: str) -> FieldError:
    """Return the error for a field that must not be set (at this time, or together with another field)."""
    return FieldError("FieldValueForbidden", str(path), "", detail)


def duplicate(path: Path | str, value: Any) -> FieldError:
    """Return the error for a value that appears more than once and must be unique."""
    return FieldError("FieldValueDuplicate", str(path), value)


def too_long(path: Path | str, value: Any, limit: int) -> FieldError:
    """Return the error for a string of more than ``limit`` bytes."""
    if limit < 0:
        return FieldError("FieldValueTooLong", str(path), value, "value is too long")
    unit = "byte" if limit == 1 else "bytes"
    return FieldError("FieldValueTooLong", str(path), value, f"may not be more than {limit} {unit}")


def too_many(path: Path | str, actual: int | None, limit: int) -> FieldError:
    """Return the error for a list or map with more than ``limit`` entries; ``actual`` is omitted if it is negative."""
    unit = "item" if limit == 1 else "items"
    is_known = actual is not None and actual >= 0
    value = actual if is_known else OMIT
    return FieldError("FieldValueTooMany", str(path), value, f"must have at most {limit} {unit}")


def internal(path: Path | str, detail: str) -> FieldError:
    """Return the error for a check that could not be performed."""
    return FieldError("InternalError", str(path), "", detail)


def go_value(value: Any) -> str:
    """Format a value as ``field.Error`` does: numbers and booleans plain, strings quoted, everything else as JSON."""
    if isinstance(value, Verbatim):
        return printable(value, _MAX_SHOWN)
    if value is None:
        return "null"
    if isinstance(value, str):
        return go_quote(_shortened(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _go_float(value)
    return printable(go_json(value), _MAX_SHOWN)


def _shortened(text: str) -> str:
    if len(text) <= _MAX_SHOWN:
        return text
    return f"{text[:_MAX_SHOWN]}..."


def go_json(value: Any) -> str:
    """Encode JSON as Go's encoder does: compact, keys sorted, ``<``, ``>`` and ``&`` escaped.

    A value that is not JSON, such as one of a typed object, is its string; a timedelta is a Go duration. Encodes only
    the start of what has over 1,000 characters: the value can be as large as a review.
    """
    text = ""
    for piece in _pieces(value, 0):
        text += piece
        if len(text) > _MAX_SHOWN:
            break
    for character in "<>&\u2028\u2029":
        if character in text:
            text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _pieces(value: Any, depth: int) -> Iterator[str]:
    """Yield the JSON of ``value``, which is ``depth`` levels below the value that is shown, piece by piece."""
    if depth > _MAX_DEPTH:
        yield "…"
    elif isinstance(value, dict):
        yield "{"
        # More keys have more characters than are shown; then they need not be the first ones.
        names = sorted(islice(value, _MAX_SHOWN), key=str)
        for at, name in enumerate(names):
            if at:
                yield ","
            yield _go_scalar(name if isinstance(name, str) else _go_scalar(name))
            yield ":"
            yield from _pieces(value[name], depth + 1)
        yield "}"
    elif isinstance(value, (list, tuple)):
        yield "["
        for at, item in enumerate(value):
            if at:
                yield ","
            yield from _pieces(item, depth + 1)
        yield "]"
    else:
        yield _go_scalar(value)


def _go_scalar(value: Any) -> str:
    """Encode a value that contains no others; only the start of a long string."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        value = int(value)  # Go prints 1.0 as 1
    if isinstance(value, str):
        value = value[: _MAX_SHOWN + 1]
    return json.dumps(value, ensure_ascii=False, default=_shown)


def _shown(value: object) -> str:
    text = format_duration(value) if isinstance(value, timedelta) else str(value)
    return text[: _MAX_SHOWN + 1]


def _go_float(value: float) -> str:
    """Format a float64 as ``%v`` does: the shortest form, with an exponent from 1e+21 on and below 1e-4."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return repr(value)


def go_quote(text: str) -> str:
    """Quote a string as ``%q`` does: with the escapes of Go's ``strconv.Quote``."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    quoted = replace_characters(text, _go_escape)
    return f'"{quoted}"'


def _go_escape(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return escape(character)
