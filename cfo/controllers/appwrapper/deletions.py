"""Deletes objects by uid."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cfo.controllers.appwrapper.decision import Deletion
from cfo.runtime import GVK, POD, Client, Conflict, Propagation, UnknownKind
from cfo.runtime.objects import raise_together

DELETIONS_PER_STEP: Final = 50
"""How many objects one reconcile deletes, so that AppWrappers with many objects do not delay others."""


async def delete_objects(client: Client, deletions: Iterable[Deletion]) -> None:
    """Execute the deletions; a failed deletion does not prevent the others.

    Raises the errors of API requests, except for an object that no longer exists, whose name another one has, or whose
    kind is no longer served.
    """
    failures: list[Exception] = []
    for deletion in deletions:
        try:
            await client.delete(
                deletion.gvk,
                deletion.key,
                uid=deletion.uid,
                propagation_policy=_propagation(deletion.gvk),
                grace_period_seconds=0 if deletion.force else None,
            )
        except (Conflict, UnknownKind):
            continue
        except Exception as error:  # noqa: BLE001 - raised below
            failures.append(error)
    raise_together(failures, "failed to delete several objects")


def _propagation(gvk: GVK) -> Propagation:
    """Return how an object is deleted: it must exist as long as what it owns can create pods, except for pods."""
    if gvk == POD:
        return Propagation.BACKGROUND
    return Propagation.FOREGROUND
