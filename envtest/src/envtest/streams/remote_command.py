"""The streams of exec and attach: stdin, stdout, stderr and the exit status. The size of the terminal is ignored.

Over WebSockets, the first byte of each message is the channel (``v5`` and ``v4.channel.k8s.io``, and the variants with
base64); over SPDY/3.1, each is a stream of its own. kubectl and most clients use the former, client-go's
``NewSPDYExecutor`` the latter.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, Protocol

import orjson
from aiohttp import WSMessage, WSMsgType, web

from envtest.endpoints.request import Request
from envtest.streams.byte_queue import ByteQueue
from envtest.streams.spdy import SPDYStream
from envtest.streams.upgrade import accept_websocket, is_websocket, serve_spdy

__all__ = ["Options", "Streams", "exit_status", "serve_command"]

STDOUT: Final = 1
STDERR: Final = 2
ERROR: Final = 3
CLOSE: Final = 255
STREAM_SECONDS: Final = 30.0
"""Seconds in which a client must open all SPDY streams."""

_V5: Final = "v5.channel.k8s.io"
_BINARY: Final = (_V5, "v4.channel.k8s.io", "channel.k8s.io")
_BASE64: Final = ("v4.base64.channel.k8s.io", "base64.channel.k8s.io")
_SPDY: Final = ("v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io")
_NAMES: Final = {STDOUT: "stdout", STDERR: "stderr", ERROR: "error"}


class Options(NamedTuple):
    """Which streams a request asks for."""

    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool


class Streams(Protocol):
    """The streams of one command."""

    stdin: ByteQueue

    async def write(self, channel: int, data: bytes) -> None:
        """Write to :data:`STDOUT` or :data:`STDERR`; dropped if the client did not ask for it."""


Run = Callable[[Streams], Awaitable[dict[str, Any]]]


def exit_status(code: int, command: list[str]) -> dict[str, Any]:
    """Return the Status that reports the exit code of a command."""
    if not code:
        return {"metadata": {}, "status": "Success"}
    shown = f"error executing command [{' '.join(command)}], exit code {code}"
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: {shown}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


async def serve_command(request: Request, options: Options, run: Run) -> web.StreamResponse:
    """Upgrade the connection, call ``run`` with the streams, and send the Status that it returns.

    Raises StatusError if the connection cannot be upgraded.
    """
    if is_websocket(request):
        return await _serve_websocket(request, options, run)
    return await _serve_spdy(request, options, run)


def _status_text(status: dict[str, Any], protocol: str) -> bytes:
    """Return a status as the protocol sends it: those before v4 send only the message of a failure."""
    if protocol.startswith(("v5", "v4")):
        return orjson.dumps(status)
    return b"" if status["status"] == "Success" else str(status.get("message", "")).encode()


class _SocketStreams:
    def __init__(self, socket: web.WebSocketResponse, protocol: str, options: Options) -> None:
        self.stdin = ByteQueue()
        self._socket = socket
        self._protocol = protocol
        self._options = options
        if not options.stdin:
            self.stdin.end()

    async def write(self, channel: int, data: bytes) -> None:
        if channel != ERROR and not getattr(self._options, _NAMES[channel]):
            return
        if self._protocol in _BASE64:
            await self._socket.send_str(str(channel) + base64.b64encode(data).decode())
        else:
            await self._socket.send_bytes(bytes([channel]) + data)

    def feed(self, message: WSMessage) -> None:
        """Take one message of the client."""
        if self._protocol in _BASE64:
            text = (
                message.data
                if isinstance(message.data, str)
                else message.data.decode("ascii", "replace")
            )
            try:
                channel = int(text[:1])
                data = base64.b64decode(text[1:])
            except (ValueError, binascii.Error):
                return
        else:
            content = message.data if isinstance(message.data, bytes) else message.data.encode()
            if not content:
                return
            channel = content[0]
            data = content[1:]
        if channel == 0:
            self.stdin.feed(data)
        elif channel == CLOSE and self._protocol == _V5 and data[:1] == b"\0":
            self.stdin.end()

    async def receive(self) -> None:
        async for message in self._socket:
            if message.type in (WSMsgType.BINARY, WSMsgType.TEXT):
                self.feed(message)
                await self.stdin.room()
        self.stdin.end()


async def _serve_websocket(request: Request, options: Options, run: Run) -> web.StreamResponse:
    socket, protocol = await accept_websocket(request, (*_BINARY, *_BASE64))
    streams = _SocketStreams(socket, protocol or "channel.k8s.io", options)
    await _run_until_closed(streams.receive(), _run_socket(socket, streams, protocol, options, run))
    await socket.close()
    return socket


async def _run_socket(
    socket: web.WebSocketResponse,
    streams: _SocketStreams,
    protocol: str,
    options: Options,
    run: Run,
) -> None:
    for channel, wanted in ((STDOUT, options.stdout), (STDERR, options.stderr), (ERROR, True)):
        if wanted:  # the real servers send an empty message on each channel that they write to
            await streams.write(channel, b"")
    status = _status_text(await run(streams), protocol)
    if status:
        await streams.write(ERROR, status)


async def _run_until_closed(receive: Awaitable[None], work: Awaitable[None]) -> None:
    """Run ``work`` until it ends or the client closes the connection."""
    receiving = asyncio.ensure_future(receive)
    working = asyncio.ensure_future(work)
    try:
        await asyncio.wait((receiving, working), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    except ConnectionError:
        pass
    finally:
        for task in (receiving, working):
            task.cancel()
        await asyncio.gather(receiving, working, return_exceptions=True)


class _SPDYStreams:
    def __init__(self, options: Options) -> None:
        self.stdin = ByteQueue()
        self.opened: dict[str, SPDYStream] = {}
        self.protocol = ""
        self.complete = asyncio.Event()
        self._wanted = {
            name for name in ("stdin", "stdout", "stderr") if getattr(options, name)
        } | {"error"}
        self._reads_stdin = options.stdin
        if not options.stdin:
            self.stdin.end()

    def accept(self, stream: SPDYStream, protocol: str) -> None:
        kind = stream.headers.get("streamtype", "")
        self.protocol = protocol
        if kind == "stdin" and self._reads_stdin and kind not in self.opened:
            self.stdin = stream.incoming
        else:
            stream.ignore()
        self.opened.setdefault(kind, stream)
        if self._wanted <= self.opened.keys():
            self.complete.set()

    async def write(self, channel: int, data: bytes) -> None:
        stream = self.opened.get(_NAMES[channel])
        if stream is not None:
            await stream.write(data)

    async def close(self) -> None:
        for name in ("stdout", "stderr", "error", "stdin", "resize"):
            if name in self.opened:
                await self.opened[name].close()


async def _serve_spdy(request: Request, options: Options, run: Run) -> web.StreamResponse:
    streams = _SPDYStreams(options)
    done = asyncio.Event()

    async def work() -> None:
        try:
            async with asyncio.timeout(STREAM_SECONDS):
                await streams.complete.wait()
            status = _status_text(await run(streams), streams.protocol)
            if status:
                await streams.write(ERROR, status)
            await streams.close()
        except (TimeoutError, ConnectionError):
            done.set()

    working = asyncio.ensure_future(work())
    try:
        return await serve_spdy(request, _SPDY, streams.accept, done)
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
