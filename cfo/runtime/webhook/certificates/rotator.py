"""Keeps the Secret, what API servers trust, and what is served in step; the same on every replica.

One level-triggered reconcile of all of it, called by every change of the Secret and of the configurations, and when
time has passed. The Secret is the truth that replicas share: who comes second, with its own idea of a new
authority, loses the race for the write and takes what is there.

The order is what makes a rotation safe: the Secret first, then the configurations (which trust the former
authorities too), last the certificate that is served, and that only when all configurations have trusted its authority
for a while. Whoever has nothing good to serve does not wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import structlog
from cryptography import x509

from cfo.runtime.cache.cache import Cache
from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import AlreadyExists
from cfo.runtime.clock import Clock
from cfo.runtime.kinds import SECRET
from cfo.runtime.objects import Object, resource_version_of
from cfo.runtime.reconcile import Request, Result
from cfo.runtime.webhook.certificates.announcer import Announcer
from cfo.runtime.webhook.certificates.certificate_authority import (
    Authority,
    Material,
    Stored,
    advance,
    covers,
    issue,
    read,
    renewal,
    vouches,
)
from cfo.runtime.webhook.certificates.serving import KeyPair, ServingCertificate
from cfo.runtime.webhook.options import RotatedCertificates, WebhookOptions

__all__ = ["SECRET", "CertificateRotator"]


_LOOK_AGAIN: Final = 3600.0  # seconds: long timers do not notice that the clock was set, or the machine slept

_log = structlog.get_logger("cfo.runtime.webhook.certificates")


class CertificateRotator:
    """A reconciler of one thing: the certificates of this process's webhooks."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        announcer: Announcer,
        serving: ServingCertificate,
        policy: RotatedCertificates,
        options: WebhookOptions,
        clock: Clock,
    ) -> None:
        self._client = client
        self._announcer = announcer
        self._serving = serving
        self._policy = policy
        self._options = options
        self._clock = clock
        self.secret = cache.informer(
            SECRET, namespace=policy.secret.namespace, field_selector=f"metadata.name={policy.secret.name}"
        )
        self.failure = ""
        self._material: Material | None = None
        self._own: tuple[x509.Certificate, KeyPair] | None = None
        self._trusted_since: tuple[x509.Certificate, float] | None = None

    @property
    def bundle(self) -> bytes | None:
        """What API servers shall trust (PEM); ``None`` while that is not known."""
        return self._material.bundle if self._material is not None else None

    async def reconcile(self, request: Request) -> Result:
        """Puts everything in order, and says when to look again."""
        try:
            result = await self._reconcile()
        except Exception as error:
            self.failure = str(error)
            raise
        self.failure = ""
        return result

    async def _reconcile(self) -> Result:
        now = self._clock.now()
        material = await self._keep_secret(now)
        pair = self._pair(material, now)
        self._serve(pair, material.authority, now)
        await self._announcer.announce(material.bundle)
        wait = self._serve(pair, material.authority, now)
        until = (min(material.next_change(self._policy), renewal(pair.leaf)) - now).total_seconds()
        return Result(requeue_after=min(seconds for seconds in (until, wait, _LOOK_AGAIN) if seconds > 0))

    async def _keep_secret(self, now: datetime) -> Material:
        """Makes the Secret good, if it is not; returns what is in it."""
        key = self._policy.secret
        secret = self.secret.reader.get(key)
        stored = read(secret.get("data") or {}) if secret is not None else Stored(problems=("it does not exist",))
        material, reasons = advance(
            stored,
            self._policy,
            self._options.service.dns_names,
            now=now,
            trusted=self._trusted_until_now(),
            served=self._serving.leaf,
        )
        if reasons:
            try:
                await self._write(secret, material)
            except AlreadyExists:
                # Another replica was faster; the answer goes into the cache, and the next look sees it.
                if await self._client.get(SECRET, key, live=True) is None:
                    raise
                return await self._keep_secret(now)
            _log.info("wrote the webhook certificates", secret=str(key), reasons=reasons)
        self._material = material
        return material

    def _trusted_until_now(self) -> Sequence[bytes]:
        own = [self._material.bundle] if self._material is not None else []
        return [*own, *self._announcer.bundles()]

    async def _write(self, secret: Object | None, material: Material) -> None:
        key = self._policy.secret
        if secret is None:
            await self._client.create(
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {"namespace": key.namespace, "name": key.name},
                    "type": "Opaque",
                    "data": material.data(),
                }
            )
        else:
            metadata = {"resourceVersion": resource_version_of(secret)}
            await self._client.patch(SECRET, key, {"metadata": metadata, "data": material.data()})

    def _pair(self, material: Material, now: datetime) -> KeyPair:
        """The pair to serve: that of the Secret, or one of our own for an address that it does not name."""
        names = self._options.names
        if covers(material.pair.leaf).issuperset(names):
            return material.pair
        authority = material.authority
        if self._own is None or self._own[0] != authority.certificate or now >= renewal(self._own[1].leaf):
            self._own = authority.certificate, issue(authority, names, self._policy, now=now)
        return self._own[1]

    def _serve(self, pair: KeyPair, authority: Authority, now: datetime) -> float:
        """Serves ``pair`` as soon as that does no harm; returns the seconds until then, or 0."""
        if pair == self._serving.pair:
            return 0.0
        leaf = self._serving.leaf
        trusted = authority.certificate
        if leaf is not None and now < leaf.not_valid_after_utc and not vouches(trusted, leaf):
            if not self._announcer.trusts(trusted):
                self._trusted_since = None
                return self._policy.propagation
            if self._trusted_since is None or self._trusted_since[0] != trusted:
                self._trusted_since = trusted, self._clock.monotonic()
            remaining = self._trusted_since[1] + self._policy.propagation - self._clock.monotonic()
            if remaining > 0:
                return remaining
        self._trusted_since = None
        self._serving.serve(pair)
        return 0.0
