"""Reads the Secrets of RayClusters: metadata from an informer, content from the API server only when it is needed.

Any user who is allowed to create Secrets can give them the label of a RayCluster and 1 MB of content each. Therefore
the informer holds no content. The content of a Secret is read, with one request, if it may have changed since it was
verified:

* While this process runs, it remembers the uid and resourceVersion of the verified Secret.
* After a restart, the managedFields in the metadata show whether the operator still owns the fields that it wrote. A
  change by another field manager takes them away. A user who writes as our field manager goes unnoticed until the next
  change of the Secret, but can break nothing except RayClusters of a namespace where this user can write Secrets.

A Secret whose metadata does not show until when its content is valid (one that another version created) is read once
after each restart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime

import msgspec

from cfo.api.raycluster.names import FIELD_MANAGER
from cfo.controllers.raycluster.watches import LABELED
from cfo.runtime import (
    SECRET,
    Entry,
    Informer,
    Manager,
    NamespacedName,
    Object,
    Reader,
    key_of,
    resource_version_of,
    uid_of,
)
from cfo.runtime.client import has_everything
from cfo.runtime.manager import SelectionKeywords
from cfo.runtime.objects import set_controller_owner

NEVER = datetime.max.replace(tzinfo=UTC)
"""The end of validity of content that does not expire."""

CLUSTER_SECRETS: SelectionKeywords = {**LABELED, "metadata_only": True}
"""The selection of the informer of Secrets, which all controllers share."""


def secret_informer(manager: Manager) -> Informer:
    """Return the informer of the metadata of all Secrets with a cluster label."""
    return manager.cache.informer(SECRET, **CLUSTER_SECRETS)


class ClusterSecrets(msgspec.Struct, frozen=True, eq=False):
    """What is known about one Secret of each RayCluster, with the ``content`` keys that the operator writes.

    ``informer`` reads the metadata. ``valid_until`` is called with the metadata of a Secret that the operator wrote and
    returns until when its content needs no other write (default: forever); ``None`` if the metadata does not show this.
    """

    informer: Reader
    content: Collection[str]
    valid_until: Callable[[Object], datetime | None] = lambda _: NEVER
    _verified: dict[NamespacedName, tuple[tuple[str, str], datetime]] = msgspec.field(
        default_factory=dict
    )
    """By RayCluster: uid and resourceVersion of the Secret, and until when its content needs no other write."""

    def was_verified(self, cluster: NamespacedName) -> bool:
        """Return whether this process has verified the content of the cluster's Secret."""
        return cluster in self._verified

    def remember(
        self, cluster: NamespacedName, secret: Object, valid_until: datetime = NEVER
    ) -> None:
        """Record that the content of ``secret`` was verified, or written, and until when it needs no other write."""
        self._verified[cluster] = (uid_of(secret), resource_version_of(secret)), valid_until

    def forget(self, cluster: NamespacedName) -> None:
        """Forget the Secret of a cluster that was deleted, or needs no Secret."""
        self._verified.pop(cluster, None)

    def known_validity(self, cluster: Object, desired: Object) -> datetime | None:
        """Return until when the stored Secret needs no write, if that is known without reading its content.

        ``desired`` is the Secret of ``cluster`` without its content. ``None`` is also returned if the metadata has to
        be changed.
        """
        entry = self.informer.entry(key_of(desired))
        if entry is None or entry.meta.is_deleting:
            return None
        secret = entry.object()
        if not has_everything(secret, set_controller_owner(desired, cluster)):
            return None
        key = key_of(cluster)
        verified = self._verified.get(key)
        if verified is not None:
            version, valid_until = verified
            return valid_until if version == (entry.meta.uid, entry.meta.resource_version) else None
        shown = self.valid_until(secret) if self._owns_content(entry) else None
        if shown is not None:
            self.remember(key, secret, shown)
        return shown

    def _owns_content(self, entry: Entry) -> bool:
        """Return whether no other field manager has changed the content since this operator wrote it."""
        owned: set[str] = set()
        for manager in entry.managers:
            if manager.get("manager") == FIELD_MANAGER:
                owned.update((manager.get("fieldsV1") or {}).get("f:data") or ())
        return all(f"f:{key}" in owned for key in self.content)
