"""Tests of leader election with two replicas of ``cfo run``: the leader is disconnected, killed, paused or stopped."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
import yaml

from cfo.runtime.client.transport import Transport
from cfo.runtime.controller.lifecycle import RunnableFailed
from cfo.runtime.manager.leaderelection import LeaderElectionOptions
from cfo.runtime.manager.manager import Manager
from cfo.runtime.objects.kinds import LEASE, NETWORK_POLICY
from cfo.runtime.objects.unstructured import NamespacedName
from envtest import EmbeddedControlPlane, User
from test.support.faults import new_manager
from test.support.faulty_proxy import start_faulty_proxy
from test.support.operator_process import (
    PLAIN_CONFIG,
    OperatorProcess,
    create_config_map,
    run_operator,
)
from test.support.raycluster_environment import PLAIN_SETTINGS as SETTINGS
from test.support.raycluster_environment import (
    VANILLA_CRDS,
    Environment,
    eventually,
    kuberay_config,
    ray_cluster,
    start_environment,
)

LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS = 5.0, 4.0, 0.4
"""A leader that gets no CPU for :data:`RENEW_SECONDS` stops, also in a test."""
ELECTION = {
    "leaderElect": True,
    "leaseDuration": f"{LEASE_SECONDS}s",
    "renewDeadline": f"{RENEW_SECONDS}s",
    "retryPeriod": f"{RETRY_SECONDS}s",
}
NAMES = ("replica-one", "replica-two", "replica-three")
LEASE_KEY = NamespacedName("default", "codeflare-operator-lock")


def list_writers(env: Environment) -> list[str]:
    """Return which replicas wrote objects other than Leases and Events, in order, without repeats in a row.

    A name that appears twice belongs to a replica that wrote although it no longer led. Empty on a real control plane,
    which has no audit log for tests.
    """
    if not isinstance(env.plane, EmbeddedControlPlane):
        return []
    usernames = [
        event["user"]["username"]
        for event in env.plane.audit.events
        if event["verb"] in ("create", "update", "patch", "delete")
        and event["user"]["username"] in NAMES
        and event["objectRef"]["resource"] not in ("leases", "events")
    ]
    return [name for name, _ in itertools.groupby(usernames)]


class Replicas:
    """Two replicas of the operator."""

    def __init__(self, env: Environment, one: OperatorProcess, two: OperatorProcess) -> None:
        self.env = env
        self.operators = (one, two)

    async def get_lease(self) -> dict[str, Any]:
        """Return the spec of the Lease; empty if it does not exist."""
        found = await self.env.client.get(LEASE, LEASE_KEY)
        return (found or {}).get("spec") or {}

    async def wait_for_leader(self, *, other_than: str = "") -> str:
        """Wait until a replica other than ``other_than`` leads; return its identity."""

        async def holder_identity() -> str | None:
            holder = str((await self.get_lease()).get("holderIdentity") or "")
            return holder if holder and holder != other_than else None

        return str(await eventually(holder_identity, "a leader"))

    def split_by_identity(self, identity: str) -> tuple[OperatorProcess, OperatorProcess]:
        """Return the replica with this identity, and the other one."""
        one, two = self.operators
        return (one, two) if f'"identity":"{identity}"' in one.output else (two, one)

    def list_writers(self) -> list[str]:
        """See :func:`list_writers`."""
        return list_writers(self.env)

    async def reconcile_cluster(self, name: str) -> None:
        """Create a cluster, and wait until it has its NetworkPolicies."""
        await self.env.create(ray_cluster(name, "default"))

        async def has_policies() -> bool:
            policies = await self.env.child_names(NETWORK_POLICY, "default")
            return len([policy for policy in policies if policy.startswith(name)]) == 2

        await eventually(has_policies, f"the policies of {name}")


def _create_user(env: Environment, directory: Path, name: str) -> tuple[Path, str, str]:
    """Create a user for a replica; return the replica's folder and arguments."""
    (directory / name).mkdir()
    token = f"token-of-{name}"
    if isinstance(env.plane, EmbeddedControlPlane):
        env.plane.add_user(token, User(name, groups=("system:masters",)))
    else:
        token = env.plane.token
    env.plane.kubeconfig(directory / name / "kubeconfig-of-user", token=token)
    return directory / name, "--kubeconfig", str(directory / name / "kubeconfig-of-user")


@asynccontextmanager
async def run_replicas(directory: Path, **election: Any) -> AsyncIterator[Replicas]:
    """Run two replicas, of which one leads, until the end of the block."""
    async with start_environment(*VANILLA_CRDS) as env:
        settings = {**PLAIN_CONFIG, "leaderElection": {**ELECTION, **election}}
        await create_config_map(env, {"config.yaml": yaml.safe_dump(settings)})
        first_arguments, second_arguments, _ = (
            _create_user(env, directory, name) for name in NAMES
        )
        async with (
            run_operator(env, *first_arguments) as one,
            run_operator(env, *second_arguments) as two,
        ):
            await asyncio.gather(
                one.ready(), two.ready()
            )  # the replica that does not lead becomes ready, too
            yield Replicas(env, one, two)


@pytest.mark.embedded(reason="it reads the audit log")
async def test_disconnected_leader_stops_writing_before_its_successor_writes() -> None:
    """Its connections go silent during its work; it stops in time, and the other replica takes over."""
    async with (
        start_environment(*VANILLA_CRDS) as env,
        start_faulty_proxy(env.plane) as first_proxy,
        start_faulty_proxy(env.plane) as second_proxy,
    ):
        assert isinstance(env.plane, EmbeddedControlPlane)
        managers = []
        outcomes: list[BaseException | None] = []
        async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
            for name, proxy in zip(NAMES, (first_proxy, second_proxy), strict=False):
                env.plane.add_user(name, User(name, groups=("system:masters",)))
                transport = await stack.enter_async_context(
                    Transport(replace(proxy.config, token=name))
                )
                election = LeaderElectionOptions(
                    name="lock",
                    namespace="default",
                    lease_duration=LEASE_SECONDS,
                    renew_deadline=RENEW_SECONDS,
                    retry_period=RETRY_SECONDS,
                )
                manager = new_manager(transport, kuberay_config(**SETTINGS), election=election)
                managers.append(manager)
                tasks.start_soon(_run, manager, outcomes)
                if name == NAMES[0]:
                    await manager.started()
            for number in range(6):
                await env.create(ray_cluster(f"before-{number}", "default"))
                if number == 3:
                    first_proxy.silence()
                    first_proxy.refuses_connections = True
            with anyio.fail_after(120):
                await managers[1].started()
            assert not managers[0].is_leader
            await env.create(ray_cluster("after", "default"))

            async def has_all_policies() -> bool:
                return len(await env.child_names(NETWORK_POLICY, "default")) == 2 * 7

            await eventually(has_all_policies, "all policies exist")
            await eventually(lambda: _has_ended(outcomes), "the first replica has ended")
            assert "leader election lost" in str(outcomes[0])
            managers[1].stop()
        assert list_writers(env) in ([NAMES[0], NAMES[1]], [NAMES[1]])
        assert outcomes[1] is None


async def _run(manager: Manager, outcomes: list[BaseException | None]) -> None:
    try:
        await manager.run()
    except RunnableFailed as error:
        outcomes.append(error)
    else:
        outcomes.append(None)


async def _has_ended(outcomes: list[BaseException | None]) -> bool:
    return len(outcomes) == 1


async def leader_metric(replica: OperatorProcess) -> float:
    """Return ``leader_election_master_status`` of a replica."""
    async with (
        aiohttp.ClientSession(await replica.address("metrics")) as session,
        session.get("/metrics") as response,
    ):
        lines = (await response.text()).splitlines()
    (line,) = [line for line in lines if line.startswith("leader_election_master_status{")]
    return float(line.rpartition(" ")[2])


async def test_killed_leader_is_replaced_and_stopped_leader_releases_the_lease(
    tmp_path: Path,
) -> None:
    async with run_replicas(tmp_path) as replicas:
        first = await replicas.wait_for_leader()
        leader, other = replicas.split_by_identity(first)
        assert (await leader_metric(leader), await leader_metric(other)) == (1, 0)
        await replicas.reconcile_cluster("before")

        leader.process.kill()
        second = await replicas.wait_for_leader(other_than=first)
        await replicas.reconcile_cluster("after")
        assert (await replicas.get_lease())["leaseTransitions"] == 1
        assert len(replicas.list_writers()) in (0, 2)
        assert await leader_metric(other) == 1
        notes = [
            note
            for _, reason, note in await replicas.env.events("default")
            if reason == "LeaderElection"
        ]
        assert {f"{first} became leader", f"{second} became leader"} <= set(notes)

        kubeconfig = str(tmp_path / NAMES[2] / "kubeconfig-of-user")
        async with run_operator(
            replicas.env, tmp_path / NAMES[2], "--kubeconfig", kubeconfig
        ) as third:
            await third.ready()
            other.process.send_signal(signal.SIGTERM)
            assert await other.exit_code() == 0, other.output
            assert (await replicas.get_lease()).get(
                "holderIdentity"
            ) != second  # released, so it need not expire
            await replicas.wait_for_leader(other_than=second)
            await replicas.reconcile_cluster("third")


async def test_leader_paused_past_its_lease_writes_nothing_and_exits(tmp_path: Path) -> None:
    async with run_replicas(tmp_path) as replicas:
        first = await replicas.wait_for_leader()
        leader, _ = replicas.split_by_identity(first)
        await replicas.reconcile_cluster("before")
        leader.process.send_signal(signal.SIGSTOP)
        await replicas.wait_for_leader(other_than=first)
        # When it continues, its queue is full of reconciles that would write.
        for number in range(10):
            await replicas.env.create(ray_cluster(f"meanwhile-{number}", "default"))
        leader.process.send_signal(signal.SIGCONT)
        assert await leader.exit_code() == 1, leader.output
        assert "leader election lost" in leader.output

        async def has_all_policies() -> bool:
            return len(await replicas.env.child_names(NETWORK_POLICY, "default")) == 2 * 11

        await eventually(has_all_policies, "all policies exist")
        assert len(replicas.list_writers()) in (0, 2)


@pytest.mark.parametrize("setting", [None, False])
async def test_leader_election_is_off_by_default_outside_of_cluster(
    tmp_path: Path, setting: bool | None
) -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        election = {} if setting is None else {"leaderElection": {"leaderElect": setting}}
        await create_config_map(env, {"config.yaml": yaml.safe_dump({**PLAIN_CONFIG, **election})})
        async with run_operator(env, tmp_path) as running:
            await running.ready()
            await eventually(partial(env.client.list, LEASE, namespace="default"), "the heartbeat")
        assert "Attempting to acquire leader lease" not in running.output
        assert "by which other operators see that this one is alive" in running.output
