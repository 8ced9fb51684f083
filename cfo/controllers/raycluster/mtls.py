"""Maintains the CA for mutual TLS between the nodes of a RayCluster, in a Secret.

Nodes and clients sign their own certificates with the content of the Secret (:mod:`cfo.controllers.raycluster.ca`
describes how, and why the key is kept). The Secret belongs to the cluster by its owner reference or labels; a Secret of
that name with another owner is left unchanged, and an Event reports this. A CA that the Go operator created is adopted
and renewed like our own.

A new key is created when the old one is lost, for example with a deleted Secret, or on request: when the value of the
RayCluster's annotation :data:`ROTATE_ANNOTATION` differs from the one on the Secret. Running pods keep the old CA until
they are restarted; an Event asks the user to do so.

The Secret's annotation :data:`RENEWAL_ANNOTATION` says when the certificate is due for renewal, so that a restart of
the operator does not read the content of every Secret (:mod:`cfo.controllers.raycluster.secrets`).
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial

import msgspec
from anyio import to_thread

from cfo.api.raycluster.certificates import (
    CA_LIFETIME,
    RENEWAL_ANNOTATION,
    recorded_renewal,
    requests_certificates,
)
from cfo.api.raycluster.cluster import pod_labels
from cfo.api.raycluster.facts import Actor, Concern, RayClusterFacts
from cfo.config.kuberay import KubeRayConfiguration
from cfo.controllers.raycluster import ca
from cfo.controllers.raycluster.children import Children
from cfo.controllers.raycluster.environment import Environment
from cfo.controllers.raycluster.reconciler import (
    ClusterConcern,
    ObservedCluster,
    record_responsibility,
)
from cfo.controllers.raycluster.resources import desired_secret
from cfo.controllers.raycluster.secrets import ClusterSecrets, secret_informer
from cfo.runtime import (
    READ,
    SECRET,
    Manager,
    NamespacedName,
    Object,
    Request,
    Rule,
    annotations_of,
    key_of,
    rfc3339,
)
from cfo.runtime.pki import PrivateKey

ROTATE_ANNOTATION = "ray.openshift.ai/rotate-ca"
"""On a RayCluster: a new value requests a new key. On the Secret: the value for which its key was created."""

_MAX_RECHECK_INTERVAL = timedelta(days=7)

_REQUESTS_DISABLED = (
    "The pods of the RayCluster request their certificates, but kuberay.ca.issuer in the operator's configuration is "
    "secret, so new pods cannot start. Recreate the RayCluster, or ask the administrator to restore the setting"
)


class _DesiredCA(msgspec.Struct, frozen=True):
    """The desired CA, and the message of the Event to record when the key was replaced.

    ``data`` is that of its Secret, if that differs from the data of a new CA. ``records_renewal`` is whether the Secret
    gets :data:`RENEWAL_ANNOTATION`. A Secret of another version that needs no other change does not get it.
    """

    authority: ca.CertificateAuthority
    note: str = ""
    data: Mapping[str, bytes] = msgspec.field(default_factory=dict)
    records_renewal: bool = True


class MutualTLS(ClusterConcern):
    """Creates, renews and deletes the Secret with ``ca.key`` and ``ca.crt``."""

    name = "raycluster-mtls"
    rules = (
        Rule("ray.io", "rayclusters", READ),
        Rule("", "secrets", (*READ, "create", "patch", "delete")),
    )

    def __init__(
        self, manager: Manager, config: KubeRayConfiguration, environment: Environment
    ) -> None:
        super().__init__(manager, config, environment)
        secrets, content = (
            self.own(secret_informer(manager)).reader,
            (ca.CERTIFICATE_KEY, ca.PRIVATE_KEY_KEY),
        )
        self._secrets = ClusterSecrets(
            self._client, secrets, content=content, valid_until=recorded_renewal
        )

    async def release(self, request: Request, children: Children | None) -> None:
        """Forget what is known about the Secret, which the garbage collector deletes."""
        self._secrets.forget(request)

    async def reconcile(self, children: Children, cluster: ObservedCluster) -> None:
        """Bring the Secret of one cluster up to date; requeue for its renewal."""
        if (
            requests_certificates(children.cluster)
            and self._config.ca.issuer != "certificateSigningRequest"
        ):
            children.record_warning("CertificateRequestsDisabled", _REQUESTS_DISABLED)
        names = cluster.facts.names
        key = NamespacedName(names.namespace, names.ca_secret)
        if not _needs_ca(children, cluster.settings.kuberay):
            self._secrets.forget(key_of(children.cluster))
            await children.delete(SECRET, self._secrets.informer.get(key))
            return
        renewal_due = self._secrets.known_validity(children, _secret(children.facts, key.name, {}))
        now = self._clock.now()
        if renewal_due is None or not now < renewal_due <= now + CA_LIFETIME:
            renewal_due = await self._write(children, key)
        if renewal_due is not None:
            wait = min(renewal_due - self._clock.now(), _MAX_RECHECK_INTERVAL)
            children.retry(max(wait.total_seconds(), 1.0))

    async def _write(self, children: Children, key: NamespacedName) -> datetime | None:
        """Read the Secret, bring it up to date, and return when it is due for renewal; ``None`` if it has no CA."""
        cluster = children.cluster
        current = await self._secrets.read(key)
        was_deleted = current is None and (
            self._secrets.was_verified(key_of(cluster)) or _has_running_head(children.facts)
        )
        note = _restart_note(cluster, f"the Secret {key.name} was deleted") if was_deleted else ""
        desired: _DesiredCA | None = None

        async def desired_from(existing: Object | None) -> Object:
            nonlocal desired
            desired = await (
                self._desired_ca(cluster, existing) if existing else self._new_ca(note)
            )
            return _secret(
                children.facts, key.name, desired.data or desired.authority.data(), desired
            )

        consequence = "the cluster has no CA, so mutual TLS does not work"
        stored = await children.create_or_update(
            SECRET, key.name, current, desired_from, consequence, trust_labels=False
        )
        if stored is None or desired is None:
            return None
        self._secrets.remember(key_of(cluster), stored, desired.authority.renewal_due)
        if desired.note:
            children.record_warning("CertificateAuthorityReplaced", desired.note)
        return desired.authority.renewal_due

    async def _new_ca(self, note: str) -> _DesiredCA:
        return _DesiredCA(await self._create(self._clock.now()), note)

    async def _desired_ca(self, cluster: Object, existing: Object) -> _DesiredCA:
        now = self._clock.now()
        requested = annotations_of(cluster).get(ROTATE_ANNOTATION)
        if requested is not None and requested != annotations_of(existing).get(ROTATE_ANNOTATION):
            note = _restart_note(cluster, f"the annotation {ROTATE_ANNOTATION} requested it")
            return await self._new_ca(note)
        stored = existing.get("data") or {}
        data = {
            key: b64decode(stored.get(key) or "")
            for key in (ca.CERTIFICATE_KEY, ca.PRIVATE_KEY_KEY)
        }
        try:
            authority = ca.load(data[ca.CERTIFICATE_KEY], data[ca.PRIVATE_KEY_KEY])
        except ca.InvalidCertificateAuthority as error:
            return _DesiredCA(
                await self._create(now, error.key), _restart_note(cluster, str(error))
            )
        if now < authority.renewal_due:
            return _DesiredCA(
                authority, data=data, records_renewal=RENEWAL_ANNOTATION in annotations_of(existing)
            )
        renewed = ca.renew(authority, now=now)
        return _DesiredCA(
            renewed, data={**data, ca.CERTIFICATE_KEY: renewed.data()[ca.CERTIFICATE_KEY]}
        )

    async def _create(
        self, now: datetime, key: PrivateKey | None = None
    ) -> ca.CertificateAuthority:
        create = partial(ca.create, self._config.ca.key_algorithm, now=now, key=key)
        # Generating an RSA key blocks for a tenth of a second or more, so it runs in a thread; generating a P-256 key
        # takes less time than switching to one.
        return (
            await to_thread.run_sync(create) if self._config.ca.key_algorithm == "rsa" else create()
        )


def _needs_ca(children: Children, config: KubeRayConfiguration) -> bool:
    if not config.mtls_enabled:
        return False
    features = config.kuberay_features
    actor = children.facts.actor(Concern.MTLS, features)
    if actor not in (Actor.OPERATOR, Actor.MULTIKUEUE) and children.facts.has_injected_tls:
        return True  # its pods cannot start without the Secret
    return record_responsibility(children, Concern.MTLS, features, "mutual TLS") is Actor.OPERATOR


def _secret(
    facts: RayClusterFacts, name: str, data: Mapping[str, bytes], desired: _DesiredCA | None = None
) -> Object:
    secret = desired_secret(facts, name, data)
    annotations = {}
    requested = annotations_of(facts.cluster).get(ROTATE_ANNOTATION)
    if requested is not None:
        annotations[ROTATE_ANNOTATION] = requested
    if desired is not None and desired.records_renewal:
        annotations[RENEWAL_ANNOTATION] = rfc3339(desired.authority.renewal_due)
    if annotations:
        secret["metadata"]["annotations"] = annotations
    return secret


def _has_running_head(facts: RayClusterFacts) -> bool:
    """Return whether the head pod runs with a certificate: it cannot start without the CA's Secret."""
    head = (facts.cluster.get("status") or {}).get("head") or {}
    return bool(head.get("podIP")) and facts.has_injected_tls


def _restart_note(cluster: Object, cause: str) -> str:
    selector = ",".join(f"{key}={value}" for key, value in pod_labels(cluster).items())
    return (
        f"The CA was replaced because {cause}. Restart the pods with the labels {selector}, which still use the "
        "old CA, and regenerate the client certificates"
    )
