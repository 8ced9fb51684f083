"""Where a value is not valid JSON, as Go's decoder reports it on each version of Python."""

from __future__ import annotations

import json

import pytest

from envtest.endpoints.decoder import JSONError, load_json
from envtest.formats.json_stream import error_line, error_position


@pytest.mark.parametrize(
    ("document", "message", "position"),
    [
        pytest.param(
            '{"a": 1,\n}', "Illegal trailing comma before end of object", 7, id="Python 3.13"
        ),
        pytest.param("[1 , ]", "Illegal trailing comma before end of array", 3, id="an array"),
        pytest.param('{"a": 1,\n}', "Expecting property name", 9, id="Python 3.12"),
    ],
)
def test_position_of_a_trailing_comma_is_that_of_the_bracket(
    document: str, message: str, position: int
) -> None:
    error = json.JSONDecodeError(message, document, position)
    assert document[error_position(error)] in "}]"


@pytest.mark.parametrize(
    ("document", "message", "line"),
    [
        (
            b'{"a": 1,\n\n}',
            "invalid character '}' looking for beginning of object key string",
            3,
        ),
        (b"[1,\n]", "invalid character ']' looking for beginning of value", 2),
    ],
)
def test_trailing_comma_is_reported_as_by_go(document: bytes, message: str, line: int) -> None:
    with pytest.raises(JSONError, match=message):
        load_json(document)
    assert error_line(document) == line
