"""The syntax of requests: what is read, and what is refused."""

from __future__ import annotations

import random

import pytest

from envtest.http_server.request_head import HeadError, parse_head


def head(first: str, *headers: str) -> bytes:
    return "\r\n".join([first, *headers, "", ""]).encode()


def test_request_line_and_headers_are_parsed() -> None:
    parsed = parse_head(
        head("GET /api/v1/pods%20?watch=1&a=&a=b+c HTTP/1.1", "Host: x", "accept:  text/plain \t")
    )
    assert (parsed.method, parsed.path, parsed.target) == (
        "GET",
        "/api/v1/pods ",
        "/api/v1/pods%20?watch=1&a=&a=b+c",
    )
    assert parsed.query.getall("a") == ["", "b c"]
    assert parsed.headers["Accept"] == "text/plain"
    assert (parsed.content_length, parsed.keep_alive, parsed.expects_continue) == (0, True, False)


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/a//b/../c", "/a//b/../c"),
        ("/a#b", "/a"),
        ("https://host:1/a?b", "/a"),
        ("https://host", "/"),
        ("/%ff", "/�"),
    ],
)
def test_path_is_decoded_and_not_cleaned(target: str, path: str) -> None:
    assert parse_head(head(f"GET {target} HTTP/1.1", "Host: x")).path == path


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (head("nonsense"), 400),
        (head("GET  / HTTP/1.1", "Host: x"), 400),
        (head("GET / HTTP/1.1 ", "Host: x"), 400),
        (head("GET /", "Host: x"), 400),
        (head("GET / RTSP/1.0", "Host: x"), 400),
        (head("SOURCE / ICE/1.0", "Host: x"), 400),
        (head("GET /a b HTTP/1.1", "Host: x"), 400),
        (head("GET /\t HTTP/1.1", "Host: x"), 400),
        (head("GET /\xff HTTP/1.1", "Host: x"), 400),
        (head("GET / HTTP/1.10", "Host: x"), 400),
        (head("CONNECT a:1 HTTP/1.1", "Host: x"), 400),
        (head("PRI * HTTP/2.0", "Host: x"), 505),
        (head("GET / HTTP/9.9", "Host: x"), 505),
        (head("GET / HTTP/0.9", "Host: x"), 505),
        (head("G(T / HTTP/1.1", "Host: x"), 400),
        (head("GET a HTTP/1.1", "Host: x"), 400),
        (head("GET /%zz HTTP/1.1", "Host: x"), 400),
        (head("GET / HTTP/2.0", "Host: x"), 505),
        (head("GET / HTTP/1.1"), 400),
        (head("GET / HTTP/1.1", "Host: x", "Host: y"), 400),
        (head("GET / HTTP/1.1", "Host: x", " folded"), 400),
        (head("GET / HTTP/1.1", " Host: x"), 400),
        (head("GET / HTTP/1.1", "Host: x", "\tfolded"), 400),
        (head("GET / HTTP/1.1", "Host: x", "a : b"), 400),
        (head("GET / HTTP/1.1", "Host: x", ": b"), 400),
        (head("GET / HTTP/1.1", "Host: x", "a: \x7f"), 400),
        (head("GET / HTTP/1.1", "Host: x", "a b: c"), 400),
        (head("GET / HTTP/1.1", "Host: x", "a"), 400),
        (head("GET / HTTP/1.1", "Host: x", "a: \0"), 400),
        (head("GET / HTTP/1.1", "Host: x\na: b"), 400),
        (head("GET / HTTP/1.1", "Host: x\ra: b"), 400),
        *[
            (head("POST / HTTP/1.1", "Host: x", f"Content-Length: {length}"), 400)
            for length in ("-1", "+1", "1,1", "1 1", "0x1", "", "1" * 30)
        ],
        (head("POST / HTTP/1.1", "Host: x", "Content-Length: 1", "Content-Length: 2"), 400),
        (
            head("POST / HTTP/1.1", "Host: x", "Content-Length: 1", "Transfer-Encoding: chunked"),
            400,
        ),
        (
            head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: chunked", "Content-Length: 1"),
            400,
        ),
        *[
            (head("POST / HTTP/1.1", "Host: x", f"Transfer-Encoding: {coding}"), 501)
            for coding in ("gzip, chunked", "gzip", "chunked, gzip", "chunked, chunked", "xchunked")
        ],
        (
            head(
                "POST / HTTP/1.1",
                "Host: x",
                "Transfer-Encoding: gzip",
                "Transfer-Encoding: chunked",
            ),
            501,
        ),
    ],
)
def test_malformed_request_is_refused(data: bytes, code: int) -> None:
    with pytest.raises(HeadError) as refused:
        parse_head(data)
    assert refused.value.code == code


@pytest.mark.parametrize("method", ["GET", "get", "FOO", "CONNECT", "M-SEARCH", "SOURCE"])
def test_any_method_is_read(method: str) -> None:
    """The API server refuses methods that it does not serve."""
    assert parse_head(head(f"{method} / HTTP/1.1", "Host: x")).method == method


def test_repeated_and_empty_headers_are_kept() -> None:
    parsed = parse_head(
        head(
            "GET / HTTP/1.1", "Host: x", "X-Remote-Group: a", "Empty:", "x-remote-group: B", "U: ü"
        )
    )
    assert list(parsed.headers.items())[1:] == [
        ("X-Remote-Group", "a"),
        ("Empty", ""),
        ("x-remote-group", "B"),
        ("U", "ü"),
    ]


@pytest.mark.parametrize(
    ("header", "length"), [("Content-Length: 7 ", 7), ("Transfer-Encoding: Chunked", None)]
)
def test_body_of_a_request_with_an_upgrade_header_is_read(header: str, length: int | None) -> None:
    """Most requests ignore the header, so their bodies are read."""
    parsed = parse_head(
        head("POST / HTTP/1.1", "Host: x", "Connection: Upgrade", "Upgrade: h2c", header)
    )
    assert (parsed.content_length, parsed.keep_alive) == (length, True)


def test_random_damage_is_refused_or_read_without_another_request() -> None:
    generator = random.Random(13)
    valid = head(
        "POST /api?a=b HTTP/1.1",
        "Host: x",
        "Content-Length: 3",
        "Connection: keep-alive",
        "Accept: */*",
    )
    pieces = (
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"\t",
        b":",
        b"\0",
        b"\xff",
        b",",
        b"Content-Length: 4\r\n",
        b"HTTP/1.1",
    )
    for _ in range(5000):
        data = bytearray(valid)
        for _ in range(generator.randrange(1, 4)):
            position = generator.randrange(len(data))
            data[position : position + generator.randrange(3)] = generator.choice(pieces)
        whole = bytes(data).partition(b"\r\n\r\n")[0].rstrip(b"\r\n") + b"\r\n\r\n"
        try:
            parsed = parse_head(whole)
        except HeadError:
            continue
        assert whole.startswith(f"{parsed.method} {parsed.target} HTTP/1.".encode())
        assert len(parsed.headers) == whole.count(b"\r\n") - 2
        assert b"\n" not in whole.replace(b"\r\n", b"")


@pytest.mark.parametrize(
    ("version", "connection", "expected"),
    [
        ("1.1", "x", True),
        ("1.1", "x, Close", False),
        ("1.0", "x", False),
        ("1.0", "keep-alive", True),
    ],
)
def test_connection_is_kept(version: str, connection: str, expected: bool) -> None:
    parsed = parse_head(head(f"GET / HTTP/{version}", "Host: x", f"Connection: {connection}"))
    assert parsed.keep_alive is expected
