"""Loads the CA with which the certificates of a RayCluster's pods are signed."""

from __future__ import annotations

from base64 import b64decode
from collections import OrderedDict
from typing import Final

from cfo.api.raycluster.cluster import is_owned_by
from cfo.api.raycluster.naming import names_of
from cfo.controllers.raycluster import ca
from cfo.controllers.raycluster.node_request import Refusal
from cfo.runtime import SECRET, Client, NamespacedName, Object, Reader, namespace_of, resource_version_of, uid_of

__all__ = ["SigningAuthorities"]

_MAX_CACHED: Final = 64


class SigningAuthorities:
    """The CAs of RayClusters, read from their Secrets; the last ones are kept, because many pods start at once.

    ``secrets`` reads the metadata of the Secrets that have a cluster label. Like the controller of CAs, this trusts
    only Secrets that have an owner reference with the uid of the RayCluster.
    """

    def __init__(self, client: Client, secrets: Reader) -> None:
        self._client = client
        self._secrets = secrets
        self._loaded: OrderedDict[tuple[str, str], ca.CertificateAuthority] = OrderedDict()
        """By uid and resourceVersion of the Secret."""

    async def load(self, cluster: Object) -> ca.CertificateAuthority:
        """Return the CA of ``cluster``. Raises :class:`Refusal`, and the errors of :meth:`Client.get`."""
        key = NamespacedName(namespace_of(cluster), names_of(cluster).ca_secret)
        metadata = self._secrets.get(key)
        loaded = self._loaded.get(_version(metadata)) if metadata is not None else None
        if loaded is not None:
            return loaded
        secret = await self._client.get(SECRET, key, live=True) if metadata is not None else None
        if secret is None or not is_owned_by(secret, cluster):
            raise Refusal(
                "NoCertificateAuthority", f"The RayCluster has no CA in a Secret {key.name}.", may_change=True
            )
        data = secret.get("data") or {}
        try:
            certificate, private_key = (
                b64decode(data.get(name) or "") for name in (ca.CERTIFICATE_KEY, ca.PRIVATE_KEY_KEY)
            )
            authority = ca.load(certificate, private_key)
        except ValueError:
            message = f"The CA in the Secret {key.name} is invalid."
            raise Refusal("NoCertificateAuthority", message, may_change=True) from None
        self._loaded[_version(secret)] = authority
        while len(self._loaded) > _MAX_CACHED:
            self._loaded.popitem(last=False)
        return authority


def _version(secret: Object) -> tuple[str, str]:
    return uid_of(secret), resource_version_of(secret)
