"""The words of Go's JSON decoder; each was returned by a real kube-apiserver."""

from __future__ import annotations

import orjson
import pytest

from envtest.formats.go_json_errors import find_syntax_error, syntax_error

END = "unexpected end of JSON input"
VALUE = "looking for beginning of value"
KEY = "looking for beginning of object key string"


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", END),
        (b"{", END),
        (b'"a', END),
        (b'"\\u1', END),
        (b"1.", END),
        (b"nul", END),
        (b"x", f"invalid character 'x' {VALUE}"),
        (b"\xff", rf"invalid character '\xff' {VALUE}"),
        (b"\xef\xbb\xbf{}", rf"invalid character '\ufeff' {VALUE}"),
        (b"[1,]", f"invalid character ']' {VALUE}"),
        (b'{"a":}', f"invalid character '}}' {VALUE}"),
        (b"{'a':1}", rf"invalid character '\'' {KEY}"),
        (b'{"a":1,}', f"invalid character '}}' {KEY}"),
        (b'{"a"}', "invalid character '}' after object key"),
        (b'{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        (b"[1 2]", "invalid character '2' after array element"),
        (b"{}x", "invalid character 'x' after top-level value"),
        (b"01", "invalid character '1' after top-level value"),
        (b"nope", "invalid character 'o' in literal null (expecting 'u')"),
        (b"-x", "invalid character 'x' in numeric literal"),
        (b'"a\nb"', r"invalid character '\n' in string"),
        (b'"\\x"', r"invalid escape sequence `\x` in string"),
        (b'"\\u12"', r'invalid escape sequence `\u12"` in string'),
    ],
)
def test_error_is_that_of_go(data: bytes, error: str) -> None:
    assert syntax_error(data) == error


@pytest.mark.parametrize(
    "data", [b" {} ", b'[{"a":[-1.5e+3,0,null,true,false,"\\u00e9\\n"]},[],{}]', b'"\xff"']
)
def test_json_has_no_error(data: bytes) -> None:
    assert find_syntax_error(data) == ""


def test_deep_json_is_read_without_recursion() -> None:
    data = b"[" * 100_000 + b"]" * 100_000
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(data)
    assert syntax_error(data) == "exceeded max depth"
    assert syntax_error(b"1" * 5000) == (
        "json: cannot unmarshal number into Go value of type float64"
    )
