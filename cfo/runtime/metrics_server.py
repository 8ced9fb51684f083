"""Metrics over HTTPS, for those alone whom the API server knows and lets read them.

As controller-runtime's ``WithAuthenticationAndAuthorization``: the scraper's bearer token is shown to the API server
(TokenReview), which then says whether that user may ``get`` the path (SubjectAccessReview): a ClusterRole with
``nonResourceURLs: ["/metrics"]`` gives the right. Answers are remembered for a while, as API servers do it themselves.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
import structlog
from aiohttp import web
from anyio.abc import TaskStatus

from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import APIError, TransportError
from cfo.runtime.clock import Clock
from cfo.runtime.endpoint import Endpoint
from cfo.runtime.objects import NamespacedName
from cfo.runtime.reconcile import Rule
from cfo.runtime.webhook.certificates.certificate_authority import StoredCertificates, ensure_certificates
from cfo.runtime.webhook.certificates.file_watcher import CertificateFilesWatcher
from cfo.runtime.webhook.certificates.serving_certificate import ServingCertificate
from cfo.runtime.webhook.options import CertificateFiles, RotatedCertificates

__all__ = ["SECURE_METRICS_RULES", "MetricsTLS", "Reviewer", "SecureMetricsEndpoint"]

_log = structlog.get_logger("cfo.runtime.metrics")

SECURE_METRICS_RULES = (
    Rule("authentication.k8s.io", "tokenreviews", "create"),
    Rule("authorization.k8s.io", "subjectaccessreviews", "create"),
)
"""The rights that asking for a scraper's rights needs."""

_ALLOWED_SECONDS: Final = 60.0
_DENIED_SECONDS: Final = 10.0
_REMEMBERED: Final = 512
_LONGEST_TOKEN: Final = 16 * 1024

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsTLS:
    """Serve metrics over TLS, to those who may read them.

    ``cert_dir`` holds ``tls.crt`` and ``tls.key``, which are read again when they change; without one a
    certificate is made up that nobody can verify. ``names`` stand in that one.
    """

    cert_dir: Path | None = None
    names: tuple[str, ...] = ("localhost",)


class _Decision(NamedTuple):
    status: int
    reason: str
    until: float


class Reviewer:
    """Asks the API server who somebody is and what he may; remembers the answers for a while, by the token's hash."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known: OrderedDict[tuple[bytes, str], _Decision] = OrderedDict()

    async def refusal(self, authorization: str, path: str) -> tuple[int, str] | None:
        """The HTTP status and the reason to refuse a ``get`` of ``path`` with; ``None``: it is allowed."""
        kind, _, token = authorization.partition(" ")
        token = token.strip()
        if kind.lower() != "bearer" or not token or len(token) > _LONGEST_TOKEN:
            return 401, "Authentication failed: a bearer token is needed"
        key = (hashlib.sha256(token.encode()).digest(), path)
        decision = self._known.get(key)
        if decision is None or self._clock.monotonic() >= decision.until:
            try:
                status, reason = await self._decide(token, path)
            except (APIError, TransportError) as error:
                _log.warning("cannot ask who may read metrics", error=str(error))
                return 500, "the API server could not be asked"
            seconds = _ALLOWED_SECONDS if status == 200 else _DENIED_SECONDS
            decision = self._known[key] = _Decision(status, reason, self._clock.monotonic() + seconds)
            self._known.move_to_end(key)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return None if decision.status == 200 else (decision.status, decision.reason)

    async def _decide(self, token: str, path: str) -> tuple[int, str]:
        review = await self._client.create(
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        )
        status = review.get("status") or {}
        if not status.get("authenticated"):
            return 401, "Authentication failed"
        user: dict[str, Any] = status.get("user") or {}
        access = await self._client.create(
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": user.get("username", ""),
                    "uid": user.get("uid", ""),
                    "groups": user.get("groups") or [],
                    "extra": user.get("extra") or {},
                    "nonResourceAttributes": {"path": path, "verb": "get"},
                },
            }
        )
        if (access.get("status") or {}).get("allowed"):
            return 200, ""
        return 403, f"Authorization denied for user {user.get('username', '')}"


class SecureMetricsEndpoint(Endpoint):
    """Serves ``routes`` over TLS, each request after ``reviewer`` was asked."""

    needs_leader = False

    def __init__(
        self, bind_address: str, routes: list[web.RouteDef], tls: MetricsTLS, reviewer: Reviewer, clock: Clock
    ) -> None:
        self._serving = ServingCertificate()
        super().__init__("metrics", bind_address, routes, tls=self._serving.ssl_context(), middlewares=[self._review])
        self._tls = tls
        self._reviewer = reviewer
        self._clock = clock

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serves until cancelled. Raises :class:`OSError` when the address cannot be bound."""
        if self._address is None:
            task_status.started()
            return
        async with anyio.create_task_group() as tasks:
            if self._tls.cert_dir is not None:
                files = CertificateFiles(directory=self._tls.cert_dir)
                tasks.start_soon(CertificateFilesWatcher(files, self._serving).run)
            else:
                policy = RotatedCertificates(secret=NamespacedName("", ""), common_name="metrics")
                material, _ = ensure_certificates(StoredCertificates(), policy, self._tls.names, now=self._clock.now())
                self._serving.serve(material.pair)
            await super().run(task_status=task_status)

    @web.middleware
    async def _review(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        refusal = await self._reviewer.refusal(request.headers.get("Authorization", ""), request.path)
        if refusal is not None:
            status, reason = refusal
            return web.Response(status=status, text=f"{reason}\n")
        return await handler(request)
