"""Executes the steps of a migration, one RayCluster after the other.

Before each write, the object is read, and the write carries the uid and the resourceVersion that were read. If another
client changed the object, the RayCluster is observed and planned again. When all steps are done, it is observed once
more, because KubeRay's reaction can make further steps possible.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import anyio

from cfo.console.migrate.raycluster.children import is_operators_binding, title
from cfo.console.migrate.raycluster.observation import Observer
from cfo.console.migrate.raycluster.steps import Action, Downtime, ObjectPlan, Step
from cfo.runtime import (
    APIError,
    Client,
    Conflict,
    DiscoveryIncomplete,
    Object,
    TransportError,
    gvk_of,
    key_of,
    resource_version_of,
    uid_of,
)

_ROUNDS = 6
"""How often one object is planned, at most, in one run."""

_POLL_SECONDS = 0.5


class StepFailed(Exception):
    """A step cannot be executed; the message is one line."""


@dataclass(slots=True)
class Outcome:
    """The result for one object: the steps that were executed, what the last plan left, and the error, if any."""

    plan: ObjectPlan
    done: list[str] = field(default_factory=list)
    error: str = ""

    @property
    def is_incomplete(self) -> bool:
        """Whether something is left to do that another run, or the administrator, has to do."""
        return bool(self.plan.blockers or self.plan.kept or self.plan.steps)


class Executor:
    """Executes plans. ``record`` is called with a plan before its first step; ``report`` with each executed step.

    ``timeout`` is how long, in seconds, to wait for the deletion of the pods of one RayCluster. With ``dry_run``, the
    API server validates each write without persisting it.
    """

    def __init__(
        self,
        client: Client,
        observer: Observer,
        record: Callable[[ObjectPlan], None],
        report: Callable[[str], None],
        *,
        timeout: float,
        dry_run: bool = False,
    ) -> None:
        self._client = client
        self._observer = observer
        self._record = record
        self._report = report
        self._timeout = timeout
        self._dry_run = dry_run
        self._simulated: dict[str, Object] = {}
        self._has_stuck_pods = False

    async def migrate(
        self, plan: ObjectPlan, replan: Callable[[], Awaitable[ObjectPlan | None]]
    ) -> Outcome:
        """Execute ``plan``, and what ``replan`` returns afterwards, until nothing is left to do.

        ``replan`` returns ``None`` if the object does not exist any more. API server and connection errors are part of
        the result, so that the other objects can be migrated.
        """
        outcome = Outcome(plan)
        if self._has_stuck_pods and plan.downtime is Downtime.RESTART and plan.steps:
            outcome.error = (
                "was not suspended, because the pods of another RayCluster were not deleted"
            )
            return outcome
        await self._run(outcome, replan, is_current=True)
        return outcome

    async def resume(
        self, outcome: Outcome, replan: Callable[[], Awaitable[ObjectPlan | None]]
    ) -> None:
        """Plan the object of ``outcome`` again, and continue its migration."""
        await self._run(outcome, replan, is_current=False)

    async def _run(
        self,
        outcome: Outcome,
        replan: Callable[[], Awaitable[ObjectPlan | None]],
        *,
        is_current: bool,
    ) -> None:
        try:
            for _ in range(_ROUNDS):
                if not is_current:
                    outcome.plan = await replan() or ObjectPlan(outcome.plan.object)
                is_current = False
                if not outcome.plan.steps:
                    return
                if not self._dry_run:
                    self._record(outcome.plan)
                await self._execute(outcome)
                if self._dry_run:
                    outcome.plan = replace(outcome.plan, steps=[])
                    return
        except (APIError, TransportError, DiscoveryIncomplete, StepFailed) as error:
            outcome.error = " ".join(str(error).split())

    async def _execute(self, outcome: Outcome) -> None:
        """Execute the steps of the plan; stop without an error if another client changed one of the objects."""
        for step in outcome.plan.steps:
            try:
                if not await self._execute_step(step):
                    continue
            except Conflict:
                if self._dry_run:
                    raise
                return
            line = f"{key_of(outcome.plan.object)}: {step.text}"
            outcome.done.append(step.text)
            self._report(f"{line} (dry run)" if self._dry_run else line)

    async def _execute_step(self, step: Step) -> bool:
        """Return whether anything was done."""
        match step.action:
            case Action.UPDATE:
                return await self._update(step)
            case Action.RELEASE:
                await self._check_bindings(step.object)
                return await self._update(step)
            case Action.DELETE:
                return await self._client.delete(
                    gvk_of(step.object),
                    key_of(step.object),
                    uid=uid_of(step.object),
                    resource_version=resource_version_of(step.object),
                    dry_run=self._dry_run,
                )
            case Action.CREATE:
                await self._client.create(step.object, dry_run=self._dry_run)
                return True
            case Action.WAIT_FOR_PODS:
                return await self._wait_for_pods(step.object)

    async def _update(self, step: Step) -> bool:
        uid = uid_of(step.object)
        current = self._simulated.get(uid)
        if current is None:
            current = await self._client.get(gvk_of(step.object), key_of(step.object), live=True)
        if current is None or uid_of(current) != uid:
            raise StepFailed(f"{title(step.object)} was deleted")
        assert step.change is not None
        changed = step.change(current)
        if changed == current:
            return False
        await self._client.update(changed, dry_run=self._dry_run)
        if self._dry_run:  # the next step continues from the state that would be persisted
            self._simulated[uid] = changed
        return True

    async def _check_bindings(self, cluster: Object) -> None:
        if self._dry_run:
            return
        for binding in await self._observer.bindings_of(cluster):
            if is_operators_binding(binding, cluster):
                raise StepFailed(f"{title(binding)} still exists, so the finalizer is kept")

    async def _wait_for_pods(self, cluster: Object) -> bool:
        if self._dry_run:
            return True
        with anyio.move_on_after(self._timeout):
            while await self._observer.has_pods(cluster):  # noqa: ASYNC110 (no informer is used here)
                await anyio.sleep(_POLL_SECONDS)
            return True
        self._has_stuck_pods = True
        raise StepFailed(
            f"its pods still exist after {self._timeout:g} s; run the command again to continue"
        )
