"""Restores what a migration changed: the plan is a pure function of a record and of the current state.

A part of an object is restored only if it still has the value that the migration gave it. A part that was edited later
is a conflict, which blocks the object unless ``force`` is given. Parts that the migration did not change keep their
current value, such as the number of replicas that an autoscaler has set.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.console.migrate.raycluster.children import is_by_kuberay, title
from cfo.console.migrate.raycluster.planning import (
    SUSPENDED_ANNOTATION,
    ObservedCluster,
    pod_part,
    restart_blockers,
    restart_steps,
)
from cfo.console.migrate.steps import Action, Downtime, ObjectPlan, Step
from cfo.console.migrate.undo_file import Record
from cfo.runtime import Object, annotations_of, gvk_of, is_deleting, owner_references_of, uid_of

__all__ = ["plan_undo_cluster", "plan_undo_object"]

_ABSENT: Final = object()
_SERVER_FIELDS: Final = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_SPEC_FIELDS: Final = ("networkPolicy", "tlsOptions", "authOptions", "ingress", "egress", "policyTypes")
_HEAD_FIELDS: Final = ("enableIngress", "ingressOptions", "template")

_Part = tuple[str, ...]


def plan_undo_object(record: Record, current: Object | None, owners: frozenset[str], *, force: bool) -> ObjectPlan:
    """Return the plan that restores an object other than a RayCluster; ``owners`` are the uids of existing owners."""
    before = record.before
    plan = ObjectPlan(before)
    if current is not None and uid_of(current) != uid_of(before):
        plan.notes.append("another object has its name: kept")
    elif current is not None and is_by_kuberay(current):
        plan.notes.append("KubeRay has taken it over: kept; the operator creates its own again when it starts")
    elif current is not None:
        _restore_parts(plan, record, current, force=force)
    elif before["kind"] == "Secret":
        plan.notes.append("the operator creates it again when it starts")
    elif any(reference.get("uid") not in owners for reference in owner_references_of(before)):
        plan.notes.append("its owner does not exist any more: not created again")
    else:
        plan.steps.append(Step(Action.CREATE, _without_server_fields(before), f"create {title(before)} again"))
    return plan


def plan_undo_cluster(
    record: Record, observed: ObservedCluster | None, *, force: bool, allow_downtime: bool
) -> ObjectPlan:
    """Return the plan that restores a RayCluster."""
    plan = ObjectPlan(record.before)
    if observed is None or uid_of(observed.cluster) != uid_of(record.before):
        plan.notes.append("does not exist any more: not created again")
        return plan
    cluster = observed.cluster
    if is_deleting(cluster):
        plan.notes.append("is being deleted")
        return plan
    _restore_parts(plan, record, cluster, force=force)
    restored = [step.change(cluster) for step in plan.steps if step.change is not None]
    restarts = any(pod_part(result) != pod_part(cluster) for result in restored)
    before, after = restart_steps(observed, restarts=restarts)
    if any(step.text == "suspend" for step in before):
        plan.downtime = Downtime.RESTART
        plan.blockers += restart_blockers(cluster, allow_downtime=allow_downtime)
    plan.steps = [] if plan.blockers else [*before, *plan.steps, *after]
    return plan


def _restore_parts(plan: ObjectPlan, record: Record, current: Object, *, force: bool) -> None:
    conflicts = list(_conflicts(record, current))
    if conflicts and not force:
        plan.blockers += [f"{conflict} was edited after the migration; --force overwrites it" for conflict in conflicts]
        return

    def change(obj: Object) -> Object:
        if not force and any(_conflicts(record, obj)):
            return obj
        result = deepcopy(obj)
        for part, before, _ in _changed_parts(record):
            _set(result, part, before)
        return result

    if change(current) != current:
        plan.steps.append(Step(Action.UPDATE, current, f"restore {title(current)}", change))


def _conflicts(record: Record, current: Object) -> Iterator[str]:
    for part, before, after in _changed_parts(record):
        if _get(current, part) not in (before, after):
            yield ".".join(part)


def _changed_parts(record: Record) -> Iterator[tuple[_Part, Any, Any]]:
    """Yield each part that the migration changed, with its values before and after."""
    if record.after is None:
        return
    for part in _parts(record.before, record.after):
        before, after = _get(record.before, part), _get(record.after, part)
        if before != after:
            yield part, before, after


def _parts(*objects: Object) -> Iterator[_Part]:
    """Yield the parts of an object that a migration changes."""
    keys = {key for obj in objects for key in annotations_of(obj)} - {SUSPENDED_ANNOTATION}
    yield from (("metadata", "annotations", key) for key in sorted(keys))
    finalizers = {item for obj in objects for item in obj["metadata"].get("finalizers") or ()}
    yield from (("metadata", "finalizers", item) for item in sorted(finalizers))
    yield from (("spec", name) for name in _SPEC_FIELDS)
    if gvk_of(objects[0]) != RAY_CLUSTER:
        return
    yield from (("spec", "headGroupSpec", name) for name in _HEAD_FIELDS)
    groups = {str(group.get("groupName")) for obj in objects for group in obj["spec"].get("workerGroupSpecs") or ()}
    yield from (("spec", "workerGroupSpecs", group, "template") for group in sorted(groups))


def _get(obj: Object, part: _Part) -> Any:
    value: Any = obj
    for name in part:
        if isinstance(value, list):
            value = _item(value, name)
        elif isinstance(value, dict):
            value = value.get(name, _ABSENT)
        else:
            return _ABSENT
    return value


def _item(items: list[Any], name: str) -> Any:
    """Return the finalizer or the worker group called ``name``."""
    return next(
        (item for item in items if item == name or (isinstance(item, dict) and item.get("groupName") == name)), _ABSENT
    )


def _set(obj: Object, part: _Part, value: Any) -> None:
    *path, last = part
    owner: Any = obj
    for name in path:
        if isinstance(owner, list):
            owner = _item(owner, name)
            if owner is _ABSENT:
                return
        else:
            owner = owner.setdefault(name, [] if name == "finalizers" else {})
    if isinstance(owner, list):
        if value is _ABSENT and last in owner:
            owner.remove(last)
        elif value is not _ABSENT and last not in owner:
            owner.append(last)
    elif value is _ABSENT:
        owner.pop(last, None)
    else:
        owner[last] = deepcopy(value)


def _without_server_fields(obj: Object) -> Object:
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _SERVER_FIELDS}
    result = {**obj, "metadata": metadata}
    result.pop("status", None)
    if obj["kind"] == "Service":
        spec = obj.get("spec") or {}
        result["spec"] = {key: value for key, value in spec.items() if key not in ("clusterIP", "clusterIPs")}
    return result
