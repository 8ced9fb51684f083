"""The syntax of requests: what is read, and what is refused."""

from __future__ import annotations

import pytest

from envtest.http_server.request_head import HeadError, parse_head


def head(first: str, *headers: str) -> bytes:
    return "\r\n".join([first, *headers]).encode()


def test_request_line_and_headers_are_parsed() -> None:
    parsed = parse_head(head("GET /api/v1/pods%20?watch=1&a=&a=b+c HTTP/1.1", "Host: x", "accept:  text/plain \t"))
    assert (parsed.method, parsed.path, parsed.target) == ("GET", "/api/v1/pods ", "/api/v1/pods%20?watch=1&a=&a=b+c")
    assert parsed.query.getall("a") == ["", "b c"]
    assert parsed.headers["Accept"] == "text/plain"
    assert (parsed.content_length, parsed.keep_alive, parsed.expects_continue) == (0, True, False)


@pytest.mark.parametrize(
    ("target", "path"),
    [("/a//b/../c", "/a//b/../c"), ("/a#b", "/a"), ("https://host:1/a?b", "/a"), ("https://host", "/"), ("/%ff", "/�")],
)
def test_path_is_decoded_and_not_cleaned(target: str, path: str) -> None:
    assert parse_head(head(f"GET {target} HTTP/1.1", "Host: x")).path == path


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (head("nonsense"), 400),
        (head("GET  / HTTP/1.1", "Host: x"), 400),
        (head("G(T / HTTP/1.1", "Host: x"), 400),
        (head("GET a HTTP/1.1", "Host: x"), 400),
        (head("GET /%zz HTTP/1.1", "Host: x"), 400),
        (head("GET / HTTP/2.0", "Host: x"), 505),
        (head("GET / HTTP/1.1"), 400),
        (head("GET / HTTP/1.1", "Host: x", "Host: y"), 400),
        (head("GET / HTTP/1.1", "Host: x", " folded"), 400),
        (head("GET / HTTP/1.1", "Host: x", "a b: c"), 400),
        (head("GET / HTTP/1.1", "Host: x", "a"), 400),
        (head("GET / HTTP/1.1", "Host: x", "a: \0"), 400),
        (head("GET / HTTP/1.1", "Host: x\na: b"), 400),
        (head("GET / HTTP/1.1", "Host: x\ra: b"), 400),
        (head("POST / HTTP/1.1", "Host: x", "Content-Length: -1"), 400),
        (head("POST / HTTP/1.1", "Host: x", "Content-Length: 1", "Content-Length: 2"), 400),
        (head("POST / HTTP/1.1", "Host: x", "Content-Length: 1", "Transfer-Encoding: chunked"), 400),
        (head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: gzip, chunked"), 501),
    ],
)
def test_malformed_request_is_refused(data: bytes, code: int) -> None:
    with pytest.raises(HeadError) as refused:
        parse_head(data)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("version", "connection", "expected"),
    [("1.1", "x", True), ("1.1", "x, Close", False), ("1.0", "x", False), ("1.0", "keep-alive", True)],
)
def test_connection_is_kept(version: str, connection: str, expected: bool) -> None:
    parsed = parse_head(head(f"GET / HTTP/{version}", "Host: x", f"Connection: {connection}"))
    assert parsed.keep_alive is expected
