"""``cfo run`` as a process of its own: how it starts with good and bad configurations, and how it ends."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from cfo.config import default_document
from cfo.runtime.kinds import CONFIG_MAP, INGRESS, NETWORK_POLICY, SECRET
from cfo.runtime.objects import NamespacedName, Object
from test.support.operator_process import KEY, LOOPBACK, PLAIN, configure, operator
from test.support.raycluster_environment import (
    INGRESS_CONFIG_CRD,
    OPENSHIFT_CRDS,
    RAY_CLUSTER_CRD,
    VANILLA_CRDS,
    Environment,
    eventually,
    ray_cluster,
    start_environment,
)
from test.support.recordings import load_startup, startup_cases


async def refusal(there: Environment, directory: Path) -> tuple[int, str]:
    """How ``cfo run`` ends, and what it says (one line, which this checks)."""
    async with operator(there, directory) as running:
        code = await running.exit_code()
    lines = running.output.splitlines()
    assert len(lines) == 1, running.output
    return code, lines[0]


async def test_without_a_config_map_one_is_made_with_the_defaults(tmp_path: Path) -> None:
    async with start_environment(*VANILLA_CRDS) as there, operator(there, tmp_path) as running:

        async def look() -> Object | None:
            return await there.client.get(CONFIG_MAP, KEY)

        made = await eventually(look, "the ConfigMap")
        assert made["data"] == {"config.yaml": default_document()}
        running.process.send_signal(signal.SIGTERM)
        await running.exit_code()


async def test_sigterm_ends_it_with_code_0(tmp_path: Path) -> None:
    async with start_environment(*VANILLA_CRDS) as there:
        await configure(there, {"config.yaml": yaml.safe_dump(PLAIN)})
        async with operator(there, tmp_path) as running:
            await running.ready()
            for index in range(20):
                await there.create(ray_cluster(f"rc-{index}", "default"))
            running.process.send_signal(signal.SIGTERM)
            assert await running.exit_code() == 0, running.output
        for secret in await there.client.list(SECRET, namespace="default"):
            if "ca-secret" in secret["metadata"]["name"]:
                assert set(secret["data"]) == {"ca.key", "ca.crt"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "data: must hold exactly one key, such as config.yaml; found none"),
        ({"a": "{}", "b": "{}"}, "data: must hold exactly one key, such as config.yaml; found a, b"),
        ({"config.yaml": "kuberay: [unclosed"}, "not YAML: "),
        ({"config.yaml": "kuberay: {mTLSEnabled: 1}"}, "kuberay.mTLSEnabled: 1: must be true or false"),
        (
            {"config.yaml": "leaderElection: {leaseDuration: 5s}"},
            "leaderElection: leaseDuration (5s) must be greater than renewDeadline (10s)",
        ),
        (
            {"config.yaml": "leaderElection: {resourceName: a/b}"},
            "leaderElection.resourceName: 'a/b': must be the name",
        ),
        (
            {"config.yaml": "appwrapper: {enabled: true, faultTolerance: {gracePeriodCeiling: 10s}}"},
            "appwrapper: faultTolerance.admissionGracePeriod (1m) must not exceed",
        ),
    ],
)
async def test_what_cannot_work_is_one_line_and_nothing_is_written(
    tmp_path: Path, data: dict[str, str], message: str
) -> None:
    async with start_environment(*VANILLA_CRDS) as there:
        await configure(there, data)
        await there.create(ray_cluster("rc", "default"))
        code, line = await refusal(there, tmp_path)
        assert (code, f"ConfigMap {KEY}: {message}" in line) == (2, True), line
        assert await there.client.list(NETWORK_POLICY) == []
        assert ((await there.get(CONFIG_MAP, KEY.name, KEY.namespace)).get("data") or {}) == data


async def test_no_cluster_is_one_line_that_points_to_the_embedded_one(tmp_path: Path) -> None:
    async with start_environment() as there:
        pass
    code, line = await refusal(there, tmp_path)
    assert code == 1
    assert there.plane.url in line
    assert "--embedded" in line


async def test_unknown_keys_are_warned_about(tmp_path: Path) -> None:
    async with start_environment(*VANILLA_CRDS) as there:
        await configure(there, {"config.yaml": yaml.safe_dump({**PLAIN, "kubray": {}})})
        async with operator(there, tmp_path) as running:
            await running.ready()
            assert "config.yaml: unknown key kubray (did you mean kuberay?), ignored" in running.output


async def test_another_config_map_can_be_named(tmp_path: Path) -> None:
    async with start_environment(*VANILLA_CRDS) as there, operator(there, tmp_path, "--config", "other"):

        async def look() -> Object | None:
            return await there.client.get(CONFIG_MAP, NamespacedName("default", "other"))

        assert await eventually(look, "the ConfigMap")
        assert await there.find(CONFIG_MAP, KEY.name, KEY.namespace) is None


async def test_controllers_start_when_the_definition_comes(tmp_path: Path) -> None:
    async with start_environment() as there:
        await configure(there, {"config.yaml": yaml.safe_dump(PLAIN)})
        async with operator(there, tmp_path) as running:
            await running.ready()
            await there.plane.install_crds(RAY_CLUSTER_CRD)

            async def create() -> Object:
                return await there.create(ray_cluster("rc", "default"))

            await create()

            async def look() -> bool:
                return len(await there.child_names(NETWORK_POLICY, "default")) == 2

            await eventually(look, "policies")
            running.process.send_signal(signal.SIGTERM)
            assert await running.exit_code() == 0


async def test_the_ingress_domain_is_missed_only_when_an_ingress_is_needed(tmp_path: Path) -> None:
    settings = {**LOOPBACK, "kuberay": {"rayDashboardOAuthEnabled": False}}
    async with start_environment(*VANILLA_CRDS) as there:
        await configure(there, {"config.yaml": yaml.safe_dump(settings)})
        async with operator(there, tmp_path) as running:
            await running.ready()
            await there.create(ray_cluster("rc", "default"))
            await there.wait_for_event("IngressDomainMissing", "kuberay.ingressDomain", namespace="default")
            assert await there.child_names(INGRESS, "default") == set()


async def test_renamed_health_checks_have_paths_of_their_own(tmp_path: Path) -> None:
    settings = {
        **PLAIN,
        "health": {**LOOPBACK["health"], "livenessEndpointName": "live", "readinessEndpointName": "go"},
    }
    async with start_environment(*VANILLA_CRDS) as there:
        await configure(there, {"config.yaml": yaml.safe_dump(settings)})
        async with operator(there, tmp_path) as running:
            await running.ready()
            async with aiohttp.ClientSession(await running.address("health")) as session:
                found = {}
                for path in ("/healthz", "/healthz/live", "/readyz", "/readyz/go", "/live", "/go"):
                    async with session.get(path) as answer:
                        found[path] = answer.status
            assert found == {
                **dict.fromkeys(["/healthz", "/healthz/live", "/readyz", "/readyz/go"], 200),
                **dict.fromkeys(["/live", "/go"], 404),
            }


STARTS_HERE = {
    "openshift/no-config-ingress": "the domain is missed only when an Ingress is needed, and then in an Event",
    "vanilla/no-configmap": "likewise",
    "vanilla/duration-as-string-under-config": "a duration may be a Go duration",
    "vanilla/kuberay-null": "null is the default",
    "vanilla/leader-election-null": "null is the default",
    "vanilla/leader-election-without-durations": "durations that are unset have defaults",
}
"""Recorded failures to start that are none here: the deliberate differences."""


@pytest.mark.parametrize("case", startup_cases())
async def test_recorded_starts(tmp_path: Path, case: str) -> None:
    recording = load_startup(case)
    openshift = recording["platform"]["openshift"]
    async with start_environment(
        *(OPENSHIFT_CRDS if openshift else VANILLA_CRDS), *([INGRESS_CONFIG_CRD] if openshift else [])
    ) as there:
        data: dict[str, str] | None = recording["configMapData"]
        if data and case != "vanilla/not-yaml" and len(data) == 1:
            (name,) = data
            data = {name: yaml.safe_dump({**_with_free_ports(yaml.safe_load(data[name]))})}
        await configure(there, data)
        if recording.get("exitCode") and case not in STARTS_HERE:
            assert (await refusal(there, tmp_path))[0] == 2
            return
        if data is None:
            return  # the default ports; test_without_a_config_map_... has the rest
        async with operator(there, tmp_path) as running:
            await running.ready()
            await there.create(ray_cluster("rc", "default"))

            async def look() -> bool:
                return len(await there.child_names(NETWORK_POLICY, "default")) == 2

            await eventually(look, "policies")
            running.process.send_signal(signal.SIGTERM)
            assert await running.exit_code() == 0, running.output


def _with_free_ports(document: dict[str, Any]) -> dict[str, Any]:
    moved = dict(document)
    for section, settings in LOOPBACK.items():
        if (document.get(section) or {}).get("bindAddress") != "0":
            moved[section] = {**(document.get(section) or {}), **settings}
    return moved
