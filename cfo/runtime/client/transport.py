"""The HTTP transport: requests to an API server and their responses, as bytes.

A :class:`Transport` is one connection pool to one server. It authenticates and renews credentials that the server
rejects, honors ``Retry-After``, retries requests if that is safe (:mod:`cfo.runtime.client.retry`), applies an optional
client-side rate limit, and turns every failure into an :class:`~cfo.runtime.client.errors.APIError` or a
:class:`~cfo.runtime.client.errors.TransportError` that names the request. It logs methods, paths and status codes,
never request headers or bodies.
"""

from __future__ import annotations

import platform
import re
import socket
import ssl
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any, Final, Self

import aiohttp
import anyio
import msgspec
import orjson
import structlog
from aiohttp import hdrs
from aiohttp.connector import Connection
from multidict import CIMultiDict
from yarl import URL

from cfo.runtime.client.config import ClientConfig, ConfigError
from cfo.runtime.client.credentials import CredentialError, Credentials
from cfo.runtime.client.errors import APIError, ResponseTooLarge, TransportError, error_for
from cfo.runtime.client.ratelimit import BucketRateLimiter
from cfo.runtime.client.retry import Attempts
from cfo.runtime.client.write_gate import write_gates
from cfo.runtime.process.arguments import require_plain_function
from cfo.runtime.process.clock import Clock, SystemClock
from cfo.version import __version__

JSON: Final = "application/json"

USER_AGENT = f"cfo/{__version__} ({platform.system().lower()}/{platform.machine()})"

_TIMEOUT_SECONDS = 75.0
"""The default time limit of a request; kube-apiserver's is 60, after which it sends a Status."""

_CONNECT_SECONDS = 10.0

_IDLE_CONNECTION_SECONDS = 30.0
"""How long an idle connection is reused; kube-apiserver closes it after 90."""

_KEEPALIVE = {
    "TCP_KEEPIDLE": 15,
    "TCP_KEEPINTVL": 10,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 45_000,
}
"""TCP keep-alive: idle seconds before the first probe, seconds between probes, number of probes.

TCP_USER_TIMEOUT: milliseconds that sent data may remain unacknowledged.
"""

_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_MAX_LOGGED_WARNINGS = 512
_MAX_ERROR_BYTES = 1 << 20

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class APIRequest:
    """One request to the API server.

    ``path`` is percent-encoded; ``params`` are not. ``timeout`` is the limit in seconds for the whole request, rate
    limiting and retries included; the default is 75, and an explicit value is also sent to the server. ``compress``
    accepts a gzip response, which is worthwhile for long lists. ``idempotent`` allows a retry when the connection broke
    after the server may have received the request; ``None`` means that only a GET is retried. ``new_connection`` avoids
    the pool, because an idle connection may be dead. ``max_response_bytes`` limits the body of a successful response,
    decompressed (0: the limit of the transport). ``verb`` and ``resource`` identify the request in errors and metrics;
    the defaults are ``method`` and ``path``. ``on_warning`` is called with each warning of a response, such as
    ``unknown field "spec.x"``; a retried request may call it again with the same one.
    """

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON
    accept: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    compress: bool = False
    idempotent: bool | None = None
    new_connection: bool = False
    max_response_bytes: int = 0
    verb: str = ""
    resource: str = ""
    on_warning: Callable[[str], object] | None = None

    def __post_init__(self) -> None:
        if self.on_warning is not None:
            require_plain_function("on_warning", self.on_warning, "a function of the warning")


class Response(msgspec.Struct, frozen=True):
    """A response with a status below 300, or 304."""

    code: int
    body: bytes
    headers: Mapping[str, str]


class Exchange(msgspec.Struct, frozen=True):
    """One request and its response, for metrics; ``code`` is ``<error>`` without a response, as in client-go.

    ``seconds`` is the time until the response was read (for a stream: until it began). ``sent`` and ``received`` are
    the bytes of the bodies, uncompressed (for a stream: 0). ``retry_of`` is the status code of the previous attempt,
    empty for the first one; ``rate_limit_delay`` is the delay of the request by client-side rate limiting in seconds,
    ``None`` without a rate limit.
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
    rate_limit_delay: float | None = None


class _Attempt(msgspec.Struct, frozen=True):
    """One attempt at sending a request, with everything that is derived from the request."""

    request: APIRequest
    params: Mapping[str, str]
    headers: Mapping[str, str]
    verb: str
    resource: str
    is_stream: bool = False
    retry_of: str = ""


class GatedRequest(aiohttp.ClientRequest):
    """A request that checks the write gate at the last moment, when its connection is established.

    A former leader may still read. A request for a WebSocket is a GET, but exec and port-forward change things.
    """

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        """Send the request; raises :class:`~cfo.runtime.client.write_gate.WriteRejected`."""
        if self.method not in ("GET", "HEAD") or hdrs.UPGRADE in self.headers:
            for gate in write_gates.get():
                gate.check()
        return await super().send(conn)


class Transport:
    """A connection pool to one API server; an async context manager.

    ``qps`` and ``burst`` limit the rate of requests on the client side. With ``qps`` of ``None``, 0 or less there is no
    limit, and the server's priority and fairness applies. ``observe`` is called with each :class:`Exchange`.
    ``max_response_bytes`` limits the bodies of responses to requests without a limit of their own (0: no limit), for
    programs that do not trust the server.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        qps: float | None = None,
        burst: int | None = None,
        observe: Callable[[Exchange], None] | None = None,
        clock: Clock | None = None,
        max_response_bytes: int = 0,
    ) -> None:
        if not isinstance(config, ClientConfig):
            # Not its value, which can have the credentials of a kubeconfig.
            raise TypeError(
                f"config: a value of type {type(config).__name__}: must be a ClientConfig, such as await load_config() "
                "or ClientConfig.for_control_plane(plane)"
            )
        if observe is not None:
            require_plain_function("observe", observe, "a function of the exchange")
        self.config = config
        self._clock = clock or SystemClock()
        self._bucket: BucketRateLimiter | None = None
        if qps is not None and qps > 0:
            self._bucket = BucketRateLimiter(qps, burst or max(1, round(2 * qps)), self._clock)
        self._observe = observe
        self._max_response_bytes = max_response_bytes
        self._base = config.server.rstrip("/")
        self.host = URL(config.server).authority.rpartition("@")[2]

        self._closed = False
        self._session: aiohttp.ClientSession | None = None
        self._streams: aiohttp.ClientSession | None = None
        self._retired: deque[tuple[aiohttp.ClientSession, float]] = deque()
        self._credentials = Credentials()
        self._ssl: ssl.SSLContext | None = None
        self._logged_warnings: OrderedDict[str, None] = OrderedDict()

    async def __aenter__(self) -> Self:
        self._session = _new_session(keepalive_timeout=_IDLE_CONNECTION_SECONDS)
        # Each stream gets a new connection, because a pooled connection may be dead like the one before it.
        self._streams = _new_session()
        return self

    async def __aexit__(self, *_: object) -> None:
        sessions = [self._session, self._streams]
        sessions += [session for session, _ in self._retired]
        self._session = None
        self._streams = None
        self._closed = True
        self._retired.clear()
        with anyio.CancelScope(shield=True):
            for session in sessions:
                if session is not None:
                    await session.close()

    async def _replace_pool(self, unresponsive: aiohttp.ClientSession | None) -> None:
        """Open a new pool if ``unresponsive`` is the current one; requests in flight on the old pool continue.

        If one connection is dead (for example because a load balancer dropped its state), other connections of the same
        age may be dead, too.
        """
        if unresponsive is None or unresponsive is not self._session:
            return  # another request that timed out has replaced it
        now = self._clock.monotonic()
        self._session = _new_session(keepalive_timeout=_IDLE_CONNECTION_SECONDS)
        self._retired.append((unresponsive, now))
        # The requests of a pool that was retired long ago have timed out.
        while self._retired[0][1] < now - 2 * _TIMEOUT_SECONDS:
            old_session, _ = self._retired.popleft()
            await old_session.close()

    async def request(self, request: APIRequest) -> Response:
        """Send a request and read the whole response.

        Raises :class:`~cfo.runtime.client.errors.APIError` and :class:`~cfo.runtime.client.errors.TransportError`, and
        its subclass :class:`~cfo.runtime.client.errors.ResponseTooLarge`.
        """
        attempt = _first_attempt(request)
        limit = _TIMEOUT_SECONDS if request.timeout is None else request.timeout
        deadline = self._clock.monotonic() + limit
        attempts: Attempts | None = None  # most requests need no second attempt
        awaiting_response = False
        session = self._session
        try:
            with anyio.fail_after(limit):
                while True:
                    try:
                        awaiting_response = True
                        session = self._session
                        timeout = aiohttp.ClientTimeout(sock_connect=_CONNECT_SECONDS)
                        async with self._exchange(attempt, timeout) as response:
                            body = await self._read_body(response, request)
                            return Response(response.status, body, response.headers)
                    except (APIError, aiohttp.ClientError) as error:
                        awaiting_response = False
                        attempts = attempts or self._attempts(attempt, limit, deadline)
                        delay = attempts.delay_after(error)
                        if delay is None:
                            if isinstance(error, APIError):
                                raise
                            raise attempts.failure(error) from error
                        code = str(error.code) if isinstance(error, APIError) else "<error>"
                        attempt = msgspec.structs.replace(attempt, retry_of=code)
                    await self._clock.sleep(delay)
        except TimeoutError:
            await self._replace_pool(session)
            attempts = attempts or self._attempts(attempt, limit, deadline)
            raise attempts.timed_out(awaiting_response) from None

    @asynccontextmanager
    async def stream(self, request: APIRequest) -> AsyncIterator[aiohttp.StreamReader]:
        """Send a GET with a long-running response (a watch) and yield its body; nothing is retried.

        ``timeout``, ``idempotent`` and ``new_connection`` of ``request`` have no effect: a stream has no time limit
        once the response begins, and always gets its own connection. Connection failures, also while the body is read
        inside the ``async with``, are raised as :class:`~cfo.runtime.client.errors.TransportError`. Error
        responses are raised as :class:`~cfo.runtime.client.errors.APIError`.
        """
        attempt = _first_attempt(request, is_stream=True)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
        deadline = self._clock.monotonic() + _TIMEOUT_SECONDS
        attempts = self._attempts(attempt, _TIMEOUT_SECONDS, deadline)
        try:
            async with AsyncExitStack() as stack:
                try:
                    with anyio.fail_after(_TIMEOUT_SECONDS):
                        response = await stack.enter_async_context(self._exchange(attempt, timeout))
                except TimeoutError as error:
                    if isinstance(error, aiohttp.ClientError):
                        raise  # the connection's own timeout, handled below
                    raise attempts.timed_out(awaiting_response=True) from None
                yield response.content
        except aiohttp.ClientError as error:
            raise attempts.failure(error) from error

    def _attempts(self, attempt: _Attempt, limit: float, deadline: float) -> Attempts:
        read_only = attempt.request.method == "GET"
        idempotent = attempt.request.idempotent
        if idempotent is None:
            idempotent = read_only
        return Attempts(
            attempt.verb,
            attempt.resource,
            self.host,
            idempotent=idempotent,
            read_only=read_only,
            limit=limit,
            deadline=deadline,
            clock=self._clock,
        )

    @asynccontextmanager
    async def _exchange(
        self, attempt: _Attempt, timeout: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield the response with its body unread; a 401 is retried once with renewed credentials."""
        for renew in (False, True):
            await self._authenticate(attempt, renew)
            async with self._send(attempt, timeout) as response:
                if response.status == 401 and not renew and self.config.credentials is not None:
                    continue  # an expired token; static credentials cannot be renewed
                self._report_warnings(response, attempt.request.on_warning)
                if response.status >= 300 and response.status != 304:
                    raise self._error(attempt, response, await _read_error(response))
                yield response
                return

    async def _authenticate(self, attempt: _Attempt, renew: bool) -> None:
        try:
            credentials = await self.config.authenticate(renew=renew)
            if self._ssl is None or credentials[1:] != self._credentials[1:]:
                self._ssl = self.config.ssl_context(credentials)
            self._credentials = credentials
        except (CredentialError, ConfigError) as error:
            raise TransportError(
                str(error), outcome_unknown=False, verb=attempt.verb, resource=attempt.resource
            ) from None

    @asynccontextmanager
    async def _send(
        self, attempt: _Attempt, timeout: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        request = attempt.request
        session = self._session
        if attempt.is_stream or request.new_connection:
            session = self._streams
        if session is None:
            if not self._closed:
                raise RuntimeError(
                    f"{attempt.verb} {attempt.resource}: no connection is open: a manager's client works while the "
                    "manager runs (in a reconciler, or within 'async with manager'); without a manager use "
                    "'async with connect(config, ...)', or 'async with Transport(...)'"
                )
            raise TransportError(
                "the transport is closed",
                outcome_unknown=False,
                verb=attempt.verb,
                resource=attempt.resource,
            )
        rate_limit_delay = self._bucket.when() if self._bucket is not None else None
        if rate_limit_delay:
            await self._clock.sleep(rate_limit_delay)
        headers = CIMultiDict(attempt.headers)
        headers["User-Agent"] = USER_AGENT
        if self._credentials.authorization:
            headers["Authorization"] = self._credentials.authorization
        headers.extend(self.config.headers)
        assert self._ssl is not None
        started = self._clock.monotonic()
        code = "<error>"
        received = 0
        try:
            async with session.request(
                request.method,
                URL(self._base + request.path, encoded=True),
                params=attempt.params,
                data=request.body,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                ssl=self._ssl,
                server_hostname=self.config.tls_server_name or None,
                proxy=self.config.proxy_url or None,
            ) as response:
                code = str(response.status)
                if attempt.is_stream:
                    self._report(attempt, code, started, 0, rate_limit_delay)
                try:
                    yield response
                finally:
                    received = response.content.total_bytes
        finally:
            if not attempt.is_stream or code == "<error>":
                self._report(attempt, code, started, received, rate_limit_delay)

    def _report(
        self,
        attempt: _Attempt,
        code: str,
        started: float,
        received: int,
        rate_limit_delay: float | None,
    ) -> None:
        request = attempt.request
        seconds = self._clock.monotonic() - started
        # Unconfigured structlog prints all levels, and scripts should not print each request.
        if structlog.is_configured():
            _log.debug(
                "Sent request",
                method=request.method,
                path=request.path,
                code=code,
                seconds=round(seconds, 4),
            )
        if self._observe is None:
            return
        exchange = Exchange(
            request.method,
            self.host,
            code,
            seconds,
            attempt.verb,
            attempt.resource,
            sent=len(request.body or b""),
            received=received,
            retry_of=attempt.retry_of,
            rate_limit_delay=rate_limit_delay,
        )
        self._observe(exchange)

    async def _read_body(self, response: aiohttp.ClientResponse, request: APIRequest) -> bytes:
        """Read the body, at most ``max_response_bytes`` and one chunk of it."""
        limit = request.max_response_bytes or self._max_response_bytes
        if not limit:
            return await response.read()
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > limit:
                raise ResponseTooLarge(
                    f"the response has more than {limit} bytes",
                    outcome_unknown=request.method != "GET",
                    verb=request.verb,
                    resource=request.resource,
                )
        return bytes(body)

    def _error(self, attempt: _Attempt, response: aiohttp.ClientResponse, body: bytes) -> APIError:
        """Return the error for a response, based on its Status, a plain-text body, or the HTTP status."""
        status = _status(body)
        message = f"the server responded with {response.status} {response.reason or ''}".rstrip()
        if not status and response.content_type == "text/plain":
            text = body[:200].decode("utf-8", "replace").strip()
            message = text or message
        retry_after = self._retry_after(response.headers.get("Retry-After", ""))
        if retry_after is None:
            details = status.get("details") or {}
            seconds = details.get("retryAfterSeconds")
            if isinstance(seconds, int) and seconds > 0:
                retry_after = float(seconds)
        return error_for(
            response.status,
            status,
            message=message,
            retry_after=retry_after,
            verb=attempt.verb,
            resource=attempt.resource,
        )

    def _retry_after(self, header: str) -> float | None:
        """Return the seconds of a ``Retry-After`` header, which holds seconds or a date (RFC 9110, 10.2.3)."""
        if not header:
            return None
        if header.strip().isdecimal():
            return float(header)
        # Imported here because API servers send seconds, and only proxies send dates.
        from email.utils import parsedate_to_datetime

        try:
            moment = parsedate_to_datetime(header)
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        delay = moment - self._clock.now()
        return max(0.0, delay.total_seconds())

    def _report_warnings(
        self, response: aiohttp.ClientResponse, on_warning: Callable[[str], object] | None
    ) -> None:
        """Pass the API server's warnings (deprecated versions, unknown fields) on; log each message once."""
        for header in response.headers.getall("Warning", ()):
            for text in _WARNING.findall(header):
                message = re.sub(r"\\(.)", r"\1", text)
                if on_warning is not None:
                    on_warning(message)
                if text not in self._logged_warnings:
                    _log.warning("API server warning", warning=message)
                self._logged_warnings[text] = None
                self._logged_warnings.move_to_end(text)
        while len(self._logged_warnings) > _MAX_LOGGED_WARNINGS:
            self._logged_warnings.popitem(last=False)


def _first_attempt(request: APIRequest, *, is_stream: bool = False) -> _Attempt:
    params = request.params
    default_verb = "watch" if is_stream else request.method
    if request.timeout is not None and not is_stream:
        seconds = max(1, round(request.timeout))
        params = {**params, "timeout": f"{seconds}s"}
    return _Attempt(
        request,
        params,
        _headers(request),
        verb=request.verb or default_verb,
        resource=request.resource or request.path,
        is_stream=is_stream,
    )


def _headers(request: APIRequest) -> dict[str, str]:
    encoding = "gzip" if request.compress else "identity"
    headers = {"Accept": request.accept, "Accept-Encoding": encoding, **request.headers}
    if request.body is not None:
        headers["Content-Type"] = request.content_type
    return headers


def _new_session(*, keepalive_timeout: float | None = None) -> aiohttp.ClientSession:
    """Return a pool that reuses a connection within ``keepalive_timeout`` seconds (``None``: never)."""
    connector = aiohttp.TCPConnector(
        limit=0,
        socket_factory=new_socket,
        force_close=keepalive_timeout is None,
        keepalive_timeout=keepalive_timeout,
    )
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=2**18,
        request_class=GatedRequest,
    )
    # Retries are decided in cfo.runtime.client.retry; aiohttp on its own would retry any PUT and DELETE.
    session._retry_connection = False
    return session


def new_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket on which the kernel detects a dead peer within about 45 s, idle or not."""
    family, kind, protocol, _, _ = address
    created = socket.socket(family, kind, protocol)
    created.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        option = getattr(socket, name, None)
        if option is not None:
            created.setsockopt(socket.IPPROTO_TCP, option, value)
    return created


async def _read_error(response: aiohttp.ClientResponse) -> bytes:
    """Read the body of an error response, at most 1 MiB and one chunk of it."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _MAX_ERROR_BYTES:
            break
    return bytes(body)


def _status(body: bytes) -> dict[str, Any]:
    """Return the Status that ``body`` contains; empty if it is something else."""
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(status, dict) or status.get("kind") != "Status":
        return {}
    return status
