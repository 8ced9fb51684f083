"""The plan of one InferenceStack: which of its objects a change creates, changes and deletes, and which pods restart.

A pure function of the stack as it is, the stack as it would be, and the objects that exist. These contain more than
what the operator applies: defaults of the API server, the status, and fields of other managers. :func:`restricted`
removes these, so that the rest can be compared with the desired object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from cfo.api.inferencestack.kinds import operator_version_of
from cfo.api.inferencestack.names import INSTANCE_LABEL, MANAGED_BY, MANAGED_BY_LABEL, is_retained
from cfo.api.inferencestack.profiles import Profile, newest_profile
from cfo.controllers.inferencestack.ownership import (
    belongs_to,
    is_autoscaled,
    is_of_chart,
    managers_of,
    owns_replicas,
)
from cfo.controllers.inferencestack.profile_choice import choose_profile
from cfo.controllers.inferencestack.rendering.facts import Facts, LiveDeployment
from cfo.controllers.inferencestack.rendering.stack import render
from cfo.runtime import (
    CONFIG_MAP,
    DEPLOYMENT,
    GVK,
    Object,
    controller_of,
    gvk_of,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)
from cfo.runtime.objects import is_quantity, parse_quantity

_Key = tuple[GVK, str]


class Action(StrEnum):
    """What happens to an object."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    KEEP = "keep"
    """A retained volume that the stack does not use any more."""


@dataclass(frozen=True, slots=True)
class Change:
    """An object that is altered: ``before`` and ``after``, of which one is ``None`` if it does not exist.

    ``restarted_pods`` is the number of pods that the change restarts.
    """

    action: Action
    before: Object | None
    after: Object | None
    restarted_pods: int = 0

    @property
    def object(self) -> Object:
        """The object after the change, or before its deletion."""
        found = self.after if self.after is not None else self.before
        assert found is not None
        return found


@dataclass(frozen=True, slots=True)
class StackPlan:
    """What changes for one stack.

    ``stack`` is the stack as it would be; ``current`` as it is, or ``None`` if it does not exist. ``pending`` is a
    newer profile that the next change of the spec applies. ``is_compared_with_existing`` is whether existing objects
    were compared. ``objects`` are all objects of the stack after the change.
    """

    stack: Object
    current: Object | None
    profile_before: Profile | None
    profile: Profile
    pending: Profile | None
    is_compared_with_existing: bool
    changes: tuple[Change, ...]
    unchanged: int
    objects: tuple[Object, ...]

    @property
    def restarted_pods(self) -> int:
        """The number of pods that the change restarts."""
        return sum(change.restarted_pods for change in self.changes)


def plan_stack(
    stack: Object,
    current: Object | None,
    existing: Iterable[Object] = (),
    *,
    spec_changes: bool = False,
) -> StackPlan:
    """Return the plan of changing ``current`` into ``stack``; both must be valid.

    ``existing`` are objects in the cluster, of which those of the stack are compared; for kinds that it does not
    contain, the rendered objects of ``current`` are. ``spec_changes`` plans as if the spec changed, which applies a
    newer profile.
    """
    live = objects_of(current if current is not None else stack, existing)
    deployments = {name: obj for (gvk, name), obj in live.items() if gvk == DEPLOYMENT}
    newest = newest_profile(operator_version_of(stack))
    before_profile = None
    if current is not None:
        before_profile, _ = choose_profile(current, operator_version_of(current), deployments)
    if current is None or spec_changes or _spec(stack) != _spec(current):
        profile = newest
    else:
        pinned = {**stack, "status": _status(current)}
        recorded, target = choose_profile(pinned, operator_version_of(stack), deployments)
        profile = target or before_profile or recorded
    facts = _facts(live)
    after = {_key(obj): obj for obj in render(stack, profile, facts)}
    rendered = {}
    if current is not None and before_profile is not None:
        rendered = {_key(obj): obj for obj in render(current, before_profile, facts)}
    kinds = {gvk for gvk, _ in live}
    before = {key: obj for key, obj in rendered.items() if key[0] not in kinds}
    before |= {
        key: restricted(obj, after.get(key, {}), rendered.get(key, {})) for key, obj in live.items()
    }
    changes = [_change(before.get(key), obj, live.get(key)) for key, obj in after.items()]
    changes += [_removal(obj, live.get(key)) for key, obj in before.items() if key not in after]
    altered = tuple(change for change in changes if change is not None)
    return StackPlan(
        stack=stack,
        current=current,
        profile_before=before_profile,
        profile=profile,
        pending=newest if newest != profile else None,
        is_compared_with_existing=bool(live),
        changes=altered,
        unchanged=len(changes) - len(altered),
        objects=tuple(after.values()),
    )


def _spec(stack: Object) -> Any:
    return stack.get("spec") or {}


def _status(stack: Object | None) -> Any:
    return (stack or {}).get("status") or {}


def objects_of(stack: Object, existing: Iterable[Object]) -> dict[_Key, Object]:
    """Return the objects in ``existing`` that belong to ``stack``, by kind and name.

    Those are the objects that it controls, and those of its Helm release; manifests might have no owner references.
    """
    return {
        _key(obj): obj
        for obj in existing
        if namespace_of(obj) == namespace_of(stack) and _belongs_to(obj, stack)
    }


def _belongs_to(obj: Object, stack: Object) -> bool:
    if uid_of(stack) and controller_of(obj) is not None:
        return belongs_to(obj, stack)
    labels = labels_of(obj)
    return labels.get(INSTANCE_LABEL) == name_of(stack) and (
        labels.get(MANAGED_BY_LABEL) == MANAGED_BY or is_of_chart(obj)
    )


def _key(obj: Object) -> _Key:
    return gvk_of(obj), name_of(obj)


def _facts(live: Mapping[_Key, Object]) -> Facts:
    deployments = {name: obj for (gvk, name), obj in live.items() if gvk == DEPLOYMENT}
    return Facts(
        deployments={
            name: LiveDeployment.of(
                obj,
                owns_replicas=owns_replicas(managers_of(obj)),
                is_autoscaled=is_autoscaled(managers_of(obj)),
            )
            for name, obj in deployments.items()
        },
        config_maps={name: obj for (gvk, name), obj in live.items() if gvk == CONFIG_MAP},
    )


def _change(before: Object | None, after: Object, live: Object | None) -> Change | None:
    if before is None:
        return Change(Action.CREATE, None, after)
    if before == after:
        return None
    restarted = 0
    if gvk_of(after) == DEPLOYMENT and _template(before) != _template(after):
        restarted = _replicas(live if live is not None else before)
    return Change(Action.CHANGE, before, after, restarted)


def _removal(before: Object, live: Object | None) -> Change:
    action = Action.KEEP if is_retained(live if live is not None else before) else Action.DELETE
    return Change(action, before, None)


def _template(deployment: Object) -> Any:
    return (deployment.get("spec") or {}).get("template")


def _replicas(deployment: Object) -> int:
    replicas = (deployment.get("spec") or {}).get("replicas")
    return 1 if replicas is None else int(replicas)


_KEYS: Final = ("mountPath", "containerPort", "name", "port")
"""The fields that identify the items of lists, the most specific one first."""

_QUANTITY_FIELDS: Final = frozenset({"limits", "requests", "sizeLimit"})


def restricted(live: Object, *shapes: Object) -> Object:
    """Return ``live`` with only the fields that one of ``shapes`` has, in the order and notation of the shapes.

    Lists are matched by the key of their items, or by position.
    """
    metadata = ("apiVersion", "kind")
    kept: Object = _restricted(live, [shape for shape in shapes if shape], is_quantity_field=False)
    return {**{key: live[key] for key in metadata if key in live}, **kept}


def _restricted(live: Any, shapes: Sequence[Any], *, is_quantity_field: bool) -> Any:
    if isinstance(live, Mapping):
        maps = [shape for shape in shapes if isinstance(shape, Mapping)]
        if not maps:
            return live
        return {
            key: _restricted(
                live[key],
                [shape[key] for shape in maps if key in shape],
                is_quantity_field=is_quantity_field or key in _QUANTITY_FIELDS,
            )
            for key in dict.fromkeys(key for shape in maps for key in shape)
            if key in live
        }
    if isinstance(live, list):
        return _restricted_list(
            live, [shape for shape in shapes if isinstance(shape, list)], is_quantity_field
        )
    if is_quantity_field:
        return next((shape for shape in shapes if _is_same_quantity(live, shape)), live)
    return live


def _restricted_list(
    live: list[Any], shapes: list[list[Any]], is_quantity_field: bool
) -> list[Any]:
    key = next(
        (key for key in _KEYS if all(_identifies(key, items) for items in (live, *shapes))), None
    )
    if key is None:
        return [
            _restricted(
                item,
                [shape[index] for shape in shapes if len(shape) == len(live)],
                is_quantity_field=is_quantity_field,
            )
            for index, item in enumerate(live)
        ]
    by_key = {item[key]: item for item in live}
    wanted: dict[Any, list[Any]] = {}
    for shape in shapes:
        for item in shape:
            wanted.setdefault(item[key], []).append(item)
    return [
        _restricted(by_key[value], items, is_quantity_field=is_quantity_field)
        for value, items in wanted.items()
        if value in by_key
    ]


def _identifies(key: str, items: Iterable[Any]) -> bool:
    """Return whether each item has a different scalar as ``key``."""
    seen = set()
    for item in items:
        value = item.get(key) if isinstance(item, Mapping) else None
        if not isinstance(value, (str, int)) or value in seen:
            return False
        seen.add(value)
    return True


def _is_same_quantity(one: Any, other: Any) -> bool:
    return all(is_quantity(str(value)) for value in (one, other)) and parse_quantity(
        str(one)
    ) == parse_quantity(str(other))
