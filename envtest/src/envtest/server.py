"""The HTTPS server: passes each connection's requests to a handler and turns every failure into a Status.

The order follows kube-apiserver's filter chain: injected faults, the ``timeout`` parameter, authentication,
impersonation, authorization, routing. The audit event is written when the response is complete.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Sequence

import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from envtest.audit import AuditLog, current_request
from envtest.auth.attributes import Attributes, attributes_of, forbidden_message
from envtest.auth.authenticator import Authenticator
from envtest.auth.impersonation import LastModes, impersonate, requested_user
from envtest.auth.rbac import Authorizer
from envtest.clock import Clock
from envtest.dispatch import Dispatcher
from envtest.errors import GroupResource, StatusError, bad_request, forbidden, forbidden_path, unauthorized
from envtest.fault_injection import FAULTS_PATH, InjectedReset, inject, inject_after
from envtest.faults import Faults
from envtest.http import Page, Request, Response, log_failure, not_found_page, status_response
from envtest.request_timeout import check_timeout
from envtest.response_writer import send

__all__ = ["Server"]

HEADER_LIMIT = 1 << 20
"""Maximum bytes of a request line or a header, as in Go's ``net/http``: URLs with selectors get long."""


def _logger() -> logging.Logger:
    """Return aiohttp's logger without errors that clients receive as a 400, and without injected ones.

    Malformed HTTP is not a server failure.
    """
    logger = logging.getLogger("envtest.http")
    if not logger.filters:
        expected = (HttpProcessingError, InjectedReset)
        logger.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], expected)))
    return logger


class Server:
    """Serves a control plane on one address."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        authenticator: Authenticator,
        authorizer: Authorizer,
        pages: Sequence[Page],
        audit: AuditLog,
        faults: Faults,
        clock: Clock,
    ) -> None:
        self._dispatcher = dispatcher
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._last_modes = LastModes()
        self._pages = pages
        self._audit = audit
        self._faults = faults
        self._clock = clock
        self._runner: web.ServerRunner | None = None
        self.port = 0

    async def start(self, host: str, port: int, context: ssl.SSLContext) -> None:
        """Start listening. ``port`` 0 selects a free port; :attr:`port` is the actual one. Raises OSError."""
        server = web.Server(
            self._handle,
            access_log=None,
            logger=_logger(),
            keepalive_timeout=3630.0,
            max_line_size=HEADER_LIMIT,
            max_field_size=HEADER_LIMIT,
        )
        self._runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=context, backlog=1024)
        try:
            await site.start()
        except BaseException:
            await self.stop()
            raise
        assert self._runner.addresses
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Close the listener and all connections."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def _handle(self, raw: web.BaseRequest) -> web.StreamResponse:
        received = self._clock.now()
        started = time.perf_counter()
        request = Request(raw)
        request.moment = received
        current_request.set(request.audit_id)
        attributes = attributes_of(raw.method, request.path, request.query)
        try:
            response = await self._respond(request, attributes)
        except StatusError as error:
            response = status_response(error)
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 - a bug in a handler must not stop the server
            response = status_response(_failure(request, error))
        self._audit.record(
            request,
            attributes,
            response.status if isinstance(response, web.StreamResponse) else response.code,
            received,
            self._clock.now(),
        )
        self._dispatcher.observe(attributes, response, time.perf_counter() - started)
        response = await inject_after(self._faults, request, attributes, response)
        if isinstance(response, web.StreamResponse):
            return response
        return await send(request, response)

    async def _respond(self, request: Request, attributes: Attributes) -> Response | web.StreamResponse:
        if request.path != FAULTS_PATH:
            await self._faults.wait_while_paused()
        request.faults = self._faults
        request.fault = self._faults.match(attributes)
        injected = await inject(self._faults, request, attributes)
        if injected is not None:
            return injected
        check_timeout(request.parameter("timeout"), attributes)
        transport = request.raw.transport
        tls = transport.get_extra_info("ssl_object") if transport else None
        certificate = tls.getpeercert(binary_form=True) if tls else None
        user = self._authenticator.authenticate(request.headers.get("Authorization", ""), certificate)
        if user is None:
            raise unauthorized()
        request.user = user
        attributes = attributes.with_user(user)
        impersonated = requested_user(request.headers.items())
        if impersonated is not None:
            request.user = impersonate(self._authorizer, attributes, impersonated, self._last_modes)
            request.audit["impersonator"] = user
            attributes = attributes.with_user(request.user)
        decision = self._authorizer.authorize(attributes)
        request.audit["decision"] = decision
        if not decision.allowed:
            raise _forbidden(attributes, decision.reason)
        if attributes.is_resource_request:
            return await self._dispatcher.dispatch(request, attributes)
        for page in self._pages:
            response = await page(request)
            if response is not None:
                return response
        return not_found_page()


def _failure(request: Request, error: Exception) -> StatusError:
    """Return the response to an unexpected exception.

    Only a body nested too deeply, which no legitimate client sends, is the client's fault; all others are bugs.
    """
    if isinstance(error, RecursionError) or (isinstance(error, orjson.JSONEncodeError) and "Recursion" in str(error)):
        return bad_request("exceeded max depth")
    log_failure("Request failed", method=request.method, path=request.path)
    return StatusError(500, "InternalError", f"Internal error occurred: {error!r}", {})


def _forbidden(attributes: Attributes, reason: str) -> StatusError:
    message = forbidden_message(attributes, reason)
    if not attributes.is_resource_request:
        return forbidden_path(message)
    return forbidden(GroupResource(attributes.group, attributes.resource), attributes.name, message)
