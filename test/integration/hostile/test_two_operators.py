"""Two operators that have the same webhook configurations: one ends, and neither overwrites the other without end."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
import yaml

from cfo.operator import AddressInUse, webhook_configurations
from cfo.operator import run as run_in_process
from cfo.runtime.client.client import PatchType
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.transport import Transport
from cfo.runtime.manager.events import EVENT
from cfo.runtime.manager.leaderelection import LeaderElectionOptions, LeaderElector, LeaseLock
from cfo.runtime.objects.kinds import (
    CONFIG_MAP,
    LEASE,
    MUTATING_WEBHOOK_CONFIGURATION,
    NETWORK_POLICY,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object
from cfo.runtime.webhook.certificates.client_configs import ca_bundles_of, client_configs
from cfo.runtime.webhook.ownership import mark_of
from cfo.version import CONFIG_MAP_NAME
from envtest import ControlPlane
from test.support.config_map_webhooks import (
    CONFIGURATION_NAME,
    connect_user,
    free_url,
    run_replica,
    wait_until,
)
from test.support.faults import FastClock
from test.support.operator_process import (
    PLAIN_CONFIG,
    SHORT_ELECTION,
    OperatorProcess,
    run_operator,
)
from test.support.raycluster_environment import (
    VANILLA_CRDS,
    Environment,
    ray_cluster,
    start_environment,
)

METRIC = "cfo_webhook_configuration_overwrites_total"
WRITE = "Updated webhook configuration"
_ANOTHER = "Webhooks of another installation"
KINDS = (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION)


async def configure(
    environment: Environment,
    namespace: str,
    election: Mapping[str, Any] | None = None,
    **sections: Any,
) -> None:
    """Create the ConfigMap of an operator in ``namespace``, with free ports."""
    document = yaml.safe_dump(
        {
            **PLAIN_CONFIG,
            "leaderElection": election or {},
            "webhook": {"bindAddress": "127.0.0.1:0"},
            **sections,
        }
    )
    if namespace != "default":
        await environment.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        )
    await environment.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"namespace": namespace, "name": CONFIG_MAP_NAME},
            "data": {"config.yaml": document},
        }
    )


async def install(environment: Environment, namespace: str) -> None:
    """Apply the webhook configurations in the manifests of an operator in ``namespace``."""
    for manifest in webhook_configurations(namespace):
        existing = await environment.client.get(_kind(manifest), _key(manifest), live=True)
        if existing is None:
            await environment.create(manifest)
        else:
            await environment.client.update({**existing, "webhooks": manifest["webhooks"]})


def _kind(manifest: Object) -> GVK:
    (kind,) = (kind for kind in KINDS if kind.kind == manifest["kind"])
    return kind


def _key(manifest: Object) -> NamespacedName:
    return NamespacedName("", manifest["metadata"]["name"])


def writes(operator: OperatorProcess) -> int:
    """Return how often the operator has updated a webhook configuration."""
    return operator.output.count(WRITE)


async def stored(environment: Environment) -> list[Object]:
    return [item for kind in KINDS for item in await environment.client.list(kind, live=True)]


async def test_operator_in_another_namespace_ends_and_writes_nothing(tmp_path: Path) -> None:
    """Neither has a name that resolves here; without the check, each wrote 30 times a second."""
    async with start_environment(*VANILLA_CRDS) as environment:
        await configure(environment, "installed")
        await configure(environment, "default")
        await install(environment, "installed")
        async with run_operator(environment, tmp_path, NAMESPACE="installed") as first:
            await first.ready()
            before = await stored(environment)
            async with run_operator(environment, tmp_path) as second:
                assert await second.exit_code() == 1, second.output
            assert await stored(environment) == before
            assert (writes(first), writes(second)) == (2, 0)
        check, line = [line for line in second.output.splitlines() if "another operator" in line]
        assert "checking whether it still renews its lease" in check
        assert "at Service installed/codeflare-operator-webhook-service" in line
        assert "(Lease installed/codeflare-operator-lock, holder " in line
        for configuration in before:
            mark = mark_of(configuration)
            assert mark is not None
            assert mark.lease == NamespacedName("installed", "codeflare-operator-lock")


async def test_operator_ends_when_another_one_is_installed_later(tmp_path: Path) -> None:
    async with start_environment(*VANILLA_CRDS) as environment:
        await configure(environment, "installed")
        await configure(environment, "default")
        await install(environment, "default")
        async with run_operator(environment, tmp_path) as first:
            await first.ready()
            await install(environment, "installed")
            async with run_operator(environment, tmp_path, NAMESPACE="installed") as second:
                assert await first.exit_code() == 1, first.output
                await second.ready()
                assert (writes(first), writes(second)) == (2, 2)
        (line,) = [line for line in first.output.splitlines() if "Command failed" in line]
        assert "another operator serves the webhooks of" in line
        assert "at Service installed/codeflare-operator-webhook-service" in line


@pytest.mark.parametrize("url_first", [True, False])
async def test_second_operator_in_one_namespace_ends_if_only_one_has_a_url(
    tmp_path: Path, *, url_first: bool
) -> None:
    async with start_environment(*VANILLA_CRDS) as environment:
        await configure(environment, "default")
        await install(environment, "default")
        url = ("--webhook-url", str(free_url()))
        no_url: tuple[str, ...] = ()
        arguments = [url, no_url]
        if not url_first:
            arguments.reverse()
        async with run_operator(environment, tmp_path, *arguments[0]) as first:
            await first.ready()
            before = await stored(environment)
            async with run_operator(environment, tmp_path, *arguments[1]) as second:
                assert await second.exit_code() == 1, second.output
            assert await stored(environment) == before
            assert (writes(first), writes(second)) == (2, 0)


@pytest.mark.parametrize("has_webhooks", [True, False])
async def test_operator_outside_ends_next_to_a_leader_of_its_namespace(
    *, has_webhooks: bool
) -> None:
    """The webhook configurations name the Service of both, so only the Lease shows that the other one lives."""
    key = NamespacedName("default", CONFIG_MAP_NAME)
    async with start_environment(*VANILLA_CRDS) as environment:
        await configure(environment, "default")
        await environment.create(ray_cluster(namespace="default"))
        if has_webhooks:
            await install(environment, "default")
        before = await stored(environment)
        target = ClientConfig.for_control_plane(environment.plane)
        run = partial(run_in_process, target, key, handle_signals=False, clock=FastClock())
        async with Transport(target) as transport, anyio.create_task_group() as tasks:
            await tasks.start(_pod(transport).run)
            with pytest.raises(AddressInUse) as refused:
                await run()
            tasks.cancel_scope.cancel()  # as if it were killed: it does not release its Lease
        assert str(refused.value).startswith(
            "another operator: codeflare-operator-manager-0 renews Lease default/codeflare-operator-lock; only one"
        )
        assert await environment.child_names(NETWORK_POLICY, "default") == set()
        assert await stored(environment) == before
        async with anyio.create_task_group() as tasks:
            manager = await tasks.start(run)
            children = partial(environment.child_names, NETWORK_POLICY, "default")
            await wait_until(children, "the children of the operator that holds the Lease")
            manager.stop()


@pytest.mark.parametrize(
    ("namespace", "document"),
    [
        ("default", "webhook: {enabled: true}"),
        ("installed", "webhook: {enabled: true}"),
        ("installed", "webhook: {enabled: false}"),
        (
            "installed",
            "{webhook: {enabled: false}, kuberay: {enabled: false}, appwrapper: {enabled: true}}",
        ),
    ],
)
async def test_operator_outside_ends_next_to_pods_that_renew_no_lease(
    namespace: str, document: str
) -> None:
    """Such as the Go operator, whose leader election is disabled by default."""
    key = NamespacedName("default", CONFIG_MAP_NAME)
    async with start_environment(*VANILLA_CRDS) as environment:
        if namespace != "default":
            await environment.create_namespace(namespace)
        await install(environment, namespace)
        before = await stored(environment)
        service = "codeflare-operator-webhook-service"
        await environment.create(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "namespace": namespace,
                    "name": f"{service}-x",
                    "labels": {"kubernetes.io/service-name": service},
                },
                "addressType": "IPv4",
                "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": True}}],
                "ports": [],
            }
        )
        target = ClientConfig.for_control_plane(environment.plane)
        run = partial(run_in_process, target, key, handle_signals=False)
        with pytest.raises(AddressInUse, match=f"at Service {namespace}/{service}.*ready pods"):
            await run(default_configuration=document)
        assert await environment.find(CONFIG_MAP, CONFIG_MAP_NAME, "default") is None
        assert await stored(environment) == before


def _pod(transport: Transport) -> LeaderElector:
    """Return the leader election of a pod of the Deployment in the namespace default."""
    options = LeaderElectionOptions(
        name="codeflare-operator-lock",
        namespace="default",
        identity="codeflare-operator-manager-0",
        lease_duration=1.0,
        renew_deadline=0.9,
        retry_period=0.1,
    )
    return LeaderElector(
        LeaseLock(transport, NamespacedName(options.namespace, options.name)), options
    )


@pytest.fixture
def administrator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let operators run with the administrator's kubeconfig, on a cluster without their manifests."""
    monkeypatch.setattr(Environment, "installations", None)


@pytest.mark.usefixtures("administrator")
async def test_operator_without_webhooks_ends_when_one_with_webhooks_is_installed(
    tmp_path: Path,
) -> None:
    async with start_environment(*VANILLA_CRDS) as environment:
        await configure(environment, "default")
        async with run_operator(environment, tmp_path) as first:
            await first.address("health")
            await wait_until(lambda: _holds_lease(environment), "the heartbeat")
            await install(environment, "installed")
            assert await first.exit_code() == 1, first.output
        (line,) = [line for line in first.output.splitlines() if "Command failed" in line]
        assert "was created, and this operator serves no webhooks; only one CodeFlare" in line


@pytest.mark.usefixtures("administrator")
async def test_operators_that_overwrite_the_same_child_report_it(tmp_path: Path) -> None:
    """Neither has webhooks or a Lease by which the other one could notice it."""
    async with start_environment(*VANILLA_CRDS) as environment, AsyncExitStack() as stack:
        operators: list[OperatorProcess] = []
        for namespace in ("one", "two"):
            kuberay = {**PLAIN_CONFIG["kuberay"], "operatorNamespaces": [namespace]}
            await configure(environment, namespace, kuberay=kuberay, watchNamespaces=["default"])
            process = run_operator(environment, tmp_path, NAMESPACE=namespace)
            operators.append(await stack.enter_async_context(process))
        await environment.create(ray_cluster(namespace="default"))
        line = "Objects are overwritten by another client"
        for process in operators:
            await wait_until(lambda process=process: _has_line(process, line), "the report")
            url = f"{await process.address('metrics')}/metrics"
            async with aiohttp.ClientSession() as session, session.get(url) as response:
                text = await response.text()
            assert 'cfo_child_overwrites_total{kind="NetworkPolicy"} ' in text
        assert [process.output.count(line) for process in operators] == [1, 1]
        events = await environment.client.list(EVENT, live=True)
        assert "ChildOverwritten" in {event["reason"] for event in events}


async def _has_line(process: OperatorProcess, line: str) -> bool:
    return line in process.output


async def test_dead_operator_is_taken_over_once(tmp_path: Path) -> None:
    async with start_environment(*VANILLA_CRDS) as environment:
        await configure(environment, "installed", SHORT_ELECTION)
        await configure(environment, "default")
        await install(environment, "installed")
        async with run_operator(environment, tmp_path, NAMESPACE="installed") as first:
            await first.ready()
            first.process.kill()
            await first.exit_code()
        before = await stored(environment)
        url = str(free_url())
        async with run_operator(environment, tmp_path, "--webhook-url", url) as second:
            await second.ready()
            assert writes(second) == 2
            for configuration in await stored(environment):
                urls = {
                    config.get("url", "").startswith(url)
                    for config in client_configs(configuration).values()
                }
                assert urls == {True}
            second.process.send_signal(signal.SIGTERM)
            assert await second.exit_code() == 0, second.output
        for old, new in zip(before, await stored(environment), strict=True):
            assert new["webhooks"] == old["webhooks"], "restored, with the CA of its Service"
            assert mark_of(new) is None


async def test_operator_at_a_service_does_not_write_what_names_another_service(
    tmp_path: Path,
) -> None:
    """The other operator does not run, but which Service is called is the decision of who applied its manifests."""
    async with start_environment(*VANILLA_CRDS) as environment:
        await configure(environment, "default")
        await install(environment, "installed")
        before = await stored(environment)
        async with run_operator(environment, tmp_path) as operator:
            await operator.address("health")
            await wait_until(lambda: _holds_lease(environment), "the heartbeat")
            assert await stored(environment) == before
            await wait_until(lambda: _warned_of_service(operator), "the warnings")
            operator.process.send_signal(signal.SIGTERM)
            assert await operator.exit_code() == 0, operator.output
        assert writes(operator) == 0
        warnings = [line for line in operator.output.splitlines() if _ANOTHER in line]
        assert len(warnings) == 2, "one for each configuration"
        for line in warnings:
            assert "Service installed/codeflare-operator-webhook-service" in line


async def _holds_lease(environment: Environment) -> bool:
    key = NamespacedName("default", "codeflare-operator-lock")
    lease = await environment.client.get(LEASE, key, live=True)
    return bool(lease and lease["spec"].get("holderIdentity"))


async def _warned_of_service(operator: OperatorProcess) -> bool:
    return operator.output.count(_ANOTHER) == 2


async def test_tool_that_overwrites_the_bundle_again_is_reported_and_not_answered(
    plane: ControlPlane,
) -> None:
    """Such as the Go operator, which has no mark, and restores its own CA as soon as it is changed."""
    async with connect_user(plane) as user:
        await user.create_configurations()
        key = NamespacedName("", CONFIGURATION_NAME)
        async with run_replica(plane) as running:
            await running.ready()
            written = len(running.writes())

            async def overwrite(bundle: str) -> None:
                await user.client.patch(
                    MUTATING_WEBHOOK_CONFIGURATION,
                    key,
                    [
                        {
                            "op": "replace",
                            "path": "/webhooks/0/clientConfig/caBundle",
                            "value": bundle,
                        }
                    ],
                    PatchType.JSON,
                )

            async def is_repaired() -> bool:
                obj = await user.client.get(MUTATING_WEBHOOK_CONFIGURATION, key, live=True)
                assert obj is not None
                return set(ca_bundles_of(obj).values()) != {b"no"}

            async def is_reported() -> bool:
                labels = {
                    "kind": "MutatingWebhookConfiguration",
                    "configuration": CONFIGURATION_NAME,
                }
                registry = running.manager.metrics.registry
                return registry.get_sample_value(METRIC, labels) == 1

            await overwrite("bm8=")
            await wait_until(is_repaired, "the repaired bundle")
            for _ in range(20):
                await overwrite("bm8=")
            await wait_until(is_reported, "the report")
            for number in range(20):
                await overwrite(["bm9v", "bm8="][number % 2])
            assert not await is_repaired()

            async def has_event() -> bool:
                events = await user.client.list(EVENT, live=True)
                own = [
                    event for event in events if event["regarding"]["name"] == CONFIGURATION_NAME
                ]
                for event in own:
                    assert "not corrected for up to 60 s" in event["note"]
                return [event["reason"] for event in own] == ["WebhookConfigurationOverwritten"]

            await wait_until(has_event, "the Event")
            patches = [
                write
                for write in running.writes()[written:]
                if write[1] == "mutatingwebhookconfigurations" and write[2] == "200"
            ]
            assert len(patches) == 1
            assert "does not contain the CA" in await running.webhooks_problem()
