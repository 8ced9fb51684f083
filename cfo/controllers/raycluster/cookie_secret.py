"""The Secret with the key with which OpenShift's OAuth proxy encrypts its cookies: created once, never replaced."""

from __future__ import annotations

import secrets as random
from base64 import b64decode, b64encode

from cfo.api.raycluster.naming import names_of
from cfo.controllers.raycluster.children import Children
from cfo.controllers.raycluster.resources import COOKIE_KEY, desired_secret
from cfo.controllers.raycluster.secrets import NEVER, ClusterSecrets
from cfo.runtime import SECRET, Client, NamespacedName, Object, Reader, key_of, namespace_of

__all__ = ["CookieSecret"]

_COOKIE_BYTES = 20


class CookieSecret:
    """Creates and deletes the Secret. ``secrets`` reads the metadata of the Secrets with a cluster label."""

    def __init__(self, client: Client, secrets: Reader) -> None:
        self._secrets = ClusterSecrets(client, secrets, content=(COOKIE_KEY,), valid_until=lambda _: NEVER)

    def forget(self, cluster: NamespacedName) -> None:
        """Forget the Secret of a cluster that no longer exists."""
        self._secrets.forget(cluster)

    async def write(self, children: Children) -> None:
        """Create the Secret unless it has a key; a Secret of another owner is left unchanged, with an Event."""
        cluster = children.cluster
        key = NamespacedName(namespace_of(cluster), names_of(cluster).cookie_secret)
        if self._secrets.known_validity(children, desired_secret(cluster, key.name, {})) is not None:
            return
        current = await self._secrets.read(key)

        async def desired(existing: Object | None) -> Object:
            encoded = ((existing or {}).get("data") or {}).get(COOKIE_KEY)
            cookie = b64decode(encoded) if encoded else b64encode(random.token_bytes(_COOKIE_BYTES))
            return desired_secret(cluster, key.name, {COOKIE_KEY: cookie})

        consequence = "the OAuth proxy has no cookie secret"
        stored = await children.create_or_update(SECRET, key.name, current, desired, consequence, trust_labels=False)
        if stored is not None:
            self._secrets.remember(key_of(cluster), stored)

    async def delete(self, children: Children) -> None:
        """Delete the Secret."""
        cluster = children.cluster
        key = NamespacedName(namespace_of(cluster), names_of(cluster).cookie_secret)
        self._secrets.forget(key_of(cluster))
        await children.delete(SECRET, self._secrets.metadata(key))
