"""What a client knows from the cache, and what the cache learns from the answers that the client gets."""

from __future__ import annotations

from collections.abc import Collection

from cfo.runtime.client.cache import ClientCache, Stored
from cfo.runtime.client.request_target import Target
from cfo.runtime.objects import GVK, NamespacedName, Object, is_deleting, key_of, uid_of

__all__ = ["Knowledge"]


class Knowledge:
    """A cache, or none: then nothing is known, and nothing learned."""

    def __init__(self, cache: ClientCache | None) -> None:
        self._cache = cache

    def get(self, gvk: GVK, key: NamespacedName) -> tuple[bool, Object | None]:
        """Whether the cache can answer for this object, and its answer."""
        if self._cache is None or not self._cache.covers(gvk, key.namespace) or self._cache.is_uncertain(gvk, key):
            return False, None
        return True, self._cache.get(gvk, key)

    def covers(self, gvk: GVK, namespace: str) -> bool:
        """Whether the cache can answer a list."""
        return self._cache is not None and self._cache.covers(gvk, namespace)

    def doubted(self, gvk: GVK, namespace: str) -> Collection[NamespacedName]:
        """The objects in doubt of a kind and namespace (empty: all of them)."""
        return self._cache.uncertain_keys(gvk, namespace) if self._cache is not None else ()

    def list(self, gvk: GVK, namespace: str, label_selector: str) -> list[Object]:
        """The objects that match; asked only where :meth:`covers` is true."""
        return self._cache.list(gvk, namespace, label_selector) if self._cache is not None else []

    def stored(self, gvk: GVK, key: NamespacedName) -> Stored | None:
        """The object as stored; ``None`` also while its state is in doubt."""
        if self._cache is None or self._cache.is_uncertain(gvk, key):
            return None
        return self._cache.stored(gvk, key)

    def stored_uid(self, target: Target) -> str:
        """The uid of the object as stored, in doubt or not, or the empty string."""
        stored = self._cache.stored(target.gvk, target.key) if self._cache is not None else None
        return stored.uid if stored is not None else ""

    def doubt(self, target: Target) -> None:
        """Notes that a write of the object may or may not have happened."""
        if self._cache is not None and target.key.name:
            self._cache.uncertain(target.gvk, target.key)

    def settle(self, target: Target, obj: Object, answer: bytes) -> None:
        """Ends a doubt about the object by what was read."""
        if self._cache is not None and self._cache.is_uncertain(target.gvk, target.key):
            self.wrote(target, obj, answer)

    def wrote(self, target: Target, obj: Object, answer: bytes) -> None:
        """Takes in the answer to a write: ``obj``, which stands as JSON in ``answer``."""
        if self._cache is None:
            return
        if _is_gone(obj):
            self._cache.deleted(target.gvk, key_of(obj), uid_of(obj))
        else:
            self._cache.wrote(target.gvk, answer)

    def deleted(self, target: Target, uid: str) -> None:
        """Takes in that the object of this uid is gone; of none, nothing is learned."""
        if self._cache is not None and uid:
            self._cache.deleted(target.gvk, target.key, uid)

    def missing(self, target: Target, uid_before: str) -> None:
        """Takes in that the object was not found; ``uid_before`` was stored when we asked.

        What was stored since came from a watch, which may know of a later object: that one stays.
        """
        if self._cache is None:
            return
        uid = self.stored_uid(target)
        if uid_before or not uid:
            self._cache.deleted(target.gvk, target.key, uid_before)


def _is_gone(obj: Object) -> bool:
    """Whether an answer shows an object that was removed by this very write: nothing holds it any more.

    Removing the last finalizer of an object that is being deleted is answered with the object.
    """
    metadata = obj.get("metadata") or {}
    if not is_deleting(obj) or metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"):
        return False
    return not (obj.get("kind") == "Namespace" and (obj.get("spec") or {}).get("finalizers"))
