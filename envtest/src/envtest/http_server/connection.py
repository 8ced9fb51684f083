"""One client: reads its requests one after the other, passes each to a handler, and writes the responses."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from envtest.http_server.deadlines import Deadlines
from envtest.http_server.received import Handler, Received, Upgrade
from envtest.http_server.request_body import BodyError, RequestBody
from envtest.http_server.request_head import HeadError, RequestHead, parse_head
from envtest.http_server.responses import CompleteResponse, StreamResponse, encode_head

__all__ = ["Connection"]

HEAD_BYTES: Final = 1 << 20
"""Maximum bytes of a request line and its headers, as in Go's ``net/http``: URLs with selectors get long."""
PIECE_BYTES: Final = 64 * 1024
"""Bytes that are passed to a body at once."""
DISCARD_BYTES: Final = 256 * 1024
"""The rest of a request body that no handler has read is discarded up to this size; beyond it, the connection ends."""
DISCARD_SECONDS: Final = 10.0
LINGER_BYTES: Final = 8 * 1024 * 1024
"""Bytes that are read before a connection ends, so that the client receives the response before it is disconnected."""
LINGER_SECONDS: Final = 2.0


class Connection(asyncio.Protocol):
    """Serves one client; ``connections`` contains it while it is open."""

    def __init__(self, handler: Handler, upgrade: Upgrade, connections: set[Connection]) -> None:
        self._loop = asyncio.get_running_loop()
        self._handler = handler
        self._upgrade = upgrade
        self._connections = connections
        self._buffer = bytearray()
        self._searched = 0
        self._task: asyncio.Task[None] | None = None
        self._head: RequestHead | None = None
        self._body: RequestBody | None = None
        self._writable: asyncio.Future[None] | None = None
        self._deadlines: Deadlines | None = None
        self._closing = False
        self._ends_with_client = False
        self._paused = False
        self._lingering = 0
        self._lost: asyncio.Future[None] | None = None
        self.transport: asyncio.Transport | None = None
        self.remote = ""
        self.certificate: bytes | None = None

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._connections.add(self)
        address = transport.get_extra_info("peername")
        self.remote = str(address[0]) if isinstance(address, tuple) else ""
        tls = transport.get_extra_info("ssl_object")
        self.certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        self._deadlines = Deadlines(self._loop, self.abort)
        if self._closing:  # aborted between the accept and this call
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """End everything that waits for the client, and a response in parts, such as that of a watch."""
        self._connections.discard(self)
        self.transport = None
        if self._deadlines is not None:
            self._deadlines.cancel()
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)
        lost = ConnectionResetError("the client has disconnected")
        if self._body is not None and not self._body.complete:
            self._body.fail(lost)
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        if self._ends_with_client and self._task is not None:
            self._task.cancel()

    def eof_received(self) -> bool:
        """Close the connection when the client has closed its side."""
        return False

    def pause_writing(self) -> None:
        """Make writers wait until the client has read."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """Wake the writer."""
        waiter = self._writable
        self._writable = None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Take data of the client."""
        if self._lingering:
            self._lingering -= len(data)
            if self._lingering <= 0:
                self.abort()
            return
        body = self._body
        if body is not None and not body.complete:
            try:
                data = body.feed(data)
            except BodyError as error:
                body.fail(error)
                self._closing = True
                return
            if body.discarding:
                self._discarded(body)
            if not data:
                return
        self._buffer += data
        if self._task is None and not self._closing and self._body is None:
            self._read_head()
        elif len(self._buffer) > HEAD_BYTES:
            self._pause_reading()

    # Requests.

    def _read_head(self) -> None:
        """Begin to serve the next request if its headers are complete."""
        assert self._deadlines is not None
        if self._buffer.startswith(b"\r\n"):
            del self._buffer[:2]
        end = self._buffer.find(b"\r\n\r\n", max(self._searched - 3, 0))
        if end < 0 or end > HEAD_BYTES:
            self._searched = len(self._buffer)
            if self._searched > HEAD_BYTES:
                self._refuse(HeadError(431, "431 Request Header Fields Too Large"))
            elif self._buffer:
                self._deadlines.head_begins()
            return
        self._deadlines.request_begins()
        data = bytes(self._buffer[: end + 4])
        self._searched = 0
        try:
            head = parse_head(data)
        except HeadError as error:
            self._refuse(error)
            return
        if "Upgrade" in head.headers:
            protocol = self._upgrade(head)
            if protocol is not None:
                self._hand_over(protocol)
                return
        body = RequestBody(head.content_length)
        self._head = head
        self._body = body
        del self._buffer[: end + 4]
        if not body.complete:
            body.on_read = self._wait_for_body
            body.on_buffered = self._pause_reading
            self._feed_buffered(body)
        self._task = self._loop.create_task(self._serve(Received(head, body, self)))

    def _feed_buffered(self, body: RequestBody) -> None:
        """Pass what was received together with the headers to the body."""
        while self._buffer and not body.complete:
            # pipelined requests must not copy all that follows
            piece = bytes(self._buffer[:PIECE_BYTES])
            try:
                rest = body.feed(piece)
            except BodyError as error:
                body.fail(error)
                self._closing = True
                return
            del self._buffer[: len(piece) - len(rest)]

    def _wait_for_body(self) -> None:
        assert self._head is not None
        if self._head.expects_continue and self.transport is not None:
            self._head = self._head._replace(expects_continue=False)
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._resume_reading()

    def _hand_over(self, protocol: asyncio.Protocol) -> None:
        """Let another protocol serve this connection, from the request that is in the buffer."""
        transport = self.transport
        data = bytes(self._buffer)
        assert transport is not None
        self._connections.discard(self)
        self.transport = None
        self._buffer = bytearray()
        if self._deadlines is not None:
            self._deadlines.cancel()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(data)

    async def _serve(self, received: Received) -> None:
        try:
            response = await self._handler(received)
            if isinstance(response, CompleteResponse):
                self._write(response)
            elif not (isinstance(response, StreamResponse) and response.finished):
                self._closing = True
        except ConnectionError:
            self._closing = True
        except BodyError as error:
            self._refuse(HeadError(400, f"400 Bad Request: {error}"))
        except asyncio.CancelledError:
            if self.transport is None:
                return  # the client has disconnected
            self.abort()
            raise
        except Exception:
            logging.getLogger("envtest.http").exception("Request failed")
            self.abort()
        finally:
            self._task = None
            self._ends_with_client = False
            self._end_request()

    def _end_request(self) -> None:
        """Continue with the next request, or end the connection."""
        body = self._body
        if self.transport is None:
            return
        assert self._deadlines is not None
        self._deadlines.request_ends()
        if self._closing:
            self._linger() if body is not None and not body.complete else self.transport.close()
            return
        if body is not None and not body.complete:
            body.discard()
            self._resume_reading()
            self._loop.call_later(DISCARD_SECONDS, self._end_discarding, body)
            return
        self._next_request()

    def _next_request(self) -> None:
        self._body = None
        self._head = None
        self._resume_reading()
        if self._buffer:
            self._read_head()

    def _discarded(self, body: RequestBody) -> None:
        if body.complete:
            self._body = None
            self._head = None

    def _end_discarding(self, body: RequestBody) -> None:
        if self._body is body and self.transport is not None:
            self.transport.close()

    # Responses.

    def _keep_alive_line(self) -> str:
        """Decide whether the connection continues; return the header line that reports it."""
        assert self._head is not None
        assert self._body is not None
        if self._head.expects_continue and not self._body.complete:
            self._closing = True  # the client may or may not send the body
        if not self._body.complete and (
            self._head.content_length is None or self._body.remaining > DISCARD_BYTES
        ):
            self._closing = True
        if self._closing or not self._head.keep_alive:
            self._closing = True
            return "Connection: close\r\n"
        return "" if self._head.is_current else "Connection: keep-alive\r\n"

    def end_with_client(self) -> None:
        """Cancel the handler when the client disconnects."""
        self._ends_with_client = True

    def framing(self, length: int | None) -> tuple[str, bool]:
        """Return the lines that say where a response in parts ends, and whether it must be chunked."""
        assert self._head is not None
        self.end_with_client()
        if length is not None:
            return f"Content-Length: {length}\r\n{self._keep_alive_line()}", False
        if self._head.is_current:
            return f"Transfer-Encoding: chunked\r\n{self._keep_alive_line()}", True
        self._closing = True  # the end of the connection is the end of the response
        return self._keep_alive_line(), False

    def _write(self, response: CompleteResponse) -> None:
        if self.transport is None:
            return
        body = response.body
        has_length = response.status >= 200 and response.status not in {204, 304}
        framing = f"Content-Length: {len(body)}\r\n" if has_length else ""
        head = encode_head(response.status, response.headers, framing + self._keep_alive_line())
        if response.has_body and has_length:
            self.transport.write(head + body)
        else:
            self.transport.write(head)

    def send_now(self, data: bytes) -> bool:
        """Write a part of a response unless the writer must wait; return whether it was written."""
        if self.transport is None or self._writable is not None:
            return False
        self.transport.write(data)
        return True

    async def send(self, data: bytes) -> None:
        """Write a part of a response; wait while too much is buffered. Raises ConnectionError."""
        if self.transport is None or self.transport.is_closing():
            raise ConnectionResetError("the client has disconnected")
        self.transport.write(data)
        if self._writable is not None:
            await self._writable

    def _refuse(self, error: HeadError) -> None:
        """Answer a request that cannot be read, and end the connection."""
        if self.transport is None:
            return
        self._closing = True
        text = str(error).encode()
        headers = [("Content-Type", "text/plain; charset=utf-8"), ("Connection", "close")]
        self.transport.write(
            encode_head(error.code, headers, f"Content-Length: {len(text)}\r\n") + text
        )
        self._buffer = bytearray()
        self._linger()

    # The end.

    def _linger(self) -> None:
        """End the connection soon; until then discard what the client sends, so that it reads the response."""
        self._lingering = LINGER_BYTES
        self._resume_reading()
        self._loop.call_later(LINGER_SECONDS, self.close)

    def _pause_reading(self) -> None:
        if self.transport is not None and not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        if self.transport is not None and self._paused:
            self._paused = False
            self.transport.resume_reading()

    async def wait_lost(self) -> None:
        """Wait until the client has disconnected."""
        if self.transport is not None:
            self._lost = self._loop.create_future()
            await self._lost

    @property
    def waits(self) -> bool:
        """Whether the handler only waits until the client has disconnected."""
        return self._lost is not None

    @property
    def task(self) -> asyncio.Task[Any] | None:
        """The request that is being served."""
        return self._task

    def close(self) -> None:
        """End the connection; what was written is sent."""
        self._closing = True
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Cut the connection."""
        self._closing = True
        if self.transport is not None:
            self.transport.abort()
