"""Tests that a FluxJob whose pods do not exist, or do not start, holds the shared quota only for a few minutes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from cfo.api.flux.names import (
    BROKERS_READY,
    EVICTED,
    FLUX_JOB,
    FLUX_SETUP,
    MINICLUSTER,
    MINICLUSTER_LABEL,
    PODS_READY,
    QUOTA_RESERVED,
)
from cfo.runtime.objects.kinds import JOB, NAMESPACE, POD
from cfo.runtime.objects.rbac import Rule
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    key_of,
    name_of,
    new_object,
    owner_reference,
)
from test.support.clocks import SteppedClock
from test.support.flux_environment import (
    SCHEDULED,
    FluxEnvironment,
    condition,
    flux_job,
    flux_setup,
    pod_annotations,
    run_flux_controllers,
    start_flux_environment,
)
from test.support.raycluster_environment import eventually
from test.support.tenant_clients import start_tenant_client

RESOURCE_QUOTA = GVK("", "v1", "ResourceQuota")
SETUP = flux_setup(
    namespace="operator",
    max_size=4,
    namespaceSelector={},
    mini_cluster={"pod": pod_annotations(phase="Running")},
)


@pytest.fixture
async def env() -> AsyncIterator[FluxEnvironment]:
    async with start_flux_environment(controllers=(*SCHEDULED, "resourcequota")) as environment:
        for namespace in ("operator", "attacker", "victim"):
            await environment.create_namespace(namespace)
        await environment.create(SETUP)
        yield environment


WAITING = {
    "name": "main",
    "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}},
}


def resource_quota(namespace: str = "attacker", **hard: str) -> Object:
    """Return a ResourceQuota for a namespace of the attacker."""
    return new_object(RESOURCE_QUOTA, "quota", namespace, spec={"hard": hard})


async def replace_setup(env: FluxEnvironment, **spec: Any) -> None:
    """Create another FluxSetup for all namespaces, and delete the first one."""
    spec = {"max_size": 20, **spec}
    await env.create(flux_setup("other", "operator", namespaceSelector={}, **spec))
    await env.client.delete(FLUX_SETUP, NamespacedName("operator", "setup"))


async def wait_for_quota(env: FluxEnvironment, name: str, namespace: str, *reasons: str) -> Object:
    """Wait until the FluxJob has or lacks quota for one of the reasons; return it.

    A job that was admitted may have finished since: its pods can end at once.
    """
    expected = {*reasons, "Finished"} if "Admitted" in reasons else {*reasons}
    return await env.wait_for(
        lambda obj: condition(obj, QUOTA_RESERVED).get("reason") in expected,
        f"quota is {reasons}",
        name=name,
        namespace=namespace,
        gvk=FLUX_JOB,
    )


async def pass_timeout(env: FluxEnvironment, clock: SteppedClock) -> None:
    """Let the time pass after which pods are missing, and that after which their quota is released."""
    for seconds in (31, 301):
        await env.wait_until_idle()
        clock.step(seconds)


POD_SECURITY = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
LIMITS = {
    "no-job": {"count/jobs.batch": "0"},
    "no-config-map": {"count/configmaps": "0"},
    "no-pod": {"pods": "0"},
    "one-pod-of-two": {"pods": "1"},
}
"""Limits of ResourceQuotas by the namespace that has them."""
STRICT_NAMESPACES = (*LIMITS, "pod-security")


async def test_jobs_that_can_have_no_pods_let_those_of_others_pass(env: FluxEnvironment) -> None:
    clock = SteppedClock()
    for namespace in STRICT_NAMESPACES:
        await env.create_namespace(namespace)
    for namespace, hard in LIMITS.items():
        await env.create(resource_quota(namespace, **hard))
    await env.client.patch(NAMESPACE, NamespacedName("", "pod-security"), POD_SECURITY)
    one_cpu = {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    cpus = str(2 * len(STRICT_NAMESPACES))
    all_cpus = {"limits": {"cpu": cpus}, "requests": {"cpu": cpus}}
    running = {"pod": pod_annotations(phase="Running")}
    await replace_setup(env, resources={"cpu": cpus}, mini_cluster=running)
    async with run_flux_controllers(env, clock=clock):
        for namespace in STRICT_NAMESPACES:
            await env.create(flux_job("stuck", namespace, size=2, resources=one_cpu))
            await wait_for_quota(env, "stuck", namespace, "Admitted")
        await env.create(flux_job("next", "no-pod", size=1, resources=all_cpus))
        await env.create(flux_job("first", "victim", size=1, resources=all_cpus))
        await wait_for_quota(env, "first", "victim", "InsufficientQuota")
        await pass_timeout(env, clock)
        await wait_for_quota(env, "first", "victim", "Admitted")
        for namespace in STRICT_NAMESPACES:
            stuck = await wait_for_quota(env, "stuck", namespace, "StartTimeout")
            assert condition(stuck, EVICTED)["status"] == "True"
            await env.wait_for_event("StartTimeout", "could not start in time", namespace=namespace)
        await env.create(flux_job("second", "victim", size=1, resources=all_cpus))
        await wait_for_quota(env, "second", "victim", "InsufficientQuota")
        await env.client.delete(FLUX_JOB, NamespacedName("victim", "first"))
        await wait_for_quota(env, "second", "victim", "Admitted")
        await wait_for_quota(env, "next", "no-pod", "InsufficientQuota")


async def test_jobs_with_pods_that_never_start_let_those_of_others_pass(
    env: FluxEnvironment,
) -> None:
    clock = SteppedClock()
    pending = {"pod": pod_annotations(phase="Pending"), "containers": [{"command": "sleep"}]}
    messages = {
        "no-image": "ImagePullBackOff: Pod ",
        "no-container": "2 pods have not started",
    }
    async with run_flux_controllers(env, clock=clock, warmupGracePeriod="20m"):
        for name in messages:
            await env.create(flux_job(name, "attacker", size=2, template=pending))

        async def pods_exist() -> list[Object]:
            pods = await env.pods("attacker")
            assert len(pods) == 4
            return pods

        for pod in await eventually(pods_exist, "the pods exist"):
            if name_of(pod).startswith("no-image"):
                status = {"containerStatuses": [WAITING]}
                await env.client.patch_object(pod, {"status": status}, subresource="status")
        await env.create(flux_job("first", "victim", size=4))
        await wait_for_quota(env, "first", "victim", "InsufficientQuota")
        for seconds in (31, 600):
            await env.wait_until_idle()
            clock.step(seconds)
        await env.wait_until_idle()
        for name in messages:
            await wait_for_quota(env, name, "attacker", "Admitted")
        clock.step(600)
        await wait_for_quota(env, "first", "victim", "Admitted")
        for name, message in messages.items():
            stuck = await wait_for_quota(env, name, "attacker", "StartTimeout")
            assert message in condition(stuck, QUOTA_RESERVED)["message"]
            await env.wait_for_event("StartTimeout", message, namespace="attacker")


async def test_running_job_without_pods_releases_its_quota(env: FluxEnvironment) -> None:
    clock = SteppedClock()
    async with run_flux_controllers(env, clock=clock):
        await env.create(flux_job("job", "attacker", size=4))
        await env.wait_for(
            lambda obj: condition(obj, PODS_READY).get("reason") == BROKERS_READY,
            "the brokers are ready",
            name="job",
            namespace="attacker",
            gvk=FLUX_JOB,
        )
        await env.create(resource_quota(pods="0"))
        for pod in await env.pods("attacker"):
            await env.client.delete(POD, key_of(pod), grace_period_seconds=0)

        async def are_deleted() -> bool:
            return await env.pods("attacker") == []

        await eventually(are_deleted, "the pods are deleted")
        await pass_timeout(env, clock)
        await wait_for_quota(env, "job", "attacker", "StartTimeout")


def as_pod_of(job: Object, index: int) -> Object:
    """Return the metadata with which the Job controller takes a pod for the one with this index."""
    label = {"batch.kubernetes.io/job-completion-index": str(index)}
    return {
        "labels": {**job["spec"]["template"]["metadata"]["labels"], **label},
        "annotations": label,
        "ownerReferences": [owner_reference(job, controller=True)],
    }


def decoy(name: str, job: Object, index: int) -> Object:
    """Return a pod of the attacker that counts for a Job, and that never starts."""
    container = {
        "name": "main",
        "image": "example.com/any",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    pod = new_object(
        POD,
        name,
        "attacker",
        spec={"containers": [container]},
    )
    pod["metadata"] |= as_pod_of(job, index)
    pod["metadata"]["annotations"] |= pod_annotations(phase="Pending")["annotations"]
    return pod


async def test_pods_that_serve_one_job_after_the_other_keep_no_quota(env: FluxEnvironment) -> None:
    clock = SteppedClock()
    await env.client.patch(NAMESPACE, NamespacedName("", "attacker"), POD_SECURITY)

    async def pods_ready_is(job: str, *reasons: str) -> Object:
        return await env.wait_for(
            lambda obj: condition(obj, PODS_READY).get("reason") in reasons,
            f"PodsReady is one of {reasons}",
            name=job,
            namespace="attacker",
            gvk=FLUX_JOB,
        )

    async with run_flux_controllers(env, clock=clock):
        for job in ("one", "two"):
            await env.create(flux_job(job, "attacker", size=1))
            await wait_for_quota(env, job, "attacker", "Admitted")
        await env.create(flux_job("first", "victim", size=4))
        await wait_for_quota(env, "first", "victim", "InsufficientQuota")
        await env.wait_until_idle()
        clock.step(31)
        for turn in range(2):
            for job in ("one", "two"):
                await pods_ready_is(job, "PodsMissing")
                owner = await env.get(JOB, job, "attacker")
                pod = await env.create(decoy(f"decoy-{turn}", owner, 0))
                status = {"containerStatuses": [WAITING]}
                await env.client.patch_object(pod, {"status": status}, subresource="status")
                await pods_ready_is(job, "ImagePullBackOff")
                await env.client.delete(POD, key_of(pod), grace_period_seconds=0)
                await pods_ready_is(job, "PodsMissing")
            await env.wait_until_idle()
            clock.step(120)
        await env.wait_until_idle()
        clock.step(120)
        for job in ("one", "two"):
            await wait_for_quota(env, job, "attacker", "StartTimeout")
        await wait_for_quota(env, "first", "victim", "Admitted")


GPU = "example.com/gpu"


def small_pod(
    name: str, metadata: Object, requests: Object | None = None, namespace: str = "attacker"
) -> Object:
    """Return a pod of the attacker without GPUs that runs; it requests nothing by default."""
    resources = {"requests": requests or {}}
    container = {"name": "main", "image": "example.com/any", "resources": resources}
    pod = new_object(POD, name, namespace, spec={"containers": [container]})
    annotations = pod_annotations(phase="Running")["annotations"]
    pod["metadata"] |= metadata
    pod["metadata"]["annotations"] = {**metadata.get("annotations", {}), **annotations}
    return pod


async def test_small_pods_with_the_label_keep_no_quota_for_pods_that_do_not_exist(
    env: FluxEnvironment,
) -> None:
    clock = SteppedClock()
    gpus = {"limits": {GPU: "16"}, "requests": {GPU: "16"}}
    all_gpus = {"limits": {GPU: "96"}, "requests": {GPU: "96"}}
    await replace_setup(env, resources={GPU: "96"})
    await env.create(resource_quota(**{f"requests.{GPU}": "8"}))
    owners = ("none", "minicluster", "job")
    async with run_flux_controllers(env, clock=clock):
        for name in owners:
            await env.create(flux_job(name, "attacker", size=2, resources=gpus))
        edit_pods = Rule("", "pods", ("create",))
        async with start_tenant_client(env, edit_pods, namespace="attacker") as tenant:
            for name in owners:
                await wait_for_quota(env, name, "attacker", "Admitted")
                job = await env.wait_for(
                    lambda obj: bool((obj.get("status") or {}).get("startTime")),
                    "the Job has started",
                    name=name,
                    namespace="attacker",
                    gvk=JOB,
                )
                cluster = await env.get(MINICLUSTER, name, "attacker")
                label: Object = {"labels": {MINICLUSTER_LABEL: name}}
                owner = {"ownerReferences": [owner_reference(cluster, controller=True)]}
                for index in range(2):
                    metadata = {
                        "none": label,
                        "minicluster": {**label, **owner},
                        "job": as_pod_of(job, index),
                    }
                    await tenant.create(small_pod(f"{name}-{index}", metadata[name]))
        await env.create(flux_job("first", "victim", size=1, resources=all_gpus))
        await wait_for_quota(env, "first", "victim", "InsufficientQuota")
        await pass_timeout(env, clock)
        await wait_for_quota(env, "first", "victim", "Admitted")
        for name in owners:
            stuck = await env.get(FLUX_JOB, name, "attacker")
            assert condition(stuck, EVICTED)["reason"] == "StartTimeout", name


async def test_small_pods_that_are_ready_keep_no_quota_for_brokers(env: FluxEnvironment) -> None:
    """Their Job reports them as ready, and so its MiniCluster runs; it has none or one of its own two pods."""
    clock = SteppedClock()
    cpus = {"limits": {"cpu": "8"}, "requests": {"cpu": "8"}}
    all_cpus = {"limits": {"cpu": "32"}, "requests": {"cpu": "32"}}
    view = {"container": {"resources": {"requests": {"cpu": "1"}}}}
    running = {"pod": pod_annotations(phase="Running"), "flux": view}
    await replace_setup(env, resources={"cpu": "32"}, mini_cluster=running)
    own_pods = {"none": 0, "one": 1}
    for namespace, own in own_pods.items():
        await env.create_namespace(namespace)
        await env.create(resource_quota(namespace, **{"requests.cpu": f"{8 * own + 1}"}))
    async with run_flux_controllers(env, clock=clock):
        for namespace, own in own_pods.items():
            await env.create(flux_job("stuck", namespace, size=2, resources=cpus))
            await wait_for_quota(env, "stuck", namespace, "Admitted")
            await add_small_pods(env, namespace, own)
        await env.create(flux_job("first", "victim", size=1, resources=all_cpus))
        await wait_for_quota(env, "first", "victim", "InsufficientQuota")
        await pass_timeout(env, clock)
        await wait_for_quota(env, "first", "victim", "Admitted")
        for namespace, own in own_pods.items():
            stuck = await env.get(FLUX_JOB, "stuck", namespace)
            evicted = condition(stuck, EVICTED)
            assert evicted["reason"] == "StartTimeout"
            assert f"{2 - own} pods do not count" in evicted["message"]


async def add_small_pods(env: FluxEnvironment, namespace: str, own: int) -> None:
    """Wait until a job has so many pods of its own, and create small ready pods in place of the others."""

    def has_own_pods(job: Object) -> bool:
        status = job.get("status") or {}
        return "startTime" in status and (status.get("active") or 0) == own

    job = await env.wait_for(
        has_own_pods,
        "the Job has the pods that the ResourceQuota permits",
        name="stuck",
        namespace=namespace,
        gvk=JOB,
    )
    taken = [
        pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
        for pod in await env.pods(namespace)
    ]
    edit_pods = Rule("", "pods", ("create",))
    async with start_tenant_client(env, edit_pods, namespace=namespace) as tenant:
        for index in range(2):
            if str(index) not in taken:
                metadata = as_pod_of(job, index)
                metadata["finalizers"] = ["batch.kubernetes.io/job-tracking"]
                small = {"cpu": "1m", "memory": "1Mi"}
                await tenant.create(small_pod(f"small-{index}", metadata, small, namespace))
    await env.wait_for(
        lambda obj: condition(obj, "JobRunning").get("status") == "True",
        "the brokers are ready",
        name="stuck",
        namespace=namespace,
        gvk=MINICLUSTER,
    )


async def test_small_pod_in_place_of_the_lead_broker_keeps_no_quota_after_the_command(
    env: FluxEnvironment,
) -> None:
    """The exit code outlives the pod, and the Job does not end while its pod with index 0 runs."""
    clock = SteppedClock()
    cpus = {"limits": {"cpu": "8"}, "requests": {"cpu": "8"}}
    running = {"pod": pod_annotations(phase="Running")}
    await replace_setup(env, resources={"cpu": "16"}, mini_cluster=running)
    async with run_flux_controllers(env, clock=clock):
        await env.create(flux_job("done", "attacker", size=2, resources=cpus))
        await env.wait_for(
            lambda obj: condition(obj, PODS_READY).get("reason") == BROKERS_READY,
            "the brokers are ready",
            name="done",
            namespace="attacker",
            gvk=FLUX_JOB,
        )
        ended = {"name": "done", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
        for pod in await env.pods("attacker"):
            status: Object = {"phase": "Succeeded"}
            if is_lead(pod):
                status = {"containerStatuses": [ended]}
            await env.client.patch_object(pod, {"status": status}, subresource="status")
        await env.wait_for(
            lambda obj: (obj.get("status") or {}).get("exitCode") == 0,
            "the exit code is known",
            name="done",
            namespace="attacker",
        )
        await env.create(resource_quota(**{"requests.cpu": "1"}))
        job = await env.get(JOB, "done", "attacker")
        edit_pods = Rule("", "pods", ("create", "delete"))
        async with start_tenant_client(env, edit_pods, namespace="attacker") as tenant:
            for pod in filter(is_lead, await env.pods("attacker")):
                await tenant.delete(POD, key_of(pod), grace_period_seconds=0)
            metadata = as_pod_of(job, 0)
            metadata["finalizers"] = ["batch.kubernetes.io/job-tracking"]
            await tenant.create(small_pod("small-0", metadata, {"cpu": "1m", "memory": "1Mi"}))
        await env.create(flux_job("first", "victim", size=1, resources=cpus))
        await wait_for_quota(env, "first", "victim", "InsufficientQuota")
        await pass_timeout(env, clock)
        await wait_for_quota(env, "first", "victim", "Admitted")
        done = await wait_for_quota(env, "done", "attacker", "Finished")
        assert condition(done, "Succeeded")["status"] == "True"


def is_lead(pod: Object) -> bool:
    """Return whether a pod is that of the lead broker."""
    return bool(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "0")


async def test_ready_brokers_of_a_part_of_the_pods_keep_no_quota_for_the_others(
    env: FluxEnvironment,
) -> None:
    clock = SteppedClock()
    await env.create(resource_quota(pods="1"))
    async with run_flux_controllers(env, clock=clock):
        await env.create(flux_job("stuck", "attacker", size=4, template={"minSize": 1}))
        await env.wait_for(
            lambda obj: condition(obj, "JobRunning").get("status") == "True",
            "enough brokers are ready",
            name="stuck",
            namespace="attacker",
        )
        await env.create(flux_job("first", "victim", size=4))
        await wait_for_quota(env, "first", "victim", "InsufficientQuota")
        await pass_timeout(env, clock)
        await wait_for_quota(env, "first", "victim", "Admitted")
        stuck = await wait_for_quota(env, "stuck", "attacker", "StartTimeout")
        assert "3 of 4 pods cannot be created" in condition(stuck, EVICTED)["message"]


GPUS = {"limits": {GPU: "1000"}, "requests": {GPU: "1000"}}
LITTLE = {"requests": {"cpu": "10m", "memory": "16Mi"}}


async def start_jobs_with_service(env: FluxEnvironment, resources: Object, *names: str) -> None:
    """Create jobs of one small broker whose service pods request 1,000 GPUs each, all that the FluxSetup has."""
    await replace_setup(
        env,
        resources={GPU: str(1000 * len(names))},
        mini_cluster={"pod": pod_annotations(phase="Running")},
    )
    services = [{"name": "web", "image": "example.com/any", "resources": resources}]
    for name in names:
        job = flux_job(name, "attacker", size=1, resources=LITTLE, template={"services": services})
        await env.create(job)
        await wait_for_quota(env, name, "attacker", "Admitted")


async def victim_waits(env: FluxEnvironment) -> None:
    """Create a job of another namespace that needs 8 of these GPUs."""
    gpus = {"limits": {GPU: "8"}, "requests": {GPU: "8"}}
    await env.create(flux_job("first", "victim", size=1, resources=gpus))
    await wait_for_quota(env, "first", "victim", "InsufficientQuota")


async def test_refused_service_pod_keeps_no_quota(env: FluxEnvironment) -> None:
    clock = SteppedClock()
    await env.create(resource_quota(**{f"requests.{GPU}": "8"}))
    async with run_flux_controllers(env, clock=clock):
        await start_jobs_with_service(env, GPUS, "stuck")
        await env.wait_for(
            lambda obj: condition(obj, "JobRunning").get("status") == "True",
            "the broker is ready",
            name="stuck",
            namespace="attacker",
        )
        await victim_waits(env)
        await env.wait_until_idle()
        clock.step(31)
        missing = await env.wait_for(
            lambda obj: condition(obj, PODS_READY).get("reason") == "PodsMissing",
            "the service pod is missing",
            name="stuck",
            namespace="attacker",
            gvk=FLUX_JOB,
        )
        message = condition(missing, PODS_READY)["message"]
        assert message.startswith("The service pod stuck-services does not exist: ")
        assert "exceeded quota: quota" in message
        await env.wait_until_idle()
        clock.step(301)
        await wait_for_quota(env, "first", "victim", "Admitted")
        stuck = await env.get(FLUX_JOB, "stuck", "attacker")
        assert condition(stuck, EVICTED)["reason"] == "StartTimeout"
        await env.wait_for_event("StartTimeout", "The service pod", namespace="attacker")


async def test_service_pod_that_ran_keeps_no_quota_for_gpus_that_only_it_requested(
    env: FluxEnvironment,
) -> None:
    """Service pods of three jobs: one has ended, one is deleted, and one is replaced by another pod."""
    clock = SteppedClock()
    names = ("ended", "deleted", "replaced")
    # The objects of a Job that has started are not created from a spec that was changed then.
    changed = [{"name": "web", "image": "example.com/other", "resources": GPUS}]
    rules = (
        Rule("", "pods", ("create", "delete")),
        Rule("flux-framework.org", "miniclusters", ("get", "patch")),
    )
    async with (
        run_flux_controllers(env, clock=clock),
        start_tenant_client(env, *rules, namespace="attacker") as tenant,
    ):
        await start_jobs_with_service(env, GPUS, *names)
        for name in names:
            await env.wait_for(
                lambda obj: condition(obj, PODS_READY).get("reason") == BROKERS_READY,
                "the broker is ready, and the service pod exists",
                name=name,
                namespace="attacker",
                gvk=FLUX_JOB,
            )
        pod = await env.get(POD, "ended-services", "attacker")
        await env.client.patch_object(pod, {"status": {"phase": "Succeeded"}}, subresource="status")
        for name in ("deleted", "replaced"):
            key = NamespacedName("attacker", name)
            await tenant.patch(MINICLUSTER, key, {"spec": {"services": changed}})
            await env.wait_until_idle()
            service = NamespacedName("attacker", f"{name}-services")
            await tenant.delete(POD, service, grace_period_seconds=0)
        await env.wait_until_removed(POD, "replaced-services", "attacker")
        cluster = await env.get(MINICLUSTER, "replaced", "attacker")
        owned = {
            "labels": {MINICLUSTER_LABEL: "replaced"},
            "ownerReferences": [owner_reference(cluster, controller=True)],
        }
        await tenant.create(small_pod("small", owned))
        await victim_waits(env)
        await pass_timeout(env, clock)
        await wait_for_quota(env, "first", "victim", "Admitted")
        for name in names:
            stuck = await env.get(FLUX_JOB, name, "attacker")
            assert condition(stuck, EVICTED)["reason"] == "StartTimeout", name
            assert f"The service pod {name}-services" in condition(stuck, EVICTED)["message"]


async def test_small_service_pod_that_has_ended_does_not_end_its_job(env: FluxEnvironment) -> None:
    clock = SteppedClock()
    async with run_flux_controllers(env, clock=clock):
        await start_jobs_with_service(env, LITTLE, "stuck")

        async def is_started() -> Object:
            pod = await env.get(POD, "stuck-services", "attacker")
            assert (pod.get("status") or {}).get("phase") == "Running"
            return pod

        pod = await eventually(is_started, "the service pod runs")
        await env.client.patch_object(pod, {"status": {"phase": "Succeeded"}}, subresource="status")
        await pass_timeout(env, clock)
        await env.wait_until_idle()
        job = await wait_for_quota(env, "stuck", "attacker", "Admitted")
        assert condition(job, PODS_READY)["reason"] == BROKERS_READY


async def test_smaller_minicluster_keeps_no_quota_for_the_default_size(
    env: FluxEnvironment,
) -> None:
    clock = SteppedClock()
    default = {"pod": pod_annotations(phase="Running"), "size": 4}
    await replace_setup(env, max_size=4, mini_cluster=default)
    await env.create(resource_quota(pods="1"))
    edit_clusters = Rule("flux-framework.org", "miniclusters", ("get", "patch"))
    async with (
        run_flux_controllers(env, clock=clock),
        start_tenant_client(env, edit_clusters, namespace="attacker") as tenant,
    ):
        await env.create(flux_job("stuck", "attacker", size=None))
        await wait_for_quota(env, "stuck", "attacker", "Admitted")

        async def has_pod() -> bool:
            return len(await env.pods("attacker")) == 1

        await eventually(has_pod, "one of four pods exists")
        smaller = {"spec": {"size": 1}}
        await tenant.patch(MINICLUSTER, NamespacedName("attacker", "stuck"), smaller)
        await env.create(flux_job("first", "victim", size=4))
        await wait_for_quota(env, "first", "victim", "InsufficientQuota")
        await pass_timeout(env, clock)
        await wait_for_quota(env, "first", "victim", "Admitted")
