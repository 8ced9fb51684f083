"""Parsing and formatting of resource quantities."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest

from cfo.api.quantity import canonical_quantity, format_quantity, is_zero
from cfo.runtime.objects import is_quantity, parse_quantity
from envtest.schema import quantity as envtest_quantity


def test_quantities_are_parsed_and_formatted() -> None:
    for string, value in (
        ("4", 4),
        ("500m", "0.5"),
        ("2Ki", 2048),
        ("1e3", 1000),
        ("1.5G", 1500000000),
        ("3E", 3 * 10**18),
        ("1Ei", 2**60),
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


@pytest.mark.parametrize(
    ("quantity", "stored"),
    [
        (1, "1"),
        (0.5, "500m"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1000", "1k"),
        ("0.0", "0"),
        ("1e5", "100e3"),
    ],
)
def test_quantity_is_formatted_as_the_api_server_stores_it(
    quantity: str | float, stored: str
) -> None:
    assert canonical_quantity(quantity) == stored


def test_canonical_form_equals_that_of_the_api_server() -> None:
    rng = random.Random(3)
    suffixes = ["", "m", "u", "n", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "e3", "E2", "e-3"]
    for _ in range(3000):
        number = rng.choice(
            [
                str(rng.randrange(5000)),
                f"{rng.randrange(999)}.{rng.randrange(10**9)}",
                str(2 ** rng.randrange(20)),
                f"0{rng.randrange(5000)}",
                f"{rng.randrange(5000)}.{rng.randrange(1000):03}",
            ]
        )
        quantity = f"{rng.choice(['', '-', '+'])}{number}{rng.choice(suffixes)}"
        result = canonical_quantity(quantity)
        assert result == str(envtest_quantity.parse_quantity(quantity)), quantity
        assert result == envtest_quantity.canonical(result), "the API server stores it unchanged"


@pytest.mark.parametrize("quantity", ["x", "1e999999999", "1e-999999999", "9" * 50, "16Ei"])
def test_quantity_out_of_range_is_not_changed(quantity: str) -> None:
    assert canonical_quantity(quantity) == quantity
