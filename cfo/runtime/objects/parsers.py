"""Parsers for strings that users write into objects: quantities, durations, times, numbers, names and lists.

Every parser compares the length before it matches, its pattern takes linear time, and its result cannot overflow in
later calculations. They raise :class:`ValueError`, with at most 64 characters of the value in the message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import durationpy

from cfo.runtime.process.printable import printable

MAX_LENGTH: Final = 64
"""The maximum number of characters in a quantity, duration, time or number."""

MAX_ITEMS: Final = 100
"""The maximum number of items in a list, such as exit codes."""

QUANTITY_PATTERN: Final = (
    r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?"
)
"""The grammar of resource.Quantity, with at most three digits in an exponent; also the pattern in CRDs."""

_QUANTITY: Final = re.compile(QUANTITY_PATTERN)
_SUFFIX: Final = re.compile(r"[a-zA-Z]")
_FACTORS: Final[Mapping[str, Decimal]] = {
    "n": Decimal(10) ** -9,
    "u": Decimal(10) ** -6,
    "m": Decimal(10) ** -3,
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(1024),
    "Mi": Decimal(1024) ** 2,
    "Gi": Decimal(1024) ** 3,
    "Ti": Decimal(1024) ** 4,
    "Pi": Decimal(1024) ** 5,
    "Ei": Decimal(1024) ** 6,
}
# durationpy also accepts days, months and years; Go, and so the Go operator, does not.
DURATION_PATTERN: Final = r"[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)"
"""The grammar of Go's time.ParseDuration; also the pattern in CRDs."""

_DURATION: Final = re.compile(DURATION_PATTERN)
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_HOST: Final = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_INTEGER: Final = re.compile(r"\s*[+-]?[0-9]{1,18}\s*")
MAX_DURATION: Final = timedelta(microseconds=2**63 // 1000)
"""The longest duration that Go can represent: 2**63 nanoseconds."""


def is_quantity(text: str) -> bool:
    """Return whether ``text`` is a valid quantity, such as ``500m``, ``2`` or ``4Gi``."""
    return len(text) <= MAX_LENGTH and _QUANTITY.fullmatch(text) is not None


def split_quantity(text: str) -> tuple[str, str]:
    """Return the number and the suffix of a quantity, which may be an exponent. Raises :class:`ValueError`."""
    if not is_quantity(text):
        raise ValueError(f"'{printable(text, MAX_LENGTH)}' is not a valid quantity")
    suffix = _SUFFIX.search(text)
    if suffix is None:
        return text, ""
    start = suffix.start()
    return text[:start], text[start:]


def parse_quantity(quantity: str | float) -> Decimal:
    """Return the value of ``quantity``. Raises :class:`ValueError` if it is not valid."""
    number, suffix = split_quantity(str(quantity))
    if suffix in _FACTORS:
        return Decimal(number) * _FACTORS[suffix]
    return Decimal(number + suffix)  # the suffix is empty or an exponent


def parse_duration(text: str) -> timedelta:
    """Parse a Go duration such as ``90s`` or ``1h30m``. Raises :class:`ValueError` for any other string."""
    if len(text) <= MAX_LENGTH and _DURATION.fullmatch(text):
        with suppress(ValueError, OverflowError):
            parsed: timedelta = durationpy.from_str(text)
            if abs(parsed) <= MAX_DURATION:
                return parsed
    raise ValueError("must be a duration such as 90s or 5m")


def format_duration(value: timedelta) -> str:
    """Format ``value`` as a Go duration (``1m30s``)."""
    text: str = durationpy.to_str(value)
    return text


def is_dns_label(text: str) -> bool:
    """Return whether ``text`` is a DNS label of RFC 1123, such as the name of a namespace."""
    return _DNS_LABEL.fullmatch(text) is not None


def is_host_name(text: str) -> bool:
    """Return whether ``text`` can be a host name; in particular, no such name has a meaning for a shell."""
    return len(text) <= 253 and _HOST.fullmatch(text) is not None


def is_label_value(text: str) -> bool:
    """Return whether ``text`` can be a label's value, except for the empty one, or its key without the prefix."""
    return _LABEL_VALUE.fullmatch(text) is not None


def split_list(text: str) -> tuple[list[str], bool]:
    """Return the first :data:`MAX_ITEMS` items between commas, and whether there are more."""
    items = text.split(",", MAX_ITEMS)
    return items[:MAX_ITEMS], any(items[MAX_ITEMS:])


def parse_integer(text: str) -> int:
    """Parse an integer of at most 18 digits, between spaces. Raises :class:`ValueError` for any other string."""
    if len(text) > MAX_LENGTH or not _INTEGER.fullmatch(text):
        raise ValueError("must be an integer")
    return int(text)


def parse_time(text: object) -> datetime:
    """Parse a time of RFC 3339, which is in UTC if it has no offset.

    Raises :class:`ValueError` for any other value, and for a year outside of 1900 to 2999. Within these years, adding
    the 32 bits of seconds that fields of objects can have does not overflow.
    """
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise ValueError("must be a time such as 2026-01-31T12:00:00Z")
    parsed = datetime.fromisoformat(text)
    if not 1900 <= parsed.year < 3000:
        raise ValueError("must be a time from 1900 to 2999")
    if parsed.tzinfo is None:
        return parsed.replace(tzinfo=UTC)
    return parsed
