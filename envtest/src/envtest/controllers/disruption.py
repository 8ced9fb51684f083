"""The disruption controller: writes the status of PodDisruptionBudgets, from which evictions are admitted.

The rules are those of kube-controller-manager: ``minAvailable`` as a number counts the selected pods; percentages and
``maxUnavailable`` count the replicas of the pods' controllers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import NamespacedName, Object, controller_of, set_condition
from envtest.controllers.controller import Controller
from envtest.controllers.pod_state import PODS, is_ready
from envtest.controllers.selector_index import SelectorIndex
from envtest.storage import Change, Record
from envtest.writes.server_core import Core

__all__ = ["BudgetPod", "DisruptionBudgets", "budget_status", "disrupted_pods", "scaled"]

BUDGETS: Final = GroupResource("policy", "poddisruptionbudgets")
DELETION_SECONDS: Final = 120
"""Seconds after which an evicted pod that is not being deleted counts as healthy again."""

_REPLICASETS: Final = GroupResource("apps", "replicasets")
_DEPLOYMENTS: Final = GroupResource("apps", "deployments")
_SCALED_KINDS: Final = {
    ("", "ReplicationController"): GroupResource("", "replicationcontrollers"),
    ("apps", "StatefulSet"): GroupResource("apps", "statefulsets"),
}


class BudgetPod(NamedTuple):
    """What budgets need to know of a pod; ``controller`` is the owner reference of its controller."""

    name: str
    is_ready: bool
    is_deleting: bool
    controller: dict[str, Any] | None


class CannotScaleError(Exception):
    """Raised if the number of expected pods cannot be determined; the message becomes that of the condition."""


def scaled(value: int | str, total: int) -> int:
    """Return a number, or a percentage of ``total`` rounded up."""
    if isinstance(value, int):
        return value
    return -(-int(value.removesuffix("%")) * total // 100)


def disrupted_pods(
    recorded: Mapping[str, str], pods: Iterable[BudgetPod], now: datetime
) -> tuple[dict[str, str], float | None]:
    """Return the evictions that are not confirmed yet, and the seconds until the first of them expires."""
    remaining = {}
    next_check = None
    for pod in pods:
        evicted = recorded.get(pod.name)
        if evicted is None or pod.is_deleting:
            continue
        seconds = (
            datetime.fromisoformat(evicted) + timedelta(seconds=DELETION_SECONDS) - now
        ).total_seconds()
        if seconds >= 0:
            remaining[pod.name] = evicted
            next_check = seconds if next_check is None else min(next_check, seconds)
    return remaining, next_check


def budget_status(
    budget: Object,
    *,
    healthy: int,
    desired: int,
    expected: int,
    disrupted: Mapping[str, str],
    now: str,
) -> dict[str, Any]:
    """Return the status of a budget."""
    allowed = max(0, healthy - desired) if expected > 0 else 0
    previous = budget.get("status") or {}
    generation = budget["metadata"].get("generation") or 0
    conditions = [dict(each) for each in previous.get("conditions") or ()]
    condition = {
        "type": "DisruptionAllowed",
        "status": "True" if allowed else "False",
        "observedGeneration": generation,
        "reason": "SufficientPods" if allowed else "InsufficientPods",
        "message": "",
    }
    set_condition(conditions, condition, now=now)
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "conditions": conditions,
    }
    if disrupted:
        status["disruptedPods"] = dict(disrupted)
    return status


class DisruptionBudgets(Controller[NamespacedName]):
    """Reconciles PodDisruptionBudgets."""

    account = "disruption-controller"

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._index: SelectorIndex[BudgetPod] = SelectorIndex()

    def enqueue_all(self) -> None:
        """Index pods and selectors, and enqueue all budgets."""
        for record in self.client.records(PODS):
            self._index.set_object(
                record.namespace, record.name, record.labels or {}, _budget_pod(record)
            )
        for record in self.client.records(BUDGETS):
            self._observe_budget(record)

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Enqueue a budget that changed, and the budgets that select a pod that changed."""
        record = change.record
        if resource == PODS:
            labels = record.labels or {}
            before = self._index.labels(record.namespace, record.name)
            pod = None if change.type == "DELETED" else _budget_pod(record)
            if (
                pod is not None
                and before == labels
                and pod == self._index.object(record.namespace, record.name)
            ):
                return
            self._index.set_object(record.namespace, record.name, labels, pod)
            relevant = [labels] if before == labels else [labels, before]
            for each in relevant:
                for name in self._index.selectors_of(record.namespace, each):
                    self.queue.add(NamespacedName(record.namespace, name))
        elif resource == BUDGETS:
            if change.type == "DELETED":
                self._index.set_selector(record.namespace, record.name, None)
            else:
                self._observe_budget(record)

    def _observe_budget(self, record: Record) -> None:
        selector = (record.obj().get("spec") or {}).get("selector")
        self._index.set_selector(record.namespace, record.name, selector)
        self.queue.add(NamespacedName(record.namespace, record.name))

    async def reconcile(self, key: NamespacedName) -> float | None:
        """Update the status of a budget; return the seconds until an eviction of it expires."""
        budget = await self.client.read(BUDGETS, key.namespace, key.name)
        if budget is None:
            return None
        pods = self._pods(budget)
        status = budget.get("status") or {}
        remaining, next_check = disrupted_pods(
            status.get("disruptedPods") or {}, pods, self.core.clock.now()
        )
        healthy = sum(
            pod.is_ready and not pod.is_deleting and pod.name not in remaining for pod in pods
        )
        try:
            expected, desired = await self._expected(budget, pods)
        except CannotScaleError as problem:
            await self._write(budget, self._failed_status(budget, str(problem)))
            return None
        now = self.client.now()
        desired_status = budget_status(
            budget,
            healthy=healthy,
            desired=desired,
            expected=expected,
            disrupted=remaining,
            now=now,
        )
        await self._write(budget, desired_status)
        return next_check

    def _pods(self, budget: Object) -> list[BudgetPod]:
        selector = (budget.get("spec") or {}).get("selector")
        if selector is None:
            return []
        return [pod for _, pod in self._index.objects_of(budget["metadata"]["namespace"], selector)]

    async def _expected(self, budget: Object, pods: list[BudgetPod]) -> tuple[int, int]:
        """Return the number of expected pods, and how many of them must be healthy. Raises CannotScaleError."""
        spec = budget.get("spec") or {}
        minimum = spec.get("minAvailable")
        maximum = spec.get("maxUnavailable")
        if maximum is not None:
            expected = await self._replicas(pods, budget["metadata"]["namespace"])
            return expected, max(0, expected - scaled(maximum, expected))
        if isinstance(minimum, str):
            expected = await self._replicas(pods, budget["metadata"]["namespace"])
            return expected, scaled(minimum, expected)
        return len(pods) if minimum is not None else 0, minimum or 0

    async def _replicas(self, pods: list[BudgetPod], namespace: str) -> int:
        """Return the replicas of all controllers of ``pods``; pods without a controller do not count."""
        replicas: dict[str, int] = {}
        seen: set[str] = set()
        for pod in pods:
            if pod.controller is None or pod.controller["uid"] in seen:
                continue
            seen.add(pod.controller["uid"])
            found = await self._scale(pod.controller, namespace)
            if found is None:
                raise CannotScaleError(f'found no controllers for pod "{pod.name}"')
            uid, count = found
            replicas[uid] = count
        return sum(replicas.values())

    async def _scale(self, reference: Mapping[str, Any], namespace: str) -> tuple[str, int] | None:
        """Return uid and replicas of what scales the pods of a controller: for a ReplicaSet, also its Deployment."""
        group = reference["apiVersion"].rpartition("/")[0]
        kind = reference["kind"]
        if (group, kind) == ("apps", "ReplicaSet"):
            owner = await self.client.read(_REPLICASETS, namespace, reference["name"])
            parent = controller_of(owner) if owner is not None else None
            if parent is not None and parent["kind"] == "Deployment":
                return await self._builtin(_DEPLOYMENTS, namespace, parent)
            return await self._builtin(_REPLICASETS, namespace, reference)
        resource = _SCALED_KINDS.get((group, kind))
        if resource is not None:
            return await self._builtin(resource, namespace, reference)
        return await self._custom(reference, group, namespace)

    async def _builtin(
        self, resource: GroupResource, namespace: str, reference: Mapping[str, Any]
    ) -> tuple[str, int] | None:
        obj = await self.client.read(resource, namespace, reference["name"])
        if obj is None or obj["metadata"]["uid"] != reference["uid"]:
            return None
        return reference["uid"], (obj.get("spec") or {}).get("replicas", 1)

    async def _custom(
        self, reference: Mapping[str, Any], group: str, namespace: str
    ) -> tuple[str, int] | None:
        """Return the scale of another kind. Raises CannotScaleError if it has no subresource ``scale``."""
        version = reference["apiVersion"].rpartition("/")[2]
        info = self.core.registry.by_kind(group, version, reference["kind"])
        if info is None:
            return None
        if not info.is_crd or "scale" not in info.subresources:
            raise CannotScaleError(f"{info.resource} does not implement the scale subresource")
        obj = await self.client.read(info.storage, namespace, reference["name"])
        if obj is None or obj["metadata"]["uid"] != reference["uid"]:
            return None
        value: Any = obj
        for name in (
            info.subresources["scale"].settings["specReplicasPath"].removeprefix(".").split(".")
        ):
            value = value.get(name) if isinstance(value, dict) else None
        return reference["uid"], value if isinstance(value, int) else 0

    def _failed_status(self, budget: Object, message: str) -> dict[str, Any]:
        """Return the status of a budget that allows no eviction, because its pods cannot be counted."""
        status = {**(budget.get("status") or {}), "disruptionsAllowed": 0}
        conditions = [dict(each) for each in status.get("conditions") or ()]
        condition = {
            "type": "DisruptionAllowed",
            "status": "False",
            "observedGeneration": status.get("observedGeneration") or 0,
            "reason": "SyncFailed",
            "message": message,
        }
        set_condition(conditions, condition, now=self.client.now())
        return {**status, "conditions": conditions}

    async def _write(self, budget: Object, status: dict[str, Any]) -> None:
        """Write the status if it differs, unless the budget changed since it was read."""
        metadata = budget["metadata"]

        def change(obj: Object) -> bool:
            if (
                obj["metadata"]["resourceVersion"] != metadata["resourceVersion"]
                or obj.get("status") == status
            ):
                return False
            obj["status"] = status
            return True

        await self.client.modify(
            BUDGETS,
            metadata["namespace"],
            metadata["name"],
            change,
            uid=metadata["uid"],
            subresource="status",
        )


def _budget_pod(record: Record) -> BudgetPod:
    pod = record.obj()
    return BudgetPod(record.name, is_ready(pod), record.deleting, controller_of(pod))
