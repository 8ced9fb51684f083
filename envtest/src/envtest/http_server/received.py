"""A request as handlers receive it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from envtest.http_server.request_body import RequestBody
from envtest.http_server.request_head import RequestHead
from envtest.http_server.responses import CompleteResponse, Sender, SentResponse

__all__ = ["Client", "Handler", "Received", "Upgrade"]


class Client(Sender, Protocol):
    """The connection of a request.

    ``remote`` is the address of the client, ``certificate`` its certificate (DER); ``transport`` is ``None`` after
    the end of the connection.
    """

    remote: str
    certificate: bytes | None
    transport: asyncio.Transport | None

    def send_now(self, data: bytes) -> bool:
        """Send a part of a response unless the client must read first; return whether it was sent."""
        ...

    async def wait_lost(self) -> None:
        """Wait until the client has disconnected."""


class Received:
    """A request as it was received; the handler reads ``content``."""

    __slots__ = (
        "connection",
        "content",
        "content_length",
        "head",
        "headers",
        "method",
        "path",
        "query",
    )

    def __init__(self, head: RequestHead, content: RequestBody, connection: Client) -> None:
        self.head = head
        self.method = head.method
        self.path = head.path
        self.query = head.query
        self.headers = head.headers
        self.content_length = head.content_length
        self.content = content
        self.connection = connection

    @property
    def rel_url(self) -> str:
        """The request target as the client sent it."""
        return self.head.target

    @property
    def remote(self) -> str:
        """The address of the client."""
        return self.connection.remote

    @property
    def transport(self) -> asyncio.Transport | None:
        """The connection, ``None`` after its end."""
        return self.connection.transport


Handler = Callable[[Received], Awaitable[CompleteResponse | SentResponse]]
Upgrade = Callable[[RequestHead], "asyncio.Protocol | None"]
"""Returns the protocol that takes over a connection from this request on, if it is to leave HTTP."""
