"""The DaemonSet controller: one pod on each node that the DaemonSet selects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import NamespacedName, Object, labels_of
from envtest.controllers.controller_revisions import (
    REVISIONS,
    current_revision,
    delete_old_revisions,
)
from envtest.controllers.daemon_pods import (
    HASH,
    daemon_pod,
    daemon_status,
    node_of,
    outdated_pods,
    should_run,
)
from envtest.controllers.ownership import OwnerController
from envtest.controllers.pod_control import MAX_BATCH, PodControl, create_in_batches
from envtest.controllers.pod_state import PODS, is_finished, phase, seconds_until_next_available
from envtest.controllers.replica_set_revisions import template_hash
from envtest.storage import Change
from envtest.writes.server_core import Core

__all__ = ["DaemonSets"]

DAEMON_SETS: Final = GroupResource("apps", "daemonsets")
NODES: Final = GroupResource("", "nodes")

_FIRST_DELAY: Final = 1.0
_MAX_DELAY: Final = 900.0


class DaemonSets(OwnerController):
    """Reconciles DaemonSets."""

    account = "daemon-set-controller"
    component = "daemonset-controller"
    resource: ClassVar[GroupResource] = DAEMON_SETS
    kind: ClassVar[str] = "DaemonSet"
    api_version: ClassVar[str] = "apps/v1"
    children: ClassVar[tuple[GroupResource, ...]] = (PODS, REVISIONS)
    unwatched: ClassVar[tuple[GroupResource, ...]] = (REVISIONS,)

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._pods = PodControl(self.client, self.events)
        self._backoffs: dict[NamespacedName, dict[str, tuple[float, float]]] = {}

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Enqueue as every owner controller does, and all DaemonSets when labels or taints of a node changed."""
        super().observe(resource, change)
        if (
            resource == NODES
            and self.core.store.count(DAEMON_SETS)
            and _selects_differently(change)
        ):
            for record in self.client.records(DAEMON_SETS):
                self.queue.add(NamespacedName(record.namespace, record.name))

    async def reconcile(self, key: NamespacedName) -> float | None:
        """Create missing pods, delete others, replace those of an old template, and update the status.

        Raises StatusError, after the update, if a pod was rejected.
        """
        owner = await self.owner(key)
        if owner is None:
            self._backoffs.pop(key, None)
            return None
        if owner["metadata"].get("deletionTimestamp"):
            return None
        revision_hash = template_hash(owner["spec"].get("template") or {})
        revision = await current_revision(self, owner, {HASH: revision_hash})
        revision_hash = labels_of(revision).get(HASH, revision_hash)
        nodes = {record.name: record.obj() for record in self.client.records(NODES)}
        runs = {name: should_run(owner, node) for name, node in nodes.items()}
        wanted = {name: wants for name, (wants, _) in runs.items()}
        by_node: dict[str, list[Object]] = {}
        for pod in await self.controlled(owner, PODS, owner["spec"].get("selector") or {}):
            by_node.setdefault(node_of(pod), []).append(pod)
        now = self.core.clock.now()
        surplus, delay = await self._surplus(
            key, owner, by_node, {name: stays for name, (_, stays) in runs.items()}
        )
        error = await self._pods.delete_all(owner, surplus)
        missing = [name for name, wants in wanted.items() if wants and not by_node.get(name)]

        async def create(number: int) -> None:
            await self._pods.create(
                owner, daemon_pod(owner, self.reference(owner), missing[number], revision_hash)
            )

        _, rejected = await create_in_batches(min(len(missing), MAX_BATCH), create)
        scheduled = {name: by_node.get(name, []) for name, wants in wanted.items() if wants}
        outdated = outdated_pods(owner, scheduled, len(scheduled), revision_hash, now)
        error = error or rejected or await self._pods.delete_all(owner, outdated)
        hashes = {labels_of(pod).get(HASH) for pods in by_node.values() for pod in pods}
        live = {f"{key.name}-{each}" for each in hashes} | {revision["metadata"]["name"]}
        await delete_old_revisions(self, owner, live)
        await self.set_status(owner, daemon_status(owner, by_node, wanted, revision_hash, now))
        if error is not None:
            raise error
        min_ready = int(owner["spec"].get("minReadySeconds") or 0)
        available = seconds_until_next_available(
            (pod for pods in by_node.values() for pod in pods), min_ready, now
        )
        return min((seconds for seconds in (delay, available) if seconds is not None), default=None)

    async def _surplus(
        self,
        key: NamespacedName,
        owner: Object,
        by_node: Mapping[str, Sequence[Object]],
        stays: Mapping[str, bool],
    ) -> tuple[list[Object], float | None]:
        """Return the pods to delete, and the seconds until a finished pod that waits may be deleted."""
        surplus: list[Object] = []
        delays = []
        for node, pods in by_node.items():
            if node and not stays.get(node):
                surplus += pods
                continue
            remaining = []
            for pod in pods:
                if pod["metadata"].get("deletionTimestamp"):
                    continue
                if not is_finished(pod):
                    remaining.append(pod)
                elif (delay := self._delay(key, node)) > 0:
                    delays.append(delay)
                else:
                    await self._report_finished(owner, pod, node)
                    surplus.append(pod)
            surplus += remaining[1:]
        return surplus, min(delays, default=None)

    def _delay(self, key: NamespacedName, node: str) -> float:
        """Return the seconds until a finished pod on a node may be replaced; 0 doubles the next delay."""
        now = self.core.clock.time()
        backoffs = self._backoffs.setdefault(key, {})
        delay, until = backoffs.get(node, (_FIRST_DELAY / 2, 0.0))
        if now < until:
            return until - now
        if now - until > 2 * _MAX_DELAY:
            delay = _FIRST_DELAY / 2
        delay = min(2 * delay, _MAX_DELAY)
        backoffs[node] = (delay, now + delay)
        return 0.0

    async def _report_finished(self, owner: Object, pod: Object, node: str) -> None:
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        if phase(pod) == "Failed":
            text = f"Found failed daemon pod {name} on node {node}, will try to kill it"
            await self.events.warning(owner, "FailedDaemonPod", text)
        else:
            text = f"Found succeeded daemon pod {name} on node {node}, will try to delete it"
            await self.events.normal(owner, "SucceededDaemonPod", text)


def _selects_differently(change: Change) -> bool:
    """Return whether a change of a node can change which pods should run on it."""
    if change.type != "MODIFIED" or change.previous is None:
        return True
    before = change.previous.obj()
    after = change.record.obj()
    taints = [(node.get("spec") or {}).get("taints") for node in (before, after)]
    return labels_of(before) != labels_of(after) or taints[0] != taints[1]
