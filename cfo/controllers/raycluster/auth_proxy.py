"""Maintains the Secrets of the proxies: cookie keys and, for the operator's own, settings and serving certificate.

The Secret of the cookie key also contains the settings of kube-rbac-proxy, which reads them from a file. Both are in
one Secret because users who are allowed to change one gain nothing by changing the other, and the operator then needs
no permission for ConfigMaps.

On vanilla Kubernetes no one issues a certificate for a Service, so the operator does: the Secret of the certificate has
a CA of its own, with which Ingress controllers and Gateways can verify it. Its lifetime is long because oauth2-proxy
reads its certificate only at its start. A renewal keeps the CA as long as possible, so that running pods trust the new
certificate. An annotation of the Secret contains the CA, so that a policy is written without reading the Secret.
"""

from __future__ import annotations

import json
import secrets as random
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from cfo.api.raycluster.certificates import RENEWAL_ANNOTATION, recorded_renewal
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.names import COOKIE_KEY, RAY_CLUSTER, SETTINGS_KEY, digest
from cfo.config.authentication import AuthenticationConfiguration
from cfo.controllers.raycluster.concern import Decision
from cfo.controllers.raycluster.resources import desired_secret
from cfo.controllers.raycluster.secrets import ClusterSecrets
from cfo.runtime import (
    SECRET,
    Clock,
    NamespacedName,
    Object,
    Reader,
    Request,
    annotations_of,
    key_of,
    name_of,
    namespace_of,
    rfc3339,
)
from cfo.runtime.client import ChildResults
from cfo.runtime.pki import CertificatePolicy, ensure_certificates, parse_secret

_SETTINGS_ANNOTATION = "ray.openshift.ai/rbac-proxy-settings"
_CA_ANNOTATION = "ray.openshift.ai/proxy-ca"
_CERTIFICATE_CONTENT = ("ca.crt", "ca.key", "tls.crt", "tls.key")
_COOKIE_BYTES = 32
_OPENSHIFT_COOKIE_BYTES = 20
_MAX_COOKIE_LENGTH = 64
_MAX_RECHECK_INTERVAL = timedelta(days=7)
_LIFETIME = timedelta(days=3650)
_CERTIFICATE_POLICY = CertificatePolicy(
    common_name="ray-dashboard-ca",
    ca_lifetime=2 * _LIFETIME,
    lifetime=_LIFETIME,
    # A former CA stays in the bundle as long as certificates of it are valid.
    overlap=_LIFETIME,
)


class ProxySecrets:
    """Decides about the Secrets of the proxies. ``secrets`` reads the metadata of those that have a cluster label."""

    def __init__(self, config: AuthenticationConfiguration, secrets: Reader, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._cookie = ClusterSecrets(secrets, content=(COOKIE_KEY,))
        self._settings = ClusterSecrets(secrets, content=(COOKIE_KEY, SETTINGS_KEY))
        self._certificates = ClusterSecrets(
            secrets, content=_CERTIFICATE_CONTENT, valid_until=recorded_renewal
        )

    def forget(self, cluster: Request) -> None:
        """Forget the Secrets of a cluster that was deleted."""
        for secrets in (self._cookie, self._settings, self._certificates):
            secrets.forget(cluster)

    # The cookie key and the settings.

    def decide_cookie(self, decision: Decision, facts: RayClusterFacts) -> None:
        """Add the cookie key of OpenShift's OAuth proxy, which is never replaced."""
        name = facts.names.cookie_secret
        if self._cookie.known_validity(facts.cluster, desired_secret(facts, name, {})) is not None:
            return

        def compute(existing: Object | None) -> Object:
            cookie = _stored_cookie(existing)
            if not cookie:
                cookie = b64encode(random.token_bytes(_OPENSHIFT_COOKIE_BYTES))
            return desired_secret(facts, name, {COOKIE_KEY: cookie})

        consequence = "the OAuth proxy has no cookie secret"
        decision.add_computed(SECRET, _cookie_key(facts), compute, consequence=consequence)

    def decide_config(self, decision: Decision, facts: RayClusterFacts) -> None:
        """Add the cookie key, which is kept if oauth2-proxy accepts it, and the settings of kube-rbac-proxy."""
        settings = rbac_proxy_settings(facts.cluster, self._config)
        without_content = _settings_secret(facts, {}, settings)
        if self._settings.known_validity(facts.cluster, without_content) is not None:
            return

        def compute(existing: Object | None) -> Object:
            cookie = _stored_cookie(existing)
            if not _is_usable_cookie(cookie):
                cookie = urlsafe_b64encode(random.token_bytes(_COOKIE_BYTES))
            return _settings_secret(facts, {COOKIE_KEY: cookie, SETTINGS_KEY: settings}, settings)

        consequence = "the proxies have no settings"
        decision.add_computed(SECRET, _cookie_key(facts), compute, consequence=consequence)

    # The serving certificate.

    def decide_certificate(self, decision: Decision, facts: RayClusterFacts) -> None:
        """Add the serving certificate if it must be created or renewed; retry when it is due for renewal."""
        key = _certificate_key(facts)
        due = self._certificates.known_validity(facts.cluster, desired_secret(facts, key.name, {}))
        now = self._clock.now()
        if due is not None and now < due <= now + _LIFETIME:
            decision.retry(_wait(due, now))
            return

        def compute(existing: Object | None) -> Object:
            stored = parse_secret((existing or {}).get("data") or {})
            names = certificate_names(facts)
            issued, _ = ensure_certificates(
                stored, _CERTIFICATE_POLICY, names, now=self._clock.now()
            )
            secret = desired_secret(facts, key.name, {})
            secret["metadata"]["annotations"] = {
                RENEWAL_ANNOTATION: rfc3339(issued.next_change(_CERTIFICATE_POLICY)),
                _CA_ANNOTATION: issued.bundle.decode(),
            }
            return {**secret, "data": issued.data()}

        consequence = "the proxies have no certificate"
        decision.add_computed(SECRET, key, compute, consequence=consequence)

    # What follows from the writes, and deletions.

    def remember(self, facts: RayClusterFacts, results: ChildResults, decision: Decision) -> None:
        """Remember the Secrets that were written; retry when the certificate is due for renewal."""
        cluster = key_of(facts.cluster)
        cookie = results.stored(SECRET, _cookie_key(facts))
        if cookie is not None:
            has_settings = SETTINGS_KEY in (cookie.get("data") or {})
            secrets = self._settings if has_settings else self._cookie
            secrets.remember(cluster, cookie)
        certificate = results.stored(SECRET, _certificate_key(facts))
        if certificate is None:
            return
        due = recorded_renewal(certificate)
        if due is not None:
            self._certificates.remember(cluster, certificate, due)
            decision.retry(_wait(due, self._clock.now()))

    def delete_cookie(self, decision: Decision, facts: RayClusterFacts) -> None:
        """Delete the Secret of the cookie key and the settings."""
        self._cookie.forget(key_of(facts.cluster))
        self._settings.forget(key_of(facts.cluster))
        decision.add_absent(SECRET, _cookie_key(facts))

    def delete_certificate(self, decision: Decision, facts: RayClusterFacts) -> None:
        """Delete the serving certificate, if it is the operator's."""
        self._certificates.forget(key_of(facts.cluster))
        decision.add_absent(SECRET, _certificate_key(facts))


def _wait(due: datetime, now: datetime) -> float:
    """Return the seconds until the next check of the certificate."""
    return max(min(due - now, _MAX_RECHECK_INTERVAL).total_seconds(), 1.0)


def _stored_cookie(secret: Object | None) -> bytes:
    data = (secret or {}).get("data") or {}
    return b64decode(data.get(COOKIE_KEY) or "")


def _cookie_key(facts: RayClusterFacts) -> NamespacedName:
    return NamespacedName(facts.names.namespace, facts.names.cookie_secret)


def _certificate_key(facts: RayClusterFacts) -> NamespacedName:
    return NamespacedName(facts.names.namespace, facts.names.proxy_tls_secret)


def recorded_ca(secret: Object | None) -> str:
    """Return the CA, PEM, that the metadata of the serving certificate's Secret contains; empty if there is none."""
    return annotations_of(secret).get(_CA_ANNOTATION, "") if secret is not None else ""


def rbac_proxy_settings(cluster: Mapping[str, Any], config: AuthenticationConfiguration) -> bytes:
    """Return the file with kube-rbac-proxy's settings: the resource for which users must have permission.

    kube-rbac-proxy reads YAML, of which JSON is a subset.
    """
    access = config.access
    attributes = {
        "apiGroup": access.api_group,
        "resource": access.resource,
        "subresource": access.subresource,
        "namespace": namespace_of(cluster),
    }
    if (access.api_group, access.resource) == (RAY_CLUSTER.group, "rayclusters"):
        attributes["name"] = name_of(cluster)
    present = {field: value for field, value in attributes.items() if value}
    return json.dumps({"authorization": {"resourceAttributes": present}}, sort_keys=True).encode()


def certificate_names(facts: RayClusterFacts) -> tuple[str, ...]:
    """Return the names in the serving certificate: of the Service, and of the connection between the proxies."""
    service = f"{facts.names.proxy_service}.{facts.names.namespace}.svc"
    return service, f"{service}.cluster.local", "localhost", "127.0.0.1"


def _settings_secret(facts: RayClusterFacts, data: Mapping[str, bytes], settings: bytes) -> Object:
    secret = desired_secret(facts, facts.names.cookie_secret, data)
    # The informer holds no content, so the annotation shows whether the settings are current.
    secret["metadata"]["annotations"] = {_SETTINGS_ANNOTATION: digest(settings.decode())}
    return secret


def _is_usable_cookie(cookie: bytes) -> bool:
    """Return whether oauth2-proxy derives an AES key of 16, 24 or 32 bytes from ``cookie``, as it is or as Base64."""
    if len(cookie) in (16, 24, 32):
        return True
    if len(cookie) > _MAX_COOKIE_LENGTH:
        return False
    digits = cookie.rstrip(b"=")
    padding = b"=" * (-len(digits) % 4)
    try:
        key = b64decode(digits + padding, altchars=b"-_", validate=True)
    except ValueError:
        return False
    return len(key) in (16, 24, 32)
