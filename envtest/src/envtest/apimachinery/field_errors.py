"""Field errors with the reasons and messages of apimachinery.

A :class:`FieldError` corresponds to ``field.Error`` of ``k8s.io/apimachinery/pkg/util/validation/field``: its reason,
the path, the invalid value and a detail. Paths are plain strings, built with :func:`child`, :func:`index` and
:func:`key` only when there is an error, so valid objects cost nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from envtest.formats.go_format import go_float

__all__ = [
    "OMIT",
    "Absent",
    "FieldError",
    "Verbatim",
    "aggregate",
    "as_sent",
    "causes",
    "child",
    "duplicate",
    "forbidden",
    "go_json",
    "go_quote",
    "go_value",
    "index",
    "internal",
    "invalid",
    "key",
    "not_found",
    "not_supported",
    "not_supported_string",
    "required",
    "too_long",
    "too_many",
    "type_invalid",
]


class Verbatim(str):
    """A value that is printed unchanged, because the caller has already formatted it as Go does."""

    __slots__ = ()


class Absent(str):
    """The path of an absent list or map that an error of another field shows: as ``null``, see :func:`as_sent`."""

    __slots__ = ()


class _Omit:
    """The value that is not printed (``field.OmitValueType``)."""

    def __repr__(self) -> str:
        return "OMIT"


OMIT: Final = _Omit()

_WORDS = {
    "FieldValueNotFound": "Not found",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueInvalid": "Invalid value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
    "FieldValueTooFew": "Too few",
    "FieldValueTypeInvalid": "Invalid value",
    "InternalError": "Internal error",
}
_VALUELESS = frozenset(
    {"FieldValueRequired", "FieldValueForbidden", "FieldValueTooLong", "InternalError"}
)


class FieldError(NamedTuple):
    """One error: its reason (``FieldValueInvalid`` ...), the path of the field, the value and a detail."""

    reason: str
    field: str
    value: Any = OMIT
    detail: str = ""

    @property
    def body(self) -> str:
        """The message without the path: the ``message`` of a cause."""
        text = _WORDS.get(self.reason, self.reason)
        if self.reason not in _VALUELESS and self.value is not OMIT:
            text = f"{text}: {go_value(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"

    def cause(self) -> dict[str, str]:
        """Return the entry in ``details.causes`` of a Status."""
        cause = {"reason": self.reason, "message": self.body}
        if self.field:
            cause["field"] = self.field
        return cause


def causes(errors: Iterable[FieldError]) -> list[dict[str, str]]:
    """Return ``details.causes`` of the Status that reports ``errors``."""
    return [error.cause() for error in errors]


def aggregate(errors: Sequence[FieldError]) -> str:
    """Join all errors, without duplicates, into one string; several are in brackets."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    return texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"


def as_sent(errors: Iterable[FieldError], sent: Mapping[str, Any]) -> list[FieldError]:
    """Return the errors with the values that are absent as ``[]`` or ``{}`` if the request contains them empty.

    Decoding drops empty lists and maps, because the store does; Go keeps them until they are stored. ``sent`` is the
    object before it was decoded.
    """
    shown = []
    for error in errors:
        path = error.field if error.value is None else error.value
        if error.value is None or isinstance(path, Absent):
            value = _lookup(sent, path)
            error = error._replace(value=value if value in ([], {}) else None)
        shown.append(error)
    return shown


_STEP = re.compile(r"\[([^\[\]]*)\]|[^.\[\]]+")


def _lookup(obj: Any, path: str) -> Any:
    for step in _STEP.finditer(path):
        name = step[0] if step[1] is None else step[1]
        if isinstance(obj, dict):
            obj = obj.get(name)
        elif isinstance(obj, list) and name.isdecimal() and int(name) < len(obj):
            obj = obj[int(name)]
        else:
            return None
    return obj


def child(path: str, name: str) -> str:
    """Return the path of the field ``name`` below ``path``."""
    return f"{path}.{name}" if path else name


def index(path: str, position: int) -> str:
    """Return the path of an item of the list at ``path``."""
    return f"{path}[{position}]"


def key(path: str, name: str) -> str:
    """Return the path of the entry ``name`` of the map at ``path``."""
    return f"{path}[{name}]"


def required(path: str, detail: str = "") -> FieldError:
    """Return the error for a missing value."""
    return FieldError("FieldValueRequired", path, "", detail)


def invalid(path: str, value: Any, detail: str) -> FieldError:
    """Return the error for a value that violates a rule."""
    return FieldError("FieldValueInvalid", path, value, detail)


def type_invalid(path: str, value: Any, detail: str) -> FieldError:
    """Return the error for a value of the wrong JSON type."""
    return FieldError("FieldValueTypeInvalid", path, value, detail)


def not_supported(path: str, value: Any, supported: Iterable[Any]) -> FieldError:
    """Return the error for a value that is not in ``supported``, which are quoted in their order.

    Most of these fields have a named string type in Go, whose values ``field.Error`` prints as JSON.
    """
    is_text = isinstance(value, str) and not isinstance(value, (Verbatim, Absent))
    shown = Verbatim(go_json(value)) if is_text else value
    return not_supported_string(path, shown, supported)


def not_supported_string(path: str, value: Any, supported: Iterable[Any]) -> FieldError:
    """Return the error of :func:`not_supported` for a field with the type ``string`` in Go."""
    words = ", ".join(go_quote(str(item)) for item in supported)
    detail = f"supported values: {words}" if words else ""
    return FieldError("FieldValueNotSupported", path, value, detail)


def forbidden(path: str, detail: str) -> FieldError:
    """Return the error for a field that must not be set (at all, or together with another)."""
    return FieldError("FieldValueForbidden", path, "", detail)


def duplicate(path: str, value: Any) -> FieldError:
    """Return the error for a value that occurs twice but must be unique."""
    return FieldError("FieldValueDuplicate", path, value)


def not_found(path: str, value: Any) -> FieldError:
    """Return the error for a reference to a missing object."""
    return FieldError("FieldValueNotFound", path, value)


def too_long(path: str, value: Any, limit: int) -> FieldError:
    """Return the error for a string of more than ``limit`` bytes."""
    if limit < 0:
        return FieldError("FieldValueTooLong", path, value, "value is too long")
    unit = "byte" if limit == 1 else "bytes"
    return FieldError("FieldValueTooLong", path, value, f"may not be more than {limit} {unit}")


def too_many(path: str, actual: int | None, limit: int) -> FieldError:
    """Return the error for a list or map of more than ``limit`` entries."""
    unit = "item" if limit == 1 else "items"
    value = OMIT if actual is None or actual < 0 else actual
    return FieldError("FieldValueTooMany", path, value, f"must have at most {limit} {unit}")


def internal(path: str, detail: str) -> FieldError:
    """Return the error for a check that could not be performed."""
    return FieldError("InternalError", path, "", detail)


def go_value(value: Any) -> str:
    """Format a value as ``field.Error`` does: numbers and booleans plainly, strings quoted, the rest as JSON."""
    if isinstance(value, Verbatim):
        return str(value)
    if value is None or isinstance(value, Absent):
        return "null"
    if isinstance(value, str):
        return go_quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return go_float(value)
    return go_json(value)


def go_json(value: Any, *, sort_keys: bool = True) -> str:
    """Encode JSON as Go's encoder does: compact, ``<``, ``>`` and ``&`` escaped, the keys of maps sorted.

    ``sort_keys`` is false for structs whose fields are in the order of their declaration.
    """
    text = json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), sort_keys=sort_keys)
    for character in "<>&\u2028\u2029":
        if character in text:
            text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _plain(value: Any) -> Any:
    """Return ``value`` with whole floats as Go prints them: ``1.0`` is ``1``."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return int(value)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    '"': '\\"',
    "\\": "\\\\",
}


def go_quote(text: str) -> str:
    """Quote and escape a string as Go's ``strconv.Quote`` (``%q``) does."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_quoted(character) for character in text) + '"'


def _quoted(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
