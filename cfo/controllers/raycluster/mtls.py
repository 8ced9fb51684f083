"""mTLS between the nodes of a RayCluster: keeps its certificate authority in a Secret.

Nodes and clients sign for themselves with what the Secret holds (:mod:`cfo.controllers.raycluster.ca` says how, and
why the key stays). The Secret is the cluster's when its owner reference or labels say so; somebody else's Secret of
that name is left alone, and an Event says so. An authority of the Go operator is taken over, and renewed like ours.

A new key is made when the old one is lost, or on request: when the RayCluster's annotation
:data:`ROTATE_ANNOTATION` gets a value other than the one that the Secret carries. Pods that run keep the old one
until they are restarted, which an Event asks for.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from anyio import to_thread

from cfo.api.raycluster.cluster import pod_labels, uses_kuberay_tls
from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.api.raycluster.naming import names_of
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster import ca
from cfo.controllers.raycluster.children import Children, Taken
from cfo.controllers.raycluster.resources import desired_secret
from cfo.runtime.cache.informer import Reader
from cfo.runtime.client.client import Client
from cfo.runtime.clock import Clock
from cfo.runtime.events import EventRecorder
from cfo.runtime.kinds import SECRET
from cfo.runtime.objects import NamespacedName, Object, annotations_of, is_deleting, namespace_of
from cfo.runtime.private_keys import PrivateKey
from cfo.runtime.reconcile import READ, Request, Result, Rule

__all__ = ["ROTATE_ANNOTATION", "MTLSReconciler"]

ROTATE_ANNOTATION = "ray.openshift.ai/rotate-ca"
"""On a RayCluster: a new value asks for a new key. On the Secret: the value that its key was made for."""

_LOOK_AGAIN_AT_MOST = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The authority that is to be, what its Secret holds, and what to tell when it is another than before."""

    authority: ca.Authority
    data: Mapping[str, bytes]
    note: str = ""

    @classmethod
    def anew(cls, authority: ca.Authority, note: str = "") -> _Wanted:
        return cls(authority, authority.data(), note)


class MTLSReconciler:
    """Makes, renews and removes the Secret with ``ca.key`` and ``ca.crt``.

    ``secrets`` reads the Secrets that carry a cluster label.
    """

    rules = (
        Rule("ray.io", "rayclusters", READ),
        Rule("", "secrets", (*READ, "create", "patch", "delete")),
    )

    def __init__(
        self, client: Client, events: EventRecorder, clock: Clock, config: KubeRayConfiguration, secrets: Reader
    ) -> None:
        self._client = client
        self._events = events
        self._clock = clock
        self._config = config
        self._secrets = secrets

    async def reconcile(self, request: Request) -> Result:
        """Brings the Secret of one cluster up to date; comes back when it is to be renewed."""
        cluster = await self._client.get(RAY_CLUSTER, request)
        if cluster is None or is_deleting(cluster):
            return Result()
        children = Children(self._client, self._events, cluster)
        key = NamespacedName(namespace_of(cluster), names_of(cluster).ca_secret)
        current = self._secrets.get(key)
        if not self._config.mtls_enabled or uses_kuberay_tls(cluster):
            if self._config.mtls_enabled:
                children.tell("MTLSByKubeRay", "KubeRay's own tlsOptions are used: no CA is kept for this cluster")
            await children.delete(SECRET, current)
            return children.result()
        wanted: _Wanted | None = None

        async def desired(existing: Object | None) -> Object:
            nonlocal wanted
            wanted = await self._wanted(cluster, existing)
            return _secret(cluster, key.name, wanted.data)

        try:
            stored = await children.claim(key, SECRET, current, desired)
        except Taken as taken:
            children.taken(taken, "there is no certificate authority, and no mTLS")
            return children.result()
        if stored is None or wanted is None:
            return children.result()
        if wanted.note:
            children.warn("CertificateAuthorityReplaced", wanted.note)
        wait = min(wanted.authority.renewal_due - self._clock.now(), _LOOK_AGAIN_AT_MOST)
        return children.result(requeue_after=max(wait.total_seconds(), 1.0))

    async def _wanted(self, cluster: Object, existing: Object | None) -> _Wanted:
        """What the Secret is to hold now."""
        now = self._clock.now()
        if existing is None:
            return _Wanted.anew(await self._new(now))
        asked = annotations_of(cluster).get(ROTATE_ANNOTATION)
        if asked is not None and asked != annotations_of(existing).get(ROTATE_ANNOTATION):
            return _Wanted.anew(await self._new(now), _restart(cluster, "as the annotation asks for"))
        stored = _content_of(existing)
        try:
            kept = ca.load(stored[ca.CERTIFICATE_KEY], stored[ca.PRIVATE_KEY_KEY])
        except ca.Broken as broken:
            return _Wanted.anew(await self._new(now, broken.key), _restart(cluster, f"for {broken}"))
        if now < kept.renewal_due:
            return _Wanted(kept, stored)
        renewed = ca.renew(kept, now=now)
        return _Wanted(renewed, {**stored, ca.CERTIFICATE_KEY: renewed.data()[ca.CERTIFICATE_KEY]})

    async def _new(self, now: datetime, key: PrivateKey | None = None) -> ca.Authority:
        make = partial(ca.create, self._config.ca.key_algorithm, now=now, key=key)
        # an RSA key takes a tenth of a second or more, in which nothing else would happen; a P-256 key takes less than
        # going to another thread
        return await to_thread.run_sync(make) if self._config.ca.key_algorithm == "rsa" else make()


def _secret(cluster: Object, name: str, data: Mapping[str, bytes]) -> Object:
    secret = desired_secret(cluster, name, data)
    asked = annotations_of(cluster).get(ROTATE_ANNOTATION)
    if asked is not None:
        secret["metadata"]["annotations"] = {ROTATE_ANNOTATION: asked}
    return secret


def _content_of(secret: Object) -> dict[str, bytes]:
    data = secret.get("data") or {}
    return {key: b64decode(data.get(key) or "") for key in (ca.CERTIFICATE_KEY, ca.PRIVATE_KEY_KEY)}


def _restart(cluster: Object, cause: str) -> str:
    selector = ",".join(f"{key}={value}" for key, value in pod_labels(cluster).items())
    return (
        f"The certificate authority was made anew, {cause}: restart the pods with the labels {selector}, "
        "which keep the old one, and fetch client certificates again"
    )
