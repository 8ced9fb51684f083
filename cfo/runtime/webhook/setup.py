"""Adds webhooks to a manager: the server, its certificates, the webhook configurations, and the readiness check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Literal

import anyio
from anyio.abc import TaskStatus

from cfo.runtime.cache.cache import Cache
from cfo.runtime.cache.informer import Informer
from cfo.runtime.client.client import Client
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.ratelimit import ExponentialRateLimiter
from cfo.runtime.client.transport import Transport
from cfo.runtime.controller.controller import Controller, ControllerOptions
from cfo.runtime.controller.handler import EnqueueRequestsFromMapFunc
from cfo.runtime.controller.lifecycle import Runnable, StartPhase
from cfo.runtime.controller.metrics import Metrics
from cfo.runtime.controller.reconcile import Reconciler, Request, Result
from cfo.runtime.controller.source import Channel, Kind
from cfo.runtime.objects.kinds import (
    LEASE,
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from cfo.runtime.objects.rbac import READ, Rule
from cfo.runtime.objects.unstructured import Object, name_of
from cfo.runtime.pki.certificates import load_certificates
from cfo.runtime.process.clock import Clock, sleep_unless
from cfo.runtime.webhook.certificates.ca_injector import CAInjector
from cfo.runtime.webhook.certificates.file_watcher import CertificateFilesWatcher, ClientCAWatcher
from cfo.runtime.webhook.certificates.rotator import CertificateRotator
from cfo.runtime.webhook.certificates.serving_certificate import ServingCertificate
from cfo.runtime.webhook.metrics import CertificateMetrics, OverwriteMetrics, WebhookMetrics
from cfo.runtime.webhook.options import CertificateFiles, RotatedCertificates, WebhookOptions
from cfo.runtime.webhook.ownership import AnotherOperator
from cfo.runtime.webhook.registration import Webhooks
from cfo.runtime.webhook.server import WebhookServer

_MAX_REGISTRATION: Final = 5.0

EventFunction = Callable[[Object, Literal["Normal", "Warning"], str, str], None]
"""Records an Event about an object: type, reason, message."""

_MAX_BACKOFF: Final = 5.0
"""The maximum back-off in seconds: short, because a broken webhook blocks all writes of its kinds."""

_LOCAL_DRAIN: Final = 0.2
"""The maximum drain in seconds of a process that is called at a URL, because its restart should be fast."""


def webhook_rules(options: WebhookOptions) -> list[Rule]:
    """Return the permissions that serving webhooks in the cluster requires."""
    granted: list[Rule] = []
    if isinstance(options.certificates, RotatedCertificates):
        secret = options.certificates.secret
        granted += [
            Rule("", "secrets", ("create",), namespace=secret.namespace),
            Rule("", "secrets", (*READ, "patch"), [secret.name], namespace=secret.namespace),
        ]
    # A process that used a URL and was killed leaves a configuration behind, which has to be deleted.
    verbs = (*READ, "delete", "patch")
    for gvk, name in options.configurations.items():
        granted.append(Rule(gvk.group, f"{gvk.kind.lower()}s", verbs, [name]))
    if options.lease is not None and options.configurations:
        # Another operator's Lease is in its own namespace.
        granted.append(Rule(LEASE.group, "leases", "get", [options.lease.name]))
    return granted


def _drain(options: WebhookOptions) -> float:
    """Return how long open connections are served, in seconds.

    The only process at a URL has removed the URL from the webhook configurations before, so that no new call arrives.
    """
    if options.url is not None and not options.reuse_port:
        return min(options.drain, _LOCAL_DRAIN)
    return options.drain


class OwnerWatch:
    """Ends the process when ``injector`` finds a living other operator that serves our webhook configurations."""

    name = "webhook-owner"

    def __init__(self, injector: CAInjector) -> None:
        self._injector = injector

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Wait for another operator; raise :class:`~cfo.runtime.webhook.ownership.AnotherOperator` if there is one."""
        task_status.started()
        await self._injector.found_conflict.wait()
        raise AnotherOperator(self._injector.conflict)


class RegistrationWait:
    """Lets controllers start only when the webhook configurations have our URL, or after 5 seconds.

    Until then they can have the URL of a process that has ended, and each write of their kinds would fail.
    """

    name = "webhook-registration"

    def __init__(self, injector: CAInjector, clock: Clock) -> None:
        self._injector = injector
        self._clock = clock

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Wait for the registration."""
        await sleep_unless(self._clock, _MAX_REGISTRATION, self._injector.has_registered)
        task_status.started()


class WebhookService:
    """Serves the webhooks of a manager, which creates it from ``ManagerOptions.webhook``.

    It reads and writes through its own cache and client, because certificates are independent of the manager's
    namespaces and of leader election. The manager runs ``runnables`` and ``controller``, and adds :meth:`check`.
    """

    def __init__(
        self,
        options: WebhookOptions,
        transport: Transport,
        mapper: RESTMapper,
        *,
        field_manager: str,
        clock: Clock,
        metrics: Metrics,
        events: EventFunction | None = None,
    ) -> None:
        self.webhooks = Webhooks()
        self._overwrites = OverwriteMetrics(metrics.registry)
        self._events = events
        self.runnables: list[tuple[Runnable, StartPhase]] = []
        self._requests = Channel()
        self._request = Request("", WebhookServer.name)
        self._clock = clock
        self._has_url = options.url is not None
        self._configurations = options.configurations
        registry = metrics.registry
        cache = Cache(transport, mapper, clock=clock)
        client = Client(transport, mapper, field_manager=field_manager, cache=cache)

        self._serving = ServingCertificate(
            CertificateMetrics(registry), require_clients=options.client_ca is not None
        )
        self._client_ca: ClientCAWatcher | None = None
        if options.client_ca is not None:
            self._client_ca = ClientCAWatcher(options.client_ca, self._serving)
            self.runnables.append((self._client_ca, StartPhase.SERVERS))
        self._injector = CAInjector(
            client,
            cache,
            self.webhooks,
            options,
            clock=clock,
            is_listening=lambda: self.server.listening,
            report_overwrite=self._report_overwrite,
        )
        self.runnables.append((OwnerWatch(self._injector), StartPhase.SERVERS))
        self._source: CertificateRotator | CertificateFilesWatcher
        reconciler: Reconciler
        sources = [target.informer for target in self._injector.targets]
        if isinstance(options.certificates, CertificateFiles):
            self._source = CertificateFilesWatcher(options.certificates, self._serving)
            reconciler = self
            self.runnables.append((self._source, StartPhase.SERVERS))
        else:
            self._source = CertificateRotator(
                client, cache, self._injector, self._serving, options.certificates, options, clock
            )
            reconciler = self._source
            sources.append(self._source.secret)

        bind_address = options.bind_address
        if options.url is not None:
            bind_address = options.url.bind_address
        self.server = WebhookServer(
            self.webhooks,
            self._serving,
            WebhookMetrics(registry),
            bind_address=bind_address,
            reuse_port=options.reuse_port,
            trusted=self._trusted,
            drain=_drain(options),
            controllers={options.service.namespace, *options.controller_namespaces},
            on_listening=self._reconcile,
            before_drain=self._restore_configurations,
            clock=clock,
        )
        self.runnables += [(self.server, StartPhase.SERVERS), (cache, StartPhase.CACHES)]
        if options.url is not None and self._injector.targets:
            wait = RegistrationWait(self._injector, clock)
            self.runnables.append((wait, StartPhase.ALL_REPLICAS))
        self.controller: Controller | None = None
        if sources:
            self.controller = self._new_controller(reconciler, sources, mapper, metrics)

    def _new_controller(
        self,
        reconciler: Reconciler,
        informers: list[Informer],
        mapper: RESTMapper,
        metrics: Metrics,
    ) -> Controller:
        request = self._request
        controller = Controller(
            "cert-rotator",
            reconciler,
            options=ControllerOptions(
                max_concurrent_reconciles=1,
                rate_limiter=ExponentialRateLimiter(0.005, _MAX_BACKOFF),
                needs_leader=False,
            ),
            metrics=metrics,
            clock=self._clock,
        )
        for informer in informers:
            handler = EnqueueRequestsFromMapFunc(lambda _: (request,))
            controller.watch(Kind(informer, handler, mapper=mapper, clock=self._clock))
        self._reconcile()  # no event is delivered if no object exists yet
        controller.watch(self._requests)
        return controller

    def _trusted(self) -> bytes:
        """Return the CAs (PEM) of the certificates of all replicas; our own chain if there is no bundle."""
        if self._source.bundle:
            return self._source.bundle
        pair = self._serving.pair
        return pair.certificate if pair is not None else b""

    def _reconcile(self) -> None:
        self._requests.enqueue([self._request])

    async def reconcile(self, request: Request) -> Result:
        """Point webhook configurations to our URL, or restore them; change caBundle only together with a URL.

        Called if the certificates are files; the rotator of other certificates does this itself.
        """
        bundle = self._source.bundle if self._has_url else None
        delay = await self._injector.inject(bundle)
        return Result(requeue_after=delay)

    def _report_overwrite(self, obj: Object, message: str) -> None:
        self._overwrites.count(obj["kind"], name_of(obj))
        if self._events is not None:
            self._events(obj, "Warning", "WebhookConfigurationOverwritten", message)

    async def _restore_configurations(self) -> None:
        await self._injector.restore(self._source.bundle, self._trusted())

    def check(self) -> None:
        """Raise :class:`RuntimeError` with the unmet conditions until API servers can call the webhooks."""
        pair = self._serving.pair
        problems: list[str] = []
        if pair is None or self._serving.leaf is None:
            problems.append(f"no serving certificate yet: {self._reason()}")
        elif self._clock.now() >= self._serving.leaf.not_valid_after_utc:
            problems.append(f"the serving certificate has expired: {self._reason()}")
        elif self._client_ca is not None and not self._serving.available.is_set():
            problems.append(f"no client CA yet: {self._client_ca.failure}")
        elif not self.server.listening:
            problems.append("the server is not listening yet")
        if pair is not None:
            chain = load_certificates(pair.certificate)
            problems += self._injector.problems(chain)
        problems += self._uncalled()
        if problems:
            raise RuntimeError("; ".join(problems))

    def _uncalled(self) -> Iterator[str]:
        """Yield a problem for each webhook that no API server calls at the URL, because no configuration names it."""
        if not self._has_url or not self._configurations:
            return  # the configurations may be those of manifests, or of another tool
        for webhook in self.webhooks:
            if webhook.mutating:
                kind = MUTATING_WEBHOOK_CONFIGURATION
                option = "mutating_configuration"
            else:
                kind = VALIDATING_WEBHOOK_CONFIGURATION
                option = "validating_configuration"
            if kind not in self._configurations:
                yield f"no API server calls the webhook {webhook.name}: WebhookOptions has no {option}"

    def _reason(self) -> str:
        if self._source.failure:
            return self._source.failure
        if isinstance(self._source, CertificateRotator) and not self._source.secret.has_synced:
            return f"waiting for the Secret: {self._source.secret.problem or 'list in progress'}"
        return "waiting for the webhook configurations to be read"
