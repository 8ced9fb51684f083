"""Writes the objects of a stack: one server-side apply for each, and only if it changes something.

An object that is not in its informer is created. If its name is taken, the existing object is read: one that Helm
created for this stack is taken over, any other is left as it is and reported. A Deployment is not written if its pods
would use such an object: they would run as the ServiceAccount, or change the volume, of another owner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import structlog

from cfo.api.inferencestack.kinds import PERSISTENT_VOLUME_CLAIM
from cfo.api.inferencestack.names import is_retained
from cfo.controllers.inferencestack.children import StackInformers
from cfo.controllers.inferencestack.hosts import CLAIMANTS
from cfo.controllers.inferencestack.ownership import belongs_to, is_of_helm, taken_over
from cfo.runtime import (
    CONFIG_MAP,
    DEPLOYMENT,
    GVK,
    SERVICE_ACCOUNT,
    Client,
    Object,
    Propagation,
    UnknownKind,
    gvk_of,
    is_deleting,
    key_of,
    name_of,
)
from cfo.runtime.client import NAME_CONFLICT_RETRY_SECONDS, NameTaken, OwnedWrites, patch_checked

_log = structlog.get_logger("cfo.controllers.inferencestack")


class StackWrites(OwnedWrites):
    """The writes of one reconcile of ``stack``; a failed write does not prevent the others.

    ``failures`` are the messages of those that will not succeed until something changes, for the status;
    ``is_disturbed`` is whether a retry will probably succeed.
    """

    def __init__(self, client: Client, children: StackInformers, stack: Object) -> None:
        super().__init__(client, stack)
        self._children = children
        self.failures: list[str] = []
        self.is_disturbed = False
        self._foreign: set[tuple[GVK, str]] = set()

    def owns(self, obj: Object) -> bool:
        """Return whether ``obj`` belongs to the stack, is retained from it or of its Helm release."""
        return belongs_to(obj, self.owner)

    def owned(self, desired: Object) -> Object:
        """Return ``desired`` with the stack as its controller, unless it is retained when the stack is deleted."""
        return desired if is_retained(desired) else super().owned(desired)

    async def adopt(self, current: Object) -> Object | None:
        """Become the owner of the fields that Helm owns: otherwise a field that is later removed would remain."""
        if is_deleting(current):
            return None  # its deletion causes an event
        if not is_of_helm(current):  # nor is any object of the cache, which has no managedFields
            return current
        _log.info(
            "Adopting object that Helm created",
            kind=gvk_of(current).kind,
            object=str(key_of(current)),
        )
        return await patch_checked(
            self.client,
            current,
            {"metadata": {"managedFields": taken_over(current)}},
            unchanged=True,
        )

    def report_taken(self, taken: NameTaken, consequence: str) -> None:
        """Record a taken name for the status, and for the Deployments that use the object."""
        self._foreign.add((gvk_of(taken.obj), name_of(taken.obj)))
        self.failures.append(str(taken))
        self.retry(NAME_CONFLICT_RETRY_SECONDS)

    def report_failure(self, message: str, *, is_lasting: bool) -> None:
        """Record the failure for the status, or that a retry will probably succeed."""
        if is_lasting:
            self.failures.append(message)
        else:
            self.is_disturbed = True

    async def write(self, desired: Object, existing: Object | None = None) -> Object | None:
        """Write ``desired``; return the stored object, or ``None`` if it was not written.

        ``existing`` is an object that was read from the API server, if it is not in its informer.
        """
        gvk, entry = gvk_of(desired), self._children.get(desired)
        if gvk == DEPLOYMENT and not self._foreign.isdisjoint(_used_objects(desired)):
            return None
        current = entry.object() if entry is not None else existing
        if gvk in CLAIMANTS and (problem := await self._children.hosts.conflict(desired)):
            self.failures.append(problem)
            self.retry(NAME_CONFLICT_RETRY_SECONDS)
            return None
        try:
            return await self.attempt(self.apply(desired, current), gvk, name_of(desired))
        except UnknownKind:
            self._children.set_unserved(gvk)
            return None

    async def prune(self, wanted: list[Object]) -> None:
        """Delete the objects that the stack controls and that are not ``wanted``, except retained ones."""
        names = {(gvk_of(obj), key_of(obj)) for obj in wanted}
        for gvk, entry in list(self._children.of(self.owner)):
            if (gvk, entry.key) in names or is_retained(obj := entry.object()):
                continue
            # If another object has the name, or the kind is no longer served, there is nothing to delete.
            delete = self.delete_owned(
                gvk, obj, propagation_policy=Propagation.BACKGROUND, ignore_conflict=True
            )
            with suppress(UnknownKind):
                await self.attempt(delete, gvk, entry.key.name, "deleted")


def _used_objects(deployment: Object) -> Iterator[tuple[GVK, str]]:
    """Yield kind and name of the stack's objects that the pods of a rendered Deployment can use."""
    pod: Mapping[str, Any] = deployment["spec"]["template"]["spec"]
    yield SERVICE_ACCOUNT, pod["serviceAccountName"]
    for volume in pod.get("volumes") or ():
        yield CONFIG_MAP, (volume.get("configMap") or {}).get("name", "")
        yield (
            PERSISTENT_VOLUME_CLAIM,
            (volume.get("persistentVolumeClaim") or {}).get("claimName", ""),
        )
