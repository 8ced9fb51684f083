"""How JSON is decoded: whole floats as Go writes them, text with such characters, and bytes that are not UTF-8."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from envtest.endpoints.decoder import JSONError, load_json


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 2.0}', {"a": 2}),
        ('{"a":[1.0 ,\n2E3\t]}', {"a": [1, 2000]}),
        ('{"a": 1e+3, "b": 1.5e1}', {"a": 1000, "b": 15}),
        ('{"a": -0.0, "b": 2.00000}', {"a": 0, "b": 2}),
        ("2.0", 2),
        ("[20e-1]", [2]),
        ("[1e18, 9007199254740993.0]", [10**18, 2**53]),
    ],
)
def test_whole_floats_become_integers(text: str, expected: Any) -> None:
    assert json.dumps(load_json(text.encode())) == json.dumps(expected)


@pytest.mark.parametrize("value", [1.5, 0.1, 2.0**64, "2.0", "1e3", "a7e41e9", "1.0, 2.0]", "1e3}"])
def test_fractions_large_numbers_and_strings_are_unchanged(value: Any) -> None:
    found = load_json(json.dumps({"value": value, "other": 3.0}).encode())
    assert json.dumps(found) == json.dumps({"value": value, "other": 3})


def test_every_way_to_write_a_whole_float_is_found() -> None:
    generator = random.Random(5)
    for _ in range(5000):
        exponent = generator.choice(["", "e0", "E+1", "e-1", "E02"])
        number = f"{generator.randrange(-99, 99) * 10}.{generator.choice(['0', '00', '10', '5', '50'])}{exponent}"
        space = generator.choice(["", " ", "\n"])
        (value,) = load_json(f'["a1e1"{space},{space}{number}{space}]'.encode())[1:]
        assert value == float(number)
        assert isinstance(value, int) == float(number).is_integer(), number


@pytest.mark.parametrize(
    ("text", "expected"),
    [(b"caf\xe9", "caf\ufffd"), (b"\xe2\x82", "\ufffd" * 2), (b"\xed\xa0\x80", "\ufffd" * 3)],
)
def test_bytes_that_are_not_utf8_are_replaced_one_by_one(text: bytes, expected: str) -> None:
    """Compared with kube-apiserver 1.36."""
    assert load_json(b'{"a":"%s"}' % text) == {"a": expected}
    with pytest.raises(JSONError, match=r"^invalid character '\\xe9' looking for beginning of"):
        load_json(b'{"a":1,\xe9"b":2}')
