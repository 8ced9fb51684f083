"""Writes the objects of a stack: one server-side apply for each, and only if it changes something.

An object that is not in its informer is created. If its name is taken, the existing object is read: one that Helm
created for this stack is taken over, any other is left as it is and reported. A Deployment is not written if its pods
would use such an object: they would run as the ServiceAccount, or change the volume, of another owner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import structlog

from cfo.api.inferencestack.kinds import PERSISTENT_VOLUME_CLAIM
from cfo.api.inferencestack.names import is_retained
from cfo.controllers.inferencestack.children import Children
from cfo.controllers.inferencestack.ownership import belongs_to, is_of_helm, taken_over
from cfo.runtime import (
    CONFIG_MAP,
    DEPLOYMENT,
    GVK,
    SERVICE_ACCOUNT,
    APIError,
    BadRequest,
    Client,
    Conflict,
    Forbidden,
    Invalid,
    Object,
    Propagation,
    UnknownKind,
    gvk_of,
    is_deleting,
    key_of,
    name_of,
    resource_version_of,
    uid_of,
)
from cfo.runtime.client import ABSENT_VERSION

__all__ = ["NAME_CONFLICT_RETRY_SECONDS", "StackWrites"]

_log = structlog.get_logger("cfo.controllers.inferencestack")

NAME_CONFLICT_RETRY_SECONDS: Final = 300.0
"""How long to wait before rechecking an object of another owner, which is not watched."""

_LASTING: Final = (Invalid, Forbidden, BadRequest)


class StackWrites:
    """The writes of one reconcile of ``stack``; a failed write does not prevent the others.

    ``failures`` are the messages of those that will not succeed until something changes, for the status. ``errors`` are
    the exceptions to raise at the end of the reconcile; ``is_disturbed`` is whether a retry will probably succeed.
    """

    def __init__(self, client: Client, children: Children, stack: Object) -> None:
        self._client = client
        self._children = children
        self._stack = stack
        self.failures: list[str] = []
        self.errors: list[APIError] = []
        self.is_disturbed = False
        self._foreign: set[tuple[GVK, str]] = set()

    @property
    def has_name_conflict(self) -> bool:
        """Whether an object of another owner has the name of an object of the stack."""
        return bool(self._foreign)

    async def apply(self, desired: Object, existing: Object | None = None) -> Object | None:
        """Write ``desired``; return the stored object, or ``None`` if it was not written.

        ``existing`` is an object that was read from the API server, if it is not in its informer.
        """
        gvk, entry = gvk_of(desired), self._children.get(desired)
        if gvk == DEPLOYMENT and not self._foreign.isdisjoint(_used_objects(desired)):
            return None
        current = entry.object() if entry is not None else existing
        try:
            if current is None:
                try:
                    return await self._apply(desired, resourceVersion=ABSENT_VERSION)
                except Conflict:
                    current = await self._client.get(gvk, key_of(desired), live=True)
                    if current is None:
                        raise
            if not belongs_to(current, self._stack):
                self._report_name_conflict(desired)
                return None
            if is_deleting(current):
                return None  # its deletion causes an event
            if entry is None and is_of_helm(current):
                current = await self._take_over(current)
            return await self._apply(desired, uid=uid_of(current))
        except UnknownKind:
            self._children.set_unserved(gvk)
        except APIError as error:
            self._record_failure(desired, error, "written")
        return None

    async def prune(self, wanted: list[Object]) -> None:
        """Delete the objects that the stack controls and that are not ``wanted``, except retained ones."""
        names = {(gvk_of(obj), key_of(obj)) for obj in wanted}
        for gvk, entry in list(self._children.of(self._stack)):
            if (gvk, entry.key) in names or entry.meta.is_deleting:
                continue
            metadata = {"name": entry.key.name, "annotations": dict(entry.annotations)}
            obj: Object = {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata}
            if is_retained(obj):
                continue
            try:
                await self._client.delete(gvk, entry.key, uid=entry.meta.uid, propagation_policy=Propagation.BACKGROUND)
            except (Conflict, UnknownKind):
                continue  # another object has the name, or the kind is no longer served
            except APIError as error:
                self._record_failure(obj, error, "deleted")

    def raise_errors(self) -> None:
        """Raise the errors of the writes that failed, so that the reconcile is retried."""
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            raise ExceptionGroup("failed to write several objects", self.errors)

    async def _apply(self, desired: Object, **precondition: str) -> Object:
        claimed = {**desired, "metadata": {**desired["metadata"], **precondition}}
        owner = None if is_retained(desired) else self._stack
        return await self._client.apply(claimed, owner=owner)

    async def _take_over(self, current: Object) -> Object:
        """Become the owner of the fields that Helm owns."""
        metadata: dict[str, Any] = {
            "uid": uid_of(current),
            "resourceVersion": resource_version_of(current),
            "managedFields": taken_over(current),
        }
        _log.info("Adopting object that Helm created", kind=gvk_of(current).kind, object=str(key_of(current)))
        return await self._client.patch(gvk_of(current), key_of(current), {"metadata": metadata})

    def _report_name_conflict(self, desired: Object) -> None:
        self._foreign.add((gvk_of(desired), name_of(desired)))
        self.failures.append(
            f"{gvk_of(desired).kind} {name_of(desired)} already exists and does not belong to this InferenceStack"
        )

    def _record_failure(self, obj: Object, error: APIError, verb: str) -> None:
        if any(cause.get("reason") == "NamespaceTerminating" for cause in error.causes):
            _log.debug("Namespace is being deleted", kind=gvk_of(obj).kind, object=name_of(obj))
            return
        self.errors.append(error)
        if isinstance(error, _LASTING) or (isinstance(error, Conflict) and error.causes):
            self.failures.append(f"{gvk_of(obj).kind} {name_of(obj)} could not be {verb}: {error.message}")
        else:
            self.is_disturbed = True


def _used_objects(deployment: Object) -> Iterator[tuple[GVK, str]]:
    """Yield kind and name of the objects of a stack that the pods of a rendered Deployment can use."""
    pod: Mapping[str, Any] = deployment["spec"]["template"]["spec"]
    yield SERVICE_ACCOUNT, pod["serviceAccountName"]
    for volume in pod.get("volumes") or ():
        yield CONFIG_MAP, (volume.get("configMap") or {}).get("name", "")
        yield PERSISTENT_VOLUME_CLAIM, (volume.get("persistentVolumeClaim") or {}).get("claimName", "")
