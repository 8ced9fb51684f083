"""Field errors with the reasons and messages of apimachinery.

A :class:`FieldError` is ``field.Error`` of ``k8s.io/apimachinery/pkg/util/validation/field``: its reason, the path, the
offending value and a detail. Paths are plain strings, built with :func:`child`, :func:`index` and :func:`key`: building
one costs nothing until there is an error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

__all__ = [
    "OMIT",
    "FieldError",
    "Verbatim",
    "aggregate",
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
    "required",
    "too_few",
    "too_long",
    "too_many",
    "type_invalid",
]


class Verbatim(str):
    """A value that is printed as it is: its owner knows the form in which Go prints it."""

    __slots__ = ()


class _Omit:
    """The value which is not printed (``field.OmitValueType``)."""

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
_VALUELESS = frozenset({"FieldValueRequired", "FieldValueForbidden", "FieldValueTooLong", "InternalError"})


class FieldError(NamedTuple):
    """One error: its reason (``FieldValueInvalid`` ...), the field's path, the value, and what is the matter."""

    reason: str
    field: str
    value: Any = OMIT
    detail: str = ""

    @property
    def body(self) -> str:
        """The text without the path: the ``message`` of a cause."""
        text = _WORDS.get(self.reason, self.reason)
        if self.reason not in _VALUELESS and self.value is not OMIT:
            text = f"{text}: {go_value(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"

    def cause(self) -> dict[str, str]:
        """The entry of ``details.causes`` of a Status."""
        cause = {"reason": self.reason, "message": self.body}
        if self.field:
            cause["field"] = self.field
        return cause


def causes(errors: Iterable[FieldError]) -> list[dict[str, str]]:
    """``details.causes`` of the Status that reports ``errors``."""
    return [error.cause() for error in errors]


def aggregate(errors: Sequence[FieldError]) -> str:
    """All errors as one text: the only one as it is, several in brackets, repeats once."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    return texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"


def child(path: str, name: str) -> str:
    """The path of the field ``name`` below ``path``."""
    return f"{path}.{name}" if path else name


def index(path: str, position: int) -> str:
    """The path of an item of the list at ``path``."""
    return f"{path}[{position}]"


def key(path: str, name: str) -> str:
    """The path of the entry ``name`` of the map at ``path``."""
    return f"{path}[{name}]"


def required(path: str, detail: str = "") -> FieldError:
    """A value is missing."""
    return FieldError("FieldValueRequired", path, "", detail)


def invalid(path: str, value: Any, detail: str) -> FieldError:
    """A value breaks a rule."""
    return FieldError("FieldValueInvalid", path, value, detail)


def type_invalid(path: str, value: Any, detail: str) -> FieldError:
    """A value has the wrong JSON type."""
    return FieldError("FieldValueTypeInvalid", path, value, detail)


def not_supported(path: str, value: Any, supported: Iterable[Any]) -> FieldError:
    """A value is not one of those that the field knows; they are quoted in the order given."""
    words = ", ".join(go_quote(str(item)) for item in supported)
    return FieldError("FieldValueNotSupported", path, value, f"supported values: {words}" if words else "")


def forbidden(path: str, detail: str) -> FieldError:
    """A field may not be set (now, or together with another)."""
    return FieldError("FieldValueForbidden", path, "", detail)


def duplicate(path: str, value: Any) -> FieldError:
    """A value appears twice where it may once."""
    return FieldError("FieldValueDuplicate", path, value)


def not_found(path: str, value: Any) -> FieldError:
    """A reference leads nowhere."""
    return FieldError("FieldValueNotFound", path, value)


def too_long(path: str, value: Any, limit: int) -> FieldError:
    """A text has more than ``limit`` bytes."""
    if limit < 0:
        return FieldError("FieldValueTooLong", path, value, "value is too long")
    unit = "byte" if limit == 1 else "bytes"
    return FieldError("FieldValueTooLong", path, value, f"may not be more than {limit} {unit}")


def too_many(path: str, actual: int | None, limit: int) -> FieldError:
    """A list or map has more than ``limit`` entries."""
    unit = "item" if limit == 1 else "items"
    value = OMIT if actual is None or actual < 0 else actual
    return FieldError("FieldValueTooMany", path, value, f"must have at most {limit} {unit}")


def too_few(path: str, actual: int, limit: int) -> FieldError:
    """A list or map has fewer than ``limit`` entries."""
    unit = "item" if limit == 1 else "items"
    return FieldError("FieldValueTooFew", path, actual, f"must have at least {limit} {unit}")


def internal(path: str, detail: str) -> FieldError:
    """The check itself failed."""
    return FieldError("InternalError", path, "", detail)


def go_value(value: Any) -> str:
    """A value as ``field.Error`` prints it: numbers and booleans plainly, texts quoted, the rest as JSON."""
    if isinstance(value, Verbatim):
        return str(value)
    if value is None:
        return "null"
    if isinstance(value, str):
        return go_quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _go_float(value)
    return go_json(value)


def go_json(value: Any) -> str:
    """JSON as Go's encoder writes it: compact, keys sorted, ``<``, ``>`` and ``&`` escaped."""
    text = json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    for character in "<>&\u2028\u2029":
        if character in text:
            text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _plain(value: Any) -> Any:
    """``value`` with whole floats as Go prints them: ``1.0`` is ``1``."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return int(value)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _go_float(value: float) -> str:
    """``%v`` of a float64: the shortest form, with an exponent from 1e+21 and below 1e-4."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return repr(value)


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
    """``%q`` of a text: quoted and escaped as Go's ``strconv.Quote`` does."""
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
