"""Writes responses: headers, the body whole or in pieces, compressed if the client accepts it.

Compression follows ``deferredResponseWriter`` of ``k8s.io/apiserver``: gzip, at the fastest level, of bodies larger
than 128 KiB. Watches do not use this module and are never compressed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Final

from aiohttp import web
from multidict import CIMultiDict

from envtest.http import Request, Response

__all__ = ["COMPRESSED_FROM", "send"]

PIECE: Final = 256 * 1024
"""Bytes of a body that are sent in one write."""

COMPRESSED_FROM: Final = 128 * 1024
"""Bytes; larger bodies are compressed."""

_GZIP: Final = 16 + zlib.MAX_WBITS


async def send(request: Request, response: Response) -> web.StreamResponse:
    """Send a response, or return the one that aiohttp sends when the handler returns it."""
    if request.method == "HEAD":
        return _http_response(request, response, b"")
    pieces = [response.body] if isinstance(response.body, bytes) else response.body
    size = sum(map(len, pieces))
    compressed = size > COMPRESSED_FROM and _takes_gzip(request)
    if compressed:
        response.headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    if size > PIECE:
        return await _streamed(request, response, pieces, None if compressed else size)
    body = b"".join(pieces)
    return _http_response(request, response, zlib.compress(body, 1, _GZIP) if compressed else body)


def _takes_gzip(request: Request) -> bool:
    """Return whether the client accepts gzip; like kube-apiserver, ignore entries with a quality value."""
    return "gzip" in [token.strip() for token in request.headers.get("Accept-Encoding", "").split(",")]


def _warning(text: str) -> str:
    escaped = " ".join(text.split("\n")).replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'


def _set_headers(request: Request, response: Response, headers: CIMultiDict[str]) -> None:
    if response.content_type:
        headers["Content-Type"] = response.content_type
    headers["Cache-Control"] = "no-cache, private"
    headers["Audit-Id"] = request.audit_id
    for name, value in response.headers.items():
        headers[name] = value
    for text in request.warnings:
        headers.add("Warning", _warning(text))


def _http_response(request: Request, response: Response, body: bytes) -> web.Response:
    http_response = web.Response(body=body, status=response.code)
    _set_headers(request, response, http_response.headers)
    return http_response


async def _streamed(
    request: Request, response: Response, pieces: Sequence[bytes | memoryview], size: int | None
) -> web.StreamResponse:
    """Send a large body as fast as the client reads it, without ever holding it in one piece.

    ``size`` is the length of the body; ``None`` compresses it, so its length is not known in advance.
    """
    http_response = web.StreamResponse(status=response.code)
    _set_headers(request, response, http_response.headers)
    http_response.content_length = size
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP) if size is None else None
    await http_response.prepare(request.raw)
    for batch in _batches(pieces):
        data = batch if packer is None else packer.compress(batch)
        if data:
            await http_response.write(data)
    if packer is not None:
        await http_response.write(packer.flush())
    await http_response.write_eof()
    return http_response


def _batches(pieces: Sequence[bytes | memoryview]) -> Iterator[bytes]:
    """Yield the pieces, joined or cut so that none is much longer than :data:`PIECE`."""
    batch: list[bytes | memoryview] = []
    size = 0
    for piece in pieces:
        for part in (piece,) if len(piece) <= PIECE else _cut(piece):
            batch.append(part)
            size += len(part)
            if size >= PIECE:
                yield b"".join(batch)
                batch, size = [], 0
    if batch:
        yield b"".join(batch)


def _cut(piece: bytes | memoryview) -> Iterator[memoryview]:
    for start in range(0, len(piece), PIECE):
        yield memoryview(piece)[start : start + PIECE]
