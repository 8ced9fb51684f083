"""What the start of ``cfo run`` costs: the modules that it loads, and what it asks of the API server, exactly.

The whole operator as it is deployed: all controllers, webhooks, metrics, health checks, an election.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from cfo.api.appwrapper.models import appwrapper_crd
from cfo.operator import webhook_configurations
from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.transport import Transport
from cfo.runtime.discovery import RESTMapper
from cfo.runtime.objects import Object
from envtest import ControlPlane
from test.support.operator_process import LOOPBACK, Operator, configure, operator
from test.support.raycluster_environment import (
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

USER = "codeflare-operator"
CLUSTERS = 5

NEVER_USED = (
    "_sysconfigdata",
    "cel_expr_python",
    "cfo.api.appwrapper.models",
    "cfo.demo",
    "envtest",
    "cfo.manifests",
    "google",
    "kubernetes_asyncio.client",
    "multiprocessing",
    "rich.",
    "unittest",
    "watchfiles",
)
"""How the names of modules begin which others need, and an operator does not."""

LISTS = {
    **dict.fromkeys(("appwrappers", "clusterrolebindings", "clusterroles", "ingresses", "networkpolicies", "nodes"), 1),
    **dict.fromkeys(("mutatingwebhookconfigurations", "pods", "rayclusters", "validatingwebhookconfigurations"), 1),
    "secrets": 2,  # the operator's own, and those of clusters
}
"""How often each resource is listed, and then watched."""

VANILLA_LISTS = LISTS | {"customresourcedefinitions": 1}  # kinds may still come
OPENSHIFT_LISTS = LISTS | {
    **dict.fromkeys(("dscinitializations", "routes", "serviceaccounts", "services"), 1),
    "ingresses": 2,  # the cluster's own configuration is another kind of that name
    "pods": 2,  # AppWrappers', and heads of clusters
}


class Start:
    """What the operator asks of a control plane."""

    def __init__(self, world: Environment, audit: Path, kubeconfig: Path) -> None:
        self.world = world
        self._audit = audit
        self._kubeconfig = kubeconfig
        self._seen = 0

    def forget(self) -> None:
        """Starts counting anew."""
        self._seen = len(self._audit.read_bytes())

    def asked(self) -> Counter[str]:
        """``verb resource`` of what it asked for, but for watches, Events and its Lease."""
        events = [orjson.loads(line) for line in self._audit.read_bytes()[self._seen :].splitlines()]
        return Counter(
            f"{event['verb']} {event.get('objectRef', {}).get('resource') or event['requestURI']}"
            for event in events
            if event["user"]["username"] == USER
            and event["verb"] != "watch"
            and event.get("objectRef", {}).get("resource") not in ("events", "leases")
        )

    @asynccontextmanager
    async def operator(self, folder: Path, **environment: str) -> AsyncIterator[Operator]:
        """The operator, ready; it ends well."""
        async with operator(self.world, folder, "--kubeconfig", str(self._kubeconfig), **environment) as running:
            await running.ready()
            yield running
            running.process.send_signal(signal.SIGTERM)
            assert await running.exit_code() == 0, running.output

    async def at_rest(self, running: Operator, clusters: int) -> None:
        """Waits until each controller has looked at every cluster, and nothing is left to do."""
        address = await running.address("metrics")
        async with aiohttp.ClientSession(address) as session:

            async def look() -> bool:
                async with session.get("/metrics") as answer:
                    text = await answer.text()
                done: Counter[str] = Counter()
                left = 0.0
                for family in text_string_to_metric_families(text):
                    for sample in family.samples:
                        name = sample.labels.get("controller") or sample.labels.get("name", "")
                        if sample.name == "controller_runtime_reconcile_total" and name.startswith("raycluster-"):
                            done[name] += int(sample.value)
                        if sample.name in ("workqueue_depth", "controller_runtime_active_workers"):
                            left += sample.value
                return left == 0 and len(done) == 4 and all(count >= clusters for count in done.values())

            await eventually(look, "a look at every cluster")


@asynccontextmanager
async def starting(folder: Path, openshift: bool) -> AsyncIterator[Start]:
    """A control plane with what the manifests bring, and the operator's configuration."""
    crds = [*(OPENSHIFT_CRDS if openshift else VANILLA_CRDS), appwrapper_crd()]
    crds += [DSC_INITIALIZATION_CRD, INGRESS_CONFIG_CRD] if openshift else []
    (folder / "tokens.csv").write_text(f'secret,{USER},{USER},"system:masters"\n')
    audit = folder / "audit.log"
    plane = ControlPlane.embedded(crds=crds, token_auth_file=folder / "tokens.csv", audit_log=audit)
    async with plane, Transport(ClientConfig.for_control_plane(plane)) as transport:
        kubeconfig = folder / "operator.kubeconfig"
        plane.kubeconfig(kubeconfig, token="secret", user=USER)
        here = Environment(plane, Client(transport, RESTMapper(transport), field_manager="tester"))
        await here.create_namespace()
        for configuration in webhook_configurations("default"):
            await here.create(with_selector(configuration))
        metadata = {"namespace": "default", "name": "codeflare-operator-webhook-server-cert"}
        await here.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
        settings: dict[str, Any] = {
            **LOOPBACK,
            "kuberay": OAUTH_SETTINGS if openshift else PLAIN_SETTINGS,
            "appwrapper": {"enabled": True},
            "webhook": {"enabled": True, "bindAddress": "127.0.0.1:0"},
            "leaderElection": {"leaderElect": True},
        }
        await configure(here, {"config.yaml": yaml.safe_dump(settings)})
        yield Start(here, audit, kubeconfig)


def with_selector(configuration: Object) -> Object:
    """Nothing resolves the webhooks' Service here: they are to be announced, and never called."""
    for webhook in configuration["webhooks"]:
        webhook["namespaceSelector"] = {"matchLabels": {"webhooks": "called"}}
    return configuration


async def test_what_an_operator_never_uses_is_not_loaded(tmp_path: Path) -> None:
    async with starting(tmp_path, openshift=False) as here:
        async with here.operator(tmp_path, PYTHONPROFILEIMPORTTIME="1") as running:
            await here.at_rest(running, 0)
        loaded = re.findall(r"^import time: +\d+ \| +\d+ \| +(\S+)$", running.output, re.MULTILINE)
        assert "cfo.operator" in loaded
        assert [name for name in loaded if name.startswith(NEVER_USED)] == []


@pytest.mark.parametrize("openshift", [False, True], ids=["vanilla", "openshift"])
async def test_a_restart_reads_each_kind_once_and_writes_nothing(tmp_path: Path, openshift: bool) -> None:
    async with starting(tmp_path, openshift) as here:
        async with here.operator(tmp_path) as running:
            for number in range(CLUSTERS):
                await here.world.create(ray_cluster(f"rc-{number}"))

            async def children() -> bool:
                return len(await here.world.children(openshift=openshift)) == CLUSTERS * (9 if openshift else 5)

            await eventually(children, "all children")
            await here.at_rest(running, CLUSTERS)
        here.forget()
        async with here.operator(tmp_path) as running:
            await here.at_rest(running, CLUSTERS)
            asked = here.asked()
        assert asked.pop("get /api") == 2
        assert asked.pop("get /apis") <= 5  # what is not served is asked for again (304) by each who misses it
        lists = OPENSHIFT_LISTS if openshift else VANILLA_LISTS
        assert asked == {"get configmaps": 1, **{f"list {resource}": count for resource, count in lists.items()}}
