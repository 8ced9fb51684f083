"""Random schedules of admissions, evictions, scaling, failures and faults: no AppWrapper runs past its quota."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from cfo.api.appwrapper.names import APPWRAPPER, APPWRAPPER_LABEL
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.controllers.appwrapper.status import is_true
from cfo.runtime.client.errors import NotFound
from cfo.runtime.objects.kinds import DEPLOYMENT, POD
from cfo.runtime.objects.unstructured import NamespacedName, Object, key_of, name_of
from envtest import EmbeddedControlPlane
from envtest.faults import Fault
from test.support.appwrapper_environment import (
    CONTROLLERS,
    AppWrapperEnvironment,
    configuration,
    job,
    run_appwrapper_controllers,
    start_appwrapper_environment,
    state,
    wrapper,
)
from test.support.clocks import SteppedClock
from test.support.kueue_queue import FLAVOR, PodQueue, is_reserved, kueue_crds
from test.support.raycluster_environment import eventually
from test.support.recordings import GOLDEN

pytestmark = pytest.mark.skipif(
    not GOLDEN.is_dir(), reason="no CRDs of Kueue next to the repository"
)

SEEDS = (1, 3)
STEPS = 25
QUOTA = 4


@pytest.fixture
async def environment() -> AsyncIterator[AppWrapperEnvironment]:
    async with start_appwrapper_environment(*kueue_crds(), controllers=CONTROLLERS) as environment:
        await environment.create_namespace()
        flavor = {"apiVersion": FLAVOR.api_version, "kind": FLAVOR.kind, "spec": {}}
        await environment.create({**flavor, "metadata": {"name": "gold"}})
        yield environment


def deployment(name: str) -> Object:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "busybox"}]},
            },
        },
    }


def queued(name: str, component: Object) -> Object:
    obj = wrapper(component, name=name, retryLimit="100")
    obj["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq"}
    return obj


class Schedule:
    """Performs random actions, which depend only on the seed."""

    def __init__(self, environment: AppWrapperEnvironment, seed: int) -> None:
        self.environment = environment
        self.queue = PodQueue(environment, QUOTA)
        self.random = random.Random(seed)
        self.log: list[str] = []

    async def step(self) -> None:
        """Perform one action, let the operator react, and check the quota."""
        actions: tuple[Callable[[], Awaitable[None]], ...] = (
            self.schedule,
            self.schedule,
            self.evict,
            self.end_pod,
            self.end_pod,
            self.delete_pod,
            self.scale,
            self.break_connection,
            self.environment.skip_to_next_timer,
        )
        action = self.random.choice(actions)
        self.log.append(action.__name__)
        with contextlib.suppress(NotFound):  # the operator deleted the object meanwhile
            await action()
        await self.environment.wait_until_idle()
        await self.check()

    async def schedule(self) -> None:
        await self.queue.schedule()

    async def evict(self) -> None:
        await self.queue.evict(self.random.randrange(10))

    async def running_pods(self) -> list[Object]:
        pods = await self.environment.client.list(
            POD, namespace="ns", label_selector=APPWRAPPER_LABEL
        )
        running = [each for each in pods if each["status"].get("phase") == "Running"]
        return sorted(running, key=name_of)

    async def end_pod(self) -> None:
        """Let a pod of a Job succeed or fail."""
        pods = [each for each in await self.running_pods() if name_of(each).startswith("j")]
        if pods:
            pod = pods[self.random.randrange(len(pods))]
            phase = self.random.choice(("Succeeded", "Failed"))
            annotations = {"envtest.cfo/phase": phase}
            await self.environment.patch(pod, {"metadata": {"annotations": annotations}})

    async def delete_pod(self) -> None:
        """Delete a pod, as for a node that failed."""
        pods = await self.running_pods()
        if pods:
            pod = pods[self.random.randrange(len(pods))]
            await self.environment.client.delete(POD, key_of(pod))

    async def scale(self) -> None:
        """Scale the Deployment of an AppWrapper, if it exists, as a HorizontalPodAutoscaler does."""
        replicas = self.random.randrange(5)
        if await self.environment.find(DEPLOYMENT, "d", "ns") is not None:
            await self.environment.client.patch(
                DEPLOYMENT, NamespacedName("ns", "d"), {"spec": {"replicas": replicas}}
            )

    async def break_connection(self) -> None:
        """Let one of the operator's next writes fail, although it may have taken effect."""
        assert isinstance(self.environment.plane, EmbeddedControlPlane)
        after = self.random.random() < 0.5
        resource = self.random.choice(("appwrappers", "appwrappers/status"))
        self.environment.plane.faults.add(
            Fault(
                verbs=("patch", "create", "delete"),
                resources=(resource,),
                count=1,
                code=503,
                after=after,
            )
        )

    async def check(self) -> None:
        """Wait until no AppWrapper has an excess that is not being ended; only the Deployment may have one at all."""

        async def is_within_quota() -> bool:
            excess = await self.queue.excess()
            assert all(" of d " in each for each in excess), (excess, self.log)
            if excess:
                await self.environment.skip_to_next_timer()
            assert not excess, (excess, self.log)
            return True

        await eventually(is_within_quota, "no excess")

    async def finish(self) -> None:
        """Check that each admitted AppWrapper ends or has its pods, once nothing disturbs it."""
        assert isinstance(self.environment.plane, EmbeddedControlPlane)
        self.environment.plane.faults.clear()

        async def is_settled() -> bool:
            await self.queue.schedule()
            with contextlib.suppress(NotFound):
                await self._let_jobs_succeed()
            await self.environment.wait_until_idle()
            stuck = [state(each) for each in await self.admitted() if not _is_well(each)]
            if stuck:
                await self.environment.skip_to_next_timer()
            assert not stuck, (stuck, self.log)
            return True

        await eventually(is_settled, "no admitted AppWrapper is stuck")
        for name in ("j1", "j2"):
            reasons = {
                reason
                for _, _, conditions in self.environment.states["ns", name]
                for kind, status, reason, _ in conditions
                if (kind, status) == ("Unhealthy", "True")
            }
            assert "FoundFailedPods" not in reasons, "the controller of Jobs retries"

    async def _let_jobs_succeed(self) -> None:
        for pod in await self.running_pods():
            if name_of(pod).startswith("j"):
                annotations = {"envtest.cfo/phase": "Succeeded"}
                await self.environment.patch(pod, {"metadata": {"annotations": annotations}})

    async def admitted(self) -> list[Object]:
        """Return the AppWrappers whose Workloads hold quota."""
        found: list[Object] = []
        for workload in await self.queue.workloads():
            if is_reserved(workload):
                owner = workload["metadata"]["ownerReferences"][0]["name"]
                found.append(await self.environment.get(APPWRAPPER, owner, "ns"))
        return found


def _is_well(obj: Object) -> bool:
    phase = state(obj)[0]
    return phase == "Running" and is_true(obj["status"]["conditions"], "PodsReady")


@pytest.mark.embedded(reason="injects faults, and moves the clock of the controllers")
@pytest.mark.parametrize("seed", SEEDS)
async def test_random_schedule_does_not_exceed_the_quota(
    environment: AppWrapperEnvironment, seed: int
) -> None:
    schedule = Schedule(environment, seed)
    config = configuration(kueueIntegration=True)
    async with run_appwrapper_controllers(environment, config, clock=SteppedClock()):
        for name in ("j1", "j2"):
            component = job(name, parallelism=2)
            component["spec"]["backoffLimit"] = 2
            await environment.create(queued(name, component))
        await environment.create(queued("d", deployment("d")))
        await environment.wait_until_idle()
        for _ in range(STEPS):
            await schedule.step()
        await schedule.finish()
