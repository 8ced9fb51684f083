"""Clusters from the kubeconfigs in Secrets of the local cluster, as multicluster-runtime's ``kubeconfig`` provider.

The Secrets are read by an informer of exactly these Secrets. The author of such a Secret decides where the operator
connects to, so :mod:`cfo.runtime.client.untrusted_kubeconfig` accepts only credentials in the kubeconfig itself.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import Any, Final

import anyio
from anyio import to_thread

from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.store import Event
from cfo.runtime.client.kubeconfig_errors import KubeconfigError
from cfo.runtime.client.untrusted_kubeconfig import (
    MAX_KUBECONFIG_BYTES,
    KubeconfigPolicy,
    parse_untrusted_kubeconfig,
)
from cfo.runtime.clusters.options import ClusterAware, ClusterRefused
from cfo.runtime.objects.kinds import SECRET
from cfo.runtime.objects.rbac import READ, Rule
from cfo.runtime.objects.unstructured import NamespacedName, Object, is_deleting

__all__ = ["KUBECONFIG_SECRET_LABEL", "KubeconfigSecrets"]

KUBECONFIG_SECRET_LABEL: Final = "sigs.k8s.io/multicluster-runtime-kubeconfig"  # noqa: S105 - a label
"""The label with value ``true`` by which multicluster-runtime finds Secrets with kubeconfigs."""

_MAX_SECRET_BYTES: Final = 2 * MAX_KUBECONFIG_BYTES
_BUSY_SHARE: Final = 5
"""Reading takes at most one part in so many of the time, however often the Secrets change."""
_MIN_PAUSE_SECONDS: Final = 0.05


class KubeconfigSecrets:
    """Engages a cluster for each Secret with a kubeconfig; the name of the Secret is the name of the cluster.

    ``namespace``: the namespace of the Secrets. ``label_selector`` selects them, and ``key`` is the key of the
    kubeconfig in their data; the defaults are those of multicluster-runtime.
    ``policy``: what is accepted in addition to an HTTPS server and its own credentials. A changed kubeconfig disengages
    the cluster and engages it again. A rejected one is reported in the log, in an Event of the Secret, and in
    ``cfo_clusters_rejected``.
    """

    def __init__(
        self,
        namespace: str,
        *,
        label_selector: str = f"{KUBECONFIG_SECRET_LABEL}=true",
        key: str = "kubeconfig",
        policy: KubeconfigPolicy | None = None,
    ) -> None:
        if not namespace or not label_selector:
            raise ValueError("namespace and label_selector must not be empty: the Secrets of others must not be read")
        self.namespace = namespace
        self.label_selector = label_selector
        self.key = key
        self.policy = policy or KubeconfigPolicy()
        self.rules = (Rule("", "secrets", READ, namespace=namespace),)
        """The permissions that the provider requires."""
        self._digests: dict[str, bytes] = {}
        self._refused: set[str] = set()
        self._pending: dict[str, None] = {}
        self._changed = anyio.Event()

    async def run(self, aware: ClusterAware) -> None:
        """Follow the Secrets until cancelled."""
        informer = aware.local.cache.informer(
            SECRET, namespace=self.namespace, label_selector=self.label_selector, max_bytes=_MAX_SECRET_BYTES
        )
        informer.add_handler(self._on_event)
        try:
            while True:
                await self._changed.wait()
                self._changed = anyio.Event()
                started = aware.clock.monotonic()
                while self._pending:
                    name = next(iter(self._pending))
                    del self._pending[name]
                    await self._update(aware, informer, name)
                busy = aware.clock.monotonic() - started
                await aware.clock.sleep(max(_MIN_PAUSE_SECONDS, (_BUSY_SHARE - 1) * busy))
        finally:
            informer.remove_handler(self._on_event)

    def _on_event(self, event: Event) -> None:
        self._pending[event.key.name] = None
        self._changed.set()

    async def _update(self, aware: ClusterAware, informer: Informer, name: str) -> None:
        secret = informer.reader.get(NamespacedName(self.namespace, name))
        if secret is None or is_deleting(secret):
            self._digests.pop(name, None)
            aware.disengage(name)
            self._refused.discard(name)
            self._pending.update(dict.fromkeys(sorted(self._refused)))  # there may be room for one of them now
            self._refused.clear()
            return
        try:
            content = self._content(secret)
            digest = hashlib.sha256(content).digest()
            if self._digests.get(name) == digest:
                return
            self._digests[name] = digest
            aware.engage(name, await to_thread.run_sync(parse_untrusted_kubeconfig, content, self.policy))
        except KubeconfigError as error:
            aware.reject(name, f"kubeconfig in the key {self.key}: {error}", obj=_reference(secret))
        except ClusterRefused as error:
            self._digests.pop(name, None)
            self._refused.add(name)
            aware.reject(name, str(error), obj=_reference(secret))

    def _content(self, secret: Object) -> bytes:
        value = (secret.get("data") or {}).get(self.key)
        if not value:
            self._digests.pop(secret["metadata"]["name"], None)
            raise KubeconfigError("is missing or empty")
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise KubeconfigError("is not valid base64") from None


def _reference(secret: Object) -> Mapping[str, Any]:
    """Return the Secret without its data, for an Event."""
    names = {name: secret["metadata"].get(name) for name in ("namespace", "name", "uid")}
    return {"apiVersion": SECRET.api_version, "kind": SECRET.kind, "metadata": names}
