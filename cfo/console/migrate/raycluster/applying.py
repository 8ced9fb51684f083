"""Executes the steps of a migration, one RayCluster after the other.

Before each write, the object is read, and the write carries the uid and the resourceVersion that were read. If another
client changed the object, the RayCluster is observed and planned again.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio

from cfo.console.execution import READ_LIMIT, time_limit
from cfo.console.migrate.raycluster.children import is_operators_binding, title
from cfo.console.migrate.raycluster.observation import Observer
from cfo.console.migrate.raycluster.planning import Options, plan_safely
from cfo.console.migrate.raycluster.steps import Action, ObjectPlan, Step
from cfo.console.migrate.raycluster.stop_limit import StopLimit
from cfo.runtime import (
    Client,
    Conflict,
    NamespacedName,
    Object,
    gvk_of,
    key_of,
    namespace_of,
    resource_version_of,
    uid_of,
)

_ROUNDS = 6
"""How often one RayCluster is planned, at most, in one run."""

_POLL_SECONDS = 0.5


class StepFailed(Exception):
    """A step cannot be executed; the message is one line."""


class Executor:
    """Migrates RayClusters with ``options``; ``report`` is called with each executed step.

    ``timeout`` is how long, in seconds, to wait for the deletion of the pods of one RayCluster.
    """

    def __init__(
        self,
        client: Client,
        observer: Observer,
        options: Options,
        report: Callable[[str], None],
        *,
        timeout: float,
    ) -> None:
        self._client = client
        self._observer = observer
        self._options = options
        self._report = report
        self._timeout = timeout
        self._limit = StopLimit()

    async def migrate(self, key: NamespacedName, *, may_wait: bool = True) -> ObjectPlan | None:
        """Plan a RayCluster and execute the steps, until none is left; return the last plan.

        A plan that waits for pods is not executed without ``may_wait``, and blocked after too many others have not
        stopped (:class:`.StopLimit`). Returns ``None`` if the RayCluster does not exist any more. Raises
        :class:`StepFailed`, :class:`.ClusterUnreadable`, and the errors of the client.
        """
        with time_limit(READ_LIMIT + _ROUNDS * self._timeout):
            return await self._migrate(key, may_wait=may_wait)

    async def _migrate(self, key: NamespacedName, *, may_wait: bool) -> ObjectPlan | None:
        plan = None
        for _ in range(_ROUNDS):
            observed = await self._observer.cluster(key)
            if observed is None:
                return None
            plan = plan_safely(observed, self._options)
            if plan.waits and may_wait:
                reason = self._limit.reason_against(plan)
                if reason:
                    plan.block(reason)
            if not plan.steps or (plan.waits and not may_wait):
                break
            await self._execute(plan)
        return plan

    async def _execute(self, plan: ObjectPlan) -> None:
        """Execute the steps of ``plan``; stop without an error if another client changed one of the objects."""
        for step in plan.steps:
            try:
                is_done = await self._execute_step(step)
            except Conflict:
                return
            if is_done:
                self._report(f"{key_of(plan.object)}: {step.text}")

    async def _execute_step(self, step: Step) -> bool:
        """Return whether anything was done."""
        match step.action:
            case Action.UPDATE:
                return await self._update(step)
            case Action.UPDATE_STATUS:
                return await self._update(step, subresource="status")
            case Action.RELEASE:
                await self._check_bindings(step.object)
                return await self._update(step)
            case Action.DELETE:
                return await self._client.delete(
                    gvk_of(step.object),
                    key_of(step.object),
                    uid=uid_of(step.object),
                    resource_version=resource_version_of(step.object),
                )
            case Action.WAIT_FOR_PODS:
                await self._wait_for_pods(step.object)
                return True

    async def _update(self, step: Step, *, subresource: str = "") -> bool:
        current = await self._client.get(gvk_of(step.object), key_of(step.object), live=True)
        if current is None or uid_of(current) != uid_of(step.object):
            raise StepFailed(f"{title(step.object)} was deleted")
        assert step.change is not None
        changed = step.change(current)
        if changed == current:
            return False
        await self._client.update(changed, subresource=subresource)
        return True

    async def _check_bindings(self, cluster: Object) -> None:
        for binding in await self._observer.bindings_of(cluster):
            if is_operators_binding(binding, cluster):
                raise StepFailed(f"{title(binding)} still exists, so the finalizer is kept")

    async def _wait_for_pods(self, cluster: Object) -> None:
        before = pods = await self._observer.pods_of(cluster)
        if not pods:
            return
        with anyio.move_on_after(self._timeout):
            while pods:
                await anyio.sleep(_POLL_SECONDS)
                pods = await self._observer.pods_of(cluster)
        if not pods:
            self._limit.record_stopped()
            return
        deleted = before.keys() - pods.keys()
        self._limit.record_failure(cluster, are_pods_deleted=bool(deleted) or any(pods.values()))
        pod = min(pods)
        describe = f"kubectl -n {namespace_of(cluster)} get pod {pod} -o yaml"
        raise StepFailed(
            f"pod {pod} still exists after {self._timeout:g} s, so it stays suspended and is not changed; check "
            f"KubeRay, and the pod's finalizers and node ({describe}), and run the command again"
        )
