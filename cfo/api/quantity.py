"""Kubernetes resource quantities, such as ``500m``, ``2`` or ``4Gi``.

The grammar is the same as for `resource.Quantity`_.

.. _resource.Quantity: https://pkg.go.dev/k8s.io/apimachinery/pkg/api/resource#Quantity
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_UP, Decimal, localcontext
from typing import Final

from cfo.runtime.objects import is_quantity, parse_quantity, split_quantity


def is_zero(quantity: str | float) -> bool:
    """Return whether ``quantity`` is zero written without a suffix (``0m`` returns false).

    This does not validate ``quantity``, and is much faster than :func:`parse_quantity`.
    """
    return not str(quantity).strip("0.")


def _is_exponent(suffix: str) -> bool:
    """Return whether ``suffix`` is a decimal exponent such as ``e3``; ``E`` and ``Ei`` are factors."""
    return suffix[:1] in ("e", "E") and suffix[1:] not in ("", "i")


def format_quantity(value: Decimal) -> str:
    """Format ``value`` as a quantity in canonical form: a whole number, or a number of thousandths."""
    if value == value.to_integral_value():
        return str(int(value))
    return f"{int((value * 1000).to_integral_value())}m"


_MAX_VALUE: Final = Decimal(2**63 - 1)
_SMALLEST: Final = Decimal(10) ** -9
_BINARY_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL_SUFFIXES: Final = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")


def canonical_quantity(quantity: str | float) -> str:
    """Return ``quantity`` as the API server stores it: ``1024Mi`` as ``1Gi``, ``0.5`` as ``500m``, 1 as ``"1"``.

    The API server keeps some other forms, such as ``1.500``, but stores this form unchanged. A quantity that is not
    valid, or not below 2^63, is returned unchanged. Source: ``CanonicalizeBytes`` of resource.Quantity.
    """
    text = str(quantity)
    if not is_quantity(text):
        return text
    _, suffix = split_quantity(text)
    with localcontext(prec=100):
        value = parse_quantity(text)
        if abs(value) > _MAX_VALUE:
            return text
        if value == 0:
            return "0"
        if suffix.endswith("i") and abs(value) >= 1024 and value == value.to_integral_value():
            return _scaled(int(value), 1024, _BINARY_SUFFIXES)
        nanos = _nanos(value)
    if not _is_exponent(suffix):
        return _scaled(nanos, 1000, _DECIMAL_SUFFIXES)
    exponent = -9
    while nanos % 1000 == 0:
        nanos //= 1000
        exponent += 3
    return f"{nanos}e{exponent}" if exponent else str(nanos)


def _nanos(value: Decimal) -> int:
    """Return ``value`` in units of 10^-9, rounded away from zero."""
    if abs(value) < _SMALLEST:
        return 1 if value > 0 else -1
    return int((value / _SMALLEST).to_integral_value(rounding=ROUND_UP))


def _scaled(number: int, base: int, suffixes: Sequence[str]) -> str:
    """Format ``number``, in units of the first suffix, with the largest suffix that leaves an integer."""
    index = 0
    while number % base == 0 and index + 1 < len(suffixes):
        number //= base
        index += 1
    return f"{number}{suffixes[index]}"
