"""Writes responses: headers, the body whole or in pieces, compressed if the client accepts it.

Compression follows ``deferredResponseWriter`` of ``k8s.io/apiserver``: gzip, at the fastest level, of bodies larger
than 128 KiB. Watches do not use this module and are never compressed.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Final

from envtest.endpoints.request import Request, Response
from envtest.http_server.received import Received
from envtest.http_server.responses import CompleteResponse, StreamResponse

__all__ = ["COMPRESSED_FROM", "send", "warning_headers"]

PIECE: Final = 256 * 1024
"""Bytes of a body that are sent in one write."""

COMPRESSED_FROM: Final = 128 * 1024
"""Bytes; larger bodies are compressed."""

MAX_WARNINGS: Final = 4096
"""Characters of all warnings; beyond, each is cut to :data:`MAX_CUT_WARNING` characters."""

MAX_CUT_WARNING: Final = 256

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")

_GZIP: Final = 16 + zlib.MAX_WBITS


async def send(request: Request, response: Response) -> CompleteResponse | StreamResponse:
    """Send a large response; return a small one, which the connection sends."""
    pieces = [response.body] if isinstance(response.body, bytes) else response.body
    size = sum(map(len, pieces))
    compressed = size > COMPRESSED_FROM and _takes_gzip(request)
    if compressed:
        response.headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    if size > PIECE and request.method != "HEAD" and isinstance(request.raw, Received):
        length = None if compressed else size
        return await _streamed(request, response, pieces, length)
    body = b"".join(pieces)
    if compressed:
        body = zlib.compress(body, 1, _GZIP)
    return CompleteResponse(
        response.code, _headers(request, response), body, request.method != "HEAD"
    )


def _takes_gzip(request: Request) -> bool:
    """Return whether the client accepts gzip; like kube-apiserver, ignore entries with a quality value."""
    return "gzip" in [
        token.strip() for token in request.headers.get("Accept-Encoding", "").split(",")
    ]


def warning_headers(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Return the Warning headers of a response.

    Like those of kube-apiserver, they leave out texts with control characters, and cut each text if all are long.
    """
    shown = [text for text in texts if not _CONTROL.search(text)]
    if sum(map(len, shown)) > MAX_WARNINGS:
        shown = _cut_warnings(shown)
    return [("Warning", _warning(text)) for text in shown]


def _cut_warnings(texts: Sequence[str]) -> list[str]:
    cut = []
    size = 0
    for text in texts:
        if size >= MAX_WARNINGS:
            break
        cut.append(text[:MAX_CUT_WARNING])
        size += len(cut[-1])
    return cut


def _warning(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'


def _headers(request: Request, response: Response) -> list[tuple[str, str]]:
    headers = {"Audit-Id": request.audit_id, "Cache-Control": "no-cache, private"}
    if response.content_type:
        headers["Content-Type"] = response.content_type
    return [
        *(headers | response.headers).items(),
        *request.flow_headers,
        *warning_headers(request.warnings),
    ]


async def _streamed(
    request: Request, response: Response, pieces: Sequence[bytes | memoryview], size: int | None
) -> StreamResponse:
    """Send a large body as fast as the client reads it, without ever holding it in one piece.

    ``size`` is the length of the body; ``None`` compresses it, so its length is not known in advance.
    """
    assert isinstance(request.raw, Received)
    http_response = StreamResponse(response.code, _headers(request, response))
    http_response.content_length = size
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP) if size is None else None
    await http_response.prepare(request.raw.connection)
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
        parts = _cut(piece) if len(piece) > PIECE else (piece,)
        for part in parts:
            batch.append(part)
            size += len(part)
            if size >= PIECE:
                yield b"".join(batch)
                batch = []
                size = 0
    if batch:
        yield b"".join(batch)


def _cut(piece: bytes | memoryview) -> Iterator[memoryview]:
    for start in range(0, len(piece), PIECE):
        yield memoryview(piece)[start : start + PIECE]
