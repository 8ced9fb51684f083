"""Requests to an API server, and their answers, as bytes.

A :class:`Transport` is one pool of connections to one server. It authenticates (and renews credentials that the
server refuses), waits when the server says so, repeats what may be repeated
(:mod:`cfo.runtime.client.retry`), keeps to a client-side rate when there is one, and turns every failure into an
:class:`~cfo.runtime.client.errors.APIError` or a :class:`~cfo.runtime.client.errors.TransportError` that names what
was asked. What it logs are methods, paths and codes: no header of ours, and no body.
"""

from __future__ import annotations

import platform
import re
import socket
import ssl
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, Self

import aiohttp
import anyio
import orjson
import structlog
from aiohttp.connector import Connection
from multidict import CIMultiDict
from yarl import URL

from cfo.runtime.client.config import ClientConfig, ConfigError
from cfo.runtime.client.credentials import CredentialError, Credentials
from cfo.runtime.client.errors import APIError, TransportError, error_for
from cfo.runtime.client.retry import Attempts
from cfo.runtime.client.write_gate import write_gate
from cfo.runtime.clock import Clock, SystemClock
from cfo.runtime.ratelimit import BucketRateLimiter
from cfo.version import __version__

__all__ = ["JSON", "Exchange", "Response", "Transport"]

JSON = "application/json"
USER_AGENT = f"cfo/{__version__} ({platform.system().lower()}/{platform.machine()})"

_TIMEOUT_SECONDS = 75.0  # a kube-apiserver gives up after 60, and says so
_CONNECT_SECONDS = 10.0
_IDLE_CONNECTION_SECONDS = 30.0  # well below the 90 after which a kube-apiserver closes it
_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 45_000}
"""Seconds of silence before the first probe, between probes, how many; milliseconds that sent bytes may wait."""

_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_WARNINGS_REMEMBERED = 512

_log = structlog.get_logger("cfo.client")


class Response(NamedTuple):
    """An answer below 300, or 304."""

    code: int
    body: bytes
    headers: Mapping[str, str]


class Exchange(NamedTuple):
    """One request and its answer, for metrics; ``code`` is ``<error>`` where none came, as in client-go.

    ``seconds`` last until the answer was read (of a stream: until it began). ``sent`` and ``received`` are the
    bytes of the bodies, uncompressed (of a stream: 0). ``retry_of`` is the code that the attempt before got, empty
    for the first one; ``limited`` the seconds that the limit of requests held it back, ``None`` without one.
    """

    method: str
    host: str
    code: str
    seconds: float
    verb: str
    resource: str
    sent: int = 0
    received: int = 0
    retry_of: str = ""
    limited: float | None = None


class _Ask(NamedTuple):
    method: str
    path: str
    params: Mapping[str, str] | None
    body: bytes | None
    headers: Mapping[str, str]
    verb: str
    resource: str
    streams: bool = False
    fresh: bool = False
    retry_of: str = ""


class _Request(aiohttp.ClientRequest):
    """A request that asks the gate at the last moment: when it has its connection."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        """Sends it; raises :class:`~cfo.runtime.client.write_gate.WriteRefused`."""
        gate = write_gate.get()
        if gate is not None and self.method not in ("GET", "HEAD"):
            gate.check()
        return await super().send(conn)


class Transport:
    """One pool of connections to one API server; an async context manager.

    ``qps`` and ``burst`` limit requests on this side (``qps`` of ``None``, 0 or less: not at all, the server's
    priority and fairness governs); ``observe`` is called with each :class:`Exchange`.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        qps: float | None = None,
        burst: int | None = None,
        user_agent: str = USER_AGENT,
        observe: Callable[[Exchange], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.config = config
        self._clock = clock or SystemClock()
        self._bucket: BucketRateLimiter | None = None
        if qps is not None and qps > 0:
            self._bucket = BucketRateLimiter(qps, burst or max(1, round(2 * qps)), self._clock)
        self._user_agent = user_agent
        self._observe = observe
        self._base = config.server.rstrip("/")
        self.host = URL(config.server).authority.rpartition("@")[2]
        self._session: aiohttp.ClientSession | None = None
        self._streams: aiohttp.ClientSession | None = None
        self._retired: deque[tuple[aiohttp.ClientSession, float]] = deque()
        self._credentials = Credentials()
        self._ssl: ssl.SSLContext | None = None
        self._warned: OrderedDict[str, None] = OrderedDict()

    async def __aenter__(self) -> Self:
        self._session = _new_session(keepalive_timeout=_IDLE_CONNECTION_SECONDS)
        # A stream gets a new connection each time: one from the pool may be the next of those that went silent.
        self._streams = _new_session()
        return self

    async def __aexit__(self, *_: object) -> None:
        sessions = [self._session, self._streams, *(session for session, _ in self._retired)]
        self._session = self._streams = None
        self._retired.clear()
        with anyio.CancelScope(shield=True):
            for session in sessions:
                if session is not None:
                    await session.close()

    async def _renew_pool(self, silent: aiohttp.ClientSession | None) -> None:
        """Uses no connection of the pool ``silent`` any more; requests that are under way on some go on.

        Where one connection went silent (a load balancer forgot it), all that are as old may have.
        """
        if silent is None or silent is not self._session:
            return
        now = self._clock.monotonic()
        self._session = _new_session(keepalive_timeout=_IDLE_CONNECTION_SECONDS)
        self._retired.append((silent, now))
        while self._retired[0][1] < now - 2 * _TIMEOUT_SECONDS:  # what was under way on it has ended
            await self._retired.popleft()[0].close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        compress: bool = False,
        retry_lost: bool | None = None,
        fresh: bool = False,
        verb: str = "",
        resource: str = "",
    ) -> Response:
        """Asks, and reads the whole answer.

        ``path`` comes quoted, ``params`` do not. ``timeout``: seconds for everything, waiting and repeating
        included (75 unless told; what is told is told the server too). ``compress`` accepts gzip, which pays
        for long lists. ``retry_lost``: whether the request may be sent again when the connection broke while
        it may have been worked on (unless told: when it is a GET). ``fresh`` asks on a new connection, for one that
        was idle may be dead. ``verb`` and ``resource`` name it in
        errors. Raises :class:`~cfo.runtime.client.errors.APIError` and
        :class:`~cfo.runtime.client.errors.TransportError`.
        """
        limit = _TIMEOUT_SECONDS if timeout is None else timeout
        if timeout is not None:
            params = {**(params or {}), "timeout": f"{max(1, round(timeout))}s"}
        sent_headers = {"Accept": accept, "Accept-Encoding": "gzip" if compress else "identity", **(headers or {})}
        if body is not None:
            sent_headers["Content-Type"] = content_type
        ask = _Ask(method, path, params, body, sent_headers, verb or method, resource or path, fresh=fresh)
        reads = method == "GET"
        repeatable = reads if retry_lost is None else retry_lost
        attempts = self._attempts(ask, repeatable=repeatable, reads=reads, limit=limit)
        waiting_for_answer = False
        session = self._session
        try:
            with anyio.fail_after(limit):
                while True:
                    try:
                        waiting_for_answer = True
                        session = self._session
                        async with self._exchange(ask, aiohttp.ClientTimeout(sock_connect=_CONNECT_SECONDS)) as got:
                            return Response(got.status, await got.read(), got.headers)
                    except (APIError, aiohttp.ClientError) as error:
                        waiting_for_answer = False
                        wait = attempts.wait_after(error)
                        ask = ask._replace(retry_of=str(error.code) if isinstance(error, APIError) else "<error>")
                    await self._clock.sleep(wait)
        except TimeoutError:
            await self._renew_pool(session)
            raise attempts.timed_out(waiting_for_answer) from None

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        accept: str = JSON,
        read_timeout: float | None = None,
        compress: bool = False,
        verb: str = "watch",
        resource: str = "",
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """The body of a long answer (a watch) as aiohttp's stream reader; nothing is repeated.

        ``read_timeout``: seconds without a byte after which reading fails. Failures of the connection, while
        asking or while the body is read inside the ``async with``, are raised as
        :class:`~cfo.runtime.client.errors.TransportError`, refusals as an
        :class:`~cfo.runtime.client.errors.APIError`.
        """
        headers = {"Accept": accept, "Accept-Encoding": "gzip" if compress else "identity"}
        ask = _Ask("GET", path, params, None, headers, verb, resource or path, streams=True)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=read_timeout)
        attempt = self._attempts(ask, repeatable=False, reads=True, limit=_TIMEOUT_SECONDS)
        try:
            async with AsyncExitStack() as stack:
                try:
                    with anyio.fail_after(_TIMEOUT_SECONDS):
                        response = await stack.enter_async_context(self._exchange(ask, timeout))
                except TimeoutError as error:
                    if isinstance(error, aiohttp.ClientError):
                        raise  # the connection's own limit, said below
                    raise attempt.timed_out(waiting_for_answer=True) from None
                yield response.content
        except aiohttp.ClientError as error:
            raise attempt.failure(error) from error

    def _attempts(self, ask: _Ask, *, repeatable: bool, reads: bool, limit: float) -> Attempts:
        return Attempts(
            ask.verb, ask.resource, self.host, repeatable=repeatable, reads=reads, limit=limit, clock=self._clock
        )

    @asynccontextmanager
    async def _exchange(self, ask: _Ask, timeout: aiohttp.ClientTimeout) -> AsyncIterator[aiohttp.ClientResponse]:
        """One request and its answer, the body still to be read; asked again with new credentials after a 401."""
        for renew in (False, True):
            await self._authenticate(ask, renew)
            async with self._send(ask, timeout) as response:
                if response.status == 401 and not renew and self.config.credentials is not None:
                    continue
                self._log_warnings(response)
                if response.status >= 300 and response.status != 304:
                    raise self._refusal(ask, response, await response.read())
                yield response
                return

    async def _authenticate(self, ask: _Ask, renew: bool) -> None:
        try:
            credentials = await self.config.authenticate(renew=renew)
            if self._ssl is None or credentials[1:] != self._credentials[1:]:
                self._ssl = self.config.ssl_context(credentials)
            self._credentials = credentials
        except (CredentialError, ConfigError) as error:
            raise TransportError(str(error), outcome_unknown=False, verb=ask.verb, resource=ask.resource) from None

    @asynccontextmanager
    async def _send(self, ask: _Ask, timeout: aiohttp.ClientTimeout) -> AsyncIterator[aiohttp.ClientResponse]:
        session = self._streams if ask.streams or ask.fresh else self._session
        if session is None:
            raise RuntimeError("the transport is closed or was never entered: use 'async with Transport(...)'")
        limited = self._bucket.when(None) if self._bucket is not None else None
        if limited:
            await self._clock.sleep(limited)
        headers = CIMultiDict(ask.headers)
        headers["User-Agent"] = self._user_agent
        if self._credentials.authorization:
            headers["Authorization"] = self._credentials.authorization
        headers.extend(self.config.headers)
        assert self._ssl is not None
        started, code, received = self._clock.monotonic(), "<error>", 0
        try:
            async with session.request(
                ask.method,
                URL(self._base + ask.path, encoded=True),
                params=ask.params,
                data=ask.body,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                ssl=self._ssl,
                server_hostname=self.config.tls_server_name or None,
                proxy=self.config.proxy_url or None,
            ) as response:
                code = str(response.status)
                if ask.streams:
                    self._report(ask, code, started, 0, limited)
                try:
                    yield response
                finally:
                    received = response.content.total_bytes
        finally:
            if not ask.streams or code == "<error>":
                self._report(ask, code, started, received, limited)

    def _report(self, ask: _Ask, code: str, started: float, received: int, limited: float | None) -> None:
        seconds = self._clock.monotonic() - started
        # an unconfigured structlog prints everything: a script should not show each of its requests
        if structlog.is_configured():
            _log.debug("request", method=ask.method, path=ask.path, code=code, seconds=round(seconds, 4))
        if self._observe is not None:
            self._observe(
                Exchange(
                    ask.method,
                    self.host,
                    code,
                    seconds,
                    ask.verb,
                    ask.resource,
                    sent=len(ask.body or b""),
                    received=received,
                    retry_of=ask.retry_of,
                    limited=limited,
                )
            )

    def _refusal(self, ask: _Ask, response: aiohttp.ClientResponse, body: bytes) -> APIError:
        """The error for an answer: by its Status, or by what else it says."""
        status = _status(body)
        message = f"the server answered {response.status} {response.reason or ''}".rstrip()
        if not status and response.content_type == "text/plain":
            text = body[:200].decode("utf-8", "replace").strip()
            message = text or message
        retry_after = self._retry_after(response.headers.get("Retry-After", ""))
        if retry_after is None:
            told = (status.get("details") or {}).get("retryAfterSeconds")
            retry_after = float(told) if isinstance(told, int) and told > 0 else None
        return error_for(
            response.status, status, message=message, retry_after=retry_after, verb=ask.verb, resource=ask.resource
        )

    def _retry_after(self, header: str) -> float | None:
        """Seconds from a ``Retry-After`` header, which holds them or a date (RFC 9110, 10.2.3)."""
        if not header:
            return None
        if header.strip().isdecimal():
            return float(header)
        try:
            moment = parsedate_to_datetime(header)
        except ValueError:
            return None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return max(0.0, (moment - self._clock.now()).total_seconds())

    def _log_warnings(self, response: aiohttp.ClientResponse) -> None:
        """Logs what the API server warns of (deprecated versions, unknown fields), each warning once."""
        for header in response.headers.getall("Warning", ()):
            for text in _WARNING.findall(header):
                if text not in self._warned:
                    _log.warning("the API server warns", warning=re.sub(r"\\(.)", r"\1", text))
                self._warned[text] = None
                self._warned.move_to_end(text)
        while len(self._warned) > _WARNINGS_REMEMBERED:
            self._warned.popitem(last=False)


def _new_session(*, keepalive_timeout: float | None = None) -> aiohttp.ClientSession:
    """A pool whose connections may be used again within ``keepalive_timeout`` seconds (``None``: never)."""
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=0,
            socket_factory=_new_socket,
            force_close=keepalive_timeout is None,
            keepalive_timeout=keepalive_timeout,
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=2**18,
        request_class=_Request,
    )
    # What is sent again is decided in cfo.runtime.client.retry; aiohttp would repeat any PUT and DELETE by itself.
    session._retry_connection = False
    return session


def _new_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket on which the kernel notices a peer that is gone within some 45 s, idle or not."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        option = getattr(socket, name, None)
        if option is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


def _status(body: bytes) -> dict[str, Any]:
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return status if isinstance(status, dict) and status.get("kind") == "Status" else {}
