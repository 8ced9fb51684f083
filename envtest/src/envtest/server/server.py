"""The HTTP server: passes each connection's requests to a handler and turns every failure into a Status.

The order follows kube-apiserver's filter chain: injected faults, the ``timeout`` parameter, authentication,
impersonation, flow control, authorization, routing. The audit event is written when the response is complete.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import orjson

from envtest.apimachinery.clock import Clock
from envtest.apimachinery.errors import StatusError, bad_request, unauthorized
from envtest.apimachinery.failure_log import log_failure
from envtest.auth.attributes import Attributes, attributes_of, forbidden_request
from envtest.auth.authenticator import Authenticator
from envtest.auth.impersonation import LastModes, impersonate, requested_user
from envtest.auth.rbac import Authorizer
from envtest.endpoints.audit import AuditLog, current_request
from envtest.endpoints.request import Page, Request, Response, not_found_page, status_response
from envtest.endpoints.response_transform import error_response
from envtest.endpoints.response_writer import send
from envtest.faults import Faults
from envtest.flow_control.flow_controller import FlowControl
from envtest.flow_control.flow_metrics import FlowMetrics
from envtest.flow_control.flow_rules import is_long_running
from envtest.http_server.listener import Listener
from envtest.http_server.received import Received
from envtest.http_server.request_body import BodyError
from envtest.http_server.request_head import RequestHead
from envtest.http_server.responses import CompleteResponse, SentResponse
from envtest.pages.fault_injection import CONTROL_PATHS, inject, inject_after
from envtest.schema.formats import parse_duration
from envtest.server.dispatch import Dispatcher

if TYPE_CHECKING:
    from aiohttp.web import BaseRequest

    from envtest.http_server.upgrades import UpgradeServer

__all__ = ["Server"]

STOP_SECONDS: Final = 1.0
"""Seconds that requests may take to end when the server stops."""

_MAX_SECONDS: Final = 60.0
"""Seconds that a request may ask for, as the flag ``--request-timeout`` of kube-apiserver limits them by default."""

_UPGRADED: Final = frozenset({"attach", "exec", "portforward"})
"""Subresources whose clients leave HTTP; for all others, the header Upgrade is ignored."""
_UNITS: Final = frozenset({"ns", "us", "µs", "μs", "ms", "s", "m", "h"})
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([^.0-9]*)", re.ASCII)


class Server:
    """Serves a control plane on one address with TLS, and if required on another one without."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        authenticator: Authenticator,
        authorizer: Authorizer,
        flow_control: FlowControl,
        flow_metrics: FlowMetrics,
        pages: Sequence[Page],
        audit: AuditLog,
        faults: Faults,
        clock: Clock,
    ) -> None:
        self._dispatcher = dispatcher
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._last_modes = LastModes()
        self._flow_control = flow_control
        self._flow_metrics = flow_metrics
        self._pages = pages
        self._audit = audit
        self._faults = faults
        self._clock = clock
        self._listener = Listener(self._handle, self._upgrade)
        self._plaintext = Listener(self._handle, self._upgrade)
        self._upgrades: UpgradeServer | None = None
        self.port = 0

    async def start(self, host: str, port: int, context: ssl.SSLContext) -> None:
        """Start listening. ``port`` 0 selects a free port; :attr:`port` is the actual one. Raises OSError."""
        await self._listener.start(host, port, context)
        self.port = self._listener.port

    async def start_plaintext(self) -> int:
        """Start listening without TLS on 127.0.0.1, which no other machine reaches; return the port. Raises OSError."""
        await self._plaintext.start("127.0.0.1", 0, None)
        return self._plaintext.port

    async def stop(self) -> None:
        """Close the listeners and all connections."""
        await self._plaintext.stop(STOP_SECONDS)
        await self._listener.stop(STOP_SECONDS)
        if self._upgrades is not None:
            await self._upgrades.stop(STOP_SECONDS)

    def _upgrade(self, head: RequestHead) -> asyncio.Protocol | None:
        if head.path.rpartition("/")[2] not in _UPGRADED:  # others ignore the header Upgrade
            return None
        if self._upgrades is None:
            from envtest.http_server.upgrades import UpgradeServer

            self._upgrades = UpgradeServer(self._handle)
        return self._upgrades.protocol()

    async def _handle(self, raw: Received | BaseRequest) -> CompleteResponse | SentResponse:
        received = self._clock.now()
        started = time.perf_counter()
        request = Request(raw)
        request.moment = received
        current_request.set(request.audit_id)
        attributes = attributes_of(raw.method, request.path, request.query)
        response: Response | SentResponse
        try:
            response = await self._respond(request, attributes)
        except StatusError as error:
            response = error_response(request, error)
        except (asyncio.CancelledError, ConnectionError, BodyError):
            raise  # there is no connection left for a response, or the connection answers by itself
        except Exception as error:  # noqa: BLE001 - a bug in a handler must not stop the server
            response = status_response(_failure(request, error))
        code = response.code if isinstance(response, Response) else response.status
        self._audit.record(request, attributes, code, received, self._clock.now())
        self._dispatcher.observe(attributes, response, time.perf_counter() - started)
        response = await inject_after(self._faults, request, attributes, response)
        return await send(request, response) if isinstance(response, Response) else response

    async def _respond(self, request: Request, attributes: Attributes) -> Response | SentResponse:
        # the pages that end a pause and remove a fault must answer
        if not request.path.startswith(CONTROL_PATHS):
            await self._faults.wait_while_paused()
            request.faults = self._faults
            request.fault = self._faults.match(attributes)
            injected = await inject(self._faults, request, attributes)
            # before authentication, like a failure of the network or of a proxy
            if injected is not None:
                return injected
        seconds = requested_seconds(request.parameter("timeout"), attributes)
        if seconds:
            request.deadline = asyncio.get_running_loop().time() + seconds
        user = self._authenticator.authenticate(
            request.headers.get("Authorization", ""),
            _certificate(request.raw),
            request.headers,
        )
        if user is None:  # a request without credentials is anonymous, unless that is disabled
            raise unauthorized()
        request.user = user
        attributes = attributes.with_user(user)
        impersonated = requested_user(request.headers.items())
        if impersonated is not None:
            request.user = impersonate(self._authorizer, attributes, impersonated, self._last_modes)
            request.audit["impersonator"] = user
            attributes = attributes.with_user(request.user)
        if is_long_running(attributes) and attributes.verb != "watch":
            return await self._authorized(request, attributes)
        flow = self._flow_control.classify(attributes)
        request.flow_headers = flow.headers
        if attributes.verb == "watch":
            self._flow_metrics.count_watch(flow)
            return await self._authorized(request, attributes)
        started = time.perf_counter()
        self._flow_metrics.begin(flow)
        try:
            return await self._authorized(request, attributes)
        finally:
            self._flow_metrics.end(flow, time.perf_counter() - started)

    async def _authorized(
        self, request: Request, attributes: Attributes
    ) -> Response | SentResponse:
        """Return the response to a request of a known user, if this user is allowed to send it."""
        decision = self._authorizer.authorize(attributes)
        request.audit["decision"] = decision
        if not decision.allowed:
            raise forbidden_request(attributes, decision.reason)
        if attributes.is_resource_request:
            return await self._dispatcher.dispatch(request, attributes)
        for page in self._pages:
            response = await page(request)
            if response is not None:
                return response
        return not_found_page()


def _certificate(raw: Received | BaseRequest) -> bytes | None:
    """Return the certificate of the client (DER)."""
    if isinstance(raw, Received):
        return raw.connection.certificate
    tls = raw.transport.get_extra_info("ssl_object") if raw.transport else None
    return tls.getpeercert(binary_form=True) if tls else None


def _failure(request: Request, error: Exception) -> StatusError:
    """Return the response to an unexpected exception.

    Only a body nested too deeply, which no legitimate client sends, is the client's fault; all others are bugs.
    """
    if isinstance(error, RecursionError) or (
        isinstance(error, orjson.JSONEncodeError) and "Recursion" in str(error)
    ):
        return bad_request("exceeded max depth")
    log_failure("Request failed", method=request.method, path=request.path)
    return StatusError(500, "InternalError", f"Internal error occurred: {error!r}", {})


def requested_seconds(text: str, attributes: Attributes) -> float:
    """Return the seconds of the parameter ``timeout``; 0 without a limit, as for long-running requests.

    Raises StatusError (400) if it is not a duration. Follows apiserver's ``request_deadline.go``.
    """
    if not text or is_long_running(attributes):
        return 0
    problem = _duration_problem(text)
    if problem:
        raise bad_request(f"invalid timeout specified in the request URL - time: {problem}")
    return max(0, min((parse_duration(text) or 0) / 10**9, _MAX_SECONDS))


def _duration_problem(text: str) -> str:
    """Return the error of Go's ``time.ParseDuration``, or an empty string."""
    rest = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    if rest == "0":
        return ""
    if not rest:
        return f'invalid duration "{text}"'
    position = 0
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is None:
            return f'invalid duration "{text}"'
        unit = part[2]
        if not unit:
            return f'missing unit in duration "{text}"'
        if unit not in _UNITS:
            return f'unknown unit "{unit}" in duration "{text}"'
        position = part.end()
    return ""
