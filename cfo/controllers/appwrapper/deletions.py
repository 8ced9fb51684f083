"""Deletes objects by uid."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cfo.controllers.appwrapper.decision import Deletion
from cfo.controllers.full_objects import delete_full_object
from cfo.runtime import GVK, POD, APIError, Client, Conflict, NotFound, Propagation, UnknownKind
from cfo.runtime.client import is_too_large
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
            await _delete(client, deletion)
        except (Conflict, NotFound, UnknownKind):
            continue
        except Exception as error:  # noqa: BLE001 - raised below
            failures.append(error)
    raise_together(failures, "failed to delete several objects")


async def _delete(client: Client, deletion: Deletion) -> None:
    grace = 0 if deletion.force else None
    try:
        await client.delete(
            deletion.gvk,
            deletion.key,
            uid=deletion.uid,
            propagation_policy=_propagation(deletion.gvk),
            grace_period_seconds=grace,
        )
    except APIError as error:
        ends_gracefully = deletion.gvk == POD and not deletion.force
        if ends_gracefully or not is_too_large(error):
            raise
        await delete_full_object(
            client, deletion.gvk, deletion.key, deletion.uid, grace_period_seconds=grace
        )


def _propagation(gvk: GVK) -> Propagation:
    """Return how an object is deleted: it must exist as long as what it owns can create pods, except for pods."""
    if gvk == POD:
        return Propagation.BACKGROUND
    return Propagation.FOREGROUND
