"""An API server that refuses, conflicts, hesitates, forgets, lies about the past, or comes back as another."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import anyio
import pytest

from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.runtime.cache.cache import Cache
from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.credentials import Credentials
from cfo.runtime.client.errors import AlreadyExists, APIError, TransportError
from cfo.runtime.client.transport import Transport
from cfo.runtime.discovery import RESTMapper
from cfo.runtime.kinds import CONFIG_MAP
from cfo.runtime.objects import GVK, NamespacedName, Object
from envtest import ControlPlane
from envtest.auth.attributes import Attributes
from envtest.context import User
from envtest.embedded import EmbeddedControlPlane
from envtest.faults import Fault, Faults
from test.support.faults import FastClock, new_manager, run_with_faulty_transport, snapshot, wait_for_snapshot
from test.support.raycluster_environment import (
    OAUTH_SETTINGS,
    OPENSHIFT_CRDS,
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    Environment,
    eventually,
    kuberay_config,
    ray_cluster,
    start_environment,
    wait_until_deleted,
)

WRITES = ("create", "update", "patch", "delete")
SECONDS = 0.3


@dataclass(slots=True)
class Alternating(Fault):
    """Strikes every second request that it matches."""

    seen: int = 0

    def matches(self, attributes: Attributes, now: float) -> bool:
        """Whether it is this one's turn."""
        if not Fault.matches(self, attributes, now):
            return False
        self.seen += 1
        return self.seen % 2 == 1


def faults_of(here: Environment) -> Faults:
    """The faults of an embedded control plane; skips on a real one."""
    if not isinstance(here.plane, EmbeddedControlPlane):
        pytest.skip("only the embedded control plane fails on demand")
    return here.plane.faults


FAULTS: dict[str, Callable[[], list[Fault]]] = {
    "429": lambda: [Fault(code=429, retry_after=1, seconds=SECONDS)],
    "429 without a hint": lambda: [Fault(code=429, seconds=SECONDS)],
    "500": lambda: [Fault(code=500, seconds=SECONDS)],
    "503": lambda: [Fault(code=503, retry_after=1, seconds=SECONDS)],
    "504": lambda: [Fault(code=504, reason="Timeout", seconds=SECONDS)],
    "403": lambda: [Fault(code=403, verbs=WRITES, seconds=SECONDS)],
    "resets": lambda: [Fault(reset=True, seconds=SECONDS)],
    "resets of writes": lambda: [Alternating(reset=True, verbs=WRITES, seconds=2 * SECONDS)],
    "expired": lambda: [Fault(expired=True, verbs=("list", "watch"), seconds=SECONDS)],
    "torn watches": lambda: [Fault(cut_after=1, torn=True, verbs=("watch",), seconds=SECONDS)],
    "conflicts": lambda: [Alternating(code=409, reason="Conflict", verbs=WRITES, count=30)],
    "every second write fails": lambda: [Alternating(code=500, verbs=WRITES, count=30)],
    "slow": lambda: [Fault(latency=0.4, seconds=2 * SECONDS)],
    "very slow": lambda: [Fault(latency=1.5, verbs=WRITES, count=1)],
}


OF_WRITES = ["500", "resets of writes", "conflicts", "every second write fails"]


@pytest.mark.parametrize(("platform", "names"), [("vanilla", list(FAULTS)), ("openshift", OF_WRITES)])
async def test_storms(platform: str, names: list[str]) -> None:
    """Each kind of failure strikes while clusters come, change and go; when it is over, all is as if it had not."""
    openshift = platform == "openshift"
    settings = OAUTH_SETTINGS if openshift else PLAIN_SETTINGS
    async with start_environment(*(OPENSHIFT_CRDS if openshift else VANILLA_CRDS)) as here:
        faults = faults_of(here)
        namespace = await here.create_namespace("undisturbed")
        await here.create(ray_cluster(namespace=namespace))
        async with run_with_faulty_transport(here, kuberay_config(**settings), clock=FastClock()) as (manager, _):
            expected = await snapshot(here, namespace, openshift=openshift)
            for number, name in enumerate(names):
                comes = await here.create_namespace(f"comes-{number}")
                goes = await here.create_namespace(f"goes-{number}")
                leaving = await here.create(ray_cluster(namespace=goes))
                await wait_for_snapshot(here, goes, expected, openshift=openshift, description=f"before {name}")
                coming = ray_cluster(namespace=comes)
                async with anyio.create_task_group() as tasks:
                    # Our own requests are struck too: they are repeated until they are heard.
                    here.plane.store.close_watchers()  # type: ignore[attr-defined]
                    storm = [faults.add(fault) for fault in FAULTS[name]()]
                    tasks.start_soon(_insist, lambda obj=coming: here.create(obj))
                    tasks.start_soon(_insist, lambda obj=leaving: here.delete(obj))
                await eventually(partial(_is_over, storm), f"{name} strikes")
                faults.clear()
                await wait_for_snapshot(here, comes, expected, openshift=openshift, description=f"{name}: it came")
                await wait_for_snapshot(here, goes, {}, openshift=openshift, description=f"{name}: it went")
            await here.wait_until_idle()
            for controller in manager.controllers:
                assert controller.queue.waiting <= 1 + len(names)  # what exists may be looked at again some day
                assert not [key for key in _requests() if controller.queue.num_requeues(key)]


async def _is_over(storm: list[Fault]) -> bool:
    """Whether each fault has struck, and strikes no more (or not before somebody writes again)."""
    now = time.monotonic()
    return all(
        fault.struck and (fault.count is not None or (fault.seconds is not None and now - fault.since > fault.seconds))
        for fault in storm
    )


def _requests() -> list[NamespacedName]:
    return [NamespacedName(f"{kind}-{number}", "rc") for kind in ("comes", "goes") for number in range(len(FAULTS))]


async def _insist(ask: Callable[[], Any]) -> None:
    async def look() -> bool:
        try:
            await ask()
        except AlreadyExists:
            return True
        except (APIError, TransportError):
            await asyncio.sleep(0.05)
            return False
        return True

    await eventually(look, "our own request is heard")


async def test_a_watch_cache_that_stays_behind_our_writes() -> None:
    """A stale server's lists are older than what we wrote; nothing is written twice, and nothing taken back."""
    async with start_environment(*VANILLA_CRDS) as here:
        faults = faults_of(here)
        namespace = await here.create_namespace("undisturbed")
        await here.create(ray_cluster(namespace=namespace))
        async with run_with_faulty_transport(here, kuberay_config(**PLAIN_SETTINGS)) as (_, transport):
            expected = await snapshot(here, namespace)
            faults.stale_revision = here.plane.store.revision  # type: ignore[attr-defined]
            namespace = await here.create_namespace("stale")
            await here.create(ray_cluster(namespace=namespace))
            here.plane.store.close_watchers()  # type: ignore[attr-defined]
            await wait_for_snapshot(here, namespace, expected)
            faults.clear()
            await here.wait_until_idle()
            before = transport.writes
            await here.patch(ray_cluster(namespace=namespace), {"metadata": {"annotations": {"note": "x"}}})
            await here.wait_until_idle()
            assert transport.writes == before


async def test_somebody_elses_webhook_that_cannot_be_reached() -> None:
    """Where every write of a kind fails, the others go on; when the webhook is gone, what is missing is made."""
    async with start_environment(*VANILLA_CRDS) as here:
        namespace = await here.create_namespace("undisturbed")
        await here.create(ray_cluster(namespace=namespace))
        async with run_with_faulty_transport(here, kuberay_config(**PLAIN_SETTINGS)):
            expected = await snapshot(here, namespace)
            policies = {"apiGroups": ["networking.k8s.io"], "apiVersions": ["v1"], "resources": ["networkpolicies"]}
            hook = {
                "name": "nobody.example.com",
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "rules": [{**policies, "operations": ["CREATE", "UPDATE"]}],
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
            configuration = {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "nobody"},
                "webhooks": [hook],
            }
            await here.create(configuration)
            namespace = await here.create_namespace("struck")
            await here.create(ray_cluster(namespace=namespace))
            others = {key for key in expected if not key.startswith("NetworkPolicy")}

            async def the_others_are_there() -> bool:
                return set(await snapshot(here, namespace)) == others

            await eventually(the_others_are_there, "all but the policies")
            await here.delete(configuration)
            await wait_for_snapshot(here, namespace, expected)


async def test_a_token_that_expires() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        if not isinstance(here.plane, EmbeddedControlPlane):
            pytest.skip("only the embedded control plane forgets tokens on demand")
        plane = here.plane
        given: list[str] = []

        async def credentials(*, renew: bool = False) -> Credentials:
            if renew or not given:
                given.append(f"token-{len(given)}")
                plane.add_user(given[-1], User("operator", groups=("system:masters",)))
            return Credentials(f"Bearer {given[-1]}")

        target = replace(ClientConfig.for_control_plane(plane), token="", credentials=credentials)
        namespace = await here.create_namespace()
        await here.create(ray_cluster(namespace=namespace))
        async with Transport(target, observe=here.exchanges.append) as transport:
            manager = here.manager = new_manager(transport, kuberay_config(**PLAIN_SETTINGS))
            async with manager:
                await manager.started()
                await here.wait_until_idle()
                expected = await snapshot(here, namespace)
                for number in range(3):
                    plane.machine.authenticator.remove_user(given[-1])
                    plane.store.close_watchers()
                    later = await here.create_namespace(f"later-{number}")
                    await here.create(ray_cluster(namespace=later))
                    await wait_for_snapshot(here, later, expected)
            here.manager = None
        assert len(given) >= 4


async def test_a_control_plane_that_comes_back_from_a_backup() -> None:
    """Its numbers are smaller than before; that is noticed as soon as it is back, not when somebody wonders."""

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = "the-same-before-and-after"
    plane = ControlPlane.embedded(port=port, token=token)
    await plane.start()
    target = replace(ClientConfig.for_control_plane(plane), verify=False, ca_pem=b"")

    def config_map(name: str) -> Object:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": name}}

    async with Transport(target) as transport, anyio.create_task_group() as tasks:
        client = Client(transport, RESTMapper(transport), field_manager="tester")
        cache = Cache(transport, RESTMapper(transport), clock=FastClock())
        informer = cache.informer(CONFIG_MAP)
        tasks.start_soon(cache.run)
        for number in range(30):
            await client.create(config_map(f"lost-{number}"))
        await informer.wait_for_sync()
        await plane.stop()
        async with ControlPlane.embedded(port=port, token=token):
            await client.create(config_map("kept"))

            async def look() -> bool:
                names = {entry.key.name for entry in informer.reader.entries("default")}
                return "kept" in names and not any(name.startswith("lost") for name in names)

            await eventually(look, "what the backup has")
        tasks.cancel_scope.cancel()


async def test_a_definition_that_goes_and_comes_back() -> None:
    """The informers end quietly with the kind, and the controllers work again when it is back."""
    async with start_environment(*VANILLA_CRDS) as here:
        namespace = await here.create_namespace("first")
        await here.create(ray_cluster(namespace=namespace))
        async with run_with_faulty_transport(here, kuberay_config(**PLAIN_SETTINGS)) as (manager, _):
            expected = await snapshot(here, namespace)
            definition = GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
            await here.client.delete(definition, NamespacedName("", "rayclusters.ray.io"))
            await wait_until_deleted(here, [(definition, "rayclusters.ray.io")], namespace="")
            clusters = manager.cache.informer(RAY_CLUSTER)

            async def forgotten() -> bool:
                return not clusters.has_synced and len(clusters.reader) == 0

            await eventually(forgotten, "the kind is forgotten")
            assert await manager.health.failures() == {}
            here.client.mapper.invalidate()
            await here.plane.install_crds(*VANILLA_CRDS)
            namespace = await here.create_namespace("second")
            await _insist(lambda: here.create(ray_cluster(namespace=namespace)))
            await wait_for_snapshot(here, namespace, expected)
