"""Deletes objects: finalizers, propagation policies, grace periods, preconditions.

The rules follow ``BeforeDelete`` and ``deletionFinalizersForGarbageCollection`` of apiserver's generic registry: an
object is removed immediately if it has neither finalizers nor a grace period, and marked for deletion otherwise.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from envtest.apimachinery.errors import GroupResource, conflict, not_found
from envtest.apimachinery.objects import Object, format_time
from envtest.endpoints.options import DeleteOptions
from envtest.registry.resource import RequestContext
from envtest.registry.storage_version import from_storage, to_storage
from envtest.schema.shaping import copy_json
from envtest.storage import Record
from envtest.writes.server_core import Core

__all__ = ["DeletionResult", "delete_object", "deletes_during_update", "mark_deleting"]

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class DeletionResult(NamedTuple):
    """The result of a deletion: ``obj`` is the last state of the object.

    ``removed``: it was removed from the store. ``marked``: it waits for its finalizers or for its grace period to end.
    """

    obj: Object
    removed: bool
    marked: bool = False


def deletes_during_update(new: Object, old: Object) -> bool:
    """Return whether an update removes the last finalizer of an object that is being deleted."""
    after = new["metadata"]
    before = old["metadata"]
    if after.get("finalizers") or not before.get("deletionTimestamp"):
        return False
    # A pod that still has time to stop is deleted by the kubelet, with a grace period of 0.
    if (before.get("deletionGracePeriodSeconds") or 0) != 0 or (
        after.get("deletionGracePeriodSeconds") or 0
    ) != 0:
        return False
    # its finalizers in spec also keep it
    if new.get("kind") == "Namespace" and new.get("apiVersion") == "v1":
        return not (new.get("spec") or {}).get("finalizers")
    return True


def _stamp(moment: datetime) -> str:
    return format_time(moment.astimezone(UTC))


def _parse_stamp(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def mark_deleting(obj: Object, ctx: RequestContext) -> None:
    """Set deletionTimestamp, with a grace period of 0."""
    metadata = obj["metadata"]
    if metadata.get("deletionGracePeriodSeconds") is None and metadata.get("generation"):
        metadata["generation"] += 1
    stamp = metadata.get("deletionTimestamp")
    if not stamp or _parse_stamp(stamp) > ctx.moment:
        metadata["deletionTimestamp"] = ctx.now
    metadata["deletionGracePeriodSeconds"] = 0


def check_preconditions(obj: Object, ctx: RequestContext, options: DeleteOptions) -> None:
    """Raise StatusError (409) if the options require another uid or resourceVersion than the object has."""
    metadata = obj["metadata"]
    name = ctx.name
    kind = GroupResource(ctx.info.group, ctx.info.kind)
    if options.uid is not None and options.uid != metadata.get("uid"):
        raise conflict(
            kind,
            name,
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({metadata.get('uid')}). "
            "The object might have been deleted and then recreated",
        )
    if options.resource_version is not None and options.resource_version != metadata.get(
        "resourceVersion"
    ):
        raise conflict(
            kind,
            name,
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the "
            f"ResourceVersion in record ({metadata.get('resourceVersion')}). The object might have been modified",
        )


class _Grace(NamedTuple):
    graceful: bool = False
    pending: bool = False
    seconds: int = 0


def _begin_grace(obj: Object, ctx: RequestContext, options: DeleteOptions) -> _Grace:
    """Start, shorten or confirm graceful deletion, in place."""
    metadata = obj["metadata"]
    requested = options.grace_period
    # as kube-apiserver: a negative period is one second
    if requested is not None and requested < 0:
        requested = 1
    seconds = ctx.info.strategy.grace_period(obj, requested)
    if seconds is None:  # the kind has no graceful deletion
        return _Grace()
    if metadata.get("deletionTimestamp"):
        current = metadata.get("deletionGracePeriodSeconds")
        if not current:  # being deleted without a grace period, or only finalizers are left
            return _Grace()
        if requested is None or requested >= current:  # a second DELETE can only shorten the period
            return _Grace(pending=True)
        moment = _parse_stamp(metadata["deletionTimestamp"]) + timedelta(
            seconds=requested - current
        )
        # the shorter period is over: the shortest that lets the kubelet delete the pod
        if moment < ctx.moment:
            moment = ctx.moment
            requested = min(requested, 1)
        metadata["deletionTimestamp"] = _stamp(moment)
        metadata["deletionGracePeriodSeconds"] = requested
        return _Grace(graceful=True, seconds=requested)
    metadata["deletionTimestamp"] = _stamp(ctx.moment + timedelta(seconds=seconds))
    metadata["deletionGracePeriodSeconds"] = seconds
    if metadata.get("generation"):
        metadata["generation"] += 1
    return _Grace(graceful=True, seconds=seconds)


def _settle_grace(ctx: RequestContext, obj: Object, options: DeleteOptions) -> None:
    """Put the effective grace period into the options that validating admission receives."""
    if not obj["metadata"].get("deletionTimestamp"):
        seconds = ctx.info.strategy.grace_period(obj, options.grace_period)
        if seconds is not None:
            ctx.options = {**ctx.options, "gracePeriodSeconds": seconds}


def _wants_orphan(obj: Object, ctx: RequestContext, options: DeleteOptions) -> bool:
    default = ctx.info.strategy.default_propagation
    if default == "unsupported":  # the garbage collector ignores the kind (Event)
        return False
    if options.orphan_dependents is not None:
        return options.orphan_dependents
    if options.propagation is not None:
        return options.propagation == "Orphan"
    # A request without a policy keeps the policy of an earlier DELETE.
    for finalizer in obj["metadata"].get("finalizers") or ():
        if finalizer in {ORPHAN, FOREGROUND}:
            return bool(finalizer == ORPHAN)
    return default == "orphan"


def _wants_foreground(obj: Object, ctx: RequestContext, options: DeleteOptions) -> bool:
    strategy = ctx.info.strategy
    if strategy.default_propagation == "unsupported":
        return False
    if options.orphan_dependents is not None:
        return strategy.foreground_without_orphans and not options.orphan_dependents
    if options.propagation is not None:
        return options.propagation == "Foreground"
    for finalizer in obj["metadata"].get("finalizers") or ():
        if finalizer in {ORPHAN, FOREGROUND}:
            return bool(finalizer == FOREGROUND)
    return False


def _set_gc_finalizers(obj: Object, ctx: RequestContext, options: DeleteOptions) -> bool:
    """Add or remove the garbage collector's finalizers by the propagation policy; return whether they changed."""
    present: list[str] = obj["metadata"].get("finalizers") or []
    wanted = [finalizer for finalizer in present if finalizer not in {ORPHAN, FOREGROUND}]
    if _wants_orphan(obj, ctx, options):
        wanted.append(ORPHAN)
    if _wants_foreground(obj, ctx, options):
        wanted.append(FOREGROUND)
    if set(wanted) == set(present):
        return False
    if wanted:
        obj["metadata"]["finalizers"] = wanted
    else:
        obj["metadata"].pop("finalizers", None)
    return True


async def delete_object(
    core: Core, ctx: RequestContext, options: DeleteOptions, *, skip_admission: bool = False
) -> DeletionResult:
    """Delete or mark the object that ``ctx`` names. Raises StatusError (404, 409, or the error of admission).

    ``skip_admission`` is for deletions that are part of an operation that admission has already allowed.
    """
    info = ctx.info
    namespace = ctx.namespace if info.namespaced else ""
    while True:
        record = core.store.get(info.storage, namespace, ctx.name)
        if record is None:
            raise not_found(info.resource, ctx.name)
        obj = await from_storage(info, record)
        check_preconditions(obj, ctx, options)
        if not skip_admission:
            grace = _begin_grace(copy_json(obj), ctx, options)
            # kube-apiserver does not ask admission again about a deletion that is under way
            if grace.pending:
                return DeletionResult(obj, removed=False)
            if grace.graceful:
                ctx.options["gracePeriodSeconds"] = grace.seconds
            await core.admission.mutate(ctx, {}, obj)
            _settle_grace(ctx, obj, options)
            await core.admission.validate(ctx, {}, obj)
            skip_admission = True
            # written while a webhook was called: check it again
            if not core.store.is_current(info.storage, record):
                continue
        result = await _delete_current(core, ctx, options, record, obj)
        if result is not None:  # otherwise a concurrent write: delete the latest state
            return result


async def _mark(
    core: Core, ctx: RequestContext, options: DeleteOptions, record: Record, obj: Object
) -> DeletionResult | None:
    """Store an object that its strategy marked, of a kind with its own deletion procedure (Namespace, CRD)."""
    _set_gc_finalizers(obj, ctx, options)
    if ctx.dry_run:
        return DeletionResult(obj, removed=False, marked=True)
    stored = await to_storage(ctx.info, obj)
    if not core.store.is_current(ctx.info.storage, record):
        return None
    after = core.store.update(ctx.info.storage, stored.obj, record, written=stored.written)
    obj["metadata"]["resourceVersion"] = str(after.revision)
    return DeletionResult(obj, removed=False, marked=True)


async def _delete_current(
    core: Core, ctx: RequestContext, options: DeleteOptions, record: Record, obj: Object
) -> DeletionResult | None:
    """Try the deletion on the current record; return ``None`` on a concurrent write."""
    info = ctx.info
    if info.strategy.begin_deletion(obj, ctx):
        return await _mark(core, ctx, options, record, obj)
    grace = _begin_grace(obj, ctx, options)
    if grace.pending:
        return DeletionResult(obj, removed=False)
    changed = _set_gc_finalizers(obj, ctx, options)
    has_finalizers = bool(obj["metadata"].get("finalizers"))
    if grace.graceful or has_finalizers or changed:
        if has_finalizers and not grace.graceful:
            mark_deleting(obj, ctx)
        stays = has_finalizers or grace.seconds > 0
        if ctx.dry_run:
            return DeletionResult(obj, removed=not stays, marked=stays)
        stored = await to_storage(info, obj)
        if not core.store.is_current(info.storage, record):
            return None
        record = core.store.update(info.storage, stored.obj, record, written=stored.written)
        obj["metadata"]["resourceVersion"] = str(record.revision)
        if stays:
            return DeletionResult(obj, removed=False, marked=True)
        # the last update is an event of its own, before the deletion
        await core.store.let_watchers_send()
        current = core.store.get(info.storage, record.namespace, record.name)
        if current is None or current.uid != record.uid:
            return DeletionResult(obj, removed=True)
        record = current
    if ctx.dry_run:
        return DeletionResult(obj, removed=True)
    last = core.store.delete(info.storage, record)
    info.strategy.release(record.uid)
    return DeletionResult(await from_storage(info, last), removed=True)
