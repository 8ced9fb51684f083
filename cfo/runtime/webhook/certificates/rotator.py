"""Keeps the certificate Secret, the injected CA bundles and the served certificate in sync, on every replica.

A single level-triggered reconcile does everything. Changes of the Secret and of the webhook configurations trigger it,
and so do renewal times. The Secret is the source of truth that replicas share: if two replicas create a CA at the same
time, the second write fails, and that replica uses the CA in the Secret.

The order of the steps makes a rotation safe: first the Secret, then the CA bundles (which also contain the former CAs),
and last the served certificate, but only after all bundles have contained its CA for some time. A replica without a
valid certificate does not wait.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Final

import structlog
from anyio import to_thread
from cryptography import x509

from cfo.runtime.cache.cache import Cache
from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import AlreadyExists
from cfo.runtime.controller.reconcile import Request, Result
from cfo.runtime.objects.kinds import SECRET
from cfo.runtime.objects.unstructured import Object, resource_version_of
from cfo.runtime.pki.certificates import (
    CertificateAuthority,
    KeyPair,
    is_current,
    is_issuer_of,
    renewal_time,
    subject_names,
)
from cfo.runtime.pki.rotation import (
    CertificateSet,
    StoredCertificates,
    ensure_certificates,
    issue_certificate,
    parse_secret,
)
from cfo.runtime.process.clock import Clock
from cfo.runtime.webhook.certificates.ca_injector import CAInjector
from cfo.runtime.webhook.certificates.serving_certificate import ServingCertificate
from cfo.runtime.webhook.options import RotatedCertificates, WebhookOptions

_MAX_REQUEUE: Final = 3600.0
"""The longest timer in seconds; a longer one would miss clock changes and machine suspends."""

_log = structlog.get_logger(__name__)


class CertificateRotator:
    """The reconciler of the certificates of this process's webhooks. It ignores the request."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        injector: CAInjector,
        serving: ServingCertificate,
        policy: RotatedCertificates,
        options: WebhookOptions,
        clock: Clock,
    ) -> None:
        self._client = client
        self._injector = injector
        self._serving = serving
        self._policy = policy
        self._options = options
        self._clock = clock
        self.secret = cache.informer(
            SECRET,
            namespace=policy.secret.namespace,
            field_selector=f"metadata.name={policy.secret.name}",
        )
        self.failure = ""
        self._certificates: CertificateSet | None = None
        self._own: tuple[x509.Certificate, KeyPair] | None = None
        self._trusted_since: tuple[x509.Certificate, float] | None = None

    @property
    def bundle(self) -> bytes | None:
        """The CA bundle (PEM) that API servers should trust; ``None`` before the first reconcile."""
        return self._certificates.bundle if self._certificates is not None else None

    async def reconcile(self, request: Request) -> Result:
        """Reconcile Secret, CA bundles and served certificate; requeue for the next renewal or step."""
        try:
            result = await self._reconcile()
        except Exception as error:
            self.failure = str(error)
            raise
        self.failure = ""
        return result

    async def _reconcile(self) -> Result:
        now = self._clock.now()
        certificates = await self._ensure_secret(now)
        pair = await self._pair(certificates, now)
        self._serve(pair, certificates.ca, now)
        until_injected = await self._injector.inject(certificates.bundle)
        until_served = self._serve(pair, certificates.ca, now)
        next_change = min(certificates.next_change(self._policy), renewal_time(pair.leaf))
        until_change = (next_change - now).total_seconds()
        delays = [until_change, until_served, until_injected, _MAX_REQUEUE]
        return Result(requeue_after=min(seconds for seconds in delays if seconds > 0))

    async def _ensure_secret(self, now: datetime) -> CertificateSet:
        """Create or update the Secret if necessary; return the certificates that it contains then."""
        key = self._policy.secret
        secret = self.secret.reader.get(key)
        if secret is not None:
            stored = parse_secret(secret.get("data") or {})
        else:
            stored = StoredCertificates(problems=("the Secret does not exist",))
        trusted = list(self._injector.ca_bundles())
        if self.bundle is not None:
            trusted.insert(0, self.bundle)
        ensure = partial(
            ensure_certificates,
            stored,
            self._policy,
            self._options.service.dns_names,
            now=now,
            trusted=trusted,
            served=self._serving.leaf,
        )
        # In a thread: it may generate RSA keys, each of which takes a tenth of a second or more.
        certificates, reasons = await to_thread.run_sync(ensure)
        if reasons:
            try:
                await self._write(secret, certificates)
            except AlreadyExists:
                # Another replica created it first. A live read puts it into the cache, where the retry finds it.
                if await self._client.get(SECRET, key, live=True) is None:
                    raise
                return await self._ensure_secret(now)
            _log.info("Updated certificate Secret", secret=str(key), reasons=reasons)
        self._certificates = certificates
        return certificates

    async def _write(self, secret: Object | None, certificates: CertificateSet) -> None:
        key = self._policy.secret
        data = certificates.data()
        if secret is None:
            created = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"namespace": key.namespace, "name": key.name},
                "type": "Opaque",
                "data": data,
            }
            await self._client.create(created)
        else:
            metadata = {"resourceVersion": resource_version_of(secret)}
            await self._client.patch(SECRET, key, {"metadata": metadata, "data": data})

    async def _pair(self, certificates: CertificateSet, now: datetime) -> KeyPair:
        """Return the pair to serve: the Secret's, or one issued by this process if that pair lacks one of our names."""
        names = self._options.names
        if subject_names(certificates.pair.leaf).issuperset(names):
            return certificates.pair
        ca = certificates.ca
        if self._own is not None:
            issuer, own_pair = self._own
            if issuer == ca.certificate and is_current(own_pair.leaf, now):
                return own_pair
        issue = partial(issue_certificate, ca, names, self._policy, now=now)
        own_pair = await to_thread.run_sync(issue)
        self._own = (ca.certificate, own_pair)
        return own_pair

    def _serve(self, pair: KeyPair, ca: CertificateAuthority, now: datetime) -> float:
        """Serve ``pair`` as soon as API servers trust it; return the seconds until then, or 0 if it is served."""
        if pair == self._serving.pair:
            return 0.0
        leaf = self._serving.leaf
        if leaf is not None and _is_valid(leaf, now) and not is_issuer_of(ca.certificate, leaf):
            if not self._injector.trusts(ca.certificate):
                self._trusted_since = None
                return self._policy.propagation
            remaining = self._until_propagated(ca.certificate)
            if remaining > 0:
                return remaining
        self._trusted_since = None
        self._serving.serve(pair)
        return 0.0

    def _until_propagated(self, ca: x509.Certificate) -> float:
        """Return the seconds until all API servers have loaded the bundles, which contain ``ca``."""
        now = self._clock.monotonic()
        if self._trusted_since is None or self._trusted_since[0] != ca:
            self._trusted_since = (ca, now)
        _, since = self._trusted_since
        return since + self._policy.propagation - now


def _is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc
