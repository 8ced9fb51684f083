"""Maintains the CA for mutual TLS between the nodes of a RayCluster, in a Secret.

Nodes and clients sign their own certificates with the content of the Secret (:mod:`cfo.controllers.raycluster.ca`
describes how, and why the key is kept). The Secret belongs to the cluster by its owner reference or labels; a Secret of
that name with another owner is left unchanged, and an Event reports this. A CA that the Go operator created is adopted
and renewed like our own.

A new key is created when the old one is lost, or on request: when the value of the RayCluster's annotation
:data:`ROTATE_ANNOTATION` differs from the one on the Secret. Running pods keep the old CA until they are restarted; an
Event asks the user to do so.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from anyio import to_thread

from cfo.api.raycluster.cluster import has_injected_tls, pod_labels, uses_kuberay_tls
from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.api.raycluster.naming import CLUSTER_LABEL, FIELD_MANAGER, names_of
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster import ca
from cfo.controllers.raycluster.children import Children, NameConflict
from cfo.controllers.raycluster.predicates import CLUSTER_CHANGED
from cfo.controllers.raycluster.resources import desired_secret
from cfo.runtime import (
    READ,
    SECRET,
    Builder,
    Client,
    Clock,
    EventRecorder,
    Manager,
    NamespacedName,
    Object,
    PrivateKey,
    Reader,
    Request,
    Result,
    Rule,
    annotations_of,
    is_deleting,
    namespace_of,
)

__all__ = ["ROTATE_ANNOTATION", "MTLSReconciler", "setup"]

ROTATE_ANNOTATION = "ray.openshift.ai/rotate-ca"
"""On a RayCluster: a new value requests a new key. On the Secret: the value for which its key was created."""

_MAX_RECHECK_INTERVAL = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class _DesiredCA:
    """The desired CA, the data of its Secret, and the message of the Event to record when the key was replaced."""

    authority: ca.CertificateAuthority
    data: Mapping[str, bytes]
    note: str = ""

    @classmethod
    def new(cls, authority: ca.CertificateAuthority, note: str = "") -> _DesiredCA:
        return cls(authority, authority.data(), note)


class MTLSReconciler:
    """Creates, renews and deletes the Secret with ``ca.key`` and ``ca.crt``.

    ``secrets`` reads the Secrets that have a cluster label.
    """

    rules = (
        Rule("ray.io", "rayclusters", READ),
        Rule("", "secrets", (*READ, "create", "patch", "delete")),
    )

    def __init__(
        self, client: Client, events: EventRecorder, config: KubeRayConfiguration, clock: Clock, secrets: Reader
    ) -> None:
        self._client = client
        self._events = events
        self._config = config
        self._clock = clock
        self._secrets = secrets

    async def reconcile(self, request: Request) -> Result:
        """Bring the Secret of one cluster up to date; requeue for its renewal."""
        cluster = await self._client.get(RAY_CLUSTER, request)
        if cluster is None or is_deleting(cluster):
            return Result()
        children = Children(self._client, self._events, cluster)
        key = NamespacedName(namespace_of(cluster), names_of(cluster).ca_secret)
        current = self._secrets.get(key)
        if not self._needs_ca(children):
            await children.delete(SECRET, current)
            return children.result()
        desired: _DesiredCA | None = None

        async def desired_from(existing: Object | None) -> Object:
            nonlocal desired
            desired = await self._desired_ca(cluster, existing)
            return _secret(cluster, key.name, desired.data)

        try:
            stored = await children.create_or_update(key, SECRET, current, desired_from, trust_labels=False)
        except NameConflict as error:
            children.report_name_conflict(error, "the cluster has no CA, so mutual TLS does not work")
            return children.result()
        if stored is None or desired is None:
            return children.result()
        if desired.note:
            children.record_warning("CertificateAuthorityReplaced", desired.note)
        wait = min(desired.authority.renewal_due - self._clock.now(), _MAX_RECHECK_INTERVAL)
        return children.result(requeue_after=max(wait.total_seconds(), 1.0))

    def _needs_ca(self, children: Children) -> bool:
        if not self._config.mtls_enabled:
            return False
        if not uses_kuberay_tls(children.cluster):
            return True
        if has_injected_tls(children.cluster):
            return True  # its pods cannot start without the Secret
        if "tlsOptions" not in self._config.kuberay_features:
            children.record_unconfirmed_feature("tlsOptions", "CA")
            return True
        children.record_normal(
            "MTLSByKubeRay", "The RayCluster uses KubeRay's tlsOptions, so the operator maintains no CA for it"
        )
        return False

    async def _desired_ca(self, cluster: Object, existing: Object | None) -> _DesiredCA:
        now = self._clock.now()
        if existing is None:
            return _DesiredCA.new(await self._create(now))
        requested = annotations_of(cluster).get(ROTATE_ANNOTATION)
        if requested is not None and requested != annotations_of(existing).get(ROTATE_ANNOTATION):
            note = _restart_note(cluster, f"the annotation {ROTATE_ANNOTATION} requested it")
            return _DesiredCA.new(await self._create(now), note)
        data = _data_of(existing)
        try:
            authority = ca.load(data[ca.CERTIFICATE_KEY], data[ca.PRIVATE_KEY_KEY])
        except ca.InvalidCertificateAuthority as error:
            return _DesiredCA.new(await self._create(now, error.key), _restart_note(cluster, str(error)))
        if now < authority.renewal_due:
            return _DesiredCA(authority, data)
        renewed = ca.renew(authority, now=now)
        return _DesiredCA(renewed, {**data, ca.CERTIFICATE_KEY: renewed.data()[ca.CERTIFICATE_KEY]})

    async def _create(self, now: datetime, key: PrivateKey | None = None) -> ca.CertificateAuthority:
        create = partial(ca.create, self._config.ca.key_algorithm, now=now, key=key)
        # Generating an RSA key blocks for a tenth of a second or more, so it runs in a thread; generating a P-256 key
        # takes less time than switching to one.
        return await to_thread.run_sync(create) if self._config.ca.key_algorithm == "rsa" else create()


def _secret(cluster: Object, name: str, data: Mapping[str, bytes]) -> Object:
    secret = desired_secret(cluster, name, data)
    requested = annotations_of(cluster).get(ROTATE_ANNOTATION)
    if requested is not None:
        secret["metadata"]["annotations"] = {ROTATE_ANNOTATION: requested}
    return secret


def _data_of(secret: Object) -> dict[str, bytes]:
    data = secret.get("data") or {}
    return {key: b64decode(data.get(key) or "") for key in (ca.CERTIFICATE_KEY, ca.PRIVATE_KEY_KEY)}


def _restart_note(cluster: Object, cause: str) -> str:
    selector = ",".join(f"{key}={value}" for key, value in pod_labels(cluster).items())
    return (
        f"The CA was replaced because {cause}. Restart the pods with the labels {selector}, which still use the "
        "old CA, and regenerate the client certificates"
    )


def setup(manager: Manager, config: KubeRayConfiguration) -> None:
    """Add the controller of CAs to ``manager``."""
    name = "raycluster-mtls"
    reconciler = MTLSReconciler(
        manager.client.with_field_manager(FIELD_MANAGER),
        manager.events(name),
        config,
        manager.clock,
        manager.cache.informer(SECRET, label_selector=CLUSTER_LABEL).reader,
    )
    (
        Builder(manager, name)
        .for_(RAY_CLUSTER, CLUSTER_CHANGED)
        .owns(SECRET, label_selector=CLUSTER_LABEL)
        .complete(reconciler)
    )
