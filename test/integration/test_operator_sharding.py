"""Several replicas of ``cfo run`` with ``sharding.shards``: they share the namespaces, and one is paused."""

from __future__ import annotations

import asyncio
import signal
from collections import defaultdict
from pathlib import Path

import orjson
import pytest
import yaml

from cfo.manifests.overlays import crds
from cfo.runtime.kinds import LEASE, NETWORK_POLICY
from cfo.runtime.sharding.record import ANNOTATION
from envtest import EmbeddedControlPlane, User
from test.integration.test_faults_leader import ELECTION, LEASE_KEY
from test.support.operator_process import PLAIN_CONFIG, OperatorProcess, create_config_map, run_operator
from test.support.raycluster_environment import (
    VANILLA_CRDS,
    Environment,
    eventually,
    ray_cluster,
    start_environment,
)
from test.support.shard_replicas import released_lease

_NAMES = ("replica-one", "replica-two")
_CONFIG = {
    **PLAIN_CONFIG,
    "leaderElection": ELECTION,
    "sharding": {"shards": 16},
    "appwrapper": {"enabled": True},
    "flux": {"enabled": True},
    "inferenceStack": {"enabled": True},
}


def _members(lease: dict[str, object] | None) -> dict[str, list[int]]:
    """Return the shards of each member of the ring."""
    annotations = ((lease or {}).get("metadata") or {}).get("annotations") or {}  # type: ignore[attr-defined]
    members = orjson.loads(annotations.get(ANNOTATION, "{}")).get("members") or {}
    return {identity: member["shards"] for identity, member in members.items()}


async def _wait_for_shards(env: Environment, *counts: int) -> dict[str, list[int]]:
    async def divided() -> dict[str, list[int]] | None:
        members = _members(await env.client.get(LEASE, LEASE_KEY))
        return members if sorted(map(len, members.values())) == sorted(counts) else None

    found: dict[str, list[int]] = await eventually(divided, f"members with {counts} shards")
    return found


def _writers(env: Environment) -> dict[str, set[str]]:
    """Return for each namespace who wrote NetworkPolicies in it, according to the audit log."""
    assert isinstance(env.plane, EmbeddedControlPlane)
    found: dict[str, set[str]] = defaultdict(set)
    for event in env.plane.audit.events:
        if event["verb"] in ("create", "update", "patch", "delete"):
            reference = event["objectRef"]
            if reference["resource"] == "networkpolicies":
                found[reference["namespace"]].add(event["user"]["username"])
    return found


async def _create_clusters(env: Environment, *namespaces: str) -> None:
    """Create a cluster in each of these new namespaces, and wait until all have their NetworkPolicies."""
    for namespace in namespaces:
        await env.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        await env.create(ray_cluster("ray", namespace))

    async def have_policies() -> bool:
        found = [len(await env.child_names(NETWORK_POLICY, namespace)) for namespace in namespaces]
        assert all(count == 2 for count in found), found
        return True

    await eventually(have_policies, "the policies")


@pytest.mark.embedded(reason="it reads the audit log")
async def test_replicas_share_the_namespaces_and_a_paused_replica_writes_nothing(tmp_path: Path) -> None:
    async with start_environment(*VANILLA_CRDS, *crds()) as env:
        assert isinstance(env.plane, EmbeddedControlPlane)
        await env.client.create(released_lease(LEASE_KEY))
        await create_config_map(env, {"config.yaml": yaml.safe_dump(_CONFIG)})
        arguments = []
        for name in _NAMES:
            env.plane.add_user(f"token-of-{name}", User(name, groups=("system:masters",)))
            (tmp_path / name).mkdir()
            env.plane.kubeconfig(tmp_path / name / "user", token=f"token-of-{name}")
            arguments.append((tmp_path / name, "--kubeconfig", str(tmp_path / name / "user")))
        async with run_operator(env, *arguments[0]) as one, run_operator(env, *arguments[1]) as two:
            await asyncio.gather(one.ready(), two.ready())
            await _wait_for_shards(env, 8, 8)
            namespaces = [f"team-{number}" for number in range(10)]
            await _create_clusters(env, *namespaces)
            writers = _writers(env)
            assert {len(writers[namespace]) for namespace in namespaces} == {1}
            assert set().union(*writers.values()) == {*_NAMES}

            two.process.send_signal(signal.SIGSTOP)
            (survivor,) = await _wait_for_shards(env, 16)
            assert f'"identity":"{survivor}"' in one.output
            await _create_clusters(env, "meanwhile-0", "meanwhile-1", "meanwhile-2", "meanwhile-3")
            two.process.send_signal(signal.SIGCONT)
            assert await two.exit_code() == 1, two.output
            assert "LeadershipLost" in two.output
            assert all(_writers(env)[f"meanwhile-{number}"] == {_NAMES[0]} for number in range(4))
            await _stop(one)
            lease = await env.client.get(LEASE, LEASE_KEY)
            assert lease is not None
            assert lease["spec"]["holderIdentity"] == ""
            assert _members(lease) == {}


async def _stop(operator: OperatorProcess) -> None:
    operator.process.send_signal(signal.SIGTERM)
    assert await operator.exit_code() == 0, operator.output
    errors = [line for line in operator.output.splitlines() if '"level":"error"' in line]
    assert not errors, errors
