"""The string formats of CRD schemas, with kube-apiserver's checks.

Unknown formats are ignored, as in kube-apiserver. A ``-`` in a name is ignored: ``date-time`` and ``datetime`` are
equivalent.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, time
from ipaddress import ip_address, ip_interface, ip_network
from string import digits
from unicodedata import category

from envtest.schema.email_address import is_email_address
from envtest.schema.request_uri import is_request_uri

__all__ = ["FORMATS", "format_check", "parse_duration", "parse_format_duration"]

_UUID = r"[0-9a-f]{8}-?[0-9a-f]{4}-?%s[0-9a-f]{%d}-?%s[0-9a-f]{%d}-?[0-9a-f]{12}"
_BASE64 = re.compile(
    r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"
)
_MAC_SEPARATED = re.compile(
    r"[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2})+|[0-9a-fA-F]{2}(?:-[0-9a-fA-F]{2})+|[0-9a-fA-F]{4}(?:\.[0-9a-fA-F]{4})+|[0-9a-fA-F]+"
)
_MAC_DIGITS = (12, 16, 40)
"""How many hexadecimal digits an address of EUI-48, EUI-64 and IP over InfiniBand has."""
_DATE_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:[.,]\d+)?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_GO_DURATION = re.compile(r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+")
_GO_PART = re.compile(r"(?<![0-9.])([0-9.]++)(ns|us|µs|μs|ms|s|m|h)")
_NUMBER_AND_WORD = re.compile(r"(?<![0-9])([0-9]++)[ \t\n\f\r]*+([A-Za-zµ]++)")
_UNIT_NAMES = {
    ("ns",): "nano",
    ("us", "µs"): "micro",
    ("ms",): "milli",
    ("s",): "sec",
    ("m",): "min",
    ("h", "hr"): "hour",
    ("d",): "day",
    ("w", "wk"): "week",
}
"""The abbreviations of each unit, and with what its name begins."""
_HOSTNAME = re.compile(r"[as](?:-?[as]{0,62})?|(?:[as](?:[as-]{0,61}[as])?\.)+a{2,63}")
"""Hostnames of which ``_host_character`` has replaced each character."""
_CARD = re.compile(
    r"(?:4\d{12}(?:\d{3})?|5[1-5]\d{14}|6(?:011|5\d\d)\d{12}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}"
    r"|(?:2131|1800|35\d{3})\d{11})"
)
_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_MAX_NANOSECONDS = 2**63 - 1
_MAX_INTEGER_DIGITS = 19
_MAX_MAC = 59
"""The number of characters of the longest address, with 20 bytes."""
_DAY_UNITS = {"d": 24 * 3600 * 10**9, "w": 7 * 24 * 3600 * 10**9}
"""The units that Go durations do not have."""
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
    """Remove leading zeros from the numbers of an IPv4 address; kube-apiserver accepts them."""
    head, colon, tail = text.rpartition(":")
    if "." in tail:
        tail = re.sub(r"\b0+(?=[0-9])", "", tail)
    return head + colon + tail


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
    if not re.fullmatch(r"[^/%]+/[0-9]+", text):
        return False
    try:
        ip_interface(_without_leading_zeros(text))
        ip_network(_without_leading_zeros(text), strict=False)
    except ValueError:
        return False
    return True


def _is_day(text: str) -> bool:
    # the calendar of year 0, which Python does not have, is that of year 400
    day = "0400" + text[4:] if text.startswith("0000") else text
    try:
        date.fromisoformat(day)
    except ValueError:
        return False
    return True


def _date_time(text: str) -> bool:
    """Report whether kube-apiserver accepts a time; it does not limit the offset from UTC."""
    matched = _DATE_TIME.fullmatch(text)
    if matched is None or not _is_day(matched[1]):
        return False
    try:
        time.fromisoformat(matched[2])
    except ValueError:
        return False
    return True


def _date(text: str) -> bool:
    return bool(_DATE.fullmatch(text)) and _is_day(text)


def parse_format_duration(text: str) -> int | None:
    """Return the nanoseconds of a string with the format ``duration``; ``None`` when it is not valid.

    Besides Go durations, every string is valid that contains a number with a unit, such as ``2 weeks`` or ``PT30S``:
    the numbers with a known unit are added, whatever surrounds them.
    """
    nanoseconds = parse_duration(text)
    if nanoseconds is not None:
        return nanoseconds
    total = 0
    has_unit = False
    for number, word in _NUMBER_AND_WORD.findall(text):
        # the length first, because converting takes time that is quadratic in it
        if len(number.lstrip("0")) > _MAX_INTEGER_DIGITS or int(number) > _MAX_NANOSECONDS:
            return None
        unit = _unit_of(word.lower())
        if unit:
            has_unit = True
            total += int(number) * unit
    if not has_unit:
        return None
    return (total + 2**63) % 2**64 - 2**63  # integers of 64 bits wrap around


def _unit_of(word: str) -> int:
    """Return the nanoseconds of a unit in lower case; 0 for any other word."""
    for abbreviations, name in _UNIT_NAMES.items():
        if word in abbreviations or word.startswith(name):
            return _DAY_UNITS.get(abbreviations[0]) or _UNITS[abbreviations[0]]
    return 0


def _duration(text: str) -> bool:
    return parse_format_duration(text) is not None


def _mac(text: str) -> bool:
    if len(text) > _MAX_MAC or not _MAC_SEPARATED.fullmatch(text):
        return False
    digits_only = re.sub(r"[:.-]", "", text)
    return len(digits_only) in _MAC_DIGITS


def _isbn10(text: str) -> bool:
    digits = re.sub(r"[ \t\n\f\r-]", "", text)
    if not re.fullmatch(r"[0-9]{9}[0-9X]", digits):
        return False
    return sum((10 - i) * (10 if c == "X" else int(c)) for i, c in enumerate(digits)) % 11 == 0


def _isbn13(text: str) -> bool:
    digits = re.sub(r"[ \t\n\f\r-]", "", text)
    if not re.fullmatch(r"[0-9]{13}", digits):
        return False
    return sum(int(c) * (3 if i % 2 else 1) for i, c in enumerate(digits)) % 10 == 0


def _credit_card(text: str) -> bool:
    digits = re.sub(r"\D", "", text)
    if not _CARD.fullmatch(digits):
        return False
    doubled = [int(c) * (2 if i % 2 else 1) for i, c in enumerate(reversed(digits))]
    return sum(d - 9 if d > 9 else d for d in doubled) % 10 == 0


_COLOR_PART = r"[ \t\n\f\r]*(?:[0-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])[ \t\n\f\r]*"

FORMATS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _matches(r"[0-9a-fA-F]{24}"),
    "byte": lambda text: bool(_BASE64.fullmatch(text)),
    "cidr": _cidr,
    "creditcard": _credit_card,
    "date": _date,
    "datetime": _date_time,
    "duration": _duration,
    "email": is_email_address,
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
    "mac": _mac,
    "password": lambda text: True,
    "rgbcolor": _matches(rf"rgb\({_COLOR_PART},{_COLOR_PART},{_COLOR_PART}\)"),
    "ssn": _matches(r"[0-9]{3}[- ][0-9]{2}[- ][0-9]{4}"),
    "uri": is_request_uri,
    "uuid": _matches(_UUID % ("", 4, "", 4), re.IGNORECASE),
    "uuid3": _matches(_UUID % ("3", 3, "", 4), re.IGNORECASE),
    "uuid4": _matches(_UUID % ("4", 3, "[89ab]", 3), re.IGNORECASE),
    "uuid5": _matches(_UUID % ("5", 3, "[89ab]", 3), re.IGNORECASE),
}
"""The check of each format, by its name without ``-``."""


def format_check(name: str) -> Callable[[str], bool] | None:
    """Return the check of the format ``name``; ``None`` when kube-apiserver does not know the format."""
    return FORMATS.get(name.replace("-", ""))
