"""Numbers in the formats of Go."""

from __future__ import annotations

import pytest

from envtest.formats.go_format import go_float
from envtest.formats.yaml_codec import dump, load


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1"),
        (0.0, "0"),
        (-1.5, "-1.5"),
        (100000.0, "100000"),
        (1000000.0, "1e+06"),
        (1234567.5, "1.2345675e+06"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (9223372036854775808.0, "9.223372036854776e+18"),
        (float("inf"), "+Inf"),
        (float("nan"), "NaN"),
    ],
)
def test_floats_have_the_shortest_digits_and_small_exponents(number: float, text: str) -> None:
    assert go_float(number) == text


def test_floats_in_yaml_have_no_tag() -> None:
    assert dump({"ratio": 0.5, "step": 1234567.5}) == "ratio: 0.5\nstep: 1.2345675e+06\n"
    assert load(b"ratio: 0.5") == {"ratio": 0.5}
