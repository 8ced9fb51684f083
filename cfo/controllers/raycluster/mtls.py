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

from cfo.api.raycluster.certificates import (
    CA_LIFETIME,
    RENEWAL_ANNOTATION,
    recorded_renewal,
    requests_certificates,
)
from cfo.api.raycluster.cluster import pod_labels
from cfo.api.raycluster.conditions import MUTUAL_TLS
from cfo.api.raycluster.facts import Actor, Concern, RayClusterFacts
from cfo.config.kuberay import CAConfiguration, KubeRayConfiguration
from cfo.controllers.raycluster import ca
from cfo.controllers.raycluster.concern import (
    ClusterConcern,
    Decision,
    ObservedCluster,
)
from cfo.controllers.raycluster.environment import ClusterEnvironment
from cfo.controllers.raycluster.resources import desired_secret
from cfo.controllers.raycluster.responsibility import find_actor
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
from cfo.runtime.client import ChildResults
from cfo.runtime.pki import PrivateKey

ROTATE_ANNOTATION = "ray.openshift.ai/rotate-ca"
"""On a RayCluster: a new value requests a new key. On the Secret: the value for which its key was created."""

_MAX_RECHECK_INTERVAL = timedelta(days=7)

_RENEWED_AFTER = CA_LIFETIME * 2 / 3
"""How long after the start of its validity a certificate is renewed."""

_REQUESTS_DISABLED = (
    "The pods of the RayCluster request their certificates, but kuberay.ca.issuer in the operator's configuration is "
    "secret, so new pods cannot start. Recreate the RayCluster, or ask the administrator to restore the setting"
)


class ObservedSecret(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about the Secret of a RayCluster's CA.

    ``renewal_due`` is ``None`` if the Secret has to be read or written. ``was_verified``: this process has verified its
    content before. ``is_cached``: it exists.
    """

    renewal_due: datetime | None
    was_verified: bool
    is_cached: bool
    now: datetime


class MutualTLS(ClusterConcern[ObservedSecret]):
    """Creates, renews and deletes the Secret with ``ca.key`` and ``ca.crt``."""

    name = "raycluster-mtls"
    condition = MUTUAL_TLS
    rules = (
        Rule("ray.io", "rayclusters", READ),
        Rule("", "secrets", (*READ, "create", "patch", "delete")),
    )

    def __init__(
        self, manager: Manager, config: KubeRayConfiguration, environment: ClusterEnvironment
    ) -> None:
        super().__init__(manager, config, environment)
        self._secrets = ClusterSecrets(
            self.own(secret_informer(manager)).reader,
            content=(ca.CERTIFICATE_FIELD, ca.PRIVATE_KEY_FIELD),
            valid_until=recorded_renewal,
        )

    def forget(self, request: Request) -> None:
        """Forget what is known about the Secret, which the garbage collector deletes."""
        self._secrets.forget(request)

    async def observe(self, cluster: ObservedCluster) -> ObservedSecret:
        """Return what is known about the Secret."""
        key = key_of(cluster.object)
        return ObservedSecret(
            renewal_due=self._secrets.known_validity(cluster.object, _secret(cluster.facts, {})),
            was_verified=self._secrets.was_verified(key),
            is_cached=self._secrets.informer.contains(_key(cluster.facts)),
            now=self._clock.now(),
        )

    def decide(self, cluster: ObservedCluster, found: ObservedSecret) -> Decision:
        """Return the Secret of one cluster."""
        return decide_ca(
            cluster.facts, cluster.settings.kuberay, self._config.ca, found, self._secrets
        )


def decide_ca(
    facts: RayClusterFacts,
    config: KubeRayConfiguration,
    authority: CAConfiguration,
    found: ObservedSecret,
    secrets: ClusterSecrets,
) -> Decision:
    """Return the Secret with the CA of a cluster; ``secrets`` remembers what was written."""
    decision = Decision(cluster=facts.cluster)
    key = key_of(facts.cluster)
    issues_certificates = authority.issuer == "certificateSigningRequest"
    if requests_certificates(facts.cluster) and not issues_certificates:
        decision.warn("CertificateRequestsDisabled", _REQUESTS_DISABLED)
    if not _needs_ca(decision, facts, config):
        secrets.forget(key)
        decision.add_absent(SECRET, _key(facts))
        return decision
    due = found.renewal_due
    # A certificate that is due later is not valid yet, so it is read.
    if due is not None and found.now < due <= found.now + _RENEWED_AFTER:
        decision.retry(_wait(due, found.now))
        return decision
    was_deleted = not found.is_cached and (found.was_verified or _has_running_head(facts))
    content = DesiredSecret(facts, authority, found.now, was_deleted=was_deleted)
    decision.add_computed(
        SECRET,
        _key(facts),
        content.compute,
        # Generating an RSA key blocks for a tenth of a second or more; generating a P-256 key takes less time than
        # switching to a thread.
        in_thread=authority.key_algorithm == "rsa",
        consequence="the cluster has no CA, so mutual TLS does not work",
    )
    decision.decide_next = partial(_conclude, facts, content, secrets)
    return decision


def _conclude(
    facts: RayClusterFacts, content: DesiredSecret, secrets: ClusterSecrets, results: ChildResults
) -> Decision | None:
    """Remember the Secret that was written, report a replaced CA, and schedule the renewal."""
    stored = results.stored(SECRET, _key(facts))
    if stored is None or content.authority is None:
        return None
    due = content.authority.renewal_due
    secrets.remember(key_of(facts.cluster), stored, due)
    decision = Decision(cluster=facts.cluster)
    if content.note:
        decision.warn("CertificateAuthorityReplaced", content.note)
    decision.retry(_wait(due, content.now))
    return decision


def _wait(due: datetime, now: datetime) -> float:
    """Return the seconds until the next check."""
    return max(min(due - now, _MAX_RECHECK_INTERVAL).total_seconds(), 1.0)


class DesiredSecret:
    """Computes the Secret from the existing one.

    ``authority`` is the CA of the last result, and ``note`` the message of the Event to record if its key was replaced.
    """

    def __init__(
        self,
        facts: RayClusterFacts,
        config: CAConfiguration,
        now: datetime,
        *,
        was_deleted: bool = False,
    ) -> None:
        self.authority: ca.ClusterCA | None = None
        self.note = ""
        self.now = now
        self._facts = facts
        self._algorithm = config.key_algorithm
        self._was_deleted = was_deleted

    def compute(self, existing: Object | None) -> Object:
        """Return the desired Secret; the key of a usable CA is kept."""
        if existing is None and self._was_deleted:
            return self._replaced(f"the Secret {self._facts.names.ca_secret} was deleted")
        if existing is None:
            return self._replaced("")
        requested = annotations_of(self._facts.cluster).get(ROTATE_ANNOTATION)
        if requested is not None and requested != annotations_of(existing).get(ROTATE_ANNOTATION):
            return self._replaced(f"the annotation {ROTATE_ANNOTATION} requested it")
        stored = existing.get("data") or {}
        certificate = b64decode(stored.get(ca.CERTIFICATE_FIELD) or "")
        key = b64decode(stored.get(ca.PRIVATE_KEY_FIELD) or "")
        try:
            authority = ca.load(certificate, key)
        except ca.InvalidCertificateAuthority as error:
            return self._replaced(str(error), error.key)
        self.note = ""
        # It is not valid yet if the clock was ahead when it was created.
        is_early = self.now < authority.certificate.not_valid_before_utc
        if self.now < authority.renewal_due and not is_early:
            self.authority = authority
            # A Secret of another version that needs no other change does not get the annotation.
            is_recorded = RENEWAL_ANNOTATION in annotations_of(existing)
            renewal_due = authority.renewal_due if is_recorded else None
            data = {ca.CERTIFICATE_FIELD: certificate, ca.PRIVATE_KEY_FIELD: key}
            return _secret(self._facts, data, renewal_due)
        if is_early:
            self.note = _restart_note(self._facts.cluster, "its certificate was not valid yet")
        self.authority = ca.renew(authority, now=self.now)
        renewed = self.authority.data()[ca.CERTIFICATE_FIELD]
        data = {ca.CERTIFICATE_FIELD: renewed, ca.PRIVATE_KEY_FIELD: key}
        return _secret(self._facts, data, self.authority.renewal_due)

    def _replaced(self, cause: str, key: PrivateKey | None = None) -> Object:
        """Return the Secret with a new CA, which has ``key`` if it is given; ``cause`` is for the user."""
        self.authority = ca.create(self._algorithm, now=self.now, key=key)
        self.note = _restart_note(self._facts.cluster, cause) if cause else ""
        return _secret(self._facts, self.authority.data(), self.authority.renewal_due)


def _key(facts: RayClusterFacts) -> NamespacedName:
    return NamespacedName(facts.names.namespace, facts.names.ca_secret)


def _needs_ca(decision: Decision, facts: RayClusterFacts, config: KubeRayConfiguration) -> bool:
    if not config.mtls_enabled:
        return False
    features = config.kuberay_features
    actor = facts.actor(Concern.MTLS, features)
    if actor not in (Actor.OPERATOR, Actor.MULTIKUEUE) and facts.has_injected_tls:
        return True  # its pods cannot start without the Secret
    provider = find_actor(decision, facts, Concern.MTLS, features, "mutual TLS")
    return provider is Actor.OPERATOR


def _secret(
    facts: RayClusterFacts, data: Mapping[str, bytes], renewal_due: datetime | None = None
) -> Object:
    secret = desired_secret(facts, facts.names.ca_secret, data)
    annotations = {}
    requested = annotations_of(facts.cluster).get(ROTATE_ANNOTATION)
    if requested is not None:
        annotations[ROTATE_ANNOTATION] = requested
    if renewal_due is not None:
        annotations[RENEWAL_ANNOTATION] = rfc3339(renewal_due)
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
