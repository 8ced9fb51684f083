"""Tests of FluxJobs and their queue with the three patterns of Sieve (see ``test_faults_sieve.py``).

*Intermediate states*: a crash after each single write. *Stale states*: reconciles with a consistent, but outdated
cache. *Unobserved states*: changes that the controllers do not see. After each, all jobs end as they would have,
nothing is left of deleted ones, and there were never more pods than the quota allows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from itertools import islice

import pytest

from cfo.api.flux.names import FIELD_MANAGER, FLUX_JOB, FLUX_SETUP, MINICLUSTER, SUCCEEDED, JobState
from cfo.config.model import FluxConfiguration
from cfo.controllers import flux
from cfo.runtime.client.errors import Conflict, NotFound
from cfo.runtime.client.transport import Transport
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.unstructured import NamespacedName, Object, name_of
from test.support.faults import run_manager_until_crash, run_manager_with_faulty_transport
from test.support.flux_environment import (
    SCHEDULED,
    FluxEnvironment,
    condition,
    flux_job,
    flux_setup,
    pod_annotations,
    start_flux_environment,
    state,
)
from test.support.flux_observer import observe
from test.support.raycluster_environment import eventually
from test.support.sweeps import sampled, sampled_numbers

MAX_RUNS = 100
"""More runs than there are writes, each of which ends in a crash."""

RUNNING = {"pod": pod_annotations(phase="Running")}


def new_manager(transport: Transport) -> Manager:
    options = ManagerOptions(
        field_manager="tester", field_managers=[FIELD_MANAGER], graceful_shutdown_timeout=5.0
    )
    manager = Manager(transport, options)
    flux.setup(manager, FluxConfiguration(enabled=True), "operator")
    return manager


async def wait_until_empty(env: FluxEnvironment) -> None:
    async def is_empty() -> bool:
        assert not await env.client.list(MINICLUSTER, namespace="ns")
        assert not any((await env.flux_children()).values())
        return True

    await eventually(is_empty, "nothing is left")


async def crash_after_each_write(
    env: FluxEnvironment, is_done: Callable[[], Awaitable[bool]]
) -> int:
    """Run the controllers again and again, each time until a crash; return the number of writes.

    A sweep crashes after each write, other runs after each third one. Ends when there is nothing left to write and
    ``is_done`` returns true.
    """
    writes = 0
    for number in islice(sampled_numbers(), MAX_RUNS):
        crashed = await run_manager_until_crash(env, new_manager, after_writes=number - writes)
        writes = number
        if not crashed and await is_done():
            return writes
    raise AssertionError(f"not done after {MAX_RUNS} crashes")


@pytest.mark.sweep
async def test_job_is_continued_after_a_crash_at_any_write() -> None:
    async with start_flux_environment(controllers=SCHEDULED) as env, observe(env) as observer:
        await env.create_namespace("ns")
        await env.create(flux_setup(max_size=1))
        for number in (1, 2):
            await env.create(flux_job(f"job-{number}", size=1))

        async def is_finished() -> bool:
            jobs = await env.client.list(FLUX_JOB, namespace="ns")
            return all(state(job) == [JobState.FINISHED] for job in jobs) and not any(
                (await env.flux_children()).values()
            )

        assert (
            await crash_after_each_write(env, is_finished) > 12
        )  # each object and each state is a write
        assert observer.most_pods == 1
        for number in (1, 2):
            job = await env.get(FLUX_JOB, f"job-{number}")
            assert condition(job, SUCCEEDED)["status"] == "True"

        # A job that is deleted while it runs leaves nothing.
        async with run_manager_with_faulty_transport(env, new_manager):
            job = await env.create(flux_job("job-3", size=1, template=RUNNING))
            await env.wait_for(
                lambda obj: state(obj) == [JobState.RUNNING], "running", name="job-3", gvk=FLUX_JOB
            )
        await env.delete(job)

        async def is_deleted() -> bool:
            return not await env.client.list(MINICLUSTER, namespace="ns") and await is_finished()

        await crash_after_each_write(env, is_deleted)


Change = Callable[[FluxEnvironment, Object], Awaitable[JobState | None]]
"""A change of a running job of one pod; returns the state in which it ends, or None if it was deleted."""


async def _delete(env: FluxEnvironment, job: Object) -> JobState | None:
    await env.delete(job)
    return None


async def _recreate(env: FluxEnvironment, job: Object) -> JobState | None:
    await env.delete(job)
    await env.wait_until_removed(FLUX_JOB, name_of(job))
    await env.create(flux_job(name_of(job), size=1))
    return JobState.RUNNING


async def _suspend(env: FluxEnvironment, job: Object) -> JobState | None:
    await env.patch(job, {"spec": {"suspend": True}})
    return JobState.WAITING


async def _suspend_and_resume(env: FluxEnvironment, job: Object) -> JobState | None:
    await env.patch(job, {"spec": {"suspend": True}})
    await env.patch(job, {"spec": {"suspend": False}})
    return JobState.RUNNING


async def _delete_minicluster(env: FluxEnvironment, job: Object) -> JobState | None:
    await env.delete(await env.get(MINICLUSTER, name_of(job)))
    return JobState.RUNNING


async def _lower_the_quota(env: FluxEnvironment, job: Object) -> JobState | None:
    setup = await env.get(FLUX_SETUP, "setup")
    await env.patch(setup, {"spec": {"max-size": 0}})
    await env.patch(setup, {"spec": {"max-size": 1}})
    return JobState.RUNNING


CHANGES: list[Change] = [
    _delete,
    _recreate,
    _suspend,
    _suspend_and_resume,
    _delete_minicluster,
    _lower_the_quota,
]


async def _expect(env: FluxEnvironment, expected: JobState | None, name: str) -> None:
    if expected is None:
        await wait_until_empty(env)
    else:
        await env.wait_for(
            lambda obj: state(obj) == [expected], f"{name}: {expected}", name=name, gvk=FLUX_JOB
        )
        await env.delete(await env.get(FLUX_JOB, name))
        await wait_until_empty(env)


def _name_of(change: Change) -> str:
    return change.__name__.strip("_").replace("_", "-")


@pytest.mark.parametrize("stale", [True, False], ids=["stale", "unobserved"])
@pytest.mark.sweep
async def test_outdated_and_missed_events_lead_to_the_same_state(stale: bool) -> None:
    """Each change happens while watches pause, and reconciles run with the old cache; or while nothing runs."""
    async with start_flux_environment(controllers=SCHEDULED) as env, observe(env) as observer:
        await env.create_namespace("ns")
        await env.create(flux_setup(max_size=1, mini_cluster=RUNNING))
        for change in sampled(CHANGES, int(stale)):
            name = _name_of(change)
            async with run_manager_with_faulty_transport(env, new_manager) as (manager, transport):
                job = await env.create(flux_job(name, size=1))
                await env.wait_for(
                    lambda obj: state(obj) == [JobState.RUNNING], name, name=name, gvk=FLUX_JOB
                )
                await env.wait_until_idle()
                if stale:
                    transport.watch_gate.hold()
                    expected = await change(env, job)
                    for controller in manager.controllers:
                        key = NamespacedName(
                            "ns", "setup" if controller.name == "fluxsetup" else name
                        )
                        with contextlib.suppress(
                            Conflict, NotFound
                        ):  # retried after the events have arrived
                            await controller.reconciler.reconcile(key)
                    transport.watch_gate.release()
                    await _expect(env, expected, name)
            if not stale:
                expected = await change(env, job)
                async with run_manager_with_faulty_transport(env, new_manager):
                    await _expect(env, expected, name)
        assert observer.most_pods == 1
