"""Bring the objects that belong to an owner to their desired state: the only way in which reconcilers write them.

A reconciler decides with pure functions which objects should exist, and describes each as a :class:`Child`.
:func:`reconcile_children` sends the requests. It leaves the objects of other owners unchanged:

* A cache cannot show that a name is free: it lags behind, and an informer that selects by labels or size never contains
  some objects. Therefore the first write of an object can only create it. If the name is taken, the object is read from
  the API server and its owner is checked.
* A change carries the uid and the resourceVersion that were checked, a deletion the uid, so neither reaches an object
  that another client created in the meantime. If the object has changed in the meantime, it is read, its owner is
  checked again, and the change carries only the uid: no client can prevent it by further changes.
* A failed write does not prevent the others. What no retry can change is reported once; all else is retried.
* What another client overwrites again and again is corrected later and later, but only if the child can wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Literal, Protocol

import msgspec
import structlog
from anyio import to_thread
from anyio.lowlevel import checkpoint

from cfo.runtime.client.apply import ABSENT_VERSION
from cfo.runtime.client.child import Child, ObjectID, Update, id_text, require_id
from cfo.runtime.client.child_checks import (
    check_children,
    check_computed,
    checked_patch,
    checked_truth,
)
from cfo.runtime.client.child_results import ChildResult, ChildResults, NameTaken, Outcome, title
from cfo.runtime.client.client import CachedState, Client, PatchType, Propagation
from cfo.runtime.client.errors import (
    AlreadyExists,
    APIError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    UnknownKind,
    is_schema_mismatch,
)
from cfo.runtime.client.name_checks import WantedName
from cfo.runtime.client.overwrites import MAX_CORRECTION_DELAY, OVERWRITE_WINDOW
from cfo.runtime.objects.errors import clear_frames
from cfo.runtime.objects.foreign_models import ForeignModel
from cfo.runtime.objects.unstructured import (
    Object,
    TypedObject,
    gvk_of,
    is_controlled_by,
    is_deleting,
    labels_of,
    namespace_of,
    owner_references_of,
    resource_version_of,
    set_controller_owner,
    to_object,
    uid_of,
)
from cfo.runtime.process.arguments import (
    require_plain_function,
    require_type,
    wrong_result,
)

_log = structlog.get_logger(__name__)

_LASTING: Final = (Invalid, Forbidden, BadRequest)
"""Errors that a retry does not remove: the object, a policy, a quota or a permission has to be changed."""

_FEW_CHILDREN: Final = 8
"""How many children are written before other tasks run: those that are as desired send no request, so they await
nothing."""


class EventSink(Protocol):
    """Records Kubernetes Events, as :class:`~cfo.runtime.EventRecorder` does."""

    def event(
        self, obj: Object, type_: Literal["Normal", "Warning"], reason: str, message: str, /
    ) -> None:
        """Record an Event about ``obj``."""


async def reconcile_children(
    client: Client,
    owner: Object | TypedObject | ForeignModel,
    children: Sequence[Child],
    *,
    prune: Iterable[ObjectID] = (),
    events: EventSink | None = None,
    block_owner_deletion: bool | None = None,
    max_created: int = 0,
    max_deleted: int = 0,
    keep: Callable[[Object], Object] | None = None,
) -> ChildResults:
    """Bring ``children`` of ``owner`` to their desired state, one after the other, and return what became of them.

    :param prune: objects in the cache; those that belong to the owner and are not among the children are deleted.
    :param events: records a Warning Event about the owner for each taken name (``NameTaken``; if the fallback was
        written instead, only with a ``consequence``), each lasting refusal (``FailedToReconcile``), and each object
        whose content was not trusted (``UntrustedContentReplaced``). Without it, a taken name is logged once.
    :param block_owner_deletion: whether a foreground deletion of the owner waits for the objects.
    :param max_created: the maximum number of objects to create; 0 means no limit. :attr:`ChildResults.is_limited` then
        asks for another reconcile.
    :param max_deleted: the same for objects to delete, absent children and pruned objects together.
    :param keep: returns what the results keep of an object (default: all). Many large objects take a multiple of their
        JSON.

    The errors of requests for a child are in the results. If a reconciler does not read them, the log has a warning,
    and its tests fail. Raises :class:`~cfo.runtime.client.OwnerDeleted`, :class:`~cfo.runtime.TransportError` and
    :class:`~cfo.runtime.DiscoveryIncomplete`. Before the first request, raises :class:`TypeError` for what is no
    :class:`Child`, and for an async function of one; :class:`ValueError` for two children with the same kind, namespace
    and name, for a requirement that is not an earlier child, and for a child without ``belongs`` that is not in the
    namespace of its owner, which thus cannot be its controller.
    """
    require_type("children", children, Iterable, "a list of Child, such as [Child.present(obj)]")
    listed = list(children)
    owner = to_object(owner)
    check_children(listed, owner)
    if keep is not None:
        require_plain_function("keep", keep, "a function of an object")
    writer = _ChildWriter(client, owner, events, block_owner_deletion, keep)
    results = writer.results

    def pruned() -> Iterator[Child]:
        for pruned_id in prune:
            require_id("prune", pruned_id)
            gvk, key = pruned_id
            if pruned_id not in results:
                yield Child.absent(gvk, key, propagation_policy=Propagation.BACKGROUND)

    def is_limit_reached() -> bool:
        if max_created and results.created >= max_created:
            return True
        return bool(max_deleted) and results.deleted >= max_deleted

    for index, child in enumerate(chain(listed, pruned())):
        if is_limit_reached():
            results.is_limited = True
            break
        if index >= _FEW_CHILDREN:
            await checkpoint()
        await writer.write(child)
    results.require_reading()
    return results


class _Overwritten(Exception):
    """A child is not written for ``seconds``, because another client overwrites it again and again."""

    def __init__(self, seconds: float, current: Object | None) -> None:
        super().__init__(seconds)
        self.seconds = seconds
        self.current = current


class _ChildWriter:
    """Writes the children of ``owner`` and collects their results."""

    def __init__(
        self,
        client: Client,
        owner: Object,
        events: EventSink | None,
        block_owner_deletion: bool | None,
        keep: Callable[[Object], Object] | None,
    ) -> None:
        self.results = ChildResults(owner, client.name_checks)
        self._keep = keep
        self._client = client
        self._owner = owner
        self._events = events
        self._block_owner_deletion = block_owner_deletion

    async def write(self, child: Child) -> ChildResult:
        """Bring one child, or what is written instead of it, to its desired state; record and return the result."""
        if child.requires and not self.results.is_done(*child.requires):
            result = self._skipped(child)
        else:
            attempted = await self._attempt(child)
            self._check_watched(attempted)
            result = self._kept(attempted)
        if child.fallback is None or not result.uses_fallback:
            self._report(result)
            self.results.add(result)
            return result
        self.results.add(result)
        replacement = await self.write(child.fallback)
        if replacement.is_done and child.consequence:  # without one, nothing is wrong for the user
            self._report(result)
        return replacement

    def _check_watched(self, result: ChildResult) -> None:
        """Report an object of the owner whose events no informer delivers, for example because it lacks a label."""
        obj = result.obj
        if obj is None or not result.is_done:
            return
        child = result.child
        cached = self._client.cache.stored(child.gvk, child.key, partial=True)
        if cached is not None or not is_controlled_by(obj, self._owner):
            return
        owner = gvk_of(self._owner)
        self._client.cache.check_child(owner, child.gvk, child.key, labels_of(obj))

    def _kept(self, result: ChildResult) -> ChildResult:
        """Return the result without what it need not keep in memory while the other children are written."""
        if result.error is not None:
            clear_frames(result.error)
        if self._keep is None or result.obj is None:
            return result
        kept = self._keep(result.obj)
        if not isinstance(kept, dict):
            raise wrong_result("keep", kept, "an object, a dict")
        if isinstance(result.error, NameTaken):
            result.error.obj = kept
        return msgspec.structs.replace(result, obj=kept)

    def _skipped(self, child: Child) -> ChildResult:
        unmet = [required for required in child.requires if not self.results.is_done(required)]
        names = ", ".join(map(id_text, unmet))
        message = f"{child.gvk.kind} {child.key.name} waits for {names}"
        return ChildResult(child=child, outcome=Outcome.SKIPPED, message=message)

    async def _attempt(self, child: Child) -> ChildResult:
        """Send the requests for a child; its errors become part of the result."""
        try:
            if child.is_absent:
                return await self._delete(child)
            return await self._create_or_update(child)
        except NameTaken as taken:
            outcome = Outcome.WAITING if taken.is_of_predecessor else Outcome.TAKEN
            # Another client's object can have any size, and only its metadata matters.
            taken.obj = {name: taken.obj[name] for name in ("apiVersion", "kind", "metadata")}
            return ChildResult(
                child=child, outcome=outcome, obj=taken.obj, message=str(taken), error=taken
            )
        except _Overwritten as overwritten:
            self.results.retry(overwritten.seconds)
            message = (
                f"{id_text(child.id)} is overwritten by another client again and again, and corrected after at most "
                f"{MAX_CORRECTION_DELAY:g} s"
            )
            return ChildResult(
                child=child, outcome=Outcome.OVERWRITTEN, obj=overwritten.current, message=message
            )
        except UnknownKind as error:
            return ChildResult(
                child=child, outcome=Outcome.UNSERVED, message=str(error), error=error
            )
        except APIError as error:
            verb = "deleted" if child.is_absent else "written"
            message = f"{child.gvk.kind} {child.key.name} could not be {verb}: {error.message}"
            return ChildResult(
                child=child, outcome=_outcome_of(error), message=message, error=error
            )

    # Create and update.

    async def _create_or_update(self, child: Child) -> ChildResult:
        existing = await self._known(child)
        if existing is not None:
            return await self._update_checked(child, existing)
        warnings: list[str] = []
        try:
            created = await self._create(child, warnings)
        except Conflict:
            existing = await self._read(child)
            if existing is None:
                raise  # it was deleted in the meantime: a retry creates it
            return await self._update_checked(child, existing)
        return ChildResult(
            child=child,
            outcome=Outcome.DONE,
            obj=created,
            is_new=True,
            warnings=tuple(dict.fromkeys(warnings)),
        )

    async def _update_checked(self, child: Child, known: CachedState) -> ChildResult:
        """Update an existing object; if it changed since its owner was checked, check it once more.

        The second update does not depend on the resourceVersion: a client could change the object all the time.
        """
        try:
            return await self._update_owned(child, known)
        except Conflict as error:
            if error.causes:
                raise  # it names fields of another manager, which a retry does not release
            # Its owner reference may have been removed.
            live = await self._read(child)
            if live is None or uid_of(live.object) != uid_of(known.object):
                raise
        return await self._update_owned(child, live, unchanged=False)

    async def _known(self, child: Child) -> CachedState | None:
        """Return the object that the caller or the cache has; ``None`` does not mean that it does not exist."""
        if child.current is not None:
            return CachedState(child.current)
        known = self._client.cached(child.gvk, child.key)
        if known is not None and known.is_partial and child.compute is not None:
            return await self._read(child)
        return known

    async def _read(self, child: Child) -> CachedState | None:
        live = await self._client.get(child.gvk, child.key, live=True)
        return CachedState(live) if live is not None else None

    async def _create(self, child: Child, warnings: list[str]) -> Object:
        """Create the object and return it as stored; append the API server's warnings to ``warnings``.

        Raises :class:`Conflict` if the name is taken.
        """
        desired = self._with_owner(child, await self._desired(child, None))
        self._check_overwrites(child, None, desired)
        if child.update is Update.APPLY and child.compute is None:
            # The object is created by an apply, so that later applies own its fields.
            metadata = {**desired["metadata"], "resourceVersion": ABSENT_VERSION}
            created = await self._client.apply({**desired, "metadata": metadata})
        else:
            created = await self._client.create(desired, on_warning=warnings.append)
        if child.update is not Update.KEEP:  # the caller may have deleted it
            self._record_write(child, desired)
        return created

    async def _update_owned(
        self, child: Child, known: CachedState, *, unchanged: bool = True
    ) -> ChildResult:
        """Update an existing object, with ``unchanged`` only if it has not changed since it was read.

        Raises :class:`NameTaken` unless it belongs to the owner.
        """
        current = known.object
        if not self._belongs(child, current):
            raise NameTaken(current, self._owner)
        if is_deleting(current):
            if not is_controlled_by(current, self._owner):
                # Without an owner reference, its deletion causes no reconcile of the owner.
                self.results.retry(self._client.name_checks.next_delay(self._wanted_name(child)))
            return _waiting(child, current)
        if not _is_trusted(child, current):
            return await self._replace_object(child, current)
        adopted = await self._adopted(child, known)
        stored = await self._update(child, adopted, unchanged=unchanged)
        return ChildResult(child=child, outcome=Outcome.DONE, obj=stored)

    async def _adopted(self, child: Child, known: CachedState) -> CachedState:
        if child.adoption is None:
            return known
        patch = checked_patch(child, "adoption", child.adoption(known.object))
        if not patch:
            return known
        # It may replace lists, such as the managedFields.
        return CachedState(await self._client.patch_object(known.object, patch, unchanged=True))

    async def _update(self, child: Child, known: CachedState, *, unchanged: bool) -> Object:
        current = known.object
        if child.update is Update.KEEP:
            return current
        if callable(child.update):
            patch = checked_patch(child, "update", child.update(current))
            if not patch:
                return current
            return await self._client.patch_object(current, patch, unchanged=unchanged)
        desired = self._with_owner(child, await self._desired(child, current))
        self._check_overwrites(child, known, desired)
        if child.update is Update.REPLACE:
            stored = await self._replace_fields(child, current, desired)
        elif child.compute is not None and has_everything(current, desired):
            return current
        else:
            version = resource_version_of(current) if unchanged else ""
            stored = await self._client.apply(
                _with_uid(desired, current), version=version, cached=known
            )
        if resource_version_of(stored) != resource_version_of(current):
            self._record_write(child, desired)
        return stored

    def _check_overwrites(self, child: Child, known: CachedState | None, desired: Object) -> None:
        """Raise :class:`_Overwritten` if the child must wait until it is written again."""
        if not child.can_wait:
            return
        seconds = self._client.overwrites.delay(self._wanted_name(child), desired)
        if not seconds:
            return
        if known is None:
            raise _Overwritten(seconds, None)
        if self._would_change(child, known, desired):
            raise _Overwritten(seconds, known.object)

    def _would_change(self, child: Child, known: CachedState, desired: Object) -> bool:
        current = known.object
        if child.update is Update.REPLACE:
            return bool(_differing_fields(current, desired))
        if child.compute is not None:
            return not has_everything(current, desired)
        return self._client.would_apply(_with_uid(desired, current), known)

    def _record_write(self, child: Child, desired: Object) -> None:
        if not self._client.overwrites.wrote(self._wanted_name(child), desired):
            return
        correction = "it was corrected each time"
        if child.can_wait:
            correction += f", from now on after at most {MAX_CORRECTION_DELAY:g} s"
        self._record(
            "ChildOverwritten",
            f"Another client changed or deleted {title(desired)} twice within {OVERWRITE_WINDOW:g} s, and "
            f"{correction}. If it was not you, ask an administrator to find another operator",
        )

    async def _replace_fields(self, child: Child, current: Object, desired: Object) -> Object:
        """Replace the fields that differ; an apply would keep what another client added to them."""
        changes = [
            {"op": "replace" if name in current else "add", "path": f"/{name}", "value": value}
            for name, value in _differing_fields(current, desired).items()
        ]
        if not changes:
            return current
        return await self._client.patch(
            child.gvk, child.key, changes, PatchType.JSON, uid=uid_of(current)
        )

    async def _replace_object(self, child: Child, current: Object) -> ChildResult:
        """Delete the object and create it again: an update would keep other keys, and an immutable object as is."""
        await self._client.delete(child.gvk, child.key, uid=uid_of(current))
        try:
            created = await self._client.create(
                self._with_owner(child, await self._desired(child, None))
            )
        except AlreadyExists:  # a finalizer keeps it
            message = f"{title(current)} is being deleted, and its content is from another client"
            return ChildResult(child=child, outcome=Outcome.TAKEN, obj=current, message=message)
        self._record(
            "UntrustedContentReplaced",
            f"{title(current)} had the labels of this {gvk_of(self._owner).kind}, but no owner reference with its "
            "uid: its content was replaced. Restart the pods that use it",
        )
        return ChildResult(child=child, outcome=Outcome.DONE, obj=created)

    async def _desired(self, child: Child, current: Object | None) -> Object:
        if child.compute is None:
            assert child.desired is not None
            return child.desired
        if child.in_thread:
            computed = await to_thread.run_sync(child.compute, current)
        else:
            computed = child.compute(current)
        check_computed(child, computed)
        return computed

    def _with_owner(self, child: Child, desired: Object) -> Object:
        namespace = namespace_of(self._owner)
        if not child.has_owner_reference or namespace not in ("", namespace_of(desired)):
            return desired
        return set_controller_owner(
            desired, self._owner, block_owner_deletion=self._block_owner_deletion
        )

    # Delete.

    async def _delete(self, child: Child) -> ChildResult:
        """Delete the object that the cache has, if it belongs to the owner."""
        known = self._client.cached(child.gvk, child.key)
        current = child.current
        if current is None and known is not None:
            current = known.object
        try:
            is_deleted = await self._delete_owned(child, current)
        except Conflict:
            # Another object has the name. It may be another one of the owner.
            live = await self._client.get(child.gvk, child.key, live=True)
            is_deleted = await self._delete_owned(child, live)
        return ChildResult(child=child, outcome=Outcome.DONE, is_deleted=is_deleted)

    async def _delete_owned(self, child: Child, current: Object | None) -> bool:
        """Delete ``current`` if it belongs to the owner; return whether a request was sent."""
        # A second deletion of an object that a finalizer keeps would be a request without effect.
        if current is None or is_deleting(current) or not self._belongs(child, current):
            return False
        await self._client.delete(
            child.gvk,
            child.key,
            uid=uid_of(current),
            propagation_policy=child.propagation_policy,
        )
        return True

    # Ownership and reports.

    def _belongs(self, child: Child, obj: Object) -> bool:
        if child.belongs is not None:
            return checked_truth(child, "belongs", child.belongs(obj))
        return is_controlled_by(obj, self._owner)

    def _report(self, result: ChildResult) -> None:
        if result.outcome is Outcome.TERMINATING:
            # Not an error: the owner is in this namespace, and is deleted next.
            _log.debug(
                "Namespace is being deleted",
                kind=result.child.gvk.kind,
                object=result.child.key.name,
            )
        elif result.outcome is Outcome.TAKEN:
            self._report_taken(result)
        elif result.outcome is Outcome.REFUSED:
            self._record("FailedToReconcile", result.message)
        if result.is_error:
            # The caller raises the error, or decides what it means.
            _log.debug("Child could not be written or deleted", error=result.message)

    def _report_taken(self, result: ChildResult) -> None:
        message = result.message
        if result.child.consequence:
            message = f"{message}: {result.child.consequence}"
        self._record("NameTaken", message)
        if self._events is None and not result.uses_fallback:
            wanted = self._wanted_name(result.child)
            if self._client.name_checks.is_new(wanted):
                _log.warning("Name of a child is taken, will check it again", error=message)

    def _wanted_name(self, child: Child) -> WantedName:
        return WantedName(uid_of(self._owner), *child.id)

    def _record(self, reason: str, message: str) -> None:
        if self._events is not None:
            self._events.event(self._owner, "Warning", reason, message)


def _with_uid(desired: Object, current: Object) -> Object:
    """Return ``desired`` with the uid of the object that it is applied to, so that it reaches no other one."""
    return {**desired, "metadata": {**desired["metadata"], "uid": uid_of(current)}}


def _differing_fields(current: Object, desired: Object) -> dict[str, Any]:
    """Return the fields of ``desired``, except those that identify it, that ``current`` does not have."""
    return {
        name: value
        for name, value in desired.items()
        if name not in ("apiVersion", "kind", "metadata") and current.get(name) != value
    }


def has_everything(current: Object, desired: Object) -> bool:
    """Return whether ``current`` has all of ``desired``; other metadata and other keys of ``data`` are ignored."""
    metadata = current["metadata"]
    desired_metadata = desired["metadata"]
    for part in ("labels", "annotations"):
        if not _contains(metadata.get(part), desired_metadata.get(part)):
            return False
    references = owner_references_of(current)
    if any(reference not in references for reference in owner_references_of(desired)):
        return False
    if not _contains(current.get("data"), desired.get("data")):
        return False
    other_fields = set(desired) - {"apiVersion", "kind", "metadata", "data"}
    return all(current.get(field) == desired[field] for field in other_fields)


def _contains(current: Mapping[str, Any] | None, desired: Mapping[str, Any] | None) -> bool:
    return (desired or {}).items() <= (current or {}).items()


def _is_trusted(child: Child, current: Object) -> bool:
    if child.is_trusted is None:
        return True
    return checked_truth(child, "is_trusted", child.is_trusted(current))


def _waiting(child: Child, current: Object) -> ChildResult:
    """Return the result for a child whose object is being deleted."""
    message = f"{title(current)} is being deleted"
    return ChildResult(child=child, outcome=Outcome.WAITING, obj=current, message=message)


def _outcome_of(error: APIError) -> Outcome:
    """Return what a failed request means for its child."""
    if error.is_from_terminating_namespace:
        return Outcome.TERMINATING
    if is_schema_mismatch(error):
        return Outcome.REFUSED
    # A conflict with causes names fields of another manager, which a retry does not release.
    if isinstance(error, _LASTING) or (isinstance(error, Conflict) and error.causes):
        return Outcome.REFUSED
    return Outcome.FAILED
