"""The string formats of CRD schemas, with kube-apiserver's checks.

Unknown formats are ignored, as in kube-apiserver. A ``-`` in a name is ignored: ``date-time`` and ``datetime`` are
equivalent.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime
from email.utils import parseaddr
from ipaddress import ip_address, ip_interface, ip_network
from string import digits
from unicodedata import category
from urllib.parse import urlsplit

__all__ = ["FORMATS", "format_check", "parse_duration"]

_UUID = r"[0-9a-f]{8}-?[0-9a-f]{4}-?%s[0-9a-f]{%d}-?%s[0-9a-f]{%d}-?[0-9a-f]{12}"
_BASE64 = re.compile(
    r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"
)
_MAC = re.compile(
    r"(?:[0-9a-fA-F]{2}([:-])(?:[0-9a-fA-F]{2}\1){4}[0-9a-fA-F]{2}|(?:[0-9a-fA-F]{4}\.){2}[0-9a-fA-F]{4}"
    r"|[0-9a-fA-F]{2}([:-])(?:[0-9a-fA-F]{2}\2){6}[0-9a-fA-F]{2}|(?:[0-9a-fA-F]{4}\.){3}[0-9a-fA-F]{4})"
)
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:[Zz]|[+-]\d\d:?\d\d)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_GO_DURATION = re.compile(r"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+")
_GO_PART = re.compile(r"(?<![\d.])([\d.]++)(ns|us|µs|μs|ms|s|m|h)")
_UNIT_NAME_DURATION = re.compile(
    r"(\d+)\s*(nanoseconds?|nanos?|nsecs?|ns|microseconds?|micros?|usecs?|us|µs|milliseconds?|millis?|msecs?|ms|seconds?|secs?|s"
    r"|minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|wks?|w)"
)
_HOSTNAME = re.compile(r"[as](?:-?[as]{0,62})?|(?:[as](?:[as-]{0,61}[as])?\.)+a{2,63}")
"""Hostnames of which ``_host_character`` has replaced each character."""
_CARD = re.compile(
    r"(?:4\d{12}(?:\d{3})?|5[1-5]\d{14}|6(?:011|5\d\d)\d{12}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}"
    r"|(?:2131|1800|35\d{3})\d{11})"
)
_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_MAX_NANOSECONDS = 2**63 - 1
_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}


def parse_duration(text: str) -> int | None:
    """Return the nanoseconds of a Go duration (``1h30m``).

    ``None`` when the string is not a duration, or one that does not fit into 64 bits.
    """
    if text in ("0", "+0", "-0"):
        return 0
    if not _GO_DURATION.fullmatch(text):
        return None
    parts = [float(number) * _UNITS[unit] for number, unit in _GO_PART.findall(text)]
    if sum(parts) > _MAX_NANOSECONDS:
        return None
    total = sum(map(round, parts))
    return -total if text.startswith("-") else total


def _matches(pattern: str, flags: int = 0) -> Callable[[str], bool]:
    compiled = re.compile(pattern, flags)
    return lambda text: compiled.fullmatch(text) is not None


def _uri(text: str) -> bool:
    """Report whether ``url.ParseRequestURI`` accepts the string: an absolute URI or an absolute path."""
    if not text or any(character <= " " or character == "\x7f" for character in text):
        return False
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises when the port is not a number
    except ValueError:
        return False
    if re.search(r"%(?![0-9a-fA-F]{2})", parts.path):
        return False
    return bool(parts.scheme) or text.startswith("/")


def _email(text: str) -> bool:
    address = parseaddr(text)[1]
    return bool(re.fullmatch(r"[^@\s]+@[^@\s]+", address))


def _host_character(character: str) -> str:
    """Return the class of a character in a hostname: ``a`` for letters, ``s`` for symbols and ASCII digits."""
    kind = category(character)[0]
    if kind == "L":
        return "a"
    if kind == "S" or character in digits:
        return "s"
    return character if character in "-." else "?"


def _hostname(text: str) -> bool:
    if len(text.encode()) > 255 or any(len(part.encode()) > 63 for part in text.split(".")):
        return False
    return bool(_HOSTNAME.fullmatch("".join(map(_host_character, text))))


def _without_leading_zeros(text: str) -> str:
    """Remove leading zeros from IPv4 numbers; kube-apiserver accepts them."""
    return re.sub(r"\b0+(?=\d)", "", text) if ":" not in text else text


def _ipv4(text: str) -> bool:
    try:
        ip_address(_without_leading_zeros(text))
    except ValueError:
        return False
    return "." in text


def _ipv6(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return ":" in text and "%" not in text


def _cidr(text: str) -> bool:
    if not re.fullmatch(r"[^/]+/\d+", text):
        return False
    try:
        ip_interface(_without_leading_zeros(text))
        ip_network(_without_leading_zeros(text), strict=False)
    except ValueError:
        return False
    return True


def _date_time(text: str) -> bool:
    if not _DATE_TIME.fullmatch(text):
        return False
    # the calendar of year 0, which Python does not have, is that of year 400
    day = "0400" + text[4:] if text.startswith("0000") else text
    try:
        datetime.fromisoformat(re.sub(r"[.,]\d+", "", day.upper().replace("Z", "+00:00")))
    except ValueError:
        return False
    return True


def _date(text: str) -> bool:
    try:
        return bool(_DATE.fullmatch(text)) and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _duration(text: str) -> bool:
    return parse_duration(text) is not None or bool(_UNIT_NAME_DURATION.fullmatch(text))


def _isbn10(text: str) -> bool:
    digits = re.sub(r"[\s-]", "", text)
    if not re.fullmatch(r"\d{9}[\dX]", digits):
        return False
    return sum((10 - i) * (10 if c == "X" else int(c)) for i, c in enumerate(digits)) % 11 == 0


def _isbn13(text: str) -> bool:
    digits = re.sub(r"[\s-]", "", text)
    if not re.fullmatch(r"\d{13}", digits):
        return False
    return sum(int(c) * (3 if i % 2 else 1) for i, c in enumerate(digits)) % 10 == 0


def _credit_card(text: str) -> bool:
    digits = re.sub(r"\D", "", text)
    if not _CARD.fullmatch(digits):
        return False
    doubled = [int(c) * (2 if i % 2 else 1) for i, c in enumerate(reversed(digits))]
    return sum(d - 9 if d > 9 else d for d in doubled) % 10 == 0


_COLOR_PART = r"\s*(?:\d{1,2}|1\d\d|2[0-4]\d|25[0-5])\s*"

FORMATS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _matches(r"[0-9a-fA-F]{24}"),
    "byte": lambda text: bool(_BASE64.fullmatch(text)),
    "cidr": _cidr,
    "creditcard": _credit_card,
    "date": _date,
    "datetime": _date_time,
    "duration": _duration,
    "email": _email,
    "hexcolor": _matches(r"#?(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "hostname": _hostname,
    "ipv4": _ipv4,
    "ipv6": _ipv6,
    "isbn": lambda text: _isbn10(text) or _isbn13(text),
    "isbn10": _isbn10,
    "isbn13": _isbn13,
    "k8slongname": lambda text: (
        len(text) <= 253 and bool(re.fullmatch(rf"{_LABEL}(?:\.{_LABEL})*", text))
    ),
    "k8sshortname": lambda text: len(text) <= 63 and bool(re.fullmatch(_LABEL, text)),
    "mac": lambda text: bool(_MAC.fullmatch(text)),
    "password": lambda text: True,
    "rgbcolor": _matches(rf"rgb\({_COLOR_PART},{_COLOR_PART},{_COLOR_PART}\)"),
    "ssn": _matches(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
    "uri": _uri,
    "uuid": _matches(_UUID % ("", 4, "", 4), re.IGNORECASE),
    "uuid3": _matches(_UUID % ("3", 3, "", 4), re.IGNORECASE),
    "uuid4": _matches(_UUID % ("4", 3, "[89ab]", 3), re.IGNORECASE),
    "uuid5": _matches(_UUID % ("5", 3, "[89ab]", 3), re.IGNORECASE),
}
"""The check of each format, by its name without ``-``."""


def format_check(name: str) -> Callable[[str], bool] | None:
    """Return the check of the format ``name``; ``None`` when kube-apiserver does not know the format."""
    return FORMATS.get(name.replace("-", ""))
