"""Writes the CA bundle and the address of the webhooks into the objects that register them with API servers.

Only the operator that owns a webhook configuration writes it (:mod:`cfo.runtime.webhook.ownership`). An operator that
finds a living other one reports it as :attr:`CAInjector.conflict` and writes nothing, also if it was the owner before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import anyio
import msgspec
import structlog
from cryptography import x509

from cfo.runtime.cache.cache import Cache
from cfo.runtime.cache.informer import Informer
from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import (
    AlreadyExists,
    APIError,
    Forbidden,
    NotFound,
    TransportError,
    UnknownKind,
)
from cfo.runtime.objects.errors import raise_together
from cfo.runtime.objects.kinds import MUTATING_WEBHOOK_CONFIGURATION
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    annotations_of,
    is_deleting,
    resource_version_of,
    uid_of,
)
from cfo.runtime.pki.certificates import ca_certificates_of, is_trusted
from cfo.runtime.process.clock import Clock
from cfo.runtime.webhook.certificates.client_configs import (
    ORIGINAL_ANNOTATION,
    ca_bundles_of,
    client_configs,
    desired_object,
    mark_created_for_url,
    merge_patch,
    was_created_for_url,
)
from cfo.runtime.webhook.certificates.overwrites import OVERWRITE_WINDOW, OverwriteLimit
from cfo.runtime.webhook.options import WebhookOptions, WebhookURL
from cfo.runtime.webhook.ownership import (
    OPERATOR_ANNOTATION,
    OperatorMark,
    OwnerProbe,
    WebhookOwner,
    address_of,
    addresses_of,
    described_owner,
    is_service,
    owner_of,
)
from cfo.runtime.webhook.registration import Webhooks
from cfo.runtime.webhook.shared_port import may_be_served

_RECHECK: Final = 60.0
"""Seconds between two reads of the Lease of a dead operator whose Service the webhook configurations name."""

Report = Callable[[Object, str], None]
"""Reports an overwritten webhook configuration; the string is a sentence for an Event."""

_log = structlog.get_logger(__name__)


def _described(names: Sequence[str], total: int) -> str:
    """Return the webhooks ``names`` in words; ``total`` is the number of webhooks in their object."""
    if len(names) == 1:
        return f"webhook {names[0]}"
    if len(names) == total:
        return f"all {total} webhooks"
    return f"webhooks {', '.join(names)}"


class InjectionTarget(msgspec.Struct, frozen=True):
    """A webhook configuration that the CA bundle is injected into."""

    gvk: GVK
    name: str
    informer: Informer

    @property
    def key(self) -> NamespacedName:
        """The object's key for client calls."""
        return NamespacedName("", self.name)

    def stored(self) -> Object | None:
        """Return the object from the informer's store; ``None`` if it is not there."""
        return self.informer.reader.get(self.key)

    def __str__(self) -> str:
        return f"{self.gvk.kind} {self.name}"


class CAInjector:
    """Injects the CA bundle into the webhook configurations that ``options`` name.

    If ``options`` has a URL, it is injected as well, but nothing is injected before ``is_listening`` returns true:
    another program may use the port. Reads from ``cache``, writes with ``client``. ``report_overwrite`` is called when
    a configuration was overwritten repeatedly.

    An operator at a Service never changes which Service a configuration names: the manifests define it.
    """

    def __init__(
        self,
        client: Client,
        cache: Cache,
        webhooks: Webhooks,
        options: WebhookOptions,
        *,
        clock: Clock,
        is_listening: Callable[[], bool] = lambda: True,
        report_overwrite: Report = lambda _obj, _message: None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._report_overwrite = report_overwrite
        self._probe = OwnerProbe(client, clock, options.expired, reads_endpoints=options.is_only)
        self._own_address = address_of(options.address)
        self.conflict = ""
        """The living other operator that was found, as a sentence; empty if there is none."""
        self.found_conflict = anyio.Event()
        """Set together with :attr:`conflict`."""
        self.has_registered = anyio.Event()
        """Set when all configurations have the URL of ``options`` for the first time."""
        self._webhooks = webhooks
        self._options = options
        self._is_listening = is_listening
        self.targets = tuple(
            InjectionTarget(gvk, name, cache.informer(gvk, field_selector=f"metadata.name={name}"))
            for gvk, name in options.configurations.items()
        )
        self._limits = {target: OverwriteLimit() for target in self.targets}
        self._services_of_dead_owners: dict[InjectionTarget, str] = {}
        self._is_missing_reported = False

    async def inject(self, bundle: bytes | None) -> float:
        """Update every target that differs from its desired state, with at most one write each.

        Returns the seconds after which to call it again without an event, or 0 if that is not necessary.

        ``bundle`` (PEM) contains the CAs that API servers should trust; ``None`` leaves the bundles unchanged, because
        another tool manages them. All targets are attempted before an error is raised. Raises
        :class:`~cfo.runtime.client.errors.Conflict` if a target was changed concurrently.
        """
        if self._options.url is not None and not self._is_listening():
            return 0.0
        errors: list[Exception] = []
        delays: list[float] = []
        for target in self.targets:
            if self.conflict:
                break
            try:
                delays.append(await self._inject(target, bundle))
            except (APIError, TransportError, UnknownKind) as error:
                errors.append(error)
        raise_together(errors, "cannot update some webhook configurations")
        delay = min((delay for delay in delays if delay > 0), default=0.0)
        if delay == 0.0 and not self.conflict:
            self.has_registered.set()
        return delay

    async def _inject(self, target: InjectionTarget, bundle: bytes | None) -> float:
        """Update one target; return the seconds after which it must be checked again, or 0."""
        url = self._options.url
        obj = target.stored()
        if obj is None:
            self._services_of_dead_owners.pop(target, None)
            return await self._create(target, bundle, url) if url is not None else 0.0
        if is_deleting(obj):
            return 0.0
        owner = self._other_owner(obj)
        if owner is not None:
            holder = await self._probe.living_holder(owner)
            if holder:
                self._stop_because_of(target, owner, holder)
                return 0.0
            if url is None and is_service(owner.address):
                self._report_service(target, owner.address)
                return _RECHECK
        self._services_of_dead_owners.pop(target, None)
        if url is None and was_created_for_url(obj):
            await self._delete(target, obj)
            return 0.0
        return await self._update(target, obj, bundle)

    async def _update(self, target: InjectionTarget, obj: Object, bundle: bytes | None) -> float:
        url = self._options.url
        mark = self._mark()
        desired = desired_object(
            obj, bundle=bundle, url=url, paths=self._paths(target.gvk), annotations=mark
        )
        # Without a URL, `desired` has the client configs that a dead operator's URL replaced. If they name another
        # Service, they are restored, but neither marked nor given our bundle.
        if self._own_address not in addresses_of(desired):
            desired = self._restored(obj, bundle)
        if desired == obj:
            return 0.0
        limit = self._limits[target]
        written_state = (bundle, url, mark)
        delay = limit.delay(written_state, self._clock.monotonic())
        if delay > 0:
            if limit.claim_report():
                self._report(target, obj)
            return delay
        await self._write(target, obj, desired)
        limit.wrote(written_state, self._clock.monotonic())
        shown_url = str(url) if url is not None else None
        _log.info("Updated webhook configuration", object=str(target), url=shown_url)
        return 0.0

    def _other_owner(self, obj: Object) -> WebhookOwner | None:
        """Return the owner of ``obj``, if it is at another address."""
        lease = self._options.lease
        lease_name = lease.name if lease is not None else ""
        owner = owner_of(obj, self._own_address, lease_name)
        if owner is None or owner.address == self._own_address:
            return None
        if lease is None:
            return WebhookOwner(
                owner.address
            )  # without its Lease, so that it does not count as alive
        return owner

    def _restored(self, obj: Object, bundle: bytes | None) -> Object:
        """Return ``obj`` with the client configs that a URL replaced, with ``bundle`` if they name our Service."""
        unmarked = {OPERATOR_ANNOTATION: None}
        restored = desired_object(obj, bundle=None, url=None, paths={}, annotations=unmarked)
        if address_of(self._options.service) not in addresses_of(restored):
            return restored
        return desired_object(obj, bundle=bundle, url=None, paths={}, annotations=unmarked)

    def _mark(self) -> dict[str, str | None]:
        """Return the annotations of a webhook configuration that this operator owns."""
        lease = self._options.lease
        if lease is None:
            return {}
        return {
            OPERATOR_ANNOTATION: OperatorMark(
                self._own_address, lease.namespace, lease.name
            ).encode()
        }

    def _stop_because_of(self, target: InjectionTarget, owner: WebhookOwner, holder: str) -> None:
        self.conflict = (
            f"another operator serves the webhooks of {target} at {described_owner(owner, holder)}"
        )
        self.found_conflict.set()

    def _report_service(self, target: InjectionTarget, service: str) -> None:
        """Log, once, that the API server calls ``service``, whose operator does not run, instead of this one."""
        if self._services_of_dead_owners.get(target) == service:
            return
        self._services_of_dead_owners[target] = service
        _log.warning(
            "Webhooks of another installation are called; if it does not run, objects cannot be created or changed",
            object=str(target),
            service=service,
            hint="apply the manifests of this operator; outside the cluster, set the URL of its webhooks",
        )

    def _report_missing(self, target: InjectionTarget) -> None:
        """Log, once for all targets, that this operator is not allowed to create the missing ones."""
        if self._is_missing_reported:
            return
        self._is_missing_reported = True
        _log.warning(
            "Webhook configuration is missing, and creating it is forbidden; nothing is defaulted or validated",
            object=str(target),
            hint="apply the manifests of this operator again, which contain the webhook configurations",
        )

    def _report(self, target: InjectionTarget, obj: Object) -> None:
        message = (
            f"Another client overwrote the webhooks of {target} twice within {OVERWRITE_WINDOW:g} s. They are not "
            f"corrected for up to {OVERWRITE_WINDOW:g} s: find the other operator, and delete it."
        )
        _log.error(
            "Webhook configuration is overwritten by another client, not writing it again",
            object=str(target),
            window=OVERWRITE_WINDOW,
        )
        self._report_overwrite(obj, message)

    async def _write(self, target: InjectionTarget, obj: Object, desired: Object) -> None:
        """Patch ``obj`` to ``desired``; update it if patch is forbidden, as with the Go operator's ClusterRole."""
        try:
            await self._client.patch(target.gvk, target.key, merge_patch(obj, desired))
        except Forbidden:
            await self._client.update(desired)

    def _paths(self, gvk: GVK) -> dict[str, str]:
        mutating = gvk == MUTATING_WEBHOOK_CONFIGURATION
        return {hook.name: hook.path for hook in self._webhooks if hook.mutating == mutating}

    async def _create(
        self, target: InjectionTarget, bundle: bytes | None, url: WebhookURL
    ) -> float:
        """Create one target; return the seconds after which to try again, or 0."""
        configuration = self._webhooks.configuration(target.gvk, target.name, url)
        if configuration is None:
            return 0.0
        marked = desired_object(
            mark_created_for_url(configuration),
            bundle=bundle,
            url=url,
            paths={},
            annotations=self._mark(),
        )
        try:
            await self._client.create(marked)
        except AlreadyExists:
            return 0.0  # the watch delivers it, which triggers the next reconcile
        except Forbidden:
            self._report_missing(target)
            return _RECHECK
        self._is_missing_reported = False
        _log.info("Created webhook configuration", object=str(target), url=str(url))
        return 0.0

    async def _delete(self, target: InjectionTarget, obj: Object) -> None:
        await self._client.delete(
            target.gvk, target.key, uid=uid_of(obj), resource_version=resource_version_of(obj)
        )
        _log.info("Deleted webhook configuration that was created for a URL", object=str(target))

    def ca_bundles(self) -> Iterator[bytes]:
        """Yield the CA bundle (PEM) of each webhook in the targets that the informers have read."""
        for target in self.targets:
            obj = target.stored()
            if obj is not None:
                yield from ca_bundles_of(obj).values()

    def trusts(self, ca: x509.Certificate) -> bool:
        """Return whether the bundle of every webhook, in every target that exists, contains ``ca``."""
        return all(ca in ca_certificates_of(bundle) for bundle in self.ca_bundles())

    def problems(self, served: Iterable[x509.Certificate]) -> list[str]:
        """Return the reasons why API servers cannot call the webhooks or do not trust the chain ``served``.

        The list is empty if there is no problem.
        """
        chain = list(served)
        found: list[str] = []
        for target in self.targets:
            if not target.informer.has_synced:
                found.append(
                    f"{target}: not read yet: {target.informer.problem or 'list in progress'}"
                )
                continue
            obj = target.stored()
            if obj is None:
                if self._paths(target.gvk):
                    found.append(f"{target} does not exist")
                continue
            other_service = self._services_of_dead_owners.get(target)
            if other_service is not None:
                found.append(
                    f"{target} names {other_service}, not {self._own_address}: apply the manifests of this operator"
                )
            bundles = ca_bundles_of(obj)
            untrusting = [name for name, bundle in bundles.items() if not is_trusted(bundle, chain)]
            if untrusting:
                found.append(
                    f"{target}: the caBundle of {_described(untrusting, len(bundles))} does not contain the CA of the "
                    "serving certificate"
                )
            if self._options.url is not None:
                found += self._problems_of_url(target, obj, self._options.url)
        return found

    @staticmethod
    def _problems_of_url(target: InjectionTarget, obj: Object, url: WebhookURL) -> Iterator[str]:
        """Yield a reason if webhooks of ``obj`` are called elsewhere than at ``url``."""
        configs = client_configs(obj)
        elsewhere = [
            name
            for name, config in configs.items()
            if not str(config.get("url", "")).startswith(f"{url}/")
        ]
        if elsewhere:
            described = _described(elsewhere, len(configs))
            yield f"{target}: the clientConfig of {described} does not contain the URL {url}"

    async def restore(self, bundle: bytes | None, trusted: bytes) -> None:
        """Restore the client configs that our URL replaced, unless another replica may still serve at that URL.

        Call it after the server has stopped listening, and only if it has listened: a process that never served has
        replaced nothing, and its URL may be that of a living replica. ``bundle`` is as in :meth:`inject`; ``trusted``
        (PEM) contains the CAs that the probe for another replica trusts. Errors are logged; the next start restores the
        remaining objects.
        """
        url = self._options.url
        if url is None:
            return
        if await may_be_served(url, trusted):
            _log.info(
                "Another process may serve at the URL, keeping webhook configurations", url=str(url)
            )
            return
        for target in self.targets:
            try:
                obj = await self._client.get(target.gvk, target.key, live=True)
                if obj is None or ORIGINAL_ANNOTATION not in annotations_of(obj):
                    continue
                if self._other_owner(obj) is not None:
                    continue  # the other operator restores what it replaced
                if was_created_for_url(obj):
                    await self._delete(target, obj)
                    continue
                await self._write(target, obj, self._restored(obj, bundle))
                _log.info("Restored webhook configuration", object=str(target))
            except NotFound:
                continue
            except (APIError, TransportError, UnknownKind) as error:
                _log.warning(
                    "Failed to restore webhook configuration, will retry at the next start",
                    object=str(target),
                    error=str(error),
                )
