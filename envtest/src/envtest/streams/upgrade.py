"""Upgrades HTTP connections: to SPDY/3.1 directly, or to WebSockets, which can carry channels or SPDY/3.1."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from aiohttp import WSCloseCode, WSMsgType, web

from envtest.apimachinery.errors import StatusError, bad_request
from envtest.endpoints.request import Request
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
    return [
        each.strip()
        for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",")
        if each.strip()
    ]


def _leaving_http(request: Request) -> web.BaseRequest:
    """Return aiohttp's request, which the server creates for connections that may leave HTTP. Raises StatusError."""
    if not isinstance(request.raw, web.BaseRequest):
        raise bad_request("Upgrade request required")
    return request.raw


async def accept_websocket(
    request: Request, supported: Sequence[str]
) -> tuple[web.WebSocketResponse, str]:
    """Upgrade to a WebSocket; return it with the first protocol of the client that is ``supported``, or ``""``.

    Raises StatusError (400) if the client offers others only.
    """
    offered = offered_protocols(request)
    protocol = next((each for each in offered if each in supported), "")
    if offered and not protocol:
        raise bad_request(
            f"unable to upgrade: unable to negotiate protocol: client supports {offered}"
        )
    socket = web.WebSocketResponse(
        protocols=[protocol] if protocol else [],
        max_msg_size=MAX_MESSAGE,
        compress=False,
        timeout=2.0,
    )
    await socket.prepare(_leaving_http(request))
    return socket, protocol


async def serve_tunnel(socket: web.WebSocketResponse, accept: Callable[[SPDYStream], None]) -> None:
    """Serve SPDY/3.1 whose bytes are in the binary messages of a WebSocket, until either side closes it."""
    has_room = asyncio.Event()
    has_room.set()

    def pause(paused: bool) -> None:
        if paused:
            has_room.clear()
        else:
            has_room.set()

    connection = SPDYConnection(socket.send_bytes, accept, pause)
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
    """Receives the bytes of an upgraded connection from aiohttp.

    The transport is paused while too many of them wait to be processed, for example because the client does not read
    the answers, or while ``has_room`` is false, because too many wait within streams.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self.bytes = ByteQueue(lambda _: self._update())
        self._transport = transport
        self._has_room = True

    def pause(self, paused: bool) -> None:
        self._has_room = not paused
        self._update()

    def _update(self) -> None:
        if not self._transport.is_closing():
            is_ready = self._has_room and not self.bytes.is_full
            if is_ready:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.bytes.feed(bytes(data))
        if self.bytes.is_full:
            self._update()
        return False, b""

    def feed_eof(self) -> None:
        self.bytes.end()

    def set_exception(self, *_: Any) -> None:
        self.bytes.end()


async def serve_spdy(
    request: Request,
    supported: Sequence[str],
    accept: Callable[[SPDYStream, str], None],
    done: asyncio.Event,
) -> web.StreamResponse:
    """Upgrade to SPDY/3.1, and serve it until the client closes the connection or ``done`` is set.

    ``accept`` is called with each stream and the negotiated protocol. Raises StatusError: 400 without an upgrade, 403
    if the client supports none of the ``supported`` protocols.
    """
    if request.headers.get("Upgrade", "").lower() != "spdy/3.1":
        raise bad_request("Upgrade request required")
    raw = _leaving_http(request)
    offered = [
        each.strip()
        for value in request.headers.getall(_PROTOCOL_HEADER, [])
        for each in value.split(",")
    ]
    protocol = next((each for each in offered if each in supported), "")
    if offered and not protocol:
        message = f"unable to upgrade: unable to negotiate protocol: client supports {offered}, server accepts "
        raise StatusError(403, "Forbidden", message + str(list(supported)), None)
    response = web.StreamResponse(
        status=101, headers={"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
    )
    if protocol:
        response.headers[_PROTOCOL_HEADER] = protocol
    http = raw.protocol
    transport = raw.transport
    assert isinstance(transport, asyncio.Transport)
    parser = _Parser(transport)
    http.set_parser(cast("Any", parser))
    await response.prepare(raw)
    http.keep_alive(False)

    async def send(data: bytes) -> None:
        if transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        transport.write(data)
        await http._drain_helper()

    connection = SPDYConnection(send, lambda stream: accept(stream, protocol), parser.pause)
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
