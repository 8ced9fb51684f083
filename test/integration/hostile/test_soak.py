"""Hostile tenants run all attacks at once while other tenants work; ``make soak`` runs it for minutes.

The API server runs in the process of the test and also serves the attacks, so the latency of creations includes its
own. Therefore another process also sends reviews directly to the webhook. ``CFO_SOAK_SECONDS`` sets the duration.
"""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import orjson
import psutil
import pytest
import yaml

from cfo.api.appwrapper.models import appwrapper_crd
from cfo.api.flux.models.minicluster import minicluster_crd
from cfo.api.flux.models.queue import fluxjob_crd, fluxsetup_crd
from cfo.api.inferencestack.models import inference_stack_crds
from cfo.api.raycluster.names import names_of
from cfo.operator import webhook_configurations
from cfo.runtime.client.client import Client
from cfo.runtime.objects.kinds import INGRESS, LEASE, NETWORK_POLICY, POD
from cfo.runtime.objects.unstructured import Object, gvk_of, key_of, name_of
from test.integration.hostile import attacks
from test.support.config_map_webhooks import free_url
from test.support.operator_process import (
    PLAIN_CONFIG,
    OperatorProcess,
    create_config_map,
    run_operator,
)
from test.support.raycluster_environment import (
    VANILLA_CRDS,
    Environment,
    eventually,
    ray_cluster,
    start_environment,
)
from test.support.tenant_clients import start_tenant_client

SECONDS = float(os.environ.get("CFO_SOAK_SECONDS", "0"))
SLOWER = 1 if SECONDS else 6
"""In ``make test``, other tests use the same cores, so the limits are six times as high."""
MAX_HEALTHZ = 1.0 * SLOWER
"""The maximum latency of ``/healthz`` in seconds."""
MAX_REVIEW = 1.0 * SLOWER
"""The maximum latency of another tenant's review in seconds."""
MAX_RAYCLUSTER = 2.0 * SLOWER
"""The maximum time in seconds until another tenant's new RayCluster has a NetworkPolicy."""
MAX_MEMORY_MB = 200.0
"""The maximum resident memory of the operator in ``make soak``."""
MAX_GROWTH_MB = 250.0
"""How much the resident memory of the operator may grow; its Pod may use 512 MiB, and uses 80 at rest."""

CONFIG = {
    **PLAIN_CONFIG,
    "leaderElection": {"leaderElect": True},
    "appwrapper": {"enabled": True},
    "flux": {"enabled": True, "defaultSetup": {"enabled": True}},
    "inferenceStack": {"enabled": True},
    "webhook": {"bindAddress": "127.0.0.1:0"},
}
HONEST = "honest"


class Tenants:
    """The hostile tenants, the objects of other owners that they attack, and the operator."""

    def __init__(
        self, env: Environment, clients: dict[str, Client], operator: OperatorProcess, url: str
    ) -> None:
        self.env = env
        self.clients = clients
        self.operator = operator
        self.url = url
        self.foreign: list[Object] = []

    async def create_foreign_objects(self) -> None:
        """Create objects that have the names which the operator gives to the objects of RayClusters."""
        names = names_of(ray_cluster("shop", "clusters"))
        policy = {"podSelector": {"matchLabels": {"app": "shop"}}, "policyTypes": ["Ingress"]}
        self.foreign = [
            await self.env.create(obj)
            for obj in (
                attacks.ingress(names.dashboard, "clusters", "shop.example.com"),
                attacks.ingress(names.client, "clusters", "client.example.com"),
                {
                    "apiVersion": "networking.k8s.io/v1",
                    "kind": "NetworkPolicy",
                    "metadata": {"name": names.head_policy, "namespace": "clusters"},
                    "spec": policy,
                },
            )
        ]
        await self.env.create(attacks.ingress("mine", "ingresses", "harmless.apps.test"))

    async def store_planted_objects(self) -> None:
        """Create objects with the operator's labels, many or large, and Ingresses with many or equal hosts."""
        leases, config_maps, ingresses = (2500, 120, 500) if SECONDS else (100, 10, 20)
        jobs, many_hosts, decoys = (150, 200, 200) if SECONDS else (5, 3, 5)
        client = self.clients["editor"]
        await attacks.store(client, *(attacks.operator_lease(number) for number in range(leases)))
        await attacks.store(
            client, *(attacks.labelled_config_map(number) for number in range(config_maps))
        )
        await attacks.store(client, *(attacks.large_jobs() if SECONDS else ()))
        hosts = [f"ray-dashboard-victim-{number}-{HONEST}.apps.test" for number in range(1, 21)]
        planted = (
            attacks.ingress(f"planted-{number}", "ingresses", *hosts) for number in range(ingresses)
        )
        await attacks.store(self.clients["ingresses"], *planted)
        await attacks.store(self.clients["ingresses"], *attacks.many_hosts(many_hosts))
        await attacks.store(client, *attacks.suspended_jobs(jobs), *attacks.decoy_pods(decoys))

    async def attack(self, seconds: float) -> dict[str, int]:
        """Run all attacks for this time; return how often each of them was repeated."""
        until = time.monotonic() + seconds
        clients = self.clients
        ingresses = 8 if SECONDS else 2
        hosts = [f"ray-dashboard-work-0-{HONEST}.apps.test", f"rayclient-work-0-{HONEST}.apps.test"]
        async with asyncio.TaskGroup() as tasks:
            running = {
                "large dry runs": attacks.create_dry_runs(clients, until),
                "large Secrets": attacks.plant_secrets(clients["secrets"], until),
                "planted keys": attacks.plant_keys(clients["secrets"], until),
                "taken names": attacks.take_names(clients["clusters"], ["shop"], until),
                "taken hosts": attacks.take_hosts(clients["ingresses"], hosts, until),
                "failing AppWrappers": attacks.create_failing_wrappers(clients["wrappers"], until),
                "quantities": attacks.store_quantities(clients["editor"], until),
                "Leases": attacks.renew_leases(clients["editor"], until),
                "large stacks": attacks.create_large_stacks(clients["editor"], until),
                "large clusters": attacks.change_large_clusters(clients["editor"], until),
                "large jobs": attacks.change_large_jobs(clients["editor"], until),
                "switched hosts": attacks.switch_hosts(
                    clients["ingresses"], until, number=ingresses
                ),
                "toggled names": attacks.toggle_names(clients["editor"], until),
                "reviews": self._run_pod(seconds),
            }
            started = {name: tasks.create_task(attack) for name, attack in running.items()}
        return {name: task.result() for name, task in started.items()}

    async def _run_pod(self, seconds: float) -> int:
        """Run a hostile pod; return how many reviews it sent."""
        return int(await run_module("pod", self.url, f"{seconds:g}"))


async def run_module(name: str, *arguments: str) -> str:
    """Run a module of this package as a process, and return its output."""
    command = (sys.executable, "-m", f"{__package__}.{name}", *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode()


@asynccontextmanager
async def start_tenants(directory: Path) -> AsyncIterator[Tenants]:
    """Run a control plane, the operator in its own process, and a client for each tenant."""
    url = str(free_url())
    crds = (
        *VANILLA_CRDS,
        appwrapper_crd(),
        *inference_stack_crds(),
        fluxjob_crd(),
        fluxsetup_crd(),
        minicluster_crd(),
    )
    async with start_environment(*crds) as env, AsyncExitStack() as stack:
        await create_config_map(env, {"config.yaml": yaml.safe_dump(CONFIG)})
        for configuration in webhook_configurations("default"):
            await env.create(configuration)
        clients = {}
        for namespace in (*attacks.TENANTS, HONEST):
            await env.create_namespace(namespace)
        for namespace, rules in attacks.TENANTS.items():
            clients[namespace] = await stack.enter_async_context(
                start_tenant_client(env, *rules, namespace=namespace)
            )
        operator = await stack.enter_async_context(
            # The image sets these. The second one decides how much freed memory a process keeps.
            run_operator(
                env,
                directory,
                "--webhook-url",
                url,
                PYTHONUNBUFFERED="1",
                MALLOC_MMAP_THRESHOLD_="131072",
            )
        )
        await operator.ready()
        yield Tenants(env, clients, operator, url)


class Measurements:
    """What other tenants and the kubelet notice while the attacks run. All latencies are in seconds."""

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants
        self._env = tenants.env
        self.latencies: dict[str, list[float]] = {}
        self.memory: list[float] = []
        self.created: list[Object] = []
        self._clusters = 0

    async def run(self, seconds: float) -> None:
        """Measure for this time."""
        until = time.monotonic() + seconds
        address = await self._tenants.operator.address("health")
        process = psutil.Process(self._tenants.operator.process.pid)

        async def memory() -> float:
            self.memory.append(process.memory_info().rss / 2**20)
            return 0.0

        async with asyncio.TaskGroup() as tasks:
            probe = tasks.create_task(
                run_module("probe", address, self._tenants.url, f"{seconds:g}")
            )
            creations = tasks.create_task(attacks.repeat(self._create, until, pause=0.3))
            clusters = tasks.create_task(attacks.repeat(self._create_cluster, until, pause=0.5))
            tasks.create_task(attacks.repeat(memory, until, pause=0.05))
        self.latencies = {**orjson.loads(probe.result()), "creation": creations.result()}
        self.latencies["RayCluster"] = clusters.result()

    async def _create(self) -> float:
        """Create a RayCluster or an AppWrapper; return the latency, including that of the test's API server."""
        number = len(self.created)
        cluster = ray_cluster(f"work-{number}", HONEST, version=None)
        if number % 2:
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"work-{number}"}}
            spec = {"containers": [{"name": "c", "image": "i"}]}
            cluster = attacks.wrapper(
                f"work-{number}", {"template": {**pod, "spec": spec}}, namespace=HONEST
            )
        started = time.monotonic()
        self.created.append(await self._env.create(cluster))
        return time.monotonic() - started

    async def _create_cluster(self) -> float:
        """Create a RayCluster; return the time until it has a NetworkPolicy."""
        self._clusters += 1
        cluster = await self._env.create(
            ray_cluster(f"victim-{self._clusters}", HONEST, version=None)
        )
        started = time.monotonic()
        while await self._env.find(NETWORK_POLICY, names_of(cluster).head_policy, HONEST) is None:
            await asyncio.sleep(0.02)
            if time.monotonic() > started + 30:
                break
        return time.monotonic() - started

    async def all_are_reconciled(self) -> bool:
        """Report whether each created object has its most important child."""
        for obj in self.created:
            if obj["kind"] == "RayCluster":
                assert await self._env.find(NETWORK_POLICY, names_of(obj).head_policy, HONEST), (
                    name_of(obj)
                )
            else:
                assert await self._env.find(POD, name_of(obj), HONEST), name_of(obj)
        return True


_BUCKET = re.compile(r'^cfo_event_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)', re.MULTILINE)


def lag_buckets(metrics: str) -> dict[float, float]:
    """Return the cumulative counts of the event loop's lag by upper bound in seconds."""
    return {float(bound): float(count) for bound, count in _BUCKET.findall(metrics)}


def lag_at(before: Mapping[float, float], after: Mapping[float, float], fraction: float) -> float:
    """Return the upper bound of the bucket that contains this quantile of what was counted in between."""
    counts = {bound: after[bound] - before.get(bound, 0.0) for bound in sorted(after)}
    total = counts[float("inf")]
    return next(bound for bound, count in counts.items() if count >= fraction * total)


def print_table(rows: Iterable[tuple[str, str, str]]) -> None:
    """Print the measurements as a table in Markdown."""
    for name, median, worst in (("measured", "median", "worst"), ("---", "---", "---"), *rows):
        print(f"| {name} | {median} | {worst} |")


def latency_row(name: str, seconds: Sequence[float]) -> tuple[str, str, str]:
    return (
        f"{name} ({len(seconds)})",
        f"{statistics.median(seconds) * 1000:.0f} ms",
        f"{max(seconds) * 1000:.0f} ms",
    )


async def read_metrics(operator: OperatorProcess) -> str:
    address = await operator.address("metrics")

    def read() -> str:
        with urllib.request.urlopen(f"{address}/metrics", timeout=120) as response:
            return str(response.read().decode())

    return await asyncio.to_thread(read)


async def leases_of(env: Environment) -> list[tuple[str, str, int]]:
    """Return name, holder and number of changes of the operator's Leases."""
    return [
        (name_of(lease), lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"])
        for lease in await env.client.list(LEASE, namespace="default")
    ]


@pytest.mark.timeout(SECONDS * 3 + 120)
async def test_other_tenants_are_served_while_all_attacks_run(tmp_path: Path) -> None:
    seconds = SECONDS or 2.0
    async with start_tenants(tmp_path) as tenants:
        env, operator = tenants.env, tenants.operator
        await tenants.create_foreign_objects()
        await tenants.store_planted_objects()
        measurements = Measurements(tenants)
        leases = await leases_of(env)
        before = lag_buckets(await read_metrics(operator))
        at_rest = psutil.Process(operator.process.pid).memory_info().rss / 2**20
        counts, _ = await asyncio.gather(tenants.attack(seconds), measurements.run(seconds))
        after = lag_buckets(await read_metrics(operator))
        print(
            f"\n{seconds:g} s of attacks: {', '.join(f'{count} {name}' for name, count in counts.items())}\n"
        )
        print_table(
            [
                *(latency_row(name, seconds) for name, seconds in measurements.latencies.items()),
                (
                    "event loop lag",
                    f"<= {lag_at(before, after, 0.5):g} s",
                    f"<= {lag_at(before, after, 1.0):g} s",
                ),
                (
                    f"memory, {at_rest:.0f} MiB before",
                    f"{statistics.median(measurements.memory):.0f} MiB",
                    f"{max(measurements.memory):.0f} MiB",
                ),
            ]
        )
        assert min(counts.values()) > 0 or not SECONDS, "each attack has run"
        assert max(measurements.latencies["/healthz"]) < MAX_HEALTHZ
        assert max(measurements.latencies["review"]) < MAX_REVIEW
        assert max(measurements.latencies["RayCluster"]) < MAX_RAYCLUSTER or not SECONDS
        assert max(measurements.memory) - at_rest < MAX_GROWTH_MB
        assert max(measurements.memory) < MAX_MEMORY_MB or not SECONDS
        assert operator.process.returncode is None, operator.output
        assert await leases_of(env) == leases
        await eventually(
            measurements.all_are_reconciled, "the objects of other tenants are reconciled"
        )
        for obj in tenants.foreign:
            assert await env.client.get(gvk_of(obj), key_of(obj)) == obj
        own = await env.get(INGRESS, "ray-dashboard-work-0", HONEST)
        assert own["spec"]["rules"][0]["host"] == f"ray-dashboard-work-0-{HONEST}.apps.test"
        assert '"error":"the webhook failed' not in operator.output
