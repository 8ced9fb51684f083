"""``cfo run`` as a separate process: start with valid and invalid configurations, and shutdown."""

from __future__ import annotations

import json
import os
import signal
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from cfo.config.document import default_document, parse
from cfo.config.model import OperatorConfiguration
from cfo.console.doctor.checks import check_configuration
from cfo.console.doctor.facts import Installation
from cfo.operator import ConfigurationUnavailable, read_configuration
from cfo.runtime import Rule
from cfo.runtime.client import connect
from cfo.runtime.objects.kinds import CONFIG_MAP, INGRESS, NETWORK_POLICY, SECRET
from cfo.runtime.objects.unstructured import Object
from cfo.runtime.process.listener import bind_socket
from test.support.operator_process import (
    CONFIG_MAP_KEY,
    LOOPBACK_ADDRESSES,
    PLAIN_CONFIG,
    OperatorProcess,
    create_config_map,
    run_operator,
)
from test.support.preloaded import PreloadedCommand
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
from test.support.tenant_clients import service_account_token


async def failed_start(
    environment: Environment, directory: Path, *arguments: str, **variables: str
) -> tuple[int, str]:
    """Run ``cfo run`` until it exits; return its exit code and its output, which must be one line."""
    async with run_operator(environment, directory, *arguments, **variables) as operator:
        code = await operator.exit_code()
    lines = operator.output.splitlines()
    assert len(lines) == 1, operator.output
    return code, lines[0]


def _require_free_ports(*ports: int) -> None:
    """Skip the test if another process has one of ``ports``."""
    for port in ports:
        try:
            bind_socket((None, port)).close()
        except OSError:
            pytest.skip(f"port {port}, which the default configuration uses, is in use")


GIVEN_DOCUMENT = yaml.safe_dump(
    {**LOOPBACK_ADDRESSES, "webhook": {"enabled": False}, "watchNamespaces": ["team"]}
)


@pytest.mark.parametrize("document", [None, GIVEN_DOCUMENT])
async def test_missing_config_map_is_created_with_defaults(
    tmp_path: Path, document: str | None
) -> None:
    arguments = ["--default-config", document] if document is not None else []
    if document is None:
        _require_free_ports(8080, 8081)
    async with (
        start_environment(*VANILLA_CRDS) as environment,
        run_operator(environment, tmp_path, *arguments) as operator,
    ):

        async def get_config_map() -> Object | None:
            return await environment.client.get(CONFIG_MAP, CONFIG_MAP_KEY, live=True)

        created = await eventually(get_config_map, "the ConfigMap")
        assert created["data"] == {"config.yaml": document or default_document()}
        running = {"running": {"startedAt": "2020-01-01T00:00:00Z"}}
        pod = {"status": {"containerStatuses": [{"state": running}]}}
        installation = Installation("default", created, parse(""), pods=(pod,))
        (finding,) = check_configuration(installation, datetime.now(UTC))
        assert finding.status == "ok", "cfo doctor reports only changes by others"
        operator.process.send_signal(signal.SIGTERM)
        await operator.exit_code()
    reported = "Namespaces in the configuration do not exist" in operator.output
    assert reported is (document is not None), operator.output


async def test_sigterm_exits_with_code_0(tmp_path: Path) -> None:
    async with start_environment(*VANILLA_CRDS) as environment:
        await create_config_map(environment, {"config.yaml": yaml.safe_dump(PLAIN_CONFIG)})
        async with run_operator(environment, tmp_path) as operator:
            await operator.ready()
            for index in range(20):
                await environment.create(ray_cluster(f"rc-{index}", "default"))
            operator.process.send_signal(signal.SIGTERM)
            assert await operator.exit_code() == 0, operator.output
        for secret in await environment.client.list(SECRET, namespace="default"):
            if "ca-secret" in secret["metadata"]["name"]:
                assert set(secret["data"]) == {"ca.key", "ca.crt"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "data: must contain exactly one key, such as config.yaml; found none"),
        (
            {"a": "{}", "b": "{}"},
            "data: must contain exactly one key, such as config.yaml; found a, b",
        ),
        ({"config.yaml": "kuberay: [unclosed"}, "not valid YAML: "),
        (
            {"config.yaml": "kuberay: {mTLSEnabled: 1}"},
            "kuberay.mTLSEnabled: 1: must be true or false",
        ),
        (
            {"config.yaml": "leaderElection: {leaseDuration: 5s}"},
            "leaderElection: leaseDuration (5s) must be greater than renewDeadline (10s)",
        ),
        (
            {"config.yaml": "leaderElection: {resourceName: a/b}"},
            "leaderElection.resourceName: 'a/b': must be the name",
        ),
        (
            {
                "config.yaml": "appwrapper: {enabled: true, faultTolerance: {admissionGracePeriod: 30h}}"
            },
            "appwrapper: faultTolerance.admissionGracePeriod (30h) must not exceed",
        ),
    ],
)
async def test_invalid_configuration_is_reported_in_one_line_and_nothing_is_written(
    tmp_path: Path, data: dict[str, str], message: str
) -> None:
    async with start_environment(*VANILLA_CRDS) as environment:
        await create_config_map(environment, data)
        await environment.create(ray_cluster("rc", "default"))
        code, line = await failed_start(environment, tmp_path)
        assert (code, f"ConfigMap {CONFIG_MAP_KEY}: {message}" in line) == (2, True), line
        assert await environment.client.list(NETWORK_POLICY) == []
        assert (
            (await environment.get(CONFIG_MAP, CONFIG_MAP_KEY.name, CONFIG_MAP_KEY.namespace)).get(
                "data"
            )
            or {}
        ) == data


async def test_unreachable_cluster_is_reported_in_one_line_that_suggests_embedded(
    tmp_path: Path,
) -> None:
    async with start_environment() as environment:
        url = environment.plane.url
        environment.plane.kubeconfig(tmp_path / "kubeconfig")
    process = await PreloadedCommand.start(
        "run",
        "--kubeconfig",
        str(tmp_path / "kubeconfig"),
        env={**os.environ, "NAMESPACE": "default"},
        cwd=tmp_path,
    )
    operator = OperatorProcess(process)
    assert await operator.exit_code() == 1
    (line,) = operator.output.splitlines()
    assert url in line
    assert "--embedded" in line


async def test_unknown_configuration_keys_are_logged_as_warnings(tmp_path: Path) -> None:
    async with start_environment(*VANILLA_CRDS) as environment:
        await create_config_map(
            environment, {"config.yaml": yaml.safe_dump({**PLAIN_CONFIG, "kubray": {}})}
        )
        async with run_operator(environment, tmp_path) as operator:
            await operator.ready()
            assert (
                "config.yaml: unknown key kubray (did you mean kuberay?), ignored"
                in operator.output
            )


async def test_namespace_that_does_not_exist_is_an_invalid_configuration(tmp_path: Path) -> None:
    async with start_environment(*VANILLA_CRDS) as environment:
        code, line = await failed_start(environment, tmp_path, NAMESPACE="nope")
        assert (code, "the operator's namespace nope does not exist; create it" in line) == (
            2,
            True,
        ), line


async def test_config_map_name_can_be_changed_but_only_the_default_one_is_created(
    tmp_path: Path,
) -> None:
    async with start_environment(*VANILLA_CRDS) as environment:
        code, line = await failed_start(environment, tmp_path, "--config", "other")
        assert (code, "ConfigMap default/other: does not exist; create it" in line) == (2, True), (
            line
        )
        other = {"namespace": "default", "name": "other"}
        data = {"config.yaml": yaml.safe_dump(PLAIN_CONFIG)}
        await environment.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": other, "data": data}
        )
        async with run_operator(environment, tmp_path, "--config", "other") as operator:
            await operator.ready()
        assert (
            await environment.find(CONFIG_MAP, CONFIG_MAP_KEY.name, CONFIG_MAP_KEY.namespace)
            is None
        )


async def test_config_map_with_another_name_needs_another_role() -> None:
    async with start_environment() as environment:
        own = Rule("", "configmaps", "get", [CONFIG_MAP_KEY.name], namespace="default")
        token = await service_account_token(environment, own)
        config = await environment.operator_config(OperatorConfiguration(), token=token)
        async with connect(config, field_manager="test") as client:
            assert await read_configuration(client, CONFIG_MAP_KEY) is None
            with pytest.raises(ConfigurationUnavailable) as raised:
                await read_configuration(client, CONFIG_MAP_KEY._replace(name="other"))
    message = str(raised.value)
    assert message.startswith("ConfigMap default/other: ")
    assert "a Role in namespace default with get, list and watch of configmaps other" in message
    assert "\n" not in message


async def test_port_in_use_leaves_no_config_map(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        document = {
            **PLAIN_CONFIG,
            "health": {"bindAddress": address},
            "webhook": {"enabled": False},
        }
        arguments = ("--default-config", yaml.safe_dump(document))
        async with start_environment(*VANILLA_CRDS) as environment:
            code, line = await failed_start(environment, tmp_path, *arguments)
            assert code == 1
            assert json.loads(line)["error"] == (
                f"health.bindAddress in ConfigMap {CONFIG_MAP_KEY}: cannot listen on {address}: "
                "Address already in use; create it (cfo config default prints the document), with another port, "
                'or "0" to disable the server'
            )
            found = await environment.find(
                CONFIG_MAP, CONFIG_MAP_KEY.name, CONFIG_MAP_KEY.namespace
            )
            assert found is None


async def test_missing_role_is_logged_outside_the_cluster(tmp_path: Path) -> None:
    document = {**PLAIN_CONFIG, "flux": {"enabled": True}}
    async with start_environment(*VANILLA_CRDS) as environment:
        await create_config_map(environment, {"config.yaml": yaml.safe_dump(document)})
        token = await service_account_token(environment, Rule("", "configmaps", ("get",)))
        kubeconfig = tmp_path / "restricted"
        environment.plane.kubeconfig(kubeconfig, token=token)
        async with run_operator(environment, tmp_path, "--kubeconfig", str(kubeconfig)) as operator:

            async def is_logged() -> bool:
                return '"component":"flux"' in operator.output

            await eventually(is_logged, "a warning of the missing role")


async def test_port_in_use_is_reported_in_one_line_with_its_key(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with start_environment(*VANILLA_CRDS) as environment:
            document = {**PLAIN_CONFIG, "health": {"bindAddress": address}}
            await create_config_map(environment, {"config.yaml": yaml.safe_dump(document)})
            async with run_operator(environment, tmp_path) as operator:
                assert await operator.exit_code() == 1
            *log, last = operator.output.splitlines()
            assert [line for line in log if "Traceback" in line or "stacktrace" in line] == []
            assert json.loads(last)["error"] == (
                f"health.bindAddress in ConfigMap {CONFIG_MAP_KEY}: cannot listen on {address}: "
                'Address already in use; set another port there, or "0" to disable the server'
            )


async def test_controllers_start_when_crd_is_installed(tmp_path: Path) -> None:
    async with start_environment() as environment:
        await create_config_map(environment, {"config.yaml": yaml.safe_dump(PLAIN_CONFIG)})
        async with run_operator(environment, tmp_path) as operator:
            await operator.ready()
            await environment.plane.install_crds(RAY_CLUSTER_CRD)

            async def create() -> Object:
                return await environment.create(ray_cluster("rc", "default"))

            await create()

            async def has_policies() -> bool:
                return len(await environment.child_names(NETWORK_POLICY, "default")) == 2

            await eventually(has_policies, "policies")
            operator.process.send_signal(signal.SIGTERM)
            assert await operator.exit_code() == 0


async def test_missing_ingress_domain_is_reported_only_when_an_ingress_is_needed(
    tmp_path: Path,
) -> None:
    settings = {**LOOPBACK_ADDRESSES, "kuberay": {"rayDashboardOAuthEnabled": False}}
    async with start_environment(*VANILLA_CRDS) as environment:
        await create_config_map(environment, {"config.yaml": yaml.safe_dump(settings)})
        async with run_operator(environment, tmp_path) as operator:
            await operator.ready()
            await environment.create(ray_cluster("rc", "default"))
            await environment.wait_for_event(
                "IngressDomainMissing", "kuberay.ingressDomain", namespace="default"
            )
            assert await environment.child_names(INGRESS, "default") == set()


async def test_health_checks_can_be_renamed(tmp_path: Path) -> None:
    settings = {
        **PLAIN_CONFIG,
        "health": {
            **LOOPBACK_ADDRESSES["health"],
            "livenessEndpointName": "live",
            "readinessEndpointName": "go",
        },
    }
    async with start_environment(*VANILLA_CRDS) as environment:
        await create_config_map(environment, {"config.yaml": yaml.safe_dump(settings)})
        async with run_operator(environment, tmp_path) as operator:
            await operator.ready()
            async with aiohttp.ClientSession(await operator.address("health")) as session:
                statuses = {}
                for path in ("/healthz", "/healthz/live", "/readyz", "/readyz/go", "/live", "/go"):
                    async with session.get(path) as response:
                        statuses[path] = response.status
            assert statuses == {
                **dict.fromkeys(["/healthz", "/healthz/live", "/readyz", "/readyz/go"], 200),
                **dict.fromkeys(["/live", "/go"], 404),
            }


STARTS_DELIBERATELY = {
    "openshift/no-config-ingress": "a missing domain is only reported when an Ingress is needed, by an Event",
    "vanilla/no-configmap": "a missing domain is only reported when an Ingress is needed, by an Event",
    "vanilla/duration-as-string-under-config": "a duration may be a Go duration string",
    "vanilla/kuberay-null": "null means the default",
    "vanilla/leader-election-null": "null means the default",
    "vanilla/leader-election-without-durations": "durations that are unset have defaults",
}
"""Deliberate differences: configurations with which the Go operator fails to start, and this operator starts."""


@pytest.mark.parametrize("case", startup_cases())
async def test_recorded_configurations(tmp_path: Path, case: str) -> None:
    recording = load_startup(case)
    openshift = recording["platform"]["openshift"]
    async with start_environment(
        *(OPENSHIFT_CRDS if openshift else VANILLA_CRDS),
        *([INGRESS_CONFIG_CRD] if openshift else []),
    ) as environment:
        data: dict[str, str] | None = recording["configMapData"]
        if data and case != "vanilla/not-yaml" and len(data) == 1:
            (name,) = data
            data = {name: yaml.safe_dump({**_with_free_ports(yaml.safe_load(data[name]))})}
        await create_config_map(environment, data)
        if recording.get("exitCode") and case not in STARTS_DELIBERATELY:
            assert (await failed_start(environment, tmp_path))[0] == 2
            return
        if data is None:
            return  # uses the default ports; covered by test_missing_config_map_is_created_with_defaults
        async with run_operator(environment, tmp_path) as operator:
            await operator.ready()
            await environment.create(ray_cluster("rc", "default"))

            async def has_policies() -> bool:
                return len(await environment.child_names(NETWORK_POLICY, "default")) == 2

            await eventually(has_policies, "policies")
            operator.process.send_signal(signal.SIGTERM)
            assert await operator.exit_code() == 0, operator.output


def _with_free_ports(document: dict[str, Any]) -> dict[str, Any]:
    """Return ``document`` with enabled servers bound to free ports."""
    sections = dict(document)
    for section, settings in LOOPBACK_ADDRESSES.items():
        if (document.get(section) or {}).get("bindAddress") != "0":
            sections[section] = {**(document.get(section) or {}), **settings}
    return sections
