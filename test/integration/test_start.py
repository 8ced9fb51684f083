"""The cost of starting ``cfo run``: the modules that it loads, and its exact requests to the API server.

The operator runs as deployed: all controllers, webhooks, metrics, health checks and leader election.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from cfo.api.appwrapper.models import appwrapper_crd
from cfo.api.raycluster.names import FIELD_MANAGER
from cfo.operator import webhook_configurations
from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.transport import Transport
from cfo.runtime.objects.unstructured import Object
from envtest import ControlPlane
from test.support.operator_process import (
    LOOPBACK_ADDRESSES,
    OperatorProcess,
    create_config_map,
    run_operator,
)
from test.support.raycluster_environment import (
    AUTHENTICATION_CONFIG_CRD,
    DSC_INITIALIZATION_CRD,
    INGRESS_CONFIG_CRD,
    OAUTH_SETTINGS,
    OPENSHIFT_CRDS,
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    Environment,
    eventually,
    ray_cluster,
)

OPERATOR_USER = "codeflare-operator"
CLUSTERS = 5

UNUSED_MODULES = (
    "_sysconfigdata",
    "cel_expr_python",
    "cfo.api.appwrapper.models",
    "cfo.console.demo",
    "envtest",
    "cfo.manifests",
    "google",
    "importlib.metadata",
    "kubernetes_asyncio.client",
    "multiprocessing",
    "pydantic",
    "re2",
    "unittest",
    "watchfiles",
    "zoneinfo",
)
"""Prefixes of the names of modules that ``cfo run`` must not import."""

ALL_FEATURES: Final[dict[str, Any]] = {
    "appwrapper": {"enabled": True},
    "flux": {"enabled": True},
    "inferenceStack": {"enabled": True, "operatorVersion": "v2"},
}

LISTS = {
    "customresourcedefinitions": 1,  # watched to detect kinds that are installed later
    **dict.fromkeys(
        (
            "appwrappers",
            "clusterrolebindings",
            "clusterroles",
            "ingresses",
            "networkpolicies",
            "nodes",
        ),
        1,
    ),
    **dict.fromkeys(("ingressclasses", "mutatingwebhookconfigurations", "pods", "rayclusters"), 1),
    "secrets": 2,  # one informer for the webhook certificate, one for the Secrets of clusters
    "validatingwebhookconfigurations": 2,  # one informer for the CA bundle, one for the validation of AppWrappers
}
"""How often each resource is listed and then watched."""

OPENSHIFT_LISTS = LISTS | {
    **dict.fromkeys(
        ("authentications", "dscinitializations", "routes", "serviceaccounts", "services"), 1
    ),
    "ingresses": 2,  # also config.openshift.io/Ingress
    "pods": 2,  # pods of AppWrappers, and head pods of RayClusters
}


class AuditedEnvironment:
    """A control plane, and the requests that the operator sends to it."""

    def __init__(self, environment: Environment, audit: Path, kubeconfig: Path) -> None:
        self.environment = environment
        self._audit = audit
        self._kubeconfig = kubeconfig
        self._offset = 0

    def clear_requests(self) -> None:
        """Ignore all requests up to now."""
        self._offset = len(self._audit.read_bytes())

    def count_requests(self) -> Counter[str]:
        """Count the requests by ``verb resource``, except for watches, Events and the Lease."""
        events = [
            orjson.loads(line) for line in self._audit.read_bytes()[self._offset :].splitlines()
        ]
        return Counter(
            f"{event['verb']} {event.get('objectRef', {}).get('resource') or event['requestURI']}"
            for event in events
            if event["user"]["username"] == OPERATOR_USER
            and event["verb"] != "watch"
            and event.get("objectRef", {}).get("resource") not in ("events", "leases")
        )

    @asynccontextmanager
    async def run_operator(self, folder: Path, **variables: str) -> AsyncIterator[OperatorProcess]:
        """Run the operator until the end of the block; it must become ready and exit with code 0."""
        async with run_operator(
            self.environment, folder, "--kubeconfig", str(self._kubeconfig), **variables
        ) as operator:
            await operator.ready()
            yield operator
            operator.process.send_signal(signal.SIGTERM)
            assert await operator.exit_code() == 0, operator.output

    async def wait_until_idle(self, operator: OperatorProcess, clusters: int) -> None:
        """Wait until each RayCluster controller has reconciled every cluster, and no work is left."""
        address = await operator.address("metrics")
        async with aiohttp.ClientSession(address) as session:

            async def is_idle() -> bool:
                async with session.get("/metrics") as response:
                    body = await response.text()
                reconciles = remaining_work = 0.0
                for family in text_string_to_metric_families(body):
                    for sample in family.samples:
                        controller = sample.labels.get("controller")
                        if (
                            sample.name == "controller_runtime_reconcile_total"
                            and controller == FIELD_MANAGER
                        ):
                            reconciles += sample.value
                        if sample.name in ("workqueue_depth", "controller_runtime_active_workers"):
                            remaining_work += sample.value
                return remaining_work == 0 and reconciles >= clusters

            await eventually(is_idle, "reconciles of every cluster")


@asynccontextmanager
async def start_audited_environment(
    folder: Path, openshift: bool, settings: dict[str, Any] | None = None
) -> AsyncIterator[AuditedEnvironment]:
    """Run a control plane with the objects of the manifests and the operator's configuration.

    ``settings`` are the sections of optional features, by default that of AppWrappers.
    """
    crds = [*(OPENSHIFT_CRDS if openshift else VANILLA_CRDS), appwrapper_crd()]
    crds += (
        [AUTHENTICATION_CONFIG_CRD, DSC_INITIALIZATION_CRD, INGRESS_CONFIG_CRD] if openshift else []
    )
    (folder / "tokens.csv").write_text(f'secret,{OPERATOR_USER},{OPERATOR_USER},"system:masters"\n')
    audit = folder / "audit.log"
    plane = ControlPlane.embedded(crds=crds, token_auth_file=folder / "tokens.csv", audit_log=audit)
    async with plane, Transport(ClientConfig.for_control_plane(plane)) as transport:
        kubeconfig = folder / "operator.kubeconfig"
        plane.kubeconfig(kubeconfig, token="secret", user=OPERATOR_USER)
        environment = Environment(
            plane, Client(transport, RESTMapper(transport), field_manager="tester")
        )
        await environment.create_namespace()
        for configuration in webhook_configurations("default"):
            await environment.create(with_unused_selector(configuration))
        metadata = {"namespace": "default", "name": "codeflare-operator-webhook-server-cert"}
        await environment.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
        configuration: dict[str, Any] = {
            **LOOPBACK_ADDRESSES,
            "kuberay": OAUTH_SETTINGS if openshift else PLAIN_SETTINGS,
            **({"appwrapper": {"enabled": True}} if settings is None else settings),
            "webhook": {"enabled": True, "bindAddress": "127.0.0.1:0"},
            "leaderElection": {"leaderElect": True},
        }
        await create_config_map(environment, {"config.yaml": yaml.safe_dump(configuration)})
        yield AuditedEnvironment(environment, audit, kubeconfig)


def with_unused_selector(configuration: Object) -> Object:
    """Add a selector that matches nothing, because the API server cannot reach the webhooks' Service."""
    for webhook in configuration["webhooks"]:
        webhook["namespaceSelector"] = {"matchLabels": {"webhooks": "called"}}
    return configuration


async def test_unused_modules_are_not_loaded(tmp_path: Path) -> None:
    async with (
        start_audited_environment(tmp_path, openshift=False, settings=ALL_FEATURES) as audited,
        audited.run_operator(tmp_path, PYTHONVERBOSE="1") as operator,
    ):
        await audited.wait_until_idle(operator, 0)
    loaded = re.findall(
        r"^import '([\w.]+)' # <_frozen_importlib_external\.", operator.output, re.MULTILINE
    )
    assert "cfo.operator" in loaded
    assert [name for name in loaded if name.startswith(UNUSED_MODULES)] == []


@pytest.mark.parametrize("openshift", [False, True], ids=["vanilla", "openshift"])
async def test_restart_lists_each_kind_once_and_writes_nothing(
    tmp_path: Path, openshift: bool
) -> None:
    async with start_audited_environment(tmp_path, openshift) as audited:
        async with audited.run_operator(tmp_path) as operator:
            for number in range(CLUSTERS):
                await audited.environment.create(ray_cluster(f"rc-{number}"))

            async def has_children() -> bool:
                return len(await audited.environment.children(openshift=openshift)) == CLUSTERS * (
                    9 if openshift else 5
                )

            await eventually(has_children, "all children")
            await audited.wait_until_idle(operator, CLUSTERS)
        audited.clear_requests()
        async with audited.run_operator(tmp_path) as operator:
            await audited.wait_until_idle(operator, CLUSTERS)
            requests = audited.count_requests()
        assert (
            requests.pop("get /api") == 1
        )  # the client that reads the configuration shares its discovery
        assert (
            requests.pop("get /apis") <= 5
        )  # discovery is repeated (304) for each kind that is not served
        lists = OPENSHIFT_LISTS if openshift else LISTS
        configmaps = {"get configmaps": 1, "list configmaps": 1}
        # The start checks that no other operator serves the webhooks.
        webhooks = {
            "get mutatingwebhookconfigurations": 1,
            "get validatingwebhookconfigurations": 1,
        }
        # The start checks that the enabled roles are installed.
        reviews = {"create selfsubjectaccessreviews": 2 if openshift else 1}
        assert requests == {
            **configmaps,
            **webhooks,
            **reviews,
            **{f"list {resource}": count for resource, count in lists.items()},
        }
