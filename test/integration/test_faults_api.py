"""Tests with a faulty API server: errors, conflicts, latency, stale caches, expired tokens, restores, deleted CRDs."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import anyio
import pytest

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.runtime.cache.cache import Cache
from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.credentials import Credentials
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.transport import Transport
from cfo.runtime.objects.kinds import CONFIG_MAP
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object
from envtest import ControlPlane, EmbeddedControlPlane, User
from envtest.auth.attributes import Attributes
from envtest.faults import Fault, Faults
from test.support.faults import (
    FastClock,
    new_manager,
    repeat_until_accepted,
    run_with_faulty_transport,
    snapshot,
    wait_for_snapshot,
)
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
from test.support.sweeps import sampled

WRITES = ("create", "update", "patch", "delete")
SECONDS = 0.3
"""How long most faults last."""


@dataclass(slots=True)
class Lasting(Fault):
    """A fault whose time begins when it is first injected, so that it occurs however late the first request is."""

    def matches(self, attributes: Attributes, now: float) -> bool:
        """Report whether this request is affected."""
        if not self.injected:
            self.since = now
        return Fault.matches(self, attributes, now)


@dataclass(slots=True)
class Alternating(Lasting):
    """A fault that affects every second matching request, beginning with the first."""

    matched: int = 0

    def matches(self, attributes: Attributes, now: float) -> bool:
        """Report whether this request is affected."""
        if not Lasting.matches(self, attributes, now):
            return False
        self.matched += 1
        return self.matched % 2 == 1


def faults_of(env: Environment) -> Faults:
    assert isinstance(env.plane, EmbeddedControlPlane)
    return env.plane.faults


FAULTS: dict[str, Callable[[], list[Fault]]] = {
    "429": lambda: [Lasting(code=429, retry_after=1, seconds=SECONDS)],
    "429 without Retry-After": lambda: [Lasting(code=429, seconds=SECONDS)],
    "500": lambda: [Lasting(code=500, seconds=SECONDS)],
    "503": lambda: [Lasting(code=503, retry_after=1, seconds=SECONDS)],
    "504": lambda: [Lasting(code=504, reason="Timeout", seconds=SECONDS)],
    "403 for writes": lambda: [Lasting(code=403, verbs=WRITES, seconds=SECONDS)],
    "connection resets": lambda: [Lasting(reset=True, seconds=SECONDS)],
    "connection resets of writes": lambda: [
        Alternating(reset=True, verbs=WRITES, seconds=2 * SECONDS)
    ],
    "expired resource versions": lambda: [
        Lasting(expired=True, verbs=("list", "watch"), seconds=SECONDS)
    ],
    "torn watches": lambda: [Lasting(cut_after=1, torn=True, verbs=("watch",), seconds=SECONDS)],
    "conflicts for every second write": lambda: [
        Alternating(code=409, reason="Conflict", verbs=WRITES, count=30)
    ],
    "500 for every second write": lambda: [Alternating(code=500, verbs=WRITES, count=30)],
    "slow": lambda: [Lasting(latency=0.4, seconds=2 * SECONDS)],
    "very slow": lambda: [Lasting(latency=1.5, verbs=WRITES, count=1)],
}


WRITE_FAULTS = [
    "500",
    "connection resets of writes",
    "conflicts for every second write",
    "500 for every second write",
]


@pytest.mark.embedded(reason="it injects faults")
@pytest.mark.parametrize(
    ("platform", "names"), [("vanilla", list(FAULTS)), ("openshift", WRITE_FAULTS)]
)
@pytest.mark.sweep
async def test_clusters_converge_after_temporary_faults(platform: str, names: list[str]) -> None:
    """A fault occurs while one cluster is created and another one deleted; afterwards the state is as without it."""
    openshift = platform == "openshift"
    settings = OAUTH_SETTINGS if openshift else PLAIN_SETTINGS
    async with start_environment(
        *(OPENSHIFT_CRDS if openshift else VANILLA_CRDS), clock=FastClock()
    ) as env:
        faults = faults_of(env)
        namespace = await env.create_namespace("undisturbed")
        await env.create(ray_cluster(namespace=namespace))
        async with run_with_faulty_transport(
            env, kuberay_config(**settings), clock=FastClock()
        ) as (manager, _):
            expected = await snapshot(env, namespace, openshift=openshift)
            for number, name in enumerate(sampled(names)):
                creating = await env.create_namespace(f"creating-{number}")
                deleting = await env.create_namespace(f"deleting-{number}")
                deleted = await env.create(ray_cluster(namespace=deleting))
                await wait_for_snapshot(
                    env, deleting, expected, openshift=openshift, description=f"before {name}"
                )
                created = ray_cluster(namespace=creating)
                async with anyio.create_task_group() as tasks:
                    # The fault affects the requests of this test, too: they are repeated until they succeed.
                    env.plane.store.close_watchers()  # type: ignore[attr-defined]
                    active = [faults.add(fault) for fault in FAULTS[name]()]
                    tasks.start_soon(repeat_until_accepted, lambda obj=created: env.create(obj))
                    tasks.start_soon(repeat_until_accepted, lambda obj=deleted: env.delete(obj))
                await eventually(partial(_is_over, active), f"the fault {name} is over")
                faults.clear()
                await wait_for_snapshot(
                    env, creating, expected, openshift=openshift, description=f"{name}: created"
                )
                await wait_for_snapshot(
                    env, deleting, {}, openshift=openshift, description=f"{name}: deleted"
                )
            await env.wait_until_idle()

            async def has_no_failures() -> bool:
                return not any(
                    controller.queue.num_requeues(key)
                    for controller in manager.controllers
                    for key in _cluster_keys()
                )

            await eventually(has_no_failures, "the last reconcile of each cluster succeeded")
            for controller in manager.controllers:
                # existing clusters may have a scheduled reconcile
                assert controller.queue.waiting <= 1 + len(names)


async def _is_over(faults: list[Fault]) -> bool:
    """Report whether each fault has occurred and is over (or, with a count, occurs only at further requests)."""
    now = time.time()  # the clock of a plane that no test advances
    return all(
        fault.injected
        and (
            fault.count is not None
            or (fault.seconds is not None and now - fault.since > fault.seconds)
        )
        for fault in faults
    )


def _cluster_keys() -> list[NamespacedName]:
    return [
        NamespacedName(f"{kind}-{number}", "rc")
        for kind in ("creating", "deleting")
        for number in range(len(FAULTS))
    ]


@pytest.mark.embedded(reason="it injects faults")
async def test_stale_watch_cache_causes_no_repeated_writes() -> None:
    """Lists of a stale server are older than the operator's writes: it repeats no write and reverts nothing."""
    async with start_environment(*VANILLA_CRDS) as env:
        faults = faults_of(env)
        namespace = await env.create_namespace("undisturbed")
        await env.create(ray_cluster(namespace=namespace))
        async with run_with_faulty_transport(env, kuberay_config(**PLAIN_SETTINGS)) as (
            _,
            transport,
        ):
            expected = await snapshot(env, namespace)
            faults.stale_revision = env.plane.store.revision  # type: ignore[attr-defined]
            namespace = await env.create_namespace("stale")
            await env.create(ray_cluster(namespace=namespace))
            env.plane.store.close_watchers()  # type: ignore[attr-defined]
            await wait_for_snapshot(env, namespace, expected)
            faults.clear()
            await env.wait_until_idle()
            before = transport.writes
            await env.patch(
                ray_cluster(namespace=namespace), {"metadata": {"annotations": {"note": "x"}}}
            )
            await env.wait_until_idle()
            assert transport.writes == before


async def test_unreachable_foreign_webhook_blocks_only_its_kind() -> None:
    """While all writes of a kind fail, other kinds are written; once the webhook is deleted, the rest follows."""
    async with start_environment(*VANILLA_CRDS) as env:
        namespace = await env.create_namespace("undisturbed")
        await env.create(ray_cluster(namespace=namespace))
        async with run_with_faulty_transport(env, kuberay_config(**PLAIN_SETTINGS)):
            expected = await snapshot(env, namespace)
            policies = {
                "apiGroups": ["networking.k8s.io"],
                "apiVersions": ["v1"],
                "resources": ["networkpolicies"],
            }
            hook = {
                "name": "unreachable.example.com",
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "rules": [{**policies, "operations": ["CREATE", "UPDATE"]}],
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
            configuration = {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "unreachable"},
                "webhooks": [hook],
            }
            await env.create(configuration)
            namespace = await env.create_namespace("affected")
            await env.create(ray_cluster(namespace=namespace))
            others = {key for key in expected if not key.startswith("NetworkPolicy")}

            async def others_exist() -> bool:
                return set(await snapshot(env, namespace)) == others

            await eventually(others_exist, "all children except the policies exist")
            await env.delete(configuration)
            await wait_for_snapshot(env, namespace, expected)


@pytest.mark.embedded(reason="it revokes a token")
async def test_expired_token_is_renewed() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        assert isinstance(env.plane, EmbeddedControlPlane)
        plane = env.plane
        tokens: list[str] = []

        async def credentials(*, renew: bool = False) -> Credentials:
            if renew or not tokens:
                tokens.append(f"token-{len(tokens)}")
                plane.add_user(tokens[-1], User("operator", groups=("system:masters",)))
            return Credentials(f"Bearer {tokens[-1]}")

        target = replace(ClientConfig.for_control_plane(plane), token="", credentials=credentials)
        namespace = await env.create_namespace()
        await env.create(ray_cluster(namespace=namespace))
        async with Transport(target, observe=env.exchanges.append) as transport:
            manager = env.manager = new_manager(transport, kuberay_config(**PLAIN_SETTINGS))
            async with manager:
                await manager.started()
                await env.wait_until_idle()
                expected = await snapshot(env, namespace)
                for number in range(3):
                    plane.api_server.authenticator.remove_user(tokens[-1])
                    plane.store.close_watchers()
                    later = await env.create_namespace(f"later-{number}")
                    await env.create(ray_cluster(namespace=later))
                    await wait_for_snapshot(env, later, expected)
            env.manager = None
        assert len(tokens) >= 4


async def test_informer_notices_control_plane_restored_from_backup() -> None:
    """Its resource versions are lower than before; the informer notices that as soon as it reconnects."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = "unchanged-token"
    plane = ControlPlane.embedded(port=port, token=token)
    await plane.start()
    target = replace(ClientConfig.for_control_plane(plane), verify=False, ca_pem=b"")

    def config_map(name: str) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"namespace": "default", "name": name},
        }

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

            async def has_restored_state() -> bool:
                names = {entry.key.name for entry in informer.reader.entries("default")}
                return "kept" in names and not any(name.startswith("lost") for name in names)

            await eventually(has_restored_state, "the informer has the state of the backup")
        tasks.cancel_scope.cancel()


async def test_controllers_recover_when_deleted_crd_is_recreated() -> None:
    """The informers stop without an error when the CRD is deleted; the controllers work again when it is recreated."""
    async with start_environment(*VANILLA_CRDS) as env:
        namespace = await env.create_namespace("first")
        await env.create(ray_cluster(namespace=namespace))
        async with run_with_faulty_transport(env, kuberay_config(**PLAIN_SETTINGS)) as (manager, _):
            expected = await snapshot(env, namespace)
            crd = GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
            await env.client.delete(crd, NamespacedName("", "rayclusters.ray.io"))
            await wait_until_deleted(env, [(crd, "rayclusters.ray.io")], namespace="")
            clusters = manager.cache.informer(RAY_CLUSTER)

            async def is_empty() -> bool:
                return not clusters.has_synced and len(clusters.reader) == 0

            await eventually(is_empty, "the informer is empty")
            assert await manager.health.failures() == {}
            env.client.mapper.invalidate()
            await env.plane.install_crds(*VANILLA_CRDS)
            namespace = await env.create_namespace("second")
            await repeat_until_accepted(lambda: env.create(ray_cluster(namespace=namespace)))
            await wait_for_snapshot(env, namespace, expected)
