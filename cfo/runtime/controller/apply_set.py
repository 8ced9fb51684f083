"""Apply a set of objects and prune the members that are no longer in it (KEP-3659, ApplySet v1).

The parent object has the label ``applyset.kubernetes.io/id`` and annotations that say which tool manages the set and
which kinds and namespaces it contains; the members have the label ``applyset.kubernetes.io/part-of``. kubectl reads the
same labels, so ``kubectl get -l applyset.kubernetes.io/part-of=ID`` lists a set; it expects the label
``applyset.kubernetes.io/is-parent-type: "true"`` on the CRD of a custom parent. Specification:
https://github.com/kubernetes/enhancements/tree/master/keps/sig-cli/3659-kubectl-apply-prune
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

from anyio.lowlevel import checkpoint

from cfo.runtime.client.client import Client
from cfo.runtime.client.owned import OwnedWrites, identity_of
from cfo.runtime.objects.errors import ReconcileError
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    ObjectKind,
    TypedObject,
    annotations_of,
    gvk_of,
    is_controlled_by,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    resource_version_of,
    to_object,
    uid_of,
)

ID_LABEL: Final = "applyset.kubernetes.io/id"
PART_OF_LABEL: Final = "applyset.kubernetes.io/part-of"
TOOLING: Final = "applyset.kubernetes.io/tooling"
GROUP_KINDS: Final = "applyset.kubernetes.io/contains-group-kinds"
NAMESPACES: Final = "applyset.kubernetes.io/additional-namespaces"

_MAX_NAMED: Final = 5
"""The number of unknown kinds that an error names: users can write the annotation."""


class ApplySetError(ReconcileError):
    """Raised when a set must not be applied: it belongs to another tool, or an object is not one of its members."""


class _Member(NamedTuple):
    """The identity of a member, which is the same in all versions of its kind."""

    group_kind: str
    key: NamespacedName

    @classmethod
    def of(cls, obj: Object) -> _Member:
        return cls(_group_kind(gvk_of(obj)), key_of(obj))

    def __str__(self) -> str:
        return f"{self.group_kind} {self.key}"


class _Scope(NamedTuple):
    """The kinds (``Kind.group``) and the namespaces other than the parent's that a set contains."""

    kinds: frozenset[str]
    namespaces: frozenset[str]

    def __or__(self, other: object) -> _Scope:
        assert isinstance(other, _Scope)
        return _Scope(self.kinds | other.kinds, self.namespaces | other.namespaces)


def apply_set_id(parent: Object | TypedObject) -> str:
    """Return the ID of the set whose parent is ``parent``; it is derived from name, namespace, kind and group."""
    parent = to_object(parent)
    gvk = gvk_of(parent)
    identity = f"{name_of(parent)}.{namespace_of(parent)}.{gvk.kind}.{gvk.group}"
    digest = base64.urlsafe_b64encode(hashlib.sha256(identity.encode()).digest()).decode().rstrip("=")
    return f"applyset-{digest}-v1"


async def apply_set(
    client: Client,
    parent: Object | TypedObject,
    objects: Sequence[Object | TypedObject],
    *,
    tooling: str,
    kinds: Iterable[ObjectKind[Any]] = (),
) -> list[Object]:
    """Apply ``objects`` as the complete set of ``parent``, delete its other members, and return the applied objects.

    The result contains dicts, also for typed objects.

    Each object gets the label of the set and ``parent`` as its controller, so it must be in the parent's namespace
    unless the parent is cluster-scoped. ``tooling`` is ``NAME/VERSION`` of the program. ``kinds`` are the kinds that
    the set may still contain from before, in addition to those of ``objects``. Nothing is deleted if an apply fails.
    The order is safe against a crash: the parent lists each kind before its first member exists, and as long as a
    member may exist. ``parent`` must be its current state, for example from the cache.

    Only members are deleted: objects that have the label and whose controller is the parent. An existing object that is
    neither a member nor controlled by the parent is not taken over. Raises :class:`ApplySetError` in that case, if
    another tool manages the set, and if the set contains a kind that is not in ``kinds``; :class:`ValueError` for
    objects that are duplicated or in another namespace, and for an invalid ``tooling``. Nothing was written then. An
    object that another client creates or recreates after these checks is not taken over either: its apply raises
    :class:`~cfo.runtime.client.errors.Conflict` or :class:`~cfo.runtime.client.errors.Invalid`.

    Reads and no-op checks use the cache: with informers of all kinds, an unchanged set sends no request.
    """
    name, slash, version = tooling.partition("/")
    if not (name and slash and version):
        raise ValueError(f"tooling {tooling!r}: must be NAME/VERSION")
    parent = to_object(parent)
    identity = apply_set_id(parent)
    desired = _by_member(parent, map(to_object, objects))
    gvks = {_group_kind(kind.gvk): kind.gvk for kind in kinds}
    gvks |= {member.group_kind: gvk_of(obj) for member, obj in desired.items()}
    recorded = _recorded_scope(parent, identity, tooling)
    unknown = sorted(recorded.kinds - gvks.keys())
    if unknown:
        more = f" and {len(unknown) - _MAX_NAMED} more" if len(unknown) > _MAX_NAMED else ""
        raise ApplySetError(f"ApplySet {identity}: contains {', '.join(unknown[:_MAX_NAMED])}{more}: add them to kinds")
    uids: dict[_Member, str] = {}  # all are checked before anything is written
    for member, obj in desired.items():
        uids[member] = await _checked_uid(client, parent, member, gvk_of(obj), identity)
        await checkpoint()
    scope = _scope_of(parent, desired)
    parent = await _record(client, parent, recorded | scope, identity, tooling)
    writes = OwnedWrites(client, parent)
    applied: list[Object] = []
    for member, obj in desired.items():
        applied.append(await writes.apply_to(_labelled(obj, identity), uids[member]))
        await checkpoint()  # a skipped apply does not wait for anything
    for group_kind in sorted(recorded.kinds | scope.kinds):
        await _prune(client, parent, gvks[group_kind], identity, desired)
    await _record(client, parent, scope, identity, tooling)
    return applied


def _by_member(parent: Object, objects: Iterable[Object]) -> dict[_Member, Object]:
    found: dict[_Member, Object] = {}
    for obj in objects:
        member = _Member.of(obj)
        if namespace_of(parent) and member.key.namespace != namespace_of(parent):
            raise ValueError(f"{member}: must be in the namespace of its parent, {namespace_of(parent)}")
        if member in found:
            raise ValueError(f"{member}: is in the set twice")
        found[member] = obj
    return found


def _recorded_scope(parent: Object, identity: str, tooling: str) -> _Scope:
    """Return the scope in the parent's annotations; raise :class:`ApplySetError` if the set is another tool's."""
    annotations = annotations_of(parent)
    owner = annotations.get(TOOLING, tooling)
    if owner.partition("/")[0] != tooling.partition("/")[0]:
        raise ApplySetError(f"ApplySet {identity}: is managed by {owner}")
    if labels_of(parent).get(ID_LABEL, identity) != identity:
        raise ApplySetError(f"ApplySet {identity}: the parent has the ID of another set in its label {ID_LABEL}")
    return _Scope(_split(annotations.get(GROUP_KINDS, "")), _split(annotations.get(NAMESPACES, "")))


def _scope_of(parent: Object, desired: Collection[_Member]) -> _Scope:
    namespaces = {member.key.namespace for member in desired} - {"", namespace_of(parent)}
    return _Scope(frozenset(member.group_kind for member in desired), frozenset(namespaces))


async def _checked_uid(client: Client, parent: Object, member: _Member, gvk: GVK, identity: str) -> str:
    """Return the uid of the object to apply to; empty if the apply has to create it."""
    existing = await client.get(gvk, member.key)
    if existing is None:
        return ""
    member_of = labels_of(existing).get(PART_OF_LABEL)
    if member_of not in (None, identity):
        raise ApplySetError(f"{member}: is a member of ApplySet {member_of}")
    if not is_controlled_by(existing, parent):
        raise ApplySetError(f"{member}: exists and is not a member of ApplySet {identity}")
    return uid_of(existing)


async def _record(client: Client, parent: Object, scope: _Scope, identity: str, tooling: str) -> Object:
    """Write the scope of the set into the parent unless it is there already; return the parent."""
    annotations = {TOOLING: tooling, GROUP_KINDS: ",".join(sorted(scope.kinds))}
    if scope.namespaces:
        annotations[NAMESPACES] = ",".join(sorted(scope.namespaces))
    stored = {name: value for name in (TOOLING, GROUP_KINDS, NAMESPACES) if (value := annotations_of(parent).get(name))}
    wanted = {name: value for name, value in annotations.items() if value}
    if stored == wanted and labels_of(parent).get(ID_LABEL) == identity:
        return parent
    intent = identity_of(parent)
    intent["metadata"] |= {"labels": {ID_LABEL: identity}, "annotations": wanted}
    return await client.apply(intent, force=False, field_manager=f"{client.field_manager}-applyset")


async def _prune(client: Client, parent: Object, gvk: GVK, identity: str, desired: Collection[_Member]) -> None:
    """Delete the members of one kind that are not in ``desired``.

    All members are in the namespace of the parent, or anywhere if it is cluster-scoped.
    """
    selector = f"{PART_OF_LABEL}={identity}"
    for member in await client.list(gvk, namespace=namespace_of(parent), label_selector=selector):
        if _Member.of(member) in desired or is_deleting(member) or not is_controlled_by(member, parent):
            continue
        await client.delete(gvk, key_of(member), uid=uid_of(member), resource_version=resource_version_of(member))


def _labelled(obj: Object, identity: str) -> Object:
    """Return ``obj`` as a member; nothing of it is changed."""
    metadata = obj["metadata"]
    labels = {**(metadata.get("labels") or {}), PART_OF_LABEL: identity}
    return {**obj, "metadata": {**metadata, "labels": labels}}


def _group_kind(gvk: GVK) -> str:
    return f"{gvk.kind}.{gvk.group}" if gvk.group else gvk.kind


def _split(value: str) -> frozenset[str]:
    return frozenset(part.strip() for part in value.split(",") if part.strip())
