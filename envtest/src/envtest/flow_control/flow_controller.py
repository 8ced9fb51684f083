"""Follows FlowSchemas and PriorityLevelConfigurations: classifies requests, and keeps the objects as in a cluster.

The rules are compiled once after each change, and selected once for each user. The condition ``Dangling`` of a
FlowSchema follows its priority level at once. As in kube-apiserver, an object of every control plane is created again,
and its spec is restored, within a minute. Requests never wait: the limits of the levels are only reported.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from envtest.apimachinery.clock import Clock
from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object, set_condition
from envtest.apimachinery.user import User
from envtest.auth.attributes import Attributes
from envtest.builtins.flow_control_defaults import (
    AUTO_UPDATE,
    FIXED_LEVELS,
    FIXED_SCHEMAS,
    FLOW_SCHEMAS,
    LEVELS,
    PRIORITY_LEVELS,
    SCHEMAS,
    dangling_condition,
    flow_schema,
    priority_level,
)
from envtest.flow_control.flow_rules import FlowRules, subject_rules
from envtest.storage import ADDED, DELETED, Change, Record, Store

__all__ = ["Flow", "FlowControl"]

MANAGER: Final = "api-priority-and-fairness-config-consumer-v1"
"""The field manager of the conditions."""
REPAIR_SECONDS: Final = 30.0
"""Seconds after which changed objects of every control plane are repaired; kube-apiserver looks every 60 seconds."""
CACHED_USERS: Final = 1024
"""The number of users whose rules are kept."""


class Apply(Protocol):
    """Applies a part of an object, and records its manager."""

    def __call__(
        self, live: Object, applied: Object, /, *, manager: str, force: bool, now: str
    ) -> Object:
        """Return the object after ``applied`` was applied to ``live``."""
        ...


class Flow:
    """A flow schema with its priority level: what a request is classified as.

    ``headers`` are the headers of its response: the uids of both.
    """

    __slots__ = ("headers", "level", "schema")

    def __init__(self, schema: str, schema_uid: str, level: str, level_uid: str) -> None:
        self.schema = schema
        self.level = level
        self.headers = (
            ("X-Kubernetes-Pf-Flowschema-Uid", schema_uid),
            ("X-Kubernetes-Pf-Prioritylevel-Uid", level_uid),
        )


Candidates = tuple[tuple[Flow, tuple[FlowRules, ...]], ...]


class FlowControl:
    """The flow schemas and priority levels in ``store``. ``apply`` returns the function that applies a status."""

    def __init__(self, store: Store, clock: Clock, apply: Callable[[], Apply]) -> None:
        self._store = store
        self._clock = clock
        self._apply = apply
        self._flows: Candidates | None = None
        self._last = Flow("", "", "", "")
        self._by_user: dict[tuple[str, tuple[str, ...]], Candidates] = {}
        self._repairing = False
        store.followers.append(self._follow)

    def fork(self, store: Store, clock: Clock, apply: Callable[[], Apply]) -> FlowControl:
        """Return the same for a copy of the cluster."""
        copied = FlowControl(store, clock, apply)
        if self._repairing:
            copied._repair_later()
        return copied

    def classify(self, attributes: Attributes) -> Flow:
        """Return the flow of a request."""
        for flow, rules in self._candidates(attributes.user):
            for rule in rules:
                if rule.matches(attributes):
                    return flow
        return self._last

    def levels(self) -> dict[str, Mapping[str, Any]]:
        """Return the specs of the priority levels by name."""
        stored = {record.name: record.obj()["spec"] for record in self._store.list(PRIORITY_LEVELS)}
        return {**FIXED_LEVELS, **stored}

    def _candidates(self, user: User) -> Candidates:
        """Return the flows that have the user as a subject, with these rules, in the order in which they are tried."""
        if self._flows is None:
            self._flows = self._compile()
            self._by_user.clear()
        key = (user.name, user.groups)
        found = self._by_user.get(key)
        if found is None:
            if len(self._by_user) >= CACHED_USERS:
                self._by_user.clear()
            selected = [(flow, subject_rules(rules, user)) for flow, rules in self._flows]
            found = tuple((flow, rules) for flow, rules in selected if rules)
            self._by_user[key] = found
        return found

    def _compile(self) -> Candidates:
        """Return all flows; schemas without a level have none, mandatory ones always exist."""
        levels = {record.name: record.uid for record in self._store.list(PRIORITY_LEVELS)}
        specs: dict[str, tuple[str, Mapping[str, Any]]] = {
            name: ("", spec) for name, spec in FIXED_SCHEMAS.items()
        }
        for record in self._store.list(FLOW_SCHEMAS):
            spec = record.obj()["spec"]
            if spec["priorityLevelConfiguration"]["name"] in levels:
                specs[record.name] = (record.uid, spec)
        ordered = sorted(specs, key=lambda name: (specs[name][1]["matchingPrecedence"], name))
        flows: list[tuple[Flow, tuple[FlowRules, ...]]] = []
        for name in ordered:
            uid, spec = specs[name]
            level = spec["priorityLevelConfiguration"]["name"]
            flow = Flow(name, uid, level, levels.get(level, ""))
            flows.append((flow, tuple(map(FlowRules, spec.get("rules") or ()))))
            if name == "catch-all":
                self._last = flow
        return tuple(flows)

    def _follow(self, resource: GroupResource, change: Change) -> None:
        if resource == FLOW_SCHEMAS:
            self._flows = None
            if change.type != DELETED:
                self._set_dangling(change.record)
        elif resource == PRIORITY_LEVELS:
            self._flows = None
            if change.type in (ADDED, DELETED):
                for record in self._store.list(FLOW_SCHEMAS):
                    self._set_dangling(record)
        else:
            return
        if change.previous is not None and change.record.name in _defaults(resource):
            self._repair_later()

    def _set_dangling(self, record: Record) -> None:
        """Write whether the priority level of a FlowSchema exists."""
        stored = record.obj()
        level = stored["spec"]["priorityLevelConfiguration"]["name"]
        exists = self._store.get(PRIORITY_LEVELS, "", level) is not None
        conditions = (stored.get("status") or {}).get("conditions") or []
        now = self._clock.timestamp()
        if not set_condition(conditions, dangling_condition(level, exists=exists), now=now):
            return
        own = [condition for condition in conditions if condition["type"] == "Dangling"]
        applied = {
            "apiVersion": stored["apiVersion"],
            "kind": stored["kind"],
            "metadata": {"name": record.name},
            "status": {"conditions": own},
        }
        updated = self._apply()(record.obj(), applied, manager=MANAGER, force=True, now=now)
        self._store.update(FLOW_SCHEMAS, updated, record)

    def _repair_later(self) -> None:
        if not self._repairing:
            self._repairing = True
            self._clock.call_later(REPAIR_SECONDS, self._repair)

    def _repair(self) -> None:
        """Create the missing objects of every control plane, and restore those that it maintains."""
        self._repairing = False
        for name, spec in LEVELS.items():
            self._restore(PRIORITY_LEVELS, name, spec, FIXED_LEVELS)
        for name, spec in SCHEMAS.items():
            self._restore(FLOW_SCHEMAS, name, spec, FIXED_SCHEMAS)

    def _restore(
        self,
        resource: GroupResource,
        name: str,
        spec: Mapping[str, Any],
        mandatory: Mapping[str, Any],
    ) -> None:
        record = self._store.get(resource, "", name)
        now = self._clock.timestamp()
        if record is None:
            create = flow_schema if resource == FLOW_SCHEMAS else priority_level
            obj = create(name, spec, now)
            obj["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": now}
            self._store.create(resource, obj)
            return
        obj = record.obj()
        is_maintained = (obj["metadata"].get("annotations") or {}).get(AUTO_UPDATE) == "true"
        if is_maintained and name not in mandatory and obj["spec"] != spec:
            obj["spec"] = copy.deepcopy(spec)
            obj["metadata"]["generation"] += 1
            self._store.update(resource, obj, record)


def _defaults(resource: GroupResource) -> Mapping[str, Any]:
    return SCHEMAS if resource == FLOW_SCHEMAS else LEVELS
