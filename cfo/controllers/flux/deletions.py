"""Which objects that are being deleted the garbage collector does not attend to."""

from __future__ import annotations

from typing import Final

from cfo.runtime import Object, is_deleting

_COLLECTED: Final = frozenset({"foregroundDeletion", "orphan"})
"""The finalizers of the garbage collector, which deletes the dependents of such an object, or orphans them."""


def is_kept(obj: Object) -> bool:
    """Return whether an object that is being deleted is kept by finalizers of other clients only.

    The garbage collector does not delete its dependents as long as it exists, and any tenant can add a finalizer.
    """
    finalizers = obj["metadata"].get("finalizers") or ()
    return is_deleting(obj) and _COLLECTED.isdisjoint(finalizers)
