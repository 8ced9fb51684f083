"""Maintains the Secrets of the proxies: cookie keys and, for the operator's own, settings and serving certificate.

The Secret of the cookie key also contains the settings of kube-rbac-proxy, which reads them from a file. Both are in
one Secret because users who are allowed to change one gain nothing by changing the other, and the operator then needs
no permission for ConfigMaps.

On vanilla Kubernetes no one issues a certificate for a Service, so the operator does: the Secret of the certificate has
a CA of its own, with which Routes and Ingress controllers can verify it. Its lifetime is long because oauth2-proxy
reads its certificate only at its start. A renewal keeps the CA as long as possible, so that running pods trust the new
certificate. An annotation of the Secret contains the CA, so that a Route is written without reading the Secret.
"""

from __future__ import annotations

import json
import secrets as random
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from cfo.api.raycluster.authentication import COOKIE_KEY, SETTINGS_KEY
from cfo.api.raycluster.certificates import RENEWAL_ANNOTATION, recorded_renewal
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.names import RAY_CLUSTER, digest
from cfo.config.authentication import AuthenticationConfiguration
from cfo.controllers.raycluster.children import Children
from cfo.controllers.raycluster.resources import desired_secret
from cfo.controllers.raycluster.secrets import ClusterSecrets
from cfo.runtime import (
    SECRET,
    Client,
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
    """Writes the Secrets of the proxies. ``secrets`` reads the metadata of the Secrets that have a cluster label."""

    def __init__(
        self, client: Client, config: AuthenticationConfiguration, secrets: Reader, clock: Clock
    ) -> None:
        self._config = config
        self._clock = clock
        self._cookie = ClusterSecrets(client, secrets, content=(COOKIE_KEY,))
        self._settings = ClusterSecrets(client, secrets, content=(COOKIE_KEY, SETTINGS_KEY))
        self._certificates = ClusterSecrets(
            client, secrets, content=_CERTIFICATE_CONTENT, valid_until=recorded_renewal
        )

    def forget(self, cluster: Request) -> None:
        """Forget the Secrets of a cluster that was deleted."""
        for secrets in (self._cookie, self._settings, self._certificates):
            secrets.forget(cluster)

    async def write_cookie(self, children: Children) -> None:
        """Create the cookie key of OpenShift's OAuth proxy, which is never replaced.

        A Secret of another owner is left unchanged, with an Event.
        """
        facts, name = children.facts, children.facts.names.cookie_secret
        if self._cookie.known_validity(children, desired_secret(facts, name, {})) is not None:
            return

        async def desired(existing: Object | None) -> Object:
            encoded = ((existing or {}).get("data") or {}).get(COOKIE_KEY)
            cookie = (
                b64decode(encoded)
                if encoded
                else b64encode(random.token_bytes(_OPENSHIFT_COOKIE_BYTES))
            )
            return desired_secret(facts, name, {COOKIE_KEY: cookie})

        stored = await self._cookie.write(
            children, name, desired, "the OAuth proxy has no cookie secret"
        )
        if stored is not None:
            self._cookie.remember(key_of(children.cluster), stored)

    async def delete_cookie(self, children: Children) -> None:
        """Delete the Secret of the cookie key."""
        names = children.facts.names
        self._cookie.forget(key_of(children.cluster))
        await children.delete(
            SECRET, self._cookie.informer.get(NamespacedName(names.namespace, names.cookie_secret))
        )

    async def write_config(self, children: Children) -> None:
        """Write the cookie key, which is kept if oauth2-proxy accepts it, and the settings of kube-rbac-proxy."""
        facts, name = children.facts, children.facts.names.cookie_secret
        settings = rbac_proxy_settings(children.cluster, self._config)
        if (
            self._settings.known_validity(children, _settings_secret(facts, name, {}, settings))
            is not None
        ):
            return

        async def desired(existing: Object | None) -> Object:
            cookie = b64decode(((existing or {}).get("data") or {}).get(COOKIE_KEY) or "")
            if not _is_usable_cookie(cookie):
                cookie = urlsafe_b64encode(random.token_bytes(_COOKIE_BYTES))
            return _settings_secret(
                facts, name, {COOKIE_KEY: cookie, SETTINGS_KEY: settings}, settings
            )

        stored = await self._settings.write(children, name, desired, "the proxies have no settings")
        if stored is not None:
            self._settings.remember(key_of(children.cluster), stored)

    async def write_certificate(self, children: Children) -> None:
        """Create or renew the serving certificate; retry when it is due for renewal."""
        key = _certificate_key(children.facts)
        due = self._certificates.known_validity(
            children, desired_secret(children.facts, key.name, {})
        )
        now = self._clock.now()
        if due is None or not now < due <= now + _LIFETIME:
            due = await self._issue(children, key)
        if due is not None:
            children.retry(
                max(min(due - self._clock.now(), _MAX_RECHECK_INTERVAL).total_seconds(), 1.0)
            )

    async def _issue(self, children: Children, key: NamespacedName) -> datetime | None:
        due: datetime | None = None

        async def desired(existing: Object | None) -> Object:
            nonlocal due
            stored = parse_secret((existing or {}).get("data") or {})
            issued, _ = ensure_certificates(
                stored,
                _CERTIFICATE_POLICY,
                certificate_names(children.facts),
                now=self._clock.now(),
            )
            due = issued.next_change(_CERTIFICATE_POLICY)
            secret = desired_secret(children.facts, key.name, {})
            annotations = {RENEWAL_ANNOTATION: rfc3339(due), _CA_ANNOTATION: issued.bundle.decode()}
            secret["metadata"]["annotations"] = annotations
            return {**secret, "data": issued.data()}

        stored = await self._certificates.write(
            children, key.name, desired, "the proxies have no certificate"
        )
        if stored is None or due is None:
            return None
        self._certificates.remember(key_of(children.cluster), stored, due)
        return due

    def certificate_ca(self, facts: RayClusterFacts) -> str:
        """Return the CA of the serving certificate, PEM; empty if there is none."""
        return recorded_ca(self._certificates.informer.get(_certificate_key(facts)))

    async def delete_certificate(self, children: Children) -> None:
        """Delete the serving certificate, if it is the operator's."""
        self.forget(key_of(children.cluster))
        await children.delete(
            SECRET, self._certificates.informer.get(_certificate_key(children.facts))
        )


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


def _settings_secret(
    facts: RayClusterFacts, name: str, data: Mapping[str, bytes], settings: bytes
) -> Object:
    secret = desired_secret(facts, name, data)
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
    try:
        return len(
            b64decode(digits + b"=" * (-len(digits) % 4), altchars=b"-_", validate=True)
        ) in (16, 24, 32)
    except ValueError:
        return False
