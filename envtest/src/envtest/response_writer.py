"""Writes responses: headers, the body whole or in pieces, compressed if the client accepts it.

Compression is that of ``deferredResponseWriter`` of ``k8s.io/apiserver``: gzip, at the fastest level, of bodies larger
than 128 KiB. Watches do not use this module and are never compressed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Final

from aiohttp import web
from multidict import CIMultiDict

from envtest.http import Call, Reply

__all__ = ["COMPRESSED_FROM", "send"]

PIECE: Final = 256 * 1024
"""How many bytes of a body are sent at once."""

COMPRESSED_FROM: Final = 128 * 1024
"""Bytes; larger bodies are compressed."""

_GZIP: Final = 16 + zlib.MAX_WBITS


async def send(call: Call, reply: Reply) -> web.StreamResponse:
    """Send a reply, or return the response that aiohttp sends when the handler returns it."""
    if call.method == "HEAD":
        return _response(call, reply, b"")
    pieces = [reply.body] if isinstance(reply.body, bytes) else reply.body
    size = sum(map(len, pieces))
    compressed = size > COMPRESSED_FROM and _takes_gzip(call)
    if compressed:
        reply.headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    if size > PIECE:
        return await _streamed(call, reply, pieces, None if compressed else size)
    body = b"".join(pieces)
    return _response(call, reply, zlib.compress(body, 1, _GZIP) if compressed else body)


def _takes_gzip(call: Call) -> bool:
    """Return whether the client accepts gzip; like kube-apiserver, ignore entries with a quality value."""
    return "gzip" in [token.strip() for token in call.headers.get("Accept-Encoding", "").split(",")]


def _warning(text: str) -> str:
    escaped = " ".join(text.split("\n")).replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'


def _set_headers(call: Call, reply: Reply, headers: CIMultiDict[str]) -> None:
    headers["Content-Type"] = reply.content_type
    headers["Cache-Control"] = "no-cache, private"
    headers["Audit-Id"] = call.audit_id
    for name, value in reply.headers.items():
        headers[name] = value
    for text in call.warnings:
        headers.add("Warning", _warning(text))


def _response(call: Call, reply: Reply, body: bytes) -> web.Response:
    response = web.Response(body=body, status=reply.code)
    _set_headers(call, reply, response.headers)
    return response


async def _streamed(
    call: Call, reply: Reply, pieces: Sequence[bytes | memoryview], size: int | None
) -> web.StreamResponse:
    """Send a large body as fast as the client reads it, without ever holding it in one piece.

    ``size`` is the length of the body; ``None`` compresses it, so its length is not known in advance.
    """
    response = web.StreamResponse(status=reply.code)
    _set_headers(call, reply, response.headers)
    response.content_length = size
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP) if size is None else None
    await response.prepare(call.raw)
    for batch in _batches(pieces):
        data = batch if packer is None else packer.compress(batch)
        if data:
            await response.write(data)
    if packer is not None:
        await response.write(packer.flush())
    await response.write_eof()
    return response


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
