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
from datetime import datetime, timedelta
from functools import partial

from anyio import to_thread

from cfo.api.raycluster.cluster import pod_labels, uses_kuberay_tls
from cfo.api.raycluster.kinds import RAY_CLUSTER, SECRET
from cfo.api.raycluster.naming import names_of
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster import ca
from cfo.controllers.raycluster.children import Children, Taken
from cfo.controllers.raycluster.resources import desired_secret
from cfo.runtime.cache.informer import Reader
from cfo.runtime.client.client import Client
from cfo.runtime.clock import Clock
from cfo.runtime.events import EventRecorder
from cfo.runtime.objects import NamespacedName, Object, annotations_of, is_deleting, namespace_of
from cfo.runtime.reconcile import READ, Request, Result, Rule

__all__ = ["ROTATE_ANNOTATION", "MTLSReconciler"]

ROTATE_ANNOTATION = "ray.openshift.ai/rotate-ca"
"""On a RayCluster: a new value asks for a new key. On the Secret: the value that its key was made for."""

_LOOK_AGAIN_AT_MOST = timedelta(days=7)


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
        note = ""

        async def desired(existing: Object | None) -> Object:
            nonlocal note
            data, note = await self._content(cluster, existing)
            return _secret(cluster, key.name, data)

        try:
            stored = await children.claim(key, SECRET, current, desired)
        except Taken as taken:
            children.taken(taken, "there is no certificate authority, and no mTLS")
            return children.result()
        if stored is None:
            return children.result()
        if note:
            children.warn("CertificateAuthorityReplaced", note)
        wait = min(_load(stored).renewal_due - self._clock.now(), _LOOK_AGAIN_AT_MOST)
        return children.result(requeue_after=max(wait.total_seconds(), 1.0))

    async def _content(self, cluster: Object, existing: Object | None) -> tuple[Mapping[str, bytes], str]:
        """What the Secret is to hold now, and what to tell when that is another authority than before."""
        now = self._clock.now()
        if existing is None:
            return (await self._new(now)).data(), ""
        asked = annotations_of(cluster).get(ROTATE_ANNOTATION)
        if asked is not None and asked != annotations_of(existing).get(ROTATE_ANNOTATION):
            return (await self._new(now)).data(), _restart(cluster, "as the annotation asks for")
        stored = _content_of(existing)
        try:
            kept = _load(existing)
        except ca.Broken as broken:
            fresh = await self._new(now, broken.key)
            return fresh.data(), _restart(cluster, f"for {broken}")
        if now < kept.renewal_due:
            return stored, ""
        return {**stored, ca.CERTIFICATE_KEY: ca.renew(kept, now=now).data()[ca.CERTIFICATE_KEY]}, ""

    async def _new(self, now: datetime, key: ca.PrivateKey | None = None) -> ca.Authority:
        # an RSA key takes a tenth of a second or more, in which nothing else would happen
        make = partial(ca.create, self._config.ca.key_algorithm, now=now, key=key)
        return await to_thread.run_sync(make)


def _secret(cluster: Object, name: str, data: Mapping[str, bytes]) -> Object:
    secret = desired_secret(cluster, name, data)
    asked = annotations_of(cluster).get(ROTATE_ANNOTATION)
    if asked is not None:
        secret["metadata"]["annotations"] = {ROTATE_ANNOTATION: asked}
    return secret


def _content_of(secret: Object) -> dict[str, bytes]:
    data = secret.get("data") or {}
    return {key: b64decode(data.get(key) or "") for key in (ca.CERTIFICATE_KEY, ca.PRIVATE_KEY_KEY)}


def _load(secret: Object) -> ca.Authority:
    content = _content_of(secret)
    return ca.load(content[ca.CERTIFICATE_KEY], content[ca.PRIVATE_KEY_KEY])


def _restart(cluster: Object, cause: str) -> str:
    selector = ",".join(f"{key}={value}" for key, value in pod_labels(cluster).items())
    return (
        f"The certificate authority was made anew, {cause}: restart the pods with the labels {selector}, "
        "which keep the old one, and fetch client certificates again"
    )
