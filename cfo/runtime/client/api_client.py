"""The ``ApiClient`` of kubernetes-asyncio on a :class:`~cfo.runtime.ClientConfig`, for generated APIs and exec.

Its requests use the server, TLS, proxy, impersonation and credentials of the configuration, and renew credentials like
:class:`~cfo.runtime.Transport`. They pass the write gate (:mod:`cfo.runtime.client.write_gate`). ``qps`` does not limit
them, they are not retried, the ``rest_client_*`` metrics do not count them, and the cache does not store responses.

kubernetes-asyncio is imported with the first client, in a thread: this takes 0.5 s of CPU and 60 MB.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Self

import aiohttp
import anyio
from multidict import CIMultiDict

from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.credentials import Credentials
from cfo.runtime.client.transport import USER_AGENT, GatedRequest, new_socket

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient

_READ_BUFFER_BYTES: Final = 2 << 20
"""The buffer that kubernetes-asyncio needs for lines of a watch, which contain whole objects."""


@asynccontextmanager
async def open_api_client(
    config: ClientConfig, *, websockets: bool = False
) -> AsyncIterator[ApiClient]:
    """Return an async context manager with an ``ApiClient`` of kubernetes-asyncio for ``config``.

    Pass it to a generated API, for example ``CoreV1Api(api_client)``. ``websockets`` returns a ``WsApiClient``, which
    exec, attach and port-forward need. An operator uses :meth:`~cfo.runtime.Manager.api_client` instead.

    Requests raise the exceptions of kubernetes-asyncio and aiohttp, and
    :class:`~cfo.runtime.client.CredentialError` if a login fails, :class:`~cfo.runtime.ConfigError` for an
    invalid certificate, and :class:`~cfo.runtime.client.write_gate.WriteRejected` if this process lost the leadership.
    Redirects are not followed: their response is an ``ApiException``.
    """
    await anyio.to_thread.run_sync(_import_library)
    from kubernetes_asyncio.client import ApiClient, Configuration
    from kubernetes_asyncio.stream import WsApiClient

    client_class: type[ApiClient] = WsApiClient if websockets else ApiClient
    api_client = client_class(Configuration(host=config.server.rstrip("/")))
    api_client.user_agent = USER_AGENT
    rest_client: Any = api_client.rest_client
    unused_session = rest_client.pool_manager
    rest_client.pool_manager = _Session(config)
    try:
        await unused_session.close()
        yield api_client
    finally:
        with anyio.CancelScope(shield=True):
            await api_client.close()


def _import_library() -> None:
    import kubernetes_asyncio.client
    import kubernetes_asyncio.stream  # noqa: F401


class ApiClients:
    """The ``ApiClient`` objects of a manager; each is created on its first use, and closed with the manager."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._clients: dict[bool, ApiClient] = {}
        self._lock = anyio.Lock()
        self._stack: AsyncExitStack | None = None

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._stack is not None
        stack = self._stack
        self._stack = None
        self._clients.clear()
        await stack.aclose()

    async def get(self, *, websockets: bool) -> ApiClient:
        """Return the client; see :func:`open_api_client`. Raises :class:`RuntimeError` if the manager does not run."""
        async with self._lock:
            if self._stack is None:
                raise RuntimeError("api_client() needs a running manager")
            if websockets not in self._clients:
                opened = open_api_client(self._config, websockets=websockets)
                self._clients[websockets] = await self._stack.enter_async_context(opened)
            return self._clients[websockets]


class _Session:
    """Sends the requests and opens the WebSockets of an ``ApiClient``.

    It has the methods of the aiohttp session that an ``ApiClient`` calls. The session that it creates reads
    certificates once, from files, and its WebSockets ignore the proxy and the TLS server name.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._credentials = Credentials()
        self._tls: ssl.SSLContext | None = None
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, socket_factory=new_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_READ_BUFFER_BYTES,
            request_class=GatedRequest,
        )

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], **options: Any
    ) -> aiohttp.ClientResponse:
        """Send a request; a 401 is retried once with renewed credentials."""
        options["allow_redirects"] = False
        connection = await self._connection(headers)
        response = await self._session.request(method, url, **options, **connection)
        if not self._is_renewable(response.status):
            return response
        response.release()
        connection = await self._connection(headers, renew=True)
        return await self._session.request(method, url, **options, **connection)

    @asynccontextmanager
    async def ws_connect(
        self, url: str, *, headers: Mapping[str, str], **options: Any
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a WebSocket; a 401 is retried once with renewed credentials."""
        connection = await self._connection(headers)
        try:
            websocket = await self._session.ws_connect(url, **options, **connection)
        except aiohttp.WSServerHandshakeError as error:
            if not self._is_renewable(error.status):
                raise
            connection = await self._connection(headers, renew=True)
            websocket = await self._session.ws_connect(url, **options, **connection)
        async with websocket:
            yield websocket

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    def _is_renewable(self, status: int) -> bool:
        return status == HTTPStatus.UNAUTHORIZED and self._config.credentials is not None

    async def _connection(
        self, headers: Mapping[str, str], *, renew: bool = False
    ) -> dict[str, Any]:
        """Return the arguments of a request that depend on the configuration."""
        credentials = await self._config.authenticate(renew=renew)
        if self._tls is None or credentials[1:] != self._credentials[1:]:
            self._tls = self._config.ssl_context(credentials)
        self._credentials = credentials
        authenticated = CIMultiDict(headers)
        if credentials.authorization:
            authenticated["Authorization"] = credentials.authorization
        authenticated.extend(self._config.headers)
        return {
            "headers": authenticated,
            "ssl": self._tls,
            "server_hostname": self._config.tls_server_name or None,
            "proxy": self._config.proxy_url or None,
        }
