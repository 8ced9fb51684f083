"""Restores what a migration changed: the plan is a pure function of a record and of the current state.

A part of an object is restored only if it still has the value that the migration gave it. A part that was edited later
is a conflict, which blocks the object unless ``force`` is given. Parts that the migration did not change keep their
current value, such as the number of replicas that an autoscaler has set.

The undo file is a JSON document, and only its owner can read it. Secrets are in it without their content: the operator
creates them again. A file that exists is extended, so that after an interruption it still has the first state of each
object.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeGuard

from cfo.console.migrate.raycluster.children import is_by_kuberay, title
from cfo.console.migrate.raycluster.planning import (
    SUSPENDED_ANNOTATION,
    ObservedCluster,
    pod_part,
    restart_blockers,
    restart_steps,
)
from cfo.console.migrate.raycluster.steps import Action, Downtime, ObjectPlan, Step
from cfo.runtime import Object, is_deleting, owner_references_of, uid_of

MAX_BYTES: Final = 512 << 20
"""The maximum size of an undo file."""

_FORMAT: Final = "cfo-migrate-undo/v1"


class InvalidUndoFile(ValueError):
    """The file is not an undo file of this cluster; the message is one line."""


@dataclass(slots=True)
class Record:
    """One object: its state ``before`` the migration and ``after`` it; ``after`` is ``None`` if it is deleted."""

    before: Object
    after: Object | None


@dataclass(slots=True)
class UndoFile:
    """The records of one file, by the uid of their objects, in the order in which they were first changed.

    ``identity`` identifies the Kubernetes cluster.
    """

    path: Path
    identity: str
    target: str
    records: dict[str, Record] = field(default_factory=dict)

    def record(self, plan: ObjectPlan) -> None:
        """Add the objects that the steps of ``plan`` change, and write the file. Raises :class:`OSError`."""
        changed = False
        for before, after in _results(plan):
            known = self.records.get(uid_of(before))
            if known is None:
                self.records[uid_of(before)] = Record(before, after)
                changed = True
            elif known.after != after:
                known.after = after
                changed = True
        if changed:
            self._write()

    def _write(self) -> None:
        """Replace the file; a crash leaves either the old or the new content."""
        document = {
            "format": _FORMAT,
            "cluster": self.identity,
            "target": self.target,
            "objects": [
                {"before": record.before, "after": record.after} for record in self.records.values()
            ],
        }
        temporary = self.path.with_name(f"{self.path.name}.tmp")
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600
        )
        with os.fdopen(descriptor, "w") as file:
            json.dump(document, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)


def _results(plan: ObjectPlan) -> Iterable[tuple[Object, Object | None]]:
    """Return each object that ``plan`` changes, with its final state."""
    before: dict[str, Object] = {}
    after: dict[str, Object | None] = {}
    for step in plan.steps:
        uid = uid_of(step.object)
        before.setdefault(uid, step.object)
        current = after.get(uid, step.object)
        if step.action is Action.DELETE:
            after[uid] = None
        elif (
            step.action in (Action.UPDATE, Action.RELEASE)
            and step.change is not None
            and current is not None
        ):
            after[uid] = step.change(current)
    return [(deepcopy(before[uid]), after[uid]) for uid in after]


def load(path: Path) -> UndoFile:
    """Return the undo file at ``path``. Raises :class:`InvalidUndoFile` and :class:`OSError`."""
    if path.stat().st_size > MAX_BYTES:
        raise InvalidUndoFile(f"{path}: larger than {MAX_BYTES >> 20} MiB")
    try:
        document: Any = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise InvalidUndoFile(f"{path}: not a JSON document") from None
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise InvalidUndoFile(f"{path}: not an undo file of cfo migrate")
    result = UndoFile(path, str(document.get("cluster")), str(document.get("target")))
    items = document.get("objects")
    for item in items if isinstance(items, list) else ():
        before, after = (
            (item.get("before"), item.get("after")) if isinstance(item, dict) else (None, None)
        )
        if not _is_object(before) or not (after is None or _is_object(after)):
            raise InvalidUndoFile(f"{path}: an object has no kind, name or uid")
        result.records[uid_of(before)] = Record(before, after)
    return result


def _is_object(value: Any) -> TypeGuard[Object]:
    if not isinstance(value, dict) or not isinstance(value.get("metadata"), dict):
        return False
    metadata = value["metadata"]
    values = (value.get("apiVersion"), value.get("kind"), metadata.get("name"), metadata.get("uid"))
    return all(isinstance(item, str) and item for item in values)


_ABSENT: Final = ...
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
_NAMED: Final = frozenset({"annotations", "finalizers", "workerGroupSpecs"})
"""Fields with entries that have a name."""

_NESTED: Final = frozenset({"metadata", "spec", "headGroupSpec"}) | _NAMED
_CHANGED: Final = frozenset(
    {"networkPolicy", "tlsOptions", "authOptions", "ingress", "egress", "policyTypes"}
    | {"enableIngress", "ingressOptions", "template"}
)
"""The fields that a migration changes, each of which is restored as a whole, and so are annotations and finalizers."""

_KEPT: Final = (("metadata", "annotations", SUSPENDED_ANNOTATION), ("spec", "suspend"))
"""What the steps that suspend and resume a RayCluster set."""


def plan_undo_object(
    record: Record, current: Object | None, owners: frozenset[str], *, force: bool
) -> ObjectPlan:
    """Return the plan that restores an object other than a RayCluster; ``owners`` are the uids of existing owners."""
    before = record.before
    plan = ObjectPlan(before)
    if current is not None and uid_of(current) != uid_of(before):
        plan.notes.append("another object has its name: kept")
    elif current is not None and is_by_kuberay(current):
        plan.notes.append(
            "KubeRay has taken it over: kept; the operator creates its own again when it starts"
        )
    elif current is not None:
        _restore_parts(plan, record, current, force=force)
    elif before["kind"] == "Secret":
        plan.notes.append("the operator creates it again when it starts")
    elif any(reference.get("uid") not in owners for reference in owner_references_of(before)):
        plan.notes.append("its owner does not exist any more: not created again")
    else:
        plan.steps.append(
            Step(Action.CREATE, _without_server_fields(before), f"create {title(before)} again")
        )
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
    if record.after is None:  # it was to be deleted, and nothing else of it was changed
        return

    def restored(obj: Object) -> tuple[Object, list[str]]:
        conflicts: list[str] = []
        result = _restored(record.before, record.after, deepcopy(obj), (), conflicts)
        return (result, []) if force or not conflicts else (obj, conflicts)

    result, conflicts = restored(current)
    plan.blockers += [
        f"{conflict} was edited after the migration; --force overwrites it"
        for conflict in conflicts
    ]
    if result != current:
        plan.steps.append(
            Step(Action.UPDATE, current, f"restore {title(current)}", lambda obj: restored(obj)[0])
        )


def _restored(
    before: Any, after: Any, current: Any, path: tuple[str, ...], conflicts: list[str]
) -> Any:
    """Return ``current`` with the value of ``before`` in each part where ``after`` has another one.

    Parts are the fields in :data:`_CHANGED`, annotations and finalizers. One of ``current`` that has neither value is
    added to ``conflicts``. :data:`_ABSENT` is the value of a part that does not exist.
    """
    field, parent = path[-1] if path else "spec", path[-2] if path[1:] else ""
    is_entry = (
        parent in _NAMED and len(path) == 3
    )  # users name their groups, which can have the names of fields
    is_group = is_entry and parent == "workerGroupSpecs"
    is_nested = is_group or (field in _NESTED and len(path) < 3)
    is_changed = is_entry or is_nested or field in _CHANGED
    if before == after or path in _KEPT or not is_changed:
        return current
    values = [_entries(value) for value in (before, after, current)]
    if not is_nested or None in values:
        if current not in (before, after):
            conflicts.append(".".join(path))
        return deepcopy(before)
    if is_group and current is _ABSENT:
        conflicts.append(".".join(path))
        return current
    befores, afters, found = (value or {} for value in values)
    result = {}
    for key in dict.fromkeys((*found, *befores, *afters)):
        one, other, now = (each.get(key, _ABSENT) for each in (befores, afters, found))
        result[key] = _restored(one, other, now, (*path, key), conflicts)
    left = {key: value for key, value in result.items() if value is not _ABSENT}
    if not left:
        return _ABSENT  # an empty map would be a change that the API server drops, so the undo would never end
    return (
        list(left.values())
        if field in ("finalizers", "workerGroupSpecs") and not is_group
        else left
    )


def _entries(value: Any) -> dict[str, Any] | None:
    """Return the entries of a map, or a list of finalizers or worker groups by name; ``None`` if they have no names."""
    if isinstance(value, list):
        named = {
            str(item.get("groupName")) if isinstance(item, dict) else str(item): item
            for item in value
        }
        return named if len(named) == len(value) else None
    return {} if value is _ABSENT else value if isinstance(value, dict) else None


def _without_server_fields(obj: Object) -> Object:
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _SERVER_FIELDS}
    result = {**obj, "metadata": metadata}
    result.pop("status", None)
    if obj["kind"] == "Service":
        spec = obj.get("spec") or {}
        result["spec"] = {
            key: value for key, value in spec.items() if key not in ("clusterIP", "clusterIPs")
        }
    return result
