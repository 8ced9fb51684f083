"""Puts webhooks into a manager: the server, the certificates, what API servers are told, and the readiness check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cryptography import x509

from cfo.runtime.cache.cache import Cache
from cfo.runtime.cache.informer import Informer
from cfo.runtime.client.client import Client
from cfo.runtime.controller import Controller, ControllerOptions
from cfo.runtime.handler import EnqueueRequestsFromMapFunc
from cfo.runtime.kinds import (
    CUSTOM_RESOURCE_DEFINITION,
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from cfo.runtime.lifecycle import Phase
from cfo.runtime.ratelimit import ExponentialRateLimiter
from cfo.runtime.reconcile import READ, Reconciler, Request, Result, Rule
from cfo.runtime.source import Channel, Kind
from cfo.runtime.webhook.certificates.ca_injector import CAInjector
from cfo.runtime.webhook.certificates.file_watcher import CertificateFilesWatcher
from cfo.runtime.webhook.certificates.rotator import CertificateRotator
from cfo.runtime.webhook.certificates.serving_certificate import ServingCertificate
from cfo.runtime.webhook.metrics import CertificateMetrics, WebhookMetrics
from cfo.runtime.webhook.options import CertificateFiles, RotatedCertificates, WebhookOptions
from cfo.runtime.webhook.registration import Webhooks
from cfo.runtime.webhook.server import WebhookServer

if TYPE_CHECKING:
    from cfo.runtime.manager import Manager

__all__ = ["WebhookService", "rules"]

_LONGEST_BACKOFF: Final = 5.0  # seconds; what is broken here stops all writes of the kinds that have webhooks


def rules(options: WebhookOptions) -> list[Rule]:
    """The rights that serving webhooks within the cluster needs."""
    granted: list[Rule] = []
    if isinstance(options.certificates, RotatedCertificates):
        secret = options.certificates.secret
        granted += [
            Rule("", "secrets", ("create",), namespace=secret.namespace),
            Rule("", "secrets", (*READ, "patch"), [secret.name], namespace=secret.namespace),
        ]
    for gvk, name in (
        (MUTATING_WEBHOOK_CONFIGURATION, options.mutating_configuration),
        (VALIDATING_WEBHOOK_CONFIGURATION, options.validating_configuration),
    ):
        if name:  # to delete is what a run with a url made, if it was killed
            granted.append(Rule(gvk.group, f"{gvk.kind.lower()}s", (*READ, "delete", "patch"), [name]))
    if options.conversion_crds:
        granted.append(
            Rule(
                CUSTOM_RESOURCE_DEFINITION.group, "customresourcedefinitions", (*READ, "patch"), options.conversion_crds
            )
        )
    return granted


class WebhookService:
    """All that serves the webhooks of a manager; made by it, from ``ManagerOptions.webhook``.

    It reads and writes through a cache and a client of its own: neither the namespaces to which the manager is limited
    nor whether it leads concerns the certificates.
    """

    def __init__(self, manager: Manager, options: WebhookOptions) -> None:
        self.webhooks = Webhooks()
        self._options = options
        self._clock = manager.clock
        cache = Cache(manager.transport, manager.mapper, clock=manager.clock)
        client = Client(manager.transport, manager.mapper, field_manager=manager.options.field_manager, cache=cache)
        self._serving = ServingCertificate(CertificateMetrics(manager.metrics.registry))
        self._injector = CAInjector(client, cache, self.webhooks, options)
        self._source: CertificateRotator | CertificateFilesWatcher
        reconciler: Reconciler
        sources = [announced.informer for announced in self._injector.targets]
        if isinstance(options.certificates, CertificateFiles):
            self._source = CertificateFilesWatcher(options.certificates, self._serving)
            reconciler = _Redirection(self._injector, self._source)
            manager.add(self._source, phase=Phase.SERVERS)
        else:
            self._source = CertificateRotator(
                client, cache, self._injector, self._serving, options.certificates, options, manager.clock
            )
            reconciler = self._source
            sources.append(self._source.secret)
        self.server = WebhookServer(
            self.webhooks,
            self._serving,
            WebhookMetrics(manager.metrics.registry),
            bind_address=options.url.bind_address if options.url is not None else options.bind_address,
            reuse_port=options.reuse_port,
            drain=options.drain,
            before_drain=self._withdraw,
            clock=manager.clock,
        )
        manager.add(self.server, phase=Phase.SERVERS)
        manager.add(cache, phase=Phase.CACHES)
        if sources:
            self._add_controller(manager, reconciler, sources)
        manager.health.add_ready_check("webhooks", self.check)

    def _add_controller(self, manager: Manager, reconciler: Reconciler, informers: list[Informer]) -> None:
        request = Request("", self.server.name)
        controller = Controller(
            "cert-rotator",
            reconciler,
            options=ControllerOptions(
                max_concurrent_reconciles=1,
                rate_limiter=ExponentialRateLimiter(0.005, _LONGEST_BACKOFF),
                needs_leader=False,
            ),
            metrics=manager.metrics,
            clock=manager.clock,
        )
        for informer in informers:
            handler = EnqueueRequestsFromMapFunc(lambda _: (request,))
            controller.watch(Kind(informer, handler, mapper=manager.mapper, clock=manager.clock))
        first = Channel()
        first.enqueue([request])  # where nothing exists yet, no event tells
        controller.watch(first)
        manager.add_controller(controller)

    async def _withdraw(self) -> None:
        trusted = self._source.bundle or (self._serving.pair.certificate if self._serving.pair else b"")
        await self._injector.restore(self._source.bundle, trusted)

    def check(self) -> None:
        """Raises :class:`RuntimeError`, which names what is missing, until API servers can call the webhooks."""
        pair = self._serving.pair
        problems: list[str] = []
        if pair is None or self._serving.leaf is None:
            problems.append(f"there is no serving certificate yet: {self._reason()}")
        elif self._clock.now() >= self._serving.leaf.not_valid_after_utc:
            problems.append(f"the serving certificate has expired: {self._reason()}")
        elif not self.server.listening:
            problems.append("the server does not listen yet")
        chain = x509.load_pem_x509_certificates(pair.certificate) if pair is not None else []
        problems += self._injector.problems(chain) if chain else []
        if problems:
            raise RuntimeError("; ".join(problems))

    def _reason(self) -> str:
        if self._source.failure:
            return self._source.failure
        if isinstance(self._source, CertificateRotator) and not self._source.secret.has_synced:
            return f"the Secret is not read yet: {self._source.secret.problem or 'being listed'}"
        return "waiting for the webhook configurations to be read"


class _Redirection:
    """Lets configurations lead to our url and back; whom they trust is somebody else's business, unless we know."""

    def __init__(self, injector: CAInjector, files: CertificateFilesWatcher) -> None:
        self._injector = injector
        self._files = files

    async def reconcile(self, request: Request) -> Result:
        """Writes what is not as it should be."""
        await self._injector.inject(self._files.bundle if self._injector.uses_url else None)
        return Result()
