"""The HTTPS server for webhooks.

It runs on every replica, whether leader or not. It starts to listen as soon as there is a serving certificate, and
always presents the current one
(:class:`~cfo.runtime.webhook.certificates.serving_certificate.ServingCertificate`). Errors in handlers do not stop it:
an exception becomes a response with code 500, and a review that takes longer than the API server's timeout is
cancelled; the CPU-bound work of large reviews runs in a thread (:mod:`~cfo.runtime.webhook.worker`).

The size of request bodies is limited (:mod:`.request_bodies`), and so are the reviews and their bytes in flight: beyond
that, the response is 429. Reviews that wait for the API server would otherwise lock out all others: one webhook has at
most half of the reviews in flight, and client addresses and namespaces share them (:mod:`.shares`). API servers send a
request again that was refused in this way (the header ``Retry-After``), until the webhook's timeout.

When stopped, it accepts no new connections and drains the open ones: each is closed after its next response.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection
from contextlib import ExitStack
from typing import Final

import anyio
import structlog
from aiohttp import web
from anyio.abc import TaskStatus

from cfo.runtime.objects.parsers import parse_duration
from cfo.runtime.process import function_errors
from cfo.runtime.process.clock import Clock, SystemClock, first_of
from cfo.runtime.process.endpoint import parse_bind_address
from cfo.runtime.process.listener import Listener, bind_socket, server_options
from cfo.runtime.process.logged_stacks import LoggedStacks
from cfo.runtime.process.rare_reports import RareReports
from cfo.runtime.webhook.admission import AdmissionRequest, AdmissionResponse, denied, errored
from cfo.runtime.webhook.certificates.serving_certificate import ServingCertificate
from cfo.runtime.webhook.metrics import WebhookMetrics
from cfo.runtime.webhook.registration import Webhook, Webhooks
from cfo.runtime.webhook.request_bodies import (
    MAX_BODY,
    MAX_BYTES,
    READ_TIMEOUT,
    RequestBodies,
    TooManyBytes,
)
from cfo.runtime.webhook.review import (
    BadReview,
    RefusedObject,
    named_namespace,
    read_review,
    write_review,
)
from cfo.runtime.webhook.review_handlers import respond
from cfo.runtime.webhook.shared_port import verify_sharing
from cfo.runtime.webhook.shares import Shares
from cfo.runtime.webhook.worker import MAX_INLINE, ReviewWorker, TooManyReviews

MAX_REVIEWS: Final = 100
"""The maximum number of reviews in flight."""

MAX_REVIEWS_OF_WEBHOOK: Final = 50
"""The maximum number of reviews in flight for one webhook."""

MAX_LARGE_REVIEWS: Final = 50
"""The maximum number of reviews in flight whose bodies are read in the thread. The others cannot be locked out by
these, which wait for one thread."""

MAX_CONNECTIONS: Final = 128
"""The maximum number of connections: each review in flight has one, and API servers keep some idle ones."""

_MAX_TIMEOUT: Final = 30.0
"""The longest timeout of a webhook in seconds, which is also used if the request has none."""

_RETRY_SECONDS: Final = 1
"""After how many seconds an API server sends a refused request again, at most ten times."""

_MAX_LOGGED: Final = 253
"""How many characters of a request's kind, namespace and name are logged: the longest names of objects have as many."""

_REPORT_INTERVAL: Final = 60.0
"""Seconds between two log lines about requests that any pod can send."""

_SHUTDOWN_TIMEOUT: Final = 1.0

_log = structlog.get_logger(__name__)


class WebhookServer:
    """Serves ``webhooks`` on ``bind_address``.

    ``reuse_port`` allows other replicas to listen on the same port; ``trusted`` returns the CAs (PEM) that the
    certificates of other replicas must have (default: those in our own certificate chain). ``drain`` is how long, in
    seconds, open connections are served after the server stopped accepting new ones; ``before_drain`` is awaited before
    this period if the server has listened, and ``on_listening`` is called once it listens. ``controllers`` are the
    namespaces of :attr:`.WebhookOptions.controller_namespaces`.
    """

    name = "webhooks"

    def __init__(
        self,
        webhooks: Webhooks,
        certificate: ServingCertificate,
        metrics: WebhookMetrics,
        *,
        bind_address: str = ":9443",
        reuse_port: bool = False,
        trusted: Callable[[], bytes] | None = None,
        drain: float = 3.0,
        controllers: Collection[str] = (),
        on_listening: Callable[[], None] | None = None,
        before_drain: Callable[[], Awaitable[None]] | None = None,
        clock: Clock | None = None,
    ) -> None:
        address = parse_bind_address(bind_address)
        if address is None:
            raise ValueError(f"bind_address: {bind_address!r}: must be an address such as :9443")
        self._address = address
        self._bind_address = bind_address
        self._webhooks = webhooks
        self._certificate = certificate
        self._metrics = metrics
        self._reuse_port = reuse_port
        self._trusted = trusted or self._own_chain
        self._drain = drain
        self._controllers = controllers
        self._on_listening = on_listening
        self._before_drain = before_drain
        self._clock = clock or SystemClock()

        self.port = 0
        """The port that the server is bound to; 0 while it is not running."""
        self.listening = False
        self._listener: Listener | None = None
        self._stopping = anyio.Event()
        self._draining = False

        self._stacks = LoggedStacks()
        self._worker = ReviewWorker()
        self._bodies = RequestBodies()
        self._bad_reviews = RareReports(_REPORT_INTERVAL)
        self._unread_objects = RareReports(_REPORT_INTERVAL)
        self._timeouts = RareReports(_REPORT_INTERVAL)
        self._reviews = Shares(MAX_REVIEWS, "reviews in flight")
        self._reviews_of_webhook: dict[str, Shares] = {}
        self._large_reviews = Shares(
            MAX_LARGE_REVIEWS, f"reviews over {MAX_INLINE} bytes in flight"
        )
        self._large_bytes = Shares(
            MAX_BYTES, f"bytes in flight, of reviews over {MAX_INLINE} bytes"
        )

    def _own_chain(self) -> bytes:
        pair = self._certificate.pair
        return pair.certificate if pair is not None else b""

    def stop(self) -> None:
        """Stop accepting connections; :meth:`run` returns after the open ones are closed or the drain time is up."""
        self._stopping.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until stopped or cancelled. Raises :class:`OSError` if the address cannot be bound."""
        sock = bind_socket(self._address, reuse_port=self._reuse_port, server="webhook")
        self.port = sock.getsockname()[1]
        server = web.Server(self._handle, **server_options())
        try:
            for webhook in self._webhooks:
                self._metrics.expect(webhook.path)
            task_status.started()
            try:
                await first_of(self._certificate.available.wait, self._stopping.wait)
                if not self._stopping.is_set():
                    if self._reuse_port:
                        await verify_sharing(sock, self._trusted())
                    await self._serve(server, sock)
            except OSError:
                await self._finish(server)
                raise
            await self._finish(server)
        finally:
            with anyio.CancelScope(shield=True):
                server.pre_shutdown()
                await server.shutdown(_SHUTDOWN_TIMEOUT)
            sock.close()
            self.port = 0

    async def _serve(self, server: web.Server, sock: socket.socket) -> None:
        """Accept connections until a stop is requested."""
        tls = self._certificate.ssl_context()
        limit = MAX_CONNECTIONS
        listener = Listener(self.name, server, sock, limit=limit, tls=tls, protect_requests=False)
        self._listener = listener
        self.listening = True
        try:
            if self._on_listening is not None:
                self._on_listening()
            _log.info(
                "Serving webhooks", endpoint=self.name, address=self._bind_address, port=self.port
            )
            await first_of(listener.run, self._stopping.wait)
        finally:
            self.listening = False

    async def _finish(self, server: web.Server) -> None:
        has_listened = self._listener is not None
        if has_listened and self._before_drain is not None:
            await self._before_drain()
        self._draining = True
        until = self._clock.monotonic() + self._drain
        while server.connections and self._clock.monotonic() < until:
            await self._clock.sleep(0.05)  # aiohttp does not notify when a connection is closed

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        webhook = self._webhooks.get(path)
        if webhook is None:
            return web.Response(status=404, text=f"no webhook is registered for {path}\n")
        if request.method != "POST":
            return web.Response(
                status=405, headers={"Allow": "POST"}, text="webhooks accept only POST\n"
            )
        started = self._clock.monotonic()
        in_flight = self._metrics.in_flight(path)
        in_flight.inc()
        code = 500
        try:
            response = await self._respond(request, webhook)
            code = response.status
        finally:
            in_flight.dec()
            self._metrics.observe(path, code, self._clock.monotonic() - started)
        if self._draining:
            response.force_close()
        return response

    async def _respond(self, request: web.BaseRequest, webhook: Webhook) -> web.Response:
        content_type = request.headers.get("Content-Type", "")
        if content_type.partition(";")[0].strip().lower() != "application/json":
            return _error_response(400, f"contentType={content_type}, expected application/json")
        try:
            body = await self._bodies.read(request)
        except TimeoutError:
            return _error_response(408, f"timed out reading the body after {READ_TIMEOUT:g} s")
        except (ConnectionError, web.RequestPayloadError):
            # The response is not sent, because the client has closed the connection.
            return _error_response(400, "the connection was closed before the end of the body")
        except TooManyBytes:
            return _too_many_requests(f"{MAX_BYTES} bytes that are being received")
        if body is None:
            return _error_response(413, f"request entity is too large: limit is {MAX_BODY} bytes")
        try:
            document = await self._review(request, webhook, body)
        except RefusedObject as error:
            number = self._unread_objects.count(self._clock.monotonic())
            if number:
                _log.info(
                    "Denied objects unread",
                    webhook=request.path,
                    number=number,
                    last_error=str(error),
                )
            document = write_review(error.uid, denied(str(error)))
        except TooManyReviews as limit:
            # kept open for the next attempt: each new connection costs a handshake
            return _too_many_requests(str(limit), closes=False)
        except ConnectionError:
            return _error_response(400, "the connection was closed")  # the response is not sent
        except BadReview as error:
            number = self._bad_reviews.count(self._clock.monotonic())
            if number:
                _log.warning(
                    "Received requests that are not valid reviews",
                    webhook=request.path,
                    number=number,
                    last_error=str(error),
                )
            return _error_response(400, str(error))
        return _json(document)

    async def _review(self, request: web.BaseRequest, webhook: Webhook, body: bytes) -> bytes:
        """Answer a review within the limits. Raises :class:`TooManyReviews` beyond them."""
        address = request.remote or ""
        named = named_namespace(body)
        assert self._listener is not None
        with ExitStack() as shares:
            shares.enter_context(self._reviews.of_address(address))
            if len(body) > MAX_INLINE:
                # before the body is read, so that those of one namespace that wait for the thread lock out no others
                for share, amount in ((self._large_reviews, 1), (self._large_bytes, len(body))):
                    shares.enter_context(share.of_address(address, amount))
                    shares.enter_context(share.of_namespace(address, named, amount))
            shares.enter_context(self._listener.protected(request))
            seconds = _timeout(request.query.get("timeout", ""))
            deadline = asyncio.get_running_loop().time() + seconds
            try:
                async with asyncio.timeout_at(deadline):
                    review = await self._worker.run(
                        (address, named), len(body), read_review, body, self._controllers
                    )
            except TimeoutError:
                self._report_timeout(seconds, webhook=webhook.path)
                self._metrics.record_review(webhook.path, 504)
                return write_review("", _timed_out(seconds))
            review.worker = self._worker
            review.client = address
            # after the body was read, so that those which wait for the thread lock out no small ones of the webhook
            of_webhook = self._shares_of(webhook)
            shares.enter_context(of_webhook.of_address(address))
            for share in (self._reviews, of_webhook):
                shares.enter_context(share.of_namespace(address, review.namespace))
            return await self._respond_to(review, webhook, seconds, deadline)

    def _report_timeout(self, seconds: float, **context: str) -> None:
        number = self._timeouts.count(self._clock.monotonic())
        if number:
            _log.error("Webhook timed out", seconds=seconds, number=number, **context)

    def _shares_of(self, webhook: Webhook) -> Shares:
        """Return the reviews in flight of one webhook."""
        found = self._reviews_of_webhook.get(webhook.path)
        if found is None:
            found = Shares(MAX_REVIEWS_OF_WEBHOOK, "reviews in flight of one webhook")
            self._reviews_of_webhook[webhook.path] = found
        return found

    async def _respond_to(
        self, review: AdmissionRequest, webhook: Webhook, seconds: float, deadline: float
    ) -> bytes:
        """Call the handler. The review times out after ``seconds``, at the ``deadline`` of the event loop's clock."""
        with structlog.contextvars.bound_contextvars(
            webhook=webhook.path,
            kind=review.kind.kind[:_MAX_LOGGED],
            namespace=review.namespace[:_MAX_LOGGED],
            name=review.name[:_MAX_LOGGED],
            operation=str(review.operation),
            requestID=review.uid,
        ):
            try:
                async with asyncio.timeout_at(deadline):
                    response, failed = await respond(webhook.handler, review, self._stacks)
                if failed:
                    self._metrics.panics.inc()
            except TimeoutError:
                self._report_timeout(seconds)
                response = _timed_out(seconds)
            _log.debug(
                "Responded to admission request",
                allowed=response.allowed,
                code=response.code,
                user=review.user_info.username,
            )
            return self._encode(review.uid, response, webhook)

    def _encode(self, uid: str, response: AdmissionResponse, webhook: Webhook) -> bytes:
        try:
            document = write_review(uid, response, mutating=webhook.mutating)
        except TypeError as error:  # a value that is not JSON, or is nested too deeply
            _log.error("Webhook returned a response that cannot be encoded", error=str(error))
            self._metrics.panics.inc()
            self._metrics.record_review(webhook.path, 500)
            function_errors.report(error, f"response of the webhook {webhook.path}")
            message = f"the response of the webhook cannot be encoded: {error}"
            return write_review(uid, errored(500, message))
        self._metrics.record_review(webhook.path, response.code)
        return document


def _timeout(text: str) -> float:
    """Return the seconds in the ``timeout`` query parameter, the API server's timeout; at most 30, also without one."""
    try:
        seconds = parse_duration(text).total_seconds()
    except ValueError:
        return _MAX_TIMEOUT
    if seconds <= 0:
        return _MAX_TIMEOUT
    return min(seconds, _MAX_TIMEOUT)


def _timed_out(seconds: float) -> AdmissionResponse:
    return errored(504, f"the webhook did not respond within {seconds:g} s")


def _json(document: bytes, code: int = 200) -> web.Response:
    return web.Response(status=code, body=document, content_type="application/json")


def _too_many_requests(limit: str, *, closes: bool = True) -> web.Response:
    response = _error_response(429, f"too many requests: limit is {limit}", closes=closes)
    response.headers["Retry-After"] = str(_RETRY_SECONDS)
    return response


def _error_response(code: int, message: str, *, closes: bool = True) -> web.Response:
    """Return an error response; it closes the connection if part of the request may still be unread."""
    response = _json(write_review("", errored(code, message)), code)
    if closes:
        response.force_close()
    return response
