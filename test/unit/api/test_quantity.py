"""Parsing and formatting of resource quantities."""

from __future__ import annotations

from decimal import Decimal

import pytest

from cfo.api.quantity import format_quantity, is_quantity, is_zero, parse_quantity


def test_quantities_are_parsed_and_formatted() -> None:
    for string, value in (
        ("4", 4),
        ("500m", "0.5"),
        ("2Ki", 2048),
        ("1e3", 1000),
        ("1.5G", 1500000000),
        ("3E", 3 * 10**18),
    ):
        assert parse_quantity(string) == Decimal(value), string
    assert (format_quantity(Decimal(6)), format_quantity(Decimal("0.25"))) == ("6", "250m")
    with pytest.raises(ValueError, match="many"):
        parse_quantity("many")


@pytest.mark.parametrize("string", ["", "1 Gi", "1g", "\u0661", "1e", "--1", "0x1"])
def test_invalid_quantity_is_rejected(string: str) -> None:
    assert not is_quantity(string)
    with pytest.raises(ValueError, match="is not a valid quantity"):
        parse_quantity(string)


def test_plain_zero_is_recognized() -> None:
    assert all(is_zero(zero) for zero in ("0", "0.0", 0, 0.0))
    assert not any(is_zero(quantity) for quantity in ("1", "10", "0.5", 2))
