"""Tests that each informer of the operator has a limit for the objects that tenants can create."""

from __future__ import annotations

import pytest

from cfo.api.appwrapper.models import appwrapper_crd
from cfo.api.flux.models.minicluster import minicluster_crd
from cfo.api.flux.models.queue import fluxjob_crd, fluxsetup_crd
from cfo.api.flux.names import MINICLUSTER
from cfo.api.inferencestack.models import inference_stack_crds
from cfo.api.raycluster.names import RAY_CLUSTER, names_of
from cfo.config.model import OperatorConfiguration
from cfo.features import KINDS
from cfo.operator import new_manager
from cfo.runtime.cache.selectors import MAX_BYTES, MAX_OBJECTS
from cfo.runtime.manager.manager import Manager
from cfo.runtime.objects.kinds import CONFIG_MAP, NETWORK_POLICY
from cfo.runtime.objects.unstructured import NamespacedName
from test.integration.hostile.attacks import labelled_config_map
from test.support.flux_environment import (
    SCHEDULED,
    mini_cluster,
    run_minicluster_controller,
    start_flux_environment,
)
from test.support.operator_process import LOOPBACK_ADDRESSES
from test.support.planes import local_config
from test.support.raycluster_environment import (
    OPENSHIFT_CRDS,
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    crd,
    eventually,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
)

LARGEST = 256 << 10
"""The largest limit of a kind that tenants can create and that is not the operator's own."""

COUNTED = {
    ("Job", "flux-framework.org/minicluster"),
    ("Pod", "flux-framework.org/minicluster"),
    ("Pod", "workload.codeflare.dev/appwrapper"),
}
"""Kinds and labels of objects that are never left out, because quota and phases are computed from them."""

CRDS = (
    appwrapper_crd(),
    fluxjob_crd(),
    fluxsetup_crd(),
    minicluster_crd(),
    *inference_stack_crds(),
    crd("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects"),
    crd("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes"),
    crd("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
)
CONFIGURATION = {
    **LOOPBACK_ADDRESSES,
    "kuberay": {"ingressDomain": "apps.test"},
    "appwrapper": {"enabled": True},
    "flux": {"enabled": True},
    "inferenceStack": {"enabled": True},
    "leaderElection": {"leaderElect": True},
}


def unbounded(manager: Manager) -> set[tuple[str, str]]:
    """Return kind and label selector of the informers that have no limits for what tenants create."""
    own = {gvk for kind in KINDS for gvk in kind.gvks}
    found = set()
    for informer in manager.cache.informers:
        resource = manager.mapper.cached(informer.gvk)
        is_foreign = informer.gvk not in own and (resource and resource.namespaced)
        assert 0 < informer.selection.max_bytes <= MAX_BYTES
        if is_foreign and (
            informer.selection.max_bytes > LARGEST or informer.selection.max_objects > MAX_OBJECTS
        ):
            found.add((informer.gvk.kind, str(informer.selection.label_selector)))
    return found


@pytest.mark.parametrize("openshift", [False, True])
async def test_informers_of_all_features_have_limits(openshift: bool) -> None:
    """A kind that only administrators can create, or that is the operator's own, has the API server's limit."""
    kuberay = {**CONFIGURATION["kuberay"], "rayDashboardOAuthEnabled": openshift}
    configuration = OperatorConfiguration.from_document({**CONFIGURATION, "kuberay": kuberay})
    crds = (*(OPENSHIFT_CRDS if openshift else VANILLA_CRDS), *CRDS)
    async with start_environment(*crds) as env:
        manager = new_manager(local_config(env.plane), configuration, "default")
        async with manager:
            await manager.started()

            async def all_have_started() -> bool:
                kinds = {informer.gvk for informer in manager.cache.informers}
                missing = {gvk for kind in KINDS for gvk in kind.gvks} - kinds
                assert not missing
                return True

            await eventually(all_have_started, "the controllers of all features")
            assert unbounded(manager) == COUNTED


async def test_large_config_maps_with_the_label_are_not_cached() -> None:
    async with start_flux_environment() as env:
        await env.create_namespace("editor")
        async with run_minicluster_controller(env) as manager:
            for number, size in enumerate((1000, 100_000)):
                await env.create(labelled_config_map(number, size))
            (informer,) = (each for each in manager.cache.informers if each.gvk == CONFIG_MAP)

            async def is_cached() -> bool:
                return informer.reader.contains(NamespacedName("editor", "planted-0"))

            await eventually(is_cached, "the small ConfigMap is cached")
            await env.wait_until_idle()
            assert [entry.name for entry in informer.reader.entries()] == ["planted-0"]
            large = NamespacedName("editor", "planted-1")
            note = await env.wait_for_event(
                "ObjectTooLarge", "at most 65536 are allowed", namespace="editor"
            )
            for number in range(3):
                await env.client.patch(
                    CONFIG_MAP, large, {"metadata": {"annotations": {"touched": str(number)}}}
                )
            await env.create(labelled_config_map(2, 100_000))

            async def is_reported() -> bool:
                return len(await env.events("editor")) == 2

            await eventually(is_reported, "an Event for each object that is too large")
            await env.wait_until_idle()
            assert [event[2] for event in await env.events("editor")].count(note) <= 2, (
                "not one for each change"
            )
            assert await is_reported()


async def test_own_object_that_a_tenant_makes_too_large_causes_no_loop_of_requests() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            cluster = await env.create(ray_cluster())
            policy = NamespacedName("ns", names_of(cluster).head_policy)
            await env.wait_until_idle()
            env.clear_requests()
            for number in range(3):
                annotations = {"large": f"{number}{'x' * 70_000}"}
                await env.client.patch(
                    NETWORK_POLICY, policy, {"metadata": {"annotations": annotations}}
                )
                await env.wait_for_event("ObjectTooLarge", "at most 65536 are allowed")
                await env.wait_until_idle()
            requests = [request for request in env.requests() if "networkpolicies" in request[1]]
            assert len(requests) <= 30, requests
            assert [reason for _, reason, _ in await env.events()].count("ObjectTooLarge") == 1
            await env.client.patch(
                NETWORK_POLICY, policy, {"metadata": {"annotations": {"large": None}}}
            )
            await env.wait_until_idle()
            env.clear_requests()
            await env.client.patch(
                RAY_CLUSTER, NamespacedName("ns", "rc"), {"metadata": {"labels": {"a": "b"}}}
            )
            await env.wait_until_idle()
            assert [request for request in env.requests() if "networkpolicies" in request[1]] == []


async def test_minicluster_with_scripts_that_are_too_large_for_the_cache_runs() -> None:
    """Its ConfigMap is written before the Job, and not again in each reconcile."""
    async with start_flux_environment(controllers=SCHEDULED) as env:
        await env.create_namespace()
        async with run_minicluster_controller(env):
            await env.create(mini_cluster(command=f"true {'x' * 100_000}"))
            await env.wait_for_state("JobRunning", "JobMiniClusterReady")
            await env.wait_until_idle()
            env.clear_requests()
            for number in range(3):
                key = NamespacedName("ns", "flux-sample")
                await env.client.patch(
                    MINICLUSTER, key, {"metadata": {"labels": {"touched": str(number)}}}
                )
                await env.wait_until_idle()
            assert [request for request in env.requests() if "configmaps" in request[1]] == []
            data = (await env.get(CONFIG_MAP, "flux-sample-entrypoint"))["data"]
            assert max(map(len, data.values())) > 100_000
