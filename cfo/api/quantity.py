"""Kubernetes resource quantities, such as ``500m``, ``2`` or ``4Gi``.

The grammar is the same as for `resource.Quantity`_.

.. _resource.Quantity: https://pkg.go.dev/k8s.io/apimachinery/pkg/api/resource#Quantity
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

__all__ = ["format_quantity", "is_quantity", "is_zero", "parse_quantity"]

_QUANTITY: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(n|u|m|k|[KMGTPE]i|[MGTPE]|[eE][+-]?\d+)?", re.ASCII)
_FACTORS: Final[Mapping[str, Decimal]] = {
    **{
        suffix: Decimal(10) ** power
        for suffix, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
    },
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}


def is_quantity(text: str) -> bool:
    """Return whether ``text`` is a valid quantity."""
    return _QUANTITY.fullmatch(text) is not None


def is_zero(quantity: str | float) -> bool:
    """Return whether ``quantity`` is zero written without a suffix (``0m`` returns false).

    This does not validate ``quantity``, and is much faster than :func:`parse_quantity`.
    """
    return not str(quantity).strip("0.")


def parse_quantity(quantity: str | float) -> Decimal:
    """Return the value of ``quantity``. Raises :class:`ValueError` if it is not valid."""
    match = _QUANTITY.fullmatch(str(quantity))
    if match is None:
        raise ValueError(f"{quantity!r} is not a valid quantity")
    number, suffix = match.groups()
    if suffix and suffix[0] in "eE" and len(suffix) > 1:
        return Decimal(number + suffix)
    return Decimal(number) * _FACTORS.get(suffix or "", Decimal(1))


def format_quantity(value: Decimal) -> str:
    """Format ``value`` as a quantity in canonical form: a whole number, or a number of thousandths."""
    if value == value.to_integral_value():
        return str(int(value))
    return f"{int((value * 1000).to_integral_value())}m"
