"""Metrics over HTTPS with authentication and authorization by the API server.

Like controller-runtime's ``WithAuthenticationAndAuthorization``: a TokenReview authenticates the scraper's bearer
token, and a SubjectAccessReview checks that the user is allowed to ``get`` the path. A ClusterRole with
``nonResourceURLs: ["/metrics"]`` grants that permission. Decisions are cached, as in API servers.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import structlog
from aiohttp import web
from anyio.abc import TaskStatus

from cfo.runtime.client.access_reviews import is_allowed
from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import APIError, TransportError
from cfo.runtime.pki.policy import CertificatePolicy
from cfo.runtime.pki.rotation import StoredCertificates, ensure_certificates
from cfo.runtime.process.clock import Clock
from cfo.runtime.process.endpoint import USER, Endpoint
from cfo.runtime.process.strings import require_strings
from cfo.runtime.webhook.certificates.file_watcher import CertificateFilesWatcher
from cfo.runtime.webhook.certificates.serving_certificate import ServingCertificate
from cfo.runtime.webhook.options import CertificateFiles

_log = structlog.get_logger(__name__)

_ALLOWED_SECONDS: Final = 60.0
_DENIED_SECONDS: Final = 10.0
_MAX_CACHED: Final = 512
_MAX_ADDRESSES: Final = 512
_ADDRESS_RATE: Final = 1.0
_ADDRESS_BURST: Final = 10.0
"""Scrapers are few: more callers of one address whose tokens are not known yet must try again."""
_TOTAL_RATE: Final = 20.0
_TOTAL_BURST: Final = 100.0
_MAX_TOKEN_LENGTH: Final = 16 * 1024

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsTLS:
    """Options of the HTTPS server for metrics.

    ``cert_dir`` contains ``tls.crt`` and ``tls.key``, which are reloaded when they change. Without it a certificate for
    the DNS names ``names`` is generated, which clients cannot verify.
    """

    cert_dir: Path | None = None
    names: tuple[str, ...] = ("localhost",)

    def __post_init__(self) -> None:
        require_strings("names", self.names)


class AccessDecision(msgspec.Struct, frozen=True):
    """The HTTP status of a request, 200 if ``user`` is allowed to send it; ``reason`` says why it is denied."""

    status: int
    reason: str = ""
    user: str = ""

    @property
    def is_allowed(self) -> bool:
        """Whether the request is allowed."""
        return self.status == 200


class _RememberedDecision(msgspec.Struct, frozen=True):
    decision: AccessDecision
    until: float


class _ReviewBudget:
    """Reviews that are left: ``rate`` more each second, at most ``burst``."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._counted_at = now

    def has_one(self, now: float) -> bool:
        """Return whether a review is left."""
        refilled = self._left + (now - self._counted_at) * self._rate
        self._left = min(refilled, self._burst)
        self._counted_at = now
        return self._left >= 1

    def take(self) -> None:
        """Take one review."""
        self._left -= 1


class MetricsAuthorizer:
    """Authenticates and authorizes a caller via TokenReview and SubjectAccessReview.

    Decisions are cached by the hash of the token: 60 s if allowed, and 10 s if denied, 512 of each at most, so that
    unknown tokens replace no allowed ones. Unknown tokens have a budget of reviews for each client address, so that a
    flood from one pod does not lock out new tokens of others: 1 a second, 10 at once; and all together 20 a second, 100
    at once.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._allowed: OrderedDict[tuple[bytes, str], _RememberedDecision] = OrderedDict()
        self._denied: OrderedDict[tuple[bytes, str], _RememberedDecision] = OrderedDict()
        self._total = _ReviewBudget(_TOTAL_RATE, _TOTAL_BURST, clock.monotonic())
        self._addresses: OrderedDict[str, _ReviewBudget] = OrderedDict()

    async def decide(self, authorization: str, path: str, address: str) -> AccessDecision:
        """Return whether the user whose token is in the header ``authorization`` is allowed to ``get`` ``path``.

        ``address`` is the IP address of the client.
        """
        kind, _, token = authorization.partition(" ")
        token = token.strip()
        is_token = 0 < len(token) <= _MAX_TOKEN_LENGTH and token.isascii()
        if kind.lower() != "bearer" or not is_token:
            return AccessDecision(401, "Authentication failed: a bearer token is required")
        key = (hashlib.sha256(token.encode()).digest(), path)
        remembered = self._allowed.get(key) or self._denied.get(key)
        if remembered is not None and self._clock.monotonic() < remembered.until:
            return remembered.decision
        # A token that was allowed needs no budget, so that a flood of others does not stop a scraper.
        if key not in self._allowed and not self._take_review(address):
            return AccessDecision(429, "Too many requests with unknown tokens: try again later")
        try:
            decision = await self._review(token, path)
        except (APIError, TransportError) as error:
            _log.warning("Failed to authorize metrics request", error=str(error))
            return AccessDecision(500, "Authorization failed: cannot query the API server")
        self._remember(key, decision)
        return decision

    def _take_review(self, address: str) -> bool:
        """Take one review from the budgets of ``address`` and of all; return whether both had one."""
        now = self._clock.monotonic()
        budget = self._addresses.get(address)
        if budget is None:
            budget = _ReviewBudget(_ADDRESS_RATE, _ADDRESS_BURST, now)
            self._addresses[address] = budget
            if len(self._addresses) > _MAX_ADDRESSES:
                self._addresses.popitem(last=False)
        self._addresses.move_to_end(address)
        if not budget.has_one(now) or not self._total.has_one(now):
            return False
        budget.take()
        self._total.take()
        return True

    def _remember(self, key: tuple[bytes, str], decision: AccessDecision) -> None:
        decisions = self._denied
        seconds = _DENIED_SECONDS
        if decision.is_allowed:
            decisions = self._allowed
            seconds = _ALLOWED_SECONDS
        self._allowed.pop(key, None)
        self._denied.pop(key, None)
        decisions[key] = _RememberedDecision(decision, self._clock.monotonic() + seconds)
        if len(decisions) > _MAX_CACHED:
            decisions.popitem(last=False)

    async def _review(self, token: str, path: str) -> AccessDecision:
        """Ask the API server whose token it is, and whether this user is allowed to ``get`` ``path``."""
        review = await self._client.create(
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": {"token": token},
            }
        )
        status = review.get("status") or {}
        if not status.get("authenticated"):
            return AccessDecision(401, "Authentication failed")
        user: dict[str, Any] = status.get("user") or {}
        username = user.get("username", "")
        allowed = await is_allowed(
            self._client,
            user=username,
            uid=user.get("uid", ""),
            groups=user.get("groups") or [],
            extra=user.get("extra") or {},
            nonResourceAttributes={"path": path, "verb": "get"},
        )
        if not allowed:
            needed = f"a ClusterRole with the verb get for nonResourceURLs {path}"
            return AccessDecision(403, f"Authorization denied for user {username}: needs {needed}")
        return AccessDecision(200, user=username)


class SecureMetricsEndpoint(Endpoint):
    """Serves ``routes`` over HTTPS; ``authorizer`` authorizes each request, except for :meth:`add_public_paths`."""

    def __init__(
        self,
        bind_address: str,
        routes: list[web.RouteDef],
        tls: MetricsTLS,
        authorizer: MetricsAuthorizer,
        clock: Clock,
    ) -> None:
        self._serving = ServingCertificate()
        super().__init__(
            "metrics",
            bind_address,
            routes,
            tls=self._serving.ssl_context(),
            middlewares=[self._authorize],
        )
        self._tls = tls
        self._public: frozenset[str] = frozenset()
        self._authorizer = authorizer
        self._clock = clock
        self._files: CertificateFilesWatcher | None = None
        if tls.cert_dir is not None:
            source = CertificateFiles(directory=tls.cert_dir)
            self._files = CertificateFilesWatcher(source, self._serving, self.name)

    def check(self) -> None:
        """Check that there is a certificate to serve. Raises :class:`RuntimeError` until the files have been read.

        A file that cannot be read later does not fail the check, because the previous certificate is served.
        """
        if self._files is not None and self._address is not None and self._serving.pair is None:
            raise RuntimeError(f"no certificate for metrics: {self._files.failure}")

    def add_public_paths(self, paths: Iterable[str]) -> None:
        """Serve these paths without authorization, for files that contain no data."""
        self._public |= frozenset(paths)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Raises :class:`AddressUnavailable` if the address cannot be bound."""
        if self._address is None:
            task_status.started()
            return
        async with anyio.create_task_group() as tasks:
            if self._files is not None:
                tasks.start_soon(self._files.run)
            else:
                policy = CertificatePolicy(common_name="metrics")
                certificates, _ = ensure_certificates(
                    StoredCertificates(), policy, self._tls.names, now=self._clock.now()
                )
                self._serving.serve(certificates.pair)
            await super().run(task_status=task_status)

    @web.middleware
    async def _authorize(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        # What is not served needs no review: a user with the permission for all paths below one could otherwise spend
        # the budget, and replace the decision about a scraper.
        if request.path in self._public or request.match_info.http_exception is not None:
            return await handler(request)
        authorization = request.headers.get("Authorization", "")
        decision = await self._authorizer.decide(authorization, request.path, request.remote or "")
        if not decision.is_allowed:
            return web.Response(status=decision.status, text=f"{decision.reason}\n")
        request[USER] = decision.user
        return await handler(request)
