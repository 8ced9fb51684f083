"""Two replicas of ``cfo run`` on one control plane, of which the leader is killed, paused, or asked to end."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
import yaml

from cfo.runtime.client.transport import Transport
from cfo.runtime.kinds import LEASE, NETWORK_POLICY
from cfo.runtime.leaderelection import LeaderElectionOptions
from cfo.runtime.lifecycle import RunnableFailed
from cfo.runtime.manager import Manager
from cfo.runtime.objects import NamespacedName
from envtest.context import User
from envtest.embedded import EmbeddedControlPlane
from test.support.faults import new_manager
from test.support.faulty_proxy import start_faulty_proxy
from test.support.operator_process import PLAIN, Operator, configure, operator
from test.support.raycluster_environment import PLAIN_SETTINGS as SETTINGS
from test.support.raycluster_environment import (
    VANILLA_CRDS,
    Environment,
    eventually,
    kuberay_config,
    ray_cluster,
    start_environment,
)

LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS = 3.0, 2.0, 0.3
ELECTION = {
    "leaderElect": True,
    "leaseDuration": f"{LEASE_SECONDS}s",
    "renewDeadline": f"{RENEW_SECONDS}s",
    "retryPeriod": f"{RETRY_SECONDS}s",
}
NAMES = ("replica-one", "replica-two", "replica-three")
LOCK = NamespacedName("default", "codeflare-operator-lock")


def writers(here: Environment) -> list[str]:
    """See :meth:`Pair.writers`."""
    if not isinstance(here.plane, EmbeddedControlPlane):
        return []
    who = [
        event["user"]["username"]
        for event in here.plane.audit.events
        if event["verb"] in ("create", "update", "patch", "delete")
        and event["user"]["username"] in NAMES
        and event["objectRef"]["resource"] not in ("leases", "events")
    ]
    return [name for name, _ in itertools.groupby(who)]


class Pair:
    """Two replicas."""

    def __init__(self, here: Environment, one: Operator, two: Operator) -> None:
        self.here = here
        self.replicas = (one, two)

    async def lease(self) -> dict[str, Any]:
        """The spec of the Lease; empty while there is none."""
        found = await self.here.client.get(LEASE, LOCK)
        return (found or {}).get("spec") or {}

    async def leader(self, *, other_than: str = "") -> str:
        """Waits until somebody (else) leads; returns the identity."""

        async def look() -> str | None:
            holder = str((await self.lease()).get("holderIdentity") or "")
            return holder if holder and holder != other_than else None

        return str(await eventually(look, "a leader"))

    def who(self, identity: str) -> tuple[Operator, Operator]:
        """The replica of this identity, and the other one."""
        one, two = self.replicas
        return (one, two) if f'"identity":"{identity}"' in one.output else (two, one)

    def writers(self) -> list[str]:
        """Who has written what a reconcile writes, one after the other: a name that comes twice went on too long.

        Empty where the control plane keeps no such record.
        """
        return writers(self.here)

    async def reconciles(self, name: str) -> None:
        """Creates a cluster, and waits until it has its network policies."""
        await self.here.create(ray_cluster(name, "default"))

        async def look() -> bool:
            policies = await self.here.child_names(NETWORK_POLICY, "default")
            return len([policy for policy in policies if policy.startswith(name)]) == 2

        await eventually(look, f"the policies of {name}")


def _as(here: Environment, directory: Path, name: str) -> tuple[Path, str, str]:
    """The folder and the arguments of a replica that is known to the control plane by a name of its own."""
    (directory / name).mkdir()
    token = f"token-of-{name}"
    if isinstance(here.plane, EmbeddedControlPlane):
        here.plane.add_user(token, User(name, groups=("system:masters",)))
    else:
        token = here.plane.token
    here.plane.kubeconfig(directory / name / "mine", token=token)
    return directory / name, "--kubeconfig", str(directory / name / "mine")


@asynccontextmanager
async def pair(directory: Path, **election: Any) -> AsyncIterator[Pair]:
    """Two replicas, of which one leads."""
    async with start_environment(*VANILLA_CRDS) as here:
        settings = {**PLAIN, "leaderElection": {**ELECTION, **election}}
        await configure(here, {"config.yaml": yaml.safe_dump(settings)})
        one_, two_, _ = (_as(here, directory, name) for name in NAMES)
        async with operator(here, *one_) as one, operator(here, *two_) as two:
            await asyncio.gather(one.ready(), two.ready())  # the one that does not lead is ready too
            yield Pair(here, one, two)


async def test_a_leader_that_is_cut_off_has_written_its_last_before_the_next_one_writes() -> None:
    """Its connections go silent in the middle of its work; it notices in time, and so does the other one."""
    async with (
        start_environment(*VANILLA_CRDS) as here,
        start_faulty_proxy(here.plane) as first_proxy,
        start_faulty_proxy(here.plane) as second_proxy,
    ):
        if not isinstance(here.plane, EmbeddedControlPlane):
            pytest.skip("only the embedded control plane says who has written")
        managers = []
        ends: list[BaseException | None] = []
        async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
            for name, proxy in zip(NAMES, (first_proxy, second_proxy), strict=False):
                here.plane.add_user(name, User(name, groups=("system:masters",)))
                transport = await stack.enter_async_context(Transport(replace(proxy.config, token=name)))
                election = LeaderElectionOptions(
                    name="lock", namespace="default", lease_duration=2, renew_deadline=1.2, retry_period=0.2
                )
                manager = new_manager(transport, kuberay_config(**SETTINGS), election=election)
                managers.append(manager)
                tasks.start_soon(_run, manager, ends)
                if name == NAMES[0]:
                    await manager.started()
            for number in range(6):
                await here.create(ray_cluster(f"before-{number}", "default"))
                if number == 3:
                    first_proxy.silence()
                    first_proxy.refuses_connections = True
            with anyio.fail_after(20):
                await managers[1].started()
            assert not managers[0].is_leader
            await here.create(ray_cluster("after", "default"))

            async def done() -> bool:
                return len(await here.child_names(NETWORK_POLICY, "default")) == 2 * 7

            await eventually(done, "all policies")
            await eventually(lambda: _has_ended(ends), "the first one has ended")
            assert "LeadershipLost" in str(ends[0])
            managers[1].stop()
        assert writers(here) in ([NAMES[0], NAMES[1]], [NAMES[1]])
        assert ends[1] is None


async def _run(manager: Manager, ends: list[BaseException | None]) -> None:
    try:
        await manager.run()
    except RunnableFailed as error:
        ends.append(error)
    else:
        ends.append(None)


async def _has_ended(ends: list[BaseException | None]) -> bool:
    return len(ends) == 1


async def metric(replica: Operator) -> float:
    """``leader_election_master_status`` of a replica."""
    async with aiohttp.ClientSession(await replica.address("metrics")) as session, session.get("/metrics") as answer:
        lines = (await answer.text()).splitlines()
    (line,) = [line for line in lines if line.startswith("leader_election_master_status{")]
    return float(line.rpartition(" ")[2])


async def test_a_killed_leader_is_succeeded_within_the_lease_and_a_stopped_one_at_once(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        first = await both.leader()
        leader, other = both.who(first)
        assert (await metric(leader), await metric(other)) == (1, 0)
        await both.reconciles("before")
        loop = asyncio.get_running_loop()

        leader.process.kill()
        killed = loop.time()
        second = await both.leader(other_than=first)
        took = loop.time() - killed
        assert took < LEASE_SECONDS + (1 + 1.2) * RETRY_SECONDS + 2.0  # the machine may be busy
        await both.reconciles("after")
        assert (await both.lease())["leaseTransitions"] == 1
        assert len(both.writers()) in (0, 2)
        assert await metric(other) == 1
        notes = [note for _, reason, note in await both.here.events("default") if reason == "LeaderElection"]
        assert {f"{first} became leader", f"{second} became leader"} <= set(notes)

        kubeconfig = str(tmp_path / NAMES[2] / "mine")
        async with operator(both.here, tmp_path / NAMES[2], "--kubeconfig", kubeconfig) as third:
            await third.ready()
            other.process.send_signal(signal.SIGTERM)
            assert await other.exit_code() == 0, other.output
            stopped = loop.time()
            await both.leader(other_than=second)
            assert loop.time() - stopped < LEASE_SECONDS  # nobody had to wait for the lease to run out
            await both.reconciles("third")


async def test_a_leader_that_was_paused_past_its_lease_writes_nothing_and_ends(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        first = await both.leader()
        leader, _ = both.who(first)
        await both.reconciles("before")
        leader.process.send_signal(signal.SIGSTOP)
        await both.leader(other_than=first)
        # Its queue is full of news when it goes on: reconciles, which would write.
        for number in range(10):
            await both.here.create(ray_cluster(f"meanwhile-{number}", "default"))
        leader.process.send_signal(signal.SIGCONT)
        assert await leader.exit_code() == 1, leader.output
        assert "LeadershipLost" in leader.output

        async def done() -> bool:
            return len(await both.here.child_names(NETWORK_POLICY, "default")) == 2 * 11

        await eventually(done, "all policies")
        assert len(both.writers()) in (0, 2)


@pytest.mark.parametrize("setting", [None, False])
async def test_outside_of_a_cluster_there_is_no_election_unless_it_is_asked_for(
    tmp_path: Path, setting: bool | None
) -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        election = {} if setting is None else {"leaderElection": {"leaderElect": setting}}
        await configure(here, {"config.yaml": yaml.safe_dump({**PLAIN, **election})})
        async with operator(here, tmp_path) as running:
            await running.ready()
            assert await here.client.list(LEASE, namespace="default") == []
