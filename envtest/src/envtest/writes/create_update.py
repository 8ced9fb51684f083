"""Creates and updates objects: from a decoded object to the store, in the order of apiserver's generic registry.

A create runs defaulting, deduplication of owners, field management, mutating admission, system metadata, the strategy,
validation, validating admission, and the store. An update runs the same steps in a loop of optimistic concurrency,
because other requests may write while a webhook is called.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from envtest.apimachinery.errors import (
    MODIFIED,
    StatusError,
    already_exists,
    conflict,
    invalid_object,
    not_found,
    plain_error,
)
from envtest.apimachinery.field_errors import FieldError, as_sent, invalid
from envtest.apimachinery.objects import Object
from envtest.apimachinery.repetition import identity, repeated_positions
from envtest.apply.manager import restore_times
from envtest.auth.second_check import check_create
from envtest.endpoints.decoder import whole_numbers
from envtest.endpoints.listing import parse_revision
from envtest.registry.object_metadata import (
    check_namespace,
    drop_empty_metadata,
    fill_for_create,
    generated_name,
    restore_for_update,
    validate_metadata,
    validate_metadata_update,
    wipe_for_create,
)
from envtest.registry.resource import RequestContext
from envtest.registry.storage_version import after_storage, from_storage, to_storage
from envtest.storage import Record
from envtest.writes.deletion import deletes_during_update
from envtest.writes.server_core import Core

__all__ = ["Transform", "create_object", "dedupe_owners", "registry_key", "update_object"]

Transform = Callable[[Object | None], Awaitable[Object]]
"""Returns the object to store for the live object (``None`` if it does not exist); called again after a conflict."""

AdmissionView = Callable[[Object], Object]


def _unchanged(obj: Object) -> Object:
    return obj


ATTEMPTS = 64
"""Maximum number of attempts of an update under concurrent writes to the object."""

_NAME_RETRIES = 7
"""How often another name is generated if the object exists, as kube-apiserver does since 1.32 (RetryGenerateName)."""


_KEYS = {
    ("", "endpoints"): "services/endpoints",
    ("", "nodes"): "minions",
    ("", "replicationcontrollers"): "controllers",
    ("", "services"): "services/specs",
    ("networking.k8s.io", "ingresses"): "ingress",
}
"""The prefixes of etcd keys that are not the plural of the resource."""
_GROUPS_IN_KEYS = frozenset({"apiextensions.k8s.io", "apiregistration.k8s.io"})
"""Built-in groups whose name is a part of etcd keys, as the groups of all custom resources."""


def registry_key(ctx: RequestContext) -> str:
    """Return the object's etcd key as storage errors of kube-apiserver show it."""
    info = ctx.info
    prefix = _KEYS.get((info.group, info.plural), info.plural)
    if info.is_crd or info.group in _GROUPS_IN_KEYS:
        prefix = f"{info.group}/{info.plural}"
    # a dry run does not reach the layer that adds the prefix
    root = "/" if ctx.dry_run else "/registry/"
    return root + "/".join(part for part in (prefix, ctx.namespace, ctx.name) if part)


def dedupe_owners(obj: Object, ctx: RequestContext) -> None:
    """Remove duplicate owner references, with a warning."""
    owners = obj["metadata"].get("ownerReferences")
    # a single owner has no duplicate; most objects have at most one
    if not owners or len(owners) < 2:
        return
    keys = [identity(reference) for reference in owners]
    repeated = repeated_positions(keys)
    if not repeated:
        return
    several = {keys[position] for position in repeated}
    obj["metadata"]["ownerReferences"] = [
        each for index, each in enumerate(owners) if index not in repeated
    ]
    uids = (
        str(each.get("uid", "")) for each, key in zip(owners, keys, strict=True) if key in several
    )
    names = ", ".join(dict.fromkeys(uids))
    ctx.warn(
        ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and "
        f"may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {names}"
    )


async def create_object(core: Core, ctx: RequestContext, obj: Object) -> Object:
    """Store a decoded object; return it as the response contains it, in the request's version."""
    wipe_for_create(obj["metadata"])
    drop_empty_metadata(obj)
    ctx.info.strategy.default(obj)
    ctx.name = obj["metadata"].get("name") or ""
    dedupe_owners(obj, ctx)
    core.trackers.of(ctx.info, ctx.subresource).track(
        None, obj, manager=ctx.field_manager, now=ctx.now, sent=ctx.sent
    )
    obj = await admit_mutating(core, ctx, obj, None)
    return await _insert(core, ctx, obj)


async def admit_mutating(
    core: Core, ctx: RequestContext, obj: Object, old: Object | None
) -> Object:
    """Run mutating admission; clean the metadata of a changed object again."""
    before = obj
    obj = await core.admission.mutate(ctx, obj, old)
    if obj is not before:
        drop_empty_metadata(obj)
        dedupe_owners(obj, ctx)
    return obj


async def _insert(
    core: Core, ctx: RequestContext, obj: Object, *, is_update: bool = False
) -> Object:
    check_namespace(obj, ctx)
    metadata = obj["metadata"]
    is_generated = (
        bool(metadata.get("generateName"))
        and not metadata.get("name")
        and ctx.info.strategy.generates_names
    )
    fill_for_create(metadata, ctx)
    if is_generated:
        _avoid_existing_names(core, ctx, metadata)
    stored = False
    try:
        stored = await _store_new(core, ctx, obj, is_update=is_update)
    finally:
        if not stored:
            ctx.info.strategy.release(obj["metadata"]["uid"])
    return obj


def _avoid_existing_names(core: Core, ctx: RequestContext, metadata: dict[str, Any]) -> None:
    """Generate another name while an object has the generated one, at most ``_NAME_RETRIES`` times."""
    namespace = ctx.namespace if ctx.info.namespaced else ""
    for _ in range(_NAME_RETRIES):
        if core.store.get(ctx.info.storage, namespace, metadata["name"]) is None:
            return
        metadata["name"] = generated_name(metadata["generateName"])


async def _store_new(core: Core, ctx: RequestContext, obj: Object, *, is_update: bool) -> bool:
    """Prepare, validate and store an object; return whether it was stored (a dry run stores nothing)."""
    info = ctx.info
    metadata = obj["metadata"]
    info.strategy.drop_disabled(obj)
    info.strategy.prepare_create(obj, ctx)
    if info.strategy.has_spec_generation:
        metadata["generation"] = 1
    _check(obj, None, ctx)
    if is_update:  # the request was authorized as an update
        check_create(core.authorizer, ctx)
    await core.admission.validate(ctx, obj, None)
    namespace = ctx.namespace if info.namespaced else ""
    name = metadata["name"]
    # The storage of kube-apiserver checks the resourceVersion, so a dry run does not.
    if not ctx.dry_run and _is_revision(metadata.pop("resourceVersion", "")):
        raise plain_error("resourceVersion should not be set on objects to be created")
    existing = core.store.get(info.storage, namespace, name)
    if existing is not None:
        generated = bool(metadata.get("generateName"))
        raise already_exists(
            info.resource, name, terminating=existing.deleting, generated=generated
        )
    drop_empty_metadata(obj)
    if ctx.dry_run:  # after all checks, so that the response is that of a creation
        shown = await after_storage(info, obj)
        if shown is not obj:
            obj.clear()
            obj.update(shown)
        return False
    stored = await to_storage(info, obj)
    # Another request can have created it while a conversion webhook was called.
    if core.store.get(info.storage, namespace, name) is not None:
        raise already_exists(info.resource, name)
    record = core.store.create(info.storage, stored.obj, written=stored.written)
    if info.api_version != info.storage_version:
        # fields that do not exist in the storage version are lost
        shown = await from_storage(info, record)
        obj.clear()
        obj.update(shown)
    obj["metadata"]["resourceVersion"] = stored.obj["metadata"]["resourceVersion"]
    return True


def _check(obj: Object, old: Object | None, ctx: RequestContext) -> None:
    """Validate an object before it is stored. Raises StatusError (422)."""
    info = ctx.info
    errors: list[FieldError] = []
    if old is not None:
        is_status = ctx.subresource in ("status", "finalize")
        strategy = info.strategy
        checks = strategy.status_metadata_checks if is_status else strategy.metadata_checks
        is_strict = strategy.has_qualified_finalizers
        errors += validate_metadata_update(obj, old, checks, strict=is_strict)
    elif info.strategy.validates_metadata:
        errors += validate_metadata(obj, info)
    errors += info.strategy.validate(obj, old, ctx, errors)
    if old is None and not errors and not info.strategy.validates_metadata:
        errors += validate_metadata(obj, info)
    if errors:
        kind = obj.get("kind") or info.kind
        name = obj["metadata"].get("name") or ""
        group = info.storage.group
        if info.is_crd:
            group, _, _ = (obj.get("apiVersion") or "").rpartition("/")
        raise invalid_object(group, kind, name, as_sent(errors, ctx.sent))
    if ctx.subresource != "status" or info.strategy.status_warns:
        for text in info.strategy.warnings(obj, old, ctx):
            ctx.warn(text)
    if ctx.has_whole_floats:  # JSON of Go has no other form of them
        for name in obj.keys() - {"metadata"}:
            obj[name] = whole_numbers(obj[name])


def copy_object(obj: Object) -> Object:
    """Return a deep copy of plain JSON."""
    copied: Object = orjson.loads(orjson.dumps(obj))
    return copied


async def update_object(
    core: Core,
    ctx: RequestContext,
    transform: Transform,
    *,
    uid: str = "",
    create: bool = False,
    admission_view: AdmissionView | None = None,
    skip_validating: bool = False,
) -> tuple[Object, bool]:
    """Update the object that ``ctx`` names; return it as the response contains it, and whether it was created.

    ``uid`` is a precondition. ``create`` allows an absent object of any kind to be created (apply). ``admission_view``
    converts the object to the form that validating admission receives; ``skip_validating`` skips validating admission.
    """
    info = ctx.info
    namespace = ctx.namespace if info.namespaced else ""
    for _ in range(ATTEMPTS):
        record = core.store.get(info.storage, namespace, ctx.name)
        if record is None:  # PUT of some kinds, and apply of all kinds, create an absent object
            return await _create_by_update(core, ctx, transform, uid, create), True
        old = await from_storage(info, record)
        if uid and uid != old["metadata"].get("uid"):
            raise _uid_conflict(ctx, uid, old["metadata"].get("uid", ""))
        new = await transform(copy_object(old))
        try:
            view = None if skip_validating else admission_view or _unchanged
            result = await _replace(core, ctx, record, old, new, view)
        finally:  # an attempt that failed has allocated values (cluster IPs) which the stored object does not use
            if info.strategy.allocates:
                stored = core.store.get(info.storage, namespace, ctx.name)
                if stored is not None:
                    info.strategy.settle(stored.obj())
        if result is not None:
            return result, False
        # Another request wrote the object: transform its latest state.
    raise conflict(info.resource, ctx.name, MODIFIED)


def _uid_conflict(ctx: RequestContext, wanted: str, actual: str) -> StatusError:
    return conflict(
        ctx.info.resource,
        ctx.name,
        f"StorageError: invalid object, Code: 4, Key: {registry_key(ctx)}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {actual}",
    )


async def _create_by_update(
    core: Core, ctx: RequestContext, transform: Transform, uid: str, create: bool
) -> Object:
    info = ctx.info
    creates = info.strategy.allow_create_on_update or create
    if ctx.subresource:  # of most kinds, a part of an object that exists
        creates = creates and ctx.subresource == "status" and info.strategy.status_creates
    if not creates:
        raise not_found(info.resource, ctx.name)
    if uid:  # the client means an object that was deleted, not a new one
        raise _uid_conflict(ctx, uid, "")
    ctx.operation = "CREATE"
    obj = await transform(None)
    ctx.created_by_status = bool(ctx.subresource)
    ctx.subresource = ""  # the new object is prepared and validated as a whole
    _sent_revision(obj["metadata"].get("resourceVersion") or "")
    if not ctx.dry_run:  # the storage, which a dry run does not reach, sets another one
        obj["metadata"].pop("resourceVersion", None)
    return await _insert(core, ctx, obj, is_update=True)


async def _replace(
    core: Core,
    ctx: RequestContext,
    record: Record,
    old: Object,
    new: Object,
    admission_view: AdmissionView | None,
) -> Object | None:
    """Replace ``record`` by ``new``; return ``None`` on a concurrent write."""
    info = ctx.info
    metadata = new["metadata"]
    revision = _sent_revision(metadata.get("resourceVersion") or "")
    if not revision:  # the client overwrites whatever is stored
        if not info.strategy.allow_unconditional_update:
            error = invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid_object(info.group, info.plural, ctx.name, [error])
    elif revision != record.revision:
        # no second attempt: the client changed another state than the stored one
        raise conflict(info.resource, ctx.name, MODIFIED)
    metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
    check_namespace(new, ctx)  # admission can have changed it
    _restore_generation(new, old)
    info.strategy.drop_disabled(new)
    info.strategy.prepare_update(new, old, ctx)
    restore_for_update(metadata, old["metadata"])
    _count_generation(new, old, ctx)
    drop_empty_metadata(new)
    _check(new, old, ctx)
    if admission_view is not None:
        await core.admission.validate(ctx, admission_view(new), admission_view(old))
    restore_times(new, old)
    if ctx.dry_run:  # after all checks, so that the response is that of a write
        return await after_storage(info, new)
    if deletes_during_update(new, old):
        # admission may have waited for a webhook
        if not core.store.is_current(info.storage, record):
            return None
        core.store.delete(info.storage, record)
        info.strategy.release(record.uid)
        return new
    stored = await to_storage(info, new)
    if ctx.subresource == "status" and not info.is_crd and "spec" in stored.obj:
        # Another version may have the parts of the spec in another order.
        stored.obj["spec"] = record.obj()["spec"]
    if not core.store.is_current(info.storage, record):  # a conversion webhook waits, too
        return None
    always = record.is_new and info.strategy.stores_defaults_late
    after = core.store.update(
        info.storage, stored.obj, record, always=always, written=stored.written
    )
    if info.api_version != info.storage_version:
        return await from_storage(info, after)
    new["metadata"]["resourceVersion"] = str(after.revision)
    return new


def _is_revision(text: str) -> bool:
    """Return whether a version names a state; kube-apiserver ignores any other when it creates."""
    try:
        return parse_revision(text) > 0
    except StatusError:
        return False


def _sent_revision(text: str) -> int:
    try:
        return parse_revision(text)
    except StatusError as error:
        raise plain_error(
            error.message.removeprefix(f'resourceVersion: Invalid value: "{text}": ')
        ) from None


def _restore_generation(new: Object, old: Object) -> None:
    generation = old["metadata"].get("generation")
    if generation is None:
        new["metadata"].pop("generation", None)
    else:
        new["metadata"]["generation"] = generation


_UNCOUNTED = frozenset({"metadata", "status", "apiVersion", "kind"})


def _unchanged_value(value: Any) -> Any:
    return value


def _with_floats(value: Any) -> bytes:
    """Return a form in which ``1.0`` differs from ``1``, as in kube-apiserver until it stores the object."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _count_generation(new: Object, old: Object, ctx: RequestContext) -> None:
    """Increment ``metadata.generation`` if anything except metadata and status changed."""
    # kube-apiserver stores it directly
    if not ctx.info.strategy.has_spec_generation or ctx.subresource == "binding":
        return
    names = (new.keys() | old.keys()) - _UNCOUNTED
    shown = _with_floats if ctx.has_whole_floats else _unchanged_value
    if any(shown(new.get(name)) != shown(old.get(name)) for name in names):
        new["metadata"]["generation"] = (old["metadata"].get("generation") or 0) + 1
