"""Quantities such as ``500m``, ``1Gi`` and ``2e3``: exact parsing, and formatting in canonical form.

The rules follow apimachinery's ``resource.Quantity``: values are rounded up to nano units without any other loss of
precision; the output has the largest possible exponent and the suffix family of the input.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

__all__ = [
    "Quantity",
    "QuantityError",
    "canonical",
    "is_integer",
    "parse_quantity",
    "rounded_to_milli",
]

_SHAPE = re.compile(r"([+-]?)(\d*(?:\.\d*)?)([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i|)", re.ASCII)
_PARTS = re.compile(r"[+-]?+\d*+(?:\.\d*+)?+[eEinumkKMGTP]*+[+-]?+\d*+", re.ASCII)
"""What kube-apiserver splits into a number and a suffix, before it reads the suffix."""
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIX = {power: suffix for suffix, power in _BINARY.items()}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_NANO = Fraction(1, 10**9)
_MILLI = Fraction(1, 1000)
_MAX_EXPONENT = 1000
_LONGEST_EXPONENT = 10
_LARGEST = Fraction(2**63 - 1)


class QuantityError(ValueError):
    """Raised if a string is not a quantity."""


class Quantity(NamedTuple):
    """A value with the suffix family of its notation: ``decimal``, ``binary`` or ``exponent``."""

    value: Fraction
    family: str

    def __str__(self) -> str:
        if not self.value:
            return "0"
        family = self.family
        if family == "binary" and (abs(self.value) < 1024 or self.value.denominator != 1):
            family = "decimal"
        if family == "binary":
            return _format_binary(self.value.numerator)
        number, power = _decimal_parts(self.value)
        if family == "decimal":
            # Like kube-apiserver, which loses the power of 1000E and larger numbers: it has no suffix for them
            return f"{number}{_DECIMAL_SUFFIX.get(power, '')}"
        return f"{number}e{power}" if power else str(number)


def _format_binary(number: int) -> str:
    power = 0
    while power < 6 and number % 1024 == 0:
        number //= 1024
        power += 1
    return f"{number}{_BINARY_SUFFIX[power]}" if power else str(number)


def _decimal_parts(value: Fraction) -> tuple[int, int]:
    """Return the value as an integer and the largest possible power of ten that is a multiple of three."""
    power = -9
    number = int(value / _NANO)
    while number % 1000 == 0:
        number //= 1000
        power += 3
    return number, power


@lru_cache(maxsize=4096)
def parse_quantity(text: str) -> Quantity:
    """Parse a quantity. Raises :class:`QuantityError` with Go's message."""
    match = _SHAPE.fullmatch(text)
    if match is None or not text:
        if text and _PARTS.fullmatch(text):
            raise QuantityError("unable to parse quantity's suffix")
        raise QuantityError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    sign, digits, suffix = match.groups()
    family = "decimal"
    factor = Fraction(1)
    if suffix in _BINARY:
        family = "binary"
        factor = Fraction(1024 ** _BINARY[suffix])
    elif suffix[:1] in ("e", "E") and len(suffix) > 1:
        exponent = int(suffix[1:]) if len(suffix) <= _LONGEST_EXPONENT else _MAX_EXPONENT + 1
        if abs(exponent) > _MAX_EXPONENT:
            raise QuantityError("unable to parse numeric part of quantity")
        family = "exponent"
        factor = Fraction(10) ** exponent
    else:
        factor = Fraction(10) ** _DECIMAL[suffix]
    # Fraction requires digits around the point; without any, kube-apiserver reads 0
    value = Fraction(f"0{digits}0" if digits.endswith(".") else f"0{digits}") * factor
    nanos, rest = divmod(value, _NANO)
    value = (nanos + (1 if rest else 0)) * _NANO
    if family == "binary" and value > _LARGEST:
        value = _LARGEST
    if sign == "-":
        value = -value
    return Quantity(value, family)


@lru_cache(maxsize=4096)
def rounded_to_milli(text: str) -> str:
    """Return a canonical quantity, rounded away from zero to thousandths: ``100u`` becomes ``1m``."""
    quantity = parse_quantity(text)
    thousandths, rest = divmod(abs(quantity.value), _MILLI)
    if not rest:
        return text
    value = (thousandths + 1) * _MILLI
    if quantity.value < 0:
        value = -value
    return str(Quantity(value, quantity.family))


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """Return ``text`` in canonical form: ``1000m`` becomes ``1``, ``0.5`` ``500m``, ``1024Mi`` ``1Gi``.

    Like kube-apiserver, it returns a text of the size of an int64 as it is if only a sign or a leading zero is
    superfluous: ``+1``, ``010Gi``, ``1.500``.
    """
    quantity = parse_quantity(text)
    match = _SHAPE.fullmatch(text)
    if match is not None and _is_reused(match[2], match[3], quantity.family):
        return text
    return str(quantity)


def _is_reused(number: str, suffix: str, family: str) -> bool:
    """Return whether kube-apiserver takes an unsigned number and its suffix for a canonical quantity as they are."""
    digits, scale = _digits_and_scale(number, suffix, family)
    if not _is_int64(digits, scale, suffix, family):
        return False
    if family == "binary":
        return int(digits) % 8 != 0
    return scale % 3 == 0 and digits[0] != "0" and not digits.endswith("000")


def _digits_and_scale(number: str, suffix: str, family: str) -> tuple[str, int]:
    """Return the digits of an unsigned number, and the power of ten behind them; a binary suffix is not part of it."""
    whole, _, fraction = number.lstrip("0").partition(".")
    exponent = 0
    if family == "exponent":
        exponent = int(suffix[1:])
    elif family == "decimal":
        exponent = _DECIMAL[suffix]
    return (whole or "0") + fraction, exponent - len(fraction)


def _is_int64(digits: str, scale: int, suffix: str, family: str) -> bool:
    """Return whether kube-apiserver computes with an int64; it computes with decimals of any size otherwise."""
    if family == "binary":
        return scale == 0 and len(digits) <= 14 - _BINARY[suffix] * 3
    return len(digits) <= 18 and scale >= -9


def is_integer(text: str) -> bool:
    """Return whether kube-apiserver takes a quantity for an integer. Raises :class:`QuantityError`.

    It computes the thousandths with 64 bits. If they overflow, an int64 becomes 0, and a decimal its lowest 64 bits,
    which are rarely a multiple of 1000: ``9E`` is an integer, and ``7Ei`` is not.
    """
    quantity = parse_quantity(text)
    thousandths = math.ceil(abs(quantity.value) * 1000)
    if quantity.value < 0:
        thousandths = -thousandths
    if -(2**63) <= thousandths < 2**63:
        return thousandths % 1000 == 0
    match = _SHAPE.fullmatch(text)
    assert match is not None  # it has been parsed
    digits, scale = _digits_and_scale(match[2], match[3], quantity.family)
    if _is_int64(digits, scale, match[3], quantity.family):
        return True
    lowest = (thousandths + 2**63) % 2**64 - 2**63
    return lowest % 1000 == 0
