"""Upgrades HTTP connections: to SPDY/3.1 directly, or to WebSockets, which can carry channels or SPDY/3.1."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from aiohttp import WSCloseCode, WSMsgType, web

from envtest.errors import StatusError, bad_request
from envtest.http import Request
from envtest.streams.byte_queue import ByteQueue
from envtest.streams.spdy import ProtocolError, SPDYConnection, SPDYStream

__all__ = ["accept_websocket", "is_websocket", "serve_spdy", "serve_tunnel"]

MAX_MESSAGE: Final = 4 << 20
"""Maximum bytes of a WebSocket message."""

_PROTOCOL_HEADER: Final = "X-Stream-Protocol-Version"


def is_websocket(request: Request) -> bool:
    """Return whether a request asks for a WebSocket."""
    return request.headers.get("Upgrade", "").lower() == "websocket"


def offered_protocols(request: Request) -> list[str]:
    """Return the WebSocket protocols that a client offers, in its order of preference."""
    return [each.strip() for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",") if each.strip()]


def _leaving_http(request: Request) -> web.BaseRequest:
    """Return aiohttp's request, which the server creates for connections that may leave HTTP. Raises StatusError."""
    if not isinstance(request.raw, web.BaseRequest):
        raise bad_request("Upgrade request required")
    return request.raw


async def accept_websocket(request: Request, supported: Sequence[str]) -> tuple[web.WebSocketResponse, str]:
    """Upgrade to a WebSocket; return it with the first protocol of the client that is ``supported``, or ``""``.

    Raises StatusError (400) if the client offers others only.
    """
    offered = offered_protocols(request)
    protocol = next((each for each in offered if each in supported), "")
    if offered and not protocol:
        raise bad_request(f"unable to upgrade: unable to negotiate protocol: client supports {offered}")
    socket = web.WebSocketResponse(
        protocols=[protocol] if protocol else [], max_msg_size=MAX_MESSAGE, compress=False, timeout=2.0
    )
    await socket.prepare(_leaving_http(request))
    return socket, protocol


async def serve_tunnel(socket: web.WebSocketResponse, accept: Callable[[SPDYStream], None]) -> None:
    """Serve SPDY/3.1 whose bytes are in the binary messages of a WebSocket, until either side closes it."""
    has_room = asyncio.Event()
    has_room.set()
    connection = SPDYConnection(
        socket.send_bytes, accept, lambda paused: has_room.clear() if paused else has_room.set()
    )
    try:
        async for message in socket:
            if message.type not in (WSMsgType.BINARY, WSMsgType.TEXT):
                break
            data = message.data if isinstance(message.data, bytes) else message.data.encode()
            if not await connection.feed(data):
                break
            await has_room.wait()
    except ProtocolError as error:
        await socket.close(code=WSCloseCode.PROTOCOL_ERROR, message=str(error).encode())
    finally:
        connection.end()
        await socket.close()


class _Parser:
    """Receives the bytes of an upgraded connection from aiohttp."""

    def __init__(self) -> None:
        self.bytes = ByteQueue()

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.bytes.feed(bytes(data))
        return False, b""

    def feed_eof(self) -> None:
        self.bytes.end()

    def set_exception(self, *_: Any) -> None:
        self.bytes.end()


async def serve_spdy(
    request: Request, supported: Sequence[str], accept: Callable[[SPDYStream, str], None], done: asyncio.Event
) -> web.StreamResponse:
    """Upgrade to SPDY/3.1, and serve it until the client closes the connection or ``done`` is set.

    ``accept`` is called with each stream and the negotiated protocol. Raises StatusError: 400 without an upgrade, 403
    if the client supports none of the ``supported`` protocols.
    """
    if request.headers.get("Upgrade", "").lower() != "spdy/3.1":
        raise bad_request("Upgrade request required")
    raw = _leaving_http(request)
    offered = [each.strip() for value in request.headers.getall(_PROTOCOL_HEADER, []) for each in value.split(",")]
    protocol = next((each for each in offered if each in supported), "")
    if offered and not protocol:
        message = f"unable to upgrade: unable to negotiate protocol: client supports {offered}, server accepts "
        raise StatusError(403, "Forbidden", message + str(list(supported)), None)
    response = web.StreamResponse(status=101, headers={"Connection": "Upgrade", "Upgrade": "SPDY/3.1"})
    if protocol:
        response.headers[_PROTOCOL_HEADER] = protocol
    http, transport, parser = raw.protocol, raw.transport, _Parser()
    assert transport is not None
    http.set_parser(cast("Any", parser))
    await response.prepare(raw)
    http.keep_alive(False)

    async def send(data: bytes) -> None:
        if transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        transport.write(data)
        await http._drain_helper()

    def pause(paused: bool) -> None:
        if not transport.is_closing():
            (transport.pause_reading if paused else transport.resume_reading)()

    connection = SPDYConnection(send, lambda stream: accept(stream, protocol), pause)
    ended = asyncio.ensure_future(done.wait())
    try:
        while True:
            reading = asyncio.ensure_future(parser.bytes.read())
            await asyncio.wait((reading, ended), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                reading.cancel()
                break
            data = reading.result()
            if not data or not await connection.feed(data):
                break
    except ProtocolError:
        pass
    finally:
        ended.cancel()
        connection.end()
        http.force_close()
    return response
