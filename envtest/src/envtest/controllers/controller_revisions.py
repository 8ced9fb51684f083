"""The ControllerRevisions of DaemonSets and StatefulSets: which one has the current template, and which are too old."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object, labels_of
from envtest.controllers.ownership import OwnerController
from envtest.controllers.replica_set_revisions import template_hash

__all__ = ["REVISIONS", "current_revision", "delete_old_revisions"]

REVISIONS: Final = GroupResource("apps", "controllerrevisions")

_HISTORY_LIMIT: Final = 10


async def current_revision(
    controller: OwnerController, owner: Object, label: Mapping[str, str]
) -> Object:
    """Return the revision of the current template; create it, or give it the highest number after a rollback.

    ``label`` are the labels that it has apart from those of the template.
    """
    metadata = owner["metadata"]
    template = owner["spec"].get("template") or {}
    data = {"spec": {"template": {**template, "$patch": "replace"}}}
    existing = await controller.controlled(owner, REVISIONS)
    highest = max((int(each.get("revision") or 0) for each in existing), default=0)
    name = f"{metadata['name']}-{template_hash(template)}"
    equal = sorted(
        (each for each in existing if each.get("data") == data),
        key=lambda each: (each["metadata"]["name"] == name, int(each.get("revision") or 0)),
    )
    if not equal:
        labels = {**labels_of(template), **label}
        references = [controller.reference(owner)]
        created: Object = {
            "metadata": {
                "name": name,
                "namespace": metadata["namespace"],
                "labels": labels,
                "ownerReferences": references,
            },
            "data": data,
            "revision": highest + 1,
        }
        await controller.client.create(REVISIONS, created)
        return created
    current = equal[-1]
    if int(current.get("revision") or 0) < highest and len(equal) == 1:
        await controller.client.modify(
            REVISIONS,
            metadata["namespace"],
            current["metadata"]["name"],
            lambda obj: obj.update(revision=highest + 1),
            uid=current["metadata"]["uid"],
        )
    return current


async def delete_old_revisions(
    controller: OwnerController, owner: Object, live: Collection[str | None]
) -> None:
    """Delete the oldest revisions beyond the history limit, except those whose names are ``live``."""
    limit = int(owner["spec"].get("revisionHistoryLimit", _HISTORY_LIMIT))
    existing = await controller.controlled(owner, REVISIONS)
    old = sorted(
        (each for each in existing if each["metadata"]["name"] not in live),
        key=lambda each: int(each.get("revision") or 0),
    )
    if len(old) > limit:
        await controller.delete_all(REVISIONS, old[: len(old) - limit])
