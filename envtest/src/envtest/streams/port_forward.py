"""The streams of port-forward: a pair of data and error for each connection of the client.

kubectl opens SPDY/3.1 streams, since 1.31 within a WebSocket, before that directly. The official Python and Node
clients use channels of a WebSocket, for the ports of the query: two for each port, which start with its number.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol

from aiohttp import WSMsgType, web

from envtest.apimachinery.errors import bad_request
from envtest.endpoints.request import Request
from envtest.streams.byte_queue import ByteQueue
from envtest.streams.spdy import SPDYStream
from envtest.streams.upgrade import (
    accept_websocket,
    is_websocket,
    offered_protocols,
    serve_spdy,
    serve_tunnel,
)

__all__ = ["ForwardError", "Forwarded", "serve_port_forward"]

_TUNNEL: Final = "SPDY/3.1+portforward.k8s.io"
_PROTOCOL: Final = "portforward.k8s.io"
_CHANNELS: Final = ("v4.channel.k8s.io",)
_MAX_PORTS: Final = 100
_MAX_WAITING: Final = 100
PAIR_SECONDS: Final = 30.0
"""Seconds in which a client must open the second stream of a pair."""


class ForwardError(Exception):
    """Raised if a connection to a port fails; the message is sent to the client."""


class Forwarded(Protocol):
    """The bytes of one connection."""

    incoming: ByteQueue

    async def write(self, data: bytes) -> None:
        """Send bytes to the client."""


Forward = Callable[[int, Forwarded], Awaitable[None]]


async def serve_port_forward(request: Request, forward: Forward) -> web.StreamResponse:
    """Upgrade the connection, and call ``forward`` with the port and bytes of each connection of the client.

    ``forward`` raises ForwardError. Raises StatusError if the connection cannot be upgraded.
    """
    tasks: set[asyncio.Task[None]] = set()
    pairs = _Pairs(forward, tasks)
    try:
        if not is_websocket(request):
            done = asyncio.Event()
            return await serve_spdy(
                request, (_PROTOCOL,), lambda stream, _: pairs.accept(stream), done
            )
        if _TUNNEL in offered_protocols(request):
            socket, _ = await accept_websocket(request, (_TUNNEL,))
            await serve_tunnel(socket, pairs.accept)
            return socket
        return await _serve_channels(request, forward, tasks)
    finally:
        pairs.end()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _port(text: str) -> int:
    """Return a port number, or 0."""
    is_number = text.isascii() and text.isdigit() and len(text) < 6
    return int(text) if is_number and int(text) < 65536 else 0


class _Pair:
    """The streams of one connection, of which the client has opened the first; ``timer`` waits for the second."""

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.streams: dict[str, SPDYStream] = {}
        self.timer = timer

    @property
    def is_closed(self) -> bool:
        return all(stream.is_closed for stream in self.streams.values())


class _Pairs:
    """Pairs the data and error streams of each connection by their request id.

    A stream whose pair does not follow within :data:`PAIR_SECONDS` is closed; so is one that belongs to no pair.
    """

    def __init__(self, forward: Forward, tasks: set[asyncio.Task[None]]) -> None:
        self._forward = forward
        self._tasks = tasks
        self._waiting: dict[str, _Pair] = {}

    def accept(self, stream: SPDYStream) -> None:
        """Take a new stream; once a pair is complete, forward it."""
        kind = stream.headers.get("streamtype", "")
        if kind != "data":
            stream.ignore()
        if kind not in ("data", "error"):
            self._start(stream.close())
            return
        number = stream.number if kind == "error" else stream.number - 2
        request_id = stream.headers.get("requestid") or str(number)
        pair = self._waiting.get(request_id)
        if pair is None and self._has_room():
            timer = asyncio.get_running_loop().call_later(PAIR_SECONDS, self._expire, request_id)
            pair = _Pair(timer)
            self._waiting[request_id] = pair
        if pair is None or kind in pair.streams:
            self._start(stream.close())
            return
        pair.streams[kind] = stream
        if len(pair.streams) == 2:
            del self._waiting[request_id]
            pair.timer.cancel()
            self._start(self._run(pair.streams["data"], pair.streams["error"]))

    def _has_room(self) -> bool:
        """Return whether another pair may wait; pairs that the client gave up are forgotten."""
        if len(self._waiting) >= _MAX_WAITING:
            for request_id, pair in [*self._waiting.items()]:
                if pair.is_closed:
                    pair.timer.cancel()
                    del self._waiting[request_id]
        return len(self._waiting) < _MAX_WAITING

    def _expire(self, request_id: str) -> None:
        for stream in self._waiting.pop(request_id).streams.values():
            self._start(stream.close())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            with suppress(ConnectionError):
                await work

        task = asyncio.ensure_future(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def end(self) -> None:
        """Forget the pairs that wait."""
        for pair in self._waiting.values():
            pair.timer.cancel()
        self._waiting.clear()

    async def _run(self, data: SPDYStream, error: SPDYStream) -> None:
        text = data.headers.get("port", "")
        try:
            if _port(text):
                await self._forward(_port(text), data)
            else:
                message = f"port {text!r:.20}: must be from 1 to 65535"
                await error.write(json.dumps({"message": message}).encode() + b"\n")
        except ForwardError as problem:
            await error.write(json.dumps({"message": str(problem)}).encode() + b"\n")
        except ConnectionError:
            return
        await error.close()
        await data.close()


class _Channel:
    """The data channel of one port."""

    def __init__(self, socket: web.WebSocketResponse, number: int) -> None:
        self.incoming = ByteQueue()
        self._socket = socket
        self.number = number

    async def write(self, data: bytes) -> None:
        await self._socket.send_bytes(bytes([self.number]) + data)


async def _serve_channels(
    request: Request, forward: Forward, tasks: set[asyncio.Task[None]]
) -> web.StreamResponse:
    texts = [each for value in request.query.getall("ports", []) for each in value.split(",")]
    if not texts or not all(map(_port, texts)) or len(texts) > _MAX_PORTS:
        raise bad_request('query parameter "ports" is required: port numbers from 1 to 65535')
    socket, _ = await accept_websocket(request, _CHANNELS)
    channels = [_Channel(socket, position * 2) for position in range(len(texts))]

    async def run(channel: _Channel, port: int) -> None:
        try:
            await forward(port, channel)
        except ForwardError as problem:
            await socket.send_bytes(bytes([channel.number + 1]) + str(problem).encode())
        except ConnectionError:
            return

    for channel, text in zip(channels, texts, strict=True):
        for number in (channel.number, channel.number + 1):
            await socket.send_bytes(bytes([number]) + int(text).to_bytes(2, "little"))
        tasks.add(asyncio.ensure_future(run(channel, int(text))))
    tasks.add(asyncio.ensure_future(_close_after(socket, list(tasks))))
    async for message in socket:
        if message.type != WSMsgType.BINARY or not message.data:
            continue
        number, is_error = divmod(message.data[0], 2)
        if number < len(channels) and not is_error:
            channels[number].incoming.feed(message.data[1:])
            await channels[number].incoming.room()
    for channel in channels:
        channel.incoming.end()
    return socket


async def _close_after(socket: web.WebSocketResponse, tasks: list[asyncio.Task[None]]) -> None:
    await asyncio.wait(tasks)
    await socket.close()
