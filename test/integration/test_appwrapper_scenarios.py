"""Lifecycle of AppWrappers whose pods are run by the embedded control plane, including faults and crashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import anyio
import pytest

from cfo.api.appwrapper.names import (
    ANNOTATION_PREFIX,
    APPWRAPPER,
    APPWRAPPER_LABEL,
    FIELD_MANAGER,
    FINALIZER,
)
from cfo.controllers import appwrapper
from cfo.controllers.appwrapper import readiness
from cfo.runtime.client.errors import APIError, TransportError
from cfo.runtime.client.transport import Transport
from cfo.runtime.controller.availability import AVAILABILITY_RULES
from cfo.runtime.manager.events import EVENT_RULES
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.kinds import CORE_EVENT, JOB, NODE, POD
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    controller_of,
    find_condition,
    is_deleting,
    name_of,
    new_object,
    uid_of,
)
from envtest import EmbeddedControlPlane
from envtest.faults import Fault
from test.support.appwrapper_environment import (
    CONTROLLERS,
    AppWrapperEnvironment,
    configuration,
    job,
    pod,
    run_appwrapper_controllers,
    settle,
    start_appwrapper_environment,
    state,
    wrapper,
)
from test.support.clocks import SteppedClock, WallClock
from test.support.faults import FastClock, FaultyTransport
from test.support.planes import local_config
from test.support.raycluster_environment import eventually
from test.support.sweeps import sampled, sampled_numbers
from test.support.tenant_clients import service_account_token

RESOURCE_QUOTA = GVK("", "v1", "ResourceQuota")
LIMIT_RANGE = GVK("", "v1", "LimitRange")
SERVICE: Object = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]}}
DENY_JOBS_POLICY: Object = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "no-jobs"},
    "spec": {
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": ["batch"],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["jobs"],
                }
            ]
        },
        "validations": [{"expression": "false", "message": "not today", "reason": "Forbidden"}],
    },
}
DENY_JOBS_BINDING: Object = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicyBinding",
    "metadata": {"name": "no-jobs"},
    "spec": {"policyName": "no-jobs", "validationActions": ["Deny"]},
}


@pytest.fixture
async def environment() -> AsyncIterator[AppWrapperEnvironment]:
    async with start_appwrapper_environment(controllers=CONTROLLERS) as environment:
        await environment.create_namespace()
        yield environment


async def end_pod(
    environment: AppWrapperEnvironment, phase: str, namespace: str = "ns", **annotations: str
) -> Object:
    """Wait for the only running pod of the AppWrapper, and let it end in ``phase``."""

    async def check() -> Object | None:
        found = await environment.client.list(
            POD, namespace=namespace, label_selector=APPWRAPPER_LABEL
        )
        running = [
            item
            for item in found
            if not is_deleting(item) and item["status"].get("phase") == "Running"
        ]
        return running[0] if len(running) == 1 else None

    running_pod: Object = await eventually(check, "one running pod")
    annotation_values = {
        f"envtest.cfo/{key.replace('_', '-')}": value
        for key, value in {"phase": phase, **annotations}.items()
    }
    await environment.client.patch(
        POD,
        NamespacedName(namespace, name_of(running_pod)),
        {"metadata": {"annotations": annotation_values}},
    )
    return running_pod


def condition(obj: Object, kind: str) -> dict[str, Any]:
    found = find_condition(obj["status"]["conditions"], kind)
    assert found is not None
    return dict(found)


async def test_job_runs_until_it_succeeds(environment: AppWrapperEnvironment) -> None:
    async with run_appwrapper_controllers(environment) as manager:
        await environment.create(wrapper(job(phase="Succeeded", finish_after="0.2", parallelism=2)))
        await environment.wait_for_phase("Succeeded")
        await environment.wait_until_idle()
        await environment.wait_for_phases("", "Resuming", "Running", "Succeeded")
        assert await environment.object_names(JOB) == ["j"]
        assert len(await environment.object_names(POD)) == 2
        writes = [
            request
            for request in environment.requests()
            if request[0] in ("apply", "create", "patch", "delete")
        ]
        assert len(writes) <= 8, writes
        samples = {
            sample.labels["phase"]: sample.value
            for metric in manager.metrics.registry.collect()
            for sample in metric.samples
            if sample.name == "appwrapper_phase_total"
        }
        assert samples == dict.fromkeys(["Resuming", "Running", "Succeeded"], 1.0)
        now = manager.metrics.registry.get_sample_value
        assert now("appwrapper_status_phase", {"namespace": "ns", "phase": "Succeeded"}) == 1


async def test_job_with_sequential_pods_succeeds_with_the_last_pod(
    environment: AppWrapperEnvironment,
) -> None:
    component = job(phase="Succeeded", finish_after="0.1")
    component["spec"] |= {"completions": 3, "parallelism": 1}
    async with run_appwrapper_controllers(environment):
        await environment.create(wrapper(component))
        done = await environment.wait_for_phase("Succeeded")
        assert condition(done, "QuotaReserved")["message"].startswith("3 pods succeeded")


async def test_job_that_completes_after_a_failed_pod_is_not_run_again(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, clock=SteppedClock()):
        component = job()
        component["spec"]["backoffLimit"] = 1
        await environment.create(wrapper(component, failureGracePeriodDuration="0s"))
        failed = await end_pod(environment, "Failed")
        await environment.wait_for_condition("Unhealthy", "False", "RetriedByComponent")

        async def is_replaced() -> bool:
            if isinstance(environment.plane, EmbeddedControlPlane):
                await environment.plane.advance(30)  # past the delay before a Job replaces a pod
            return len(await environment.object_names(POD)) == 2

        await eventually(is_replaced, "the Job replaces the failed pod")
        await end_pod(environment, "Succeeded")
        done = await environment.wait_for_phase("Succeeded")
        assert name_of(failed) in await environment.object_names(POD)
        assert (
            condition(done, "QuotaReserved")["message"]
            == "All components with pods report that they have completed"
        )


async def test_quota_is_kept_while_a_component_can_still_create_pods(
    environment: AppWrapperEnvironment,
) -> None:
    """A Deployment is deleted in the foreground, because its ReplicaSet creates pods as long as it exists."""
    component: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"app": "d"}},
            "template": {
                "metadata": {"labels": {"app": "d"}},
                "spec": {"containers": [{"name": "main", "image": "busybox"}]},
            },
        },
    }
    async with run_appwrapper_controllers(environment):
        await environment.create(wrapper(component))
        await environment.wait_for_condition("PodsReady", "True")
        (replica_set,) = await environment.client.list(
            GVK("apps", "v1", "ReplicaSet"), namespace="ns"
        )
        await environment.patch(replica_set, {"metadata": {"finalizers": ["example.com/wait"]}})
        await environment.set_suspend(True)
        await environment.wait_for_phase("Suspending")

        async def pods_are_deleted() -> bool:
            assert await environment.object_names(POD) == []
            return True

        await eventually(pods_are_deleted, "the pods are deleted")
        await environment.wait_until_idle()
        found = await environment.get_wrapper()
        assert condition(found, "QuotaReserved")["status"] == "True"
        await environment.patch(replica_set, {"metadata": {"finalizers": None}})
        found = await environment.wait_for_phase("Suspended")
        assert condition(found, "QuotaReserved")["status"] == "False"


async def test_components_are_deleted_when_success_ttl_expires(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment):
        await environment.create(wrapper(pod(phase="Succeeded"), successTTLDuration="700ms"))
        succeeded = await environment.wait_for_phase("Succeeded")
        assert await environment.object_names(POD) == ["p"]
        finished = await environment.wait_for_condition("ResourcesDeployed", "False", "Succeeded")
        assert await environment.object_names(POD) == []
        since, until = (
            condition(obj, kind)["lastTransitionTime"]
            for obj, kind in ((succeeded, "QuotaReserved"), (finished, "ResourcesDeployed"))
        )
        assert 0.7 <= seconds(since, until) < 5


def seconds(since: str, until: str) -> float:
    return (datetime.fromisoformat(until) - datetime.fromisoformat(since)).total_seconds()


async def test_failed_pod_is_retried_after_pause_with_new_generated_name(
    environment: AppWrapperEnvironment,
) -> None:
    component = pod("")
    component["metadata"] = {"generateName": "try-", "annotations": {}}
    async with run_appwrapper_controllers(environment):
        await environment.create(wrapper(component, retryPausePeriodDuration="400ms"))
        first = await end_pod(environment, "Failed")
        reset = await environment.wait_for_condition("ResourcesDeployed", "False", "Resetting")
        assert state(reset)[:2] == ("Resetting", 1)
        await environment.wait_for_phase("Running")
        second = await end_pod(environment, "Succeeded")
        done = await environment.wait_for_phase("Succeeded")
        assert name_of(first) != name_of(second)
        assert done["status"]["componentStatus"][0]["name"] == name_of(second)
        resumed = next(
            item for item in environment.states["ns", "w"] if item[0] == "Resuming" and item[1] == 1
        )
        assert ("ResourcesDeployed", "True", "Resuming", "Reset complete; resuming") in resumed[2]
        (failure,) = [item for item in await environment.events() if item[1] == "Unhealthy"]
        assert failure[2].startswith(
            f"FoundFailedPods: 1 failed pods: {name_of(first)} (container "
        )


async def test_terminal_exit_code_fails_without_retry(environment: AppWrapperEnvironment) -> None:
    async with run_appwrapper_controllers(environment):
        await environment.create(wrapper(pod(), terminalExitCodes="3, 4"))
        await end_pod(environment, "Failed", exit_code="4")
        failed = await environment.wait_for_condition("QuotaReserved", "False", "Failed")
        assert state(failed)[:2] == ("Failed", 0)
        assert await environment.object_names(POD) == []


async def test_appwrapper_fails_when_retry_limit_is_reached(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment):
        await environment.create(wrapper(pod(phase="Failed"), retryLimit="2"))
        failed = await environment.wait_for_condition("QuotaReserved", "False", "Failed")
        assert state(failed)[:2] == ("Failed", 2)
        assert environment.observed_phases().count("Resuming") == 3


async def test_retries_are_reset_after_suspend_and_resume(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment):
        await environment.create(wrapper(job(), retryLimit="5"))
        await end_pod(environment, "Failed")
        await environment.wait_until(lambda obj: state(obj)[:2] == ("Running", 1), "the retry")
        await environment.set_suspend(True)
        await environment.wait_for_phase("Suspended")
        assert await environment.object_names(POD) == await environment.object_names(JOB) == []
        await environment.set_suspend(False)
        resumed = await environment.wait_until(
            lambda obj: state(obj)[:2] == ("Running", 0), "the second admission"
        )
        assert FINALIZER in resumed["metadata"]["finalizers"]
        await end_pod(environment, "Succeeded")
        await environment.wait_for_phase("Succeeded")


async def test_suspend_during_retry_pause_takes_effect_immediately(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment):
        await environment.create(wrapper(pod(phase="Failed"), retryPausePeriodDuration="1h"))
        await environment.wait_for_condition("ResourcesDeployed", "False", "Resetting")
        await environment.set_suspend(True)
        await environment.wait_for_phase("Suspended")


async def test_pause_that_began_while_the_clock_was_ahead_begins_when_it_is_right(
    environment: AppWrapperEnvironment,
) -> None:
    clock = WallClock()
    clock.step(timedelta(hours=3))
    async with run_appwrapper_controllers(environment, clock=clock):
        created = await environment.create(
            wrapper(pod(phase="Failed"), retryLimit="1", retryPausePeriodDuration="1h")
        )
        await environment.wait_for_condition("ResourcesDeployed", "False", "Resetting")
        clock.step(timedelta(hours=-3))
        pause = {f"{ANNOTATION_PREFIX}retryPausePeriodDuration": "0s"}
        await environment.patch(created, {"metadata": {"annotations": pause}})
        await environment.wait_for_phase("Failed")
        assert environment.observed_phases().count("Resuming") == 2


async def test_eviction_from_marked_node_does_not_count_as_retry(
    environment: AppWrapperEnvironment,
) -> None:
    gpu = pod()
    gpu["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    async with run_appwrapper_controllers(environment):
        await environment.create(wrapper(gpu, retryLimit="0"))
        await environment.wait_for_condition("PodsReady", "True")
        key = NamespacedName("", "envtest")
        await environment.client.patch(
            NODE, key, {"metadata": {"labels": {"autopilot.ibm.com/gpuhealth": "EVICT"}}}
        )
        await environment.wait_for_phase("Resetting", "Resuming")
        await environment.client.patch(
            NODE, key, {"metadata": {"labels": {"autopilot.ibm.com/gpuhealth": None}}}
        )
        rescheduled = await environment.wait_until(
            lambda obj: (
                state(obj)[0] == "Running"
                and ("Unhealthy", "False") in {item[:2] for item in state(obj)[2]}
            ),
            "the rescheduled pod",
        )
        assert state(rescheduled)[1] == 0
        assert "Failed" not in environment.observed_phases()
        message = "Workload contains pods using NoExecute resources on Nodes: envtest"
        assert ("Warning", "Unhealthy", message) in await environment.events()


async def test_deleted_pod_may_be_replaced_within_grace_period(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment):
        await environment.create(
            wrapper(job(), warmupGracePeriodDuration="1h", admissionGracePeriodDuration="1h")
        )
        await environment.wait_for_condition("PodsReady", "True")
        (name,) = await environment.object_names(POD)
        await environment.client.delete(POD, NamespacedName("ns", name), grace_period_seconds=0)
        await environment.wait_until(
            lambda obj: len([s for s in environment.states["ns", "w"] if s[0] == "Running"]) > 2,
            "the missing pod",
        )
        await environment.wait_for_condition("PodsReady", "True")
        assert environment.observed_phases()[-1] == "Running"


Preparation = Callable[[AppWrapperEnvironment, str], Awaitable[None]]


async def _do_nothing(environment: AppWrapperEnvironment, namespace: str) -> None:
    """Do nothing: the AppWrapper reaches the phase automatically."""


async def _suspend_when_ready(environment: AppWrapperEnvironment, namespace: str) -> None:
    await environment.wait_for_condition("PodsReady", "True", namespace=namespace)
    await environment.set_suspend(True, namespace=namespace)


PHASES: dict[str, tuple[Object, Preparation]] = {
    "Suspended": (wrapper(job(), suspend=True), _do_nothing),
    "Running": (wrapper(job()), _do_nothing),
    "Resetting": (wrapper(pod(phase="Failed"), retryPausePeriodDuration="1h"), _do_nothing),
    "Suspending": (wrapper(pod(stop_after="1")), _suspend_when_ready),
    "Failed": (
        wrapper(pod(phase="Failed"), retryLimit="0", deletionOnFailureGracePeriodDuration="1h"),
        _do_nothing,
    ),
    "Succeeded": (wrapper(job(phase="Succeeded")), _do_nothing),
}


async def test_deletion_in_any_phase_removes_all_components(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment):
        for phase, (obj, prepare) in PHASES.items():
            namespace = await environment.create_namespace(phase.lower())
            obj = {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}
            await environment.create(obj)
            await prepare(environment, namespace)
            await environment.wait_for_phase(phase, namespace=namespace)
            await environment.delete(obj)
            await environment.wait_until_deleted(namespace=namespace)

            async def check(namespace: str = namespace) -> bool:
                pods = await environment.object_names(POD, namespace)
                return not pods and not await environment.object_names(JOB, namespace)

            await eventually(check, f"all components are deleted after {phase}")


async def test_deletion_after_interrupted_creation_removes_all_components(
    environment: AppWrapperEnvironment,
) -> None:
    """The operator crashed after it created components and before it wrote them to the status."""
    obj = wrapper(pod(""), job())
    obj["spec"]["components"][0]["template"]["metadata"] = {"generateName": "gen-"}
    await environment.create(obj)
    await crash(
        environment, after=4, done=anyio.sleep_forever
    )  # writes: finalizer, status, pod, job
    assert state(await environment.get_wrapper())[0] == "Resuming"
    assert len(await environment.object_names(JOB)) == 1
    await environment.delete(obj)
    async with run_appwrapper_controllers(environment):
        await environment.wait_until_deleted()

        async def check() -> bool:
            return not await environment.object_names(POD) and not await environment.object_names(
                JOB
            )

        await eventually(check, "the deletion of all components")


async def test_existing_object_of_same_name_fails_appwrapper_and_is_kept(
    environment: AppWrapperEnvironment,
) -> None:
    foreign = await environment.create({**job("j"), "metadata": {"name": "j", "namespace": "ns"}})
    async with run_appwrapper_controllers(environment):
        await environment.create(wrapper(pod("before"), job("j")))
        failed = await environment.wait_for_condition("QuotaReserved", "False", "Failed")
        message = (
            "error creating components: resource j exists, but is not controlled by appwrapper: "
            "Job j has no controller"
        )
        assert condition(failed, "Unhealthy")["message"] == message
        assert ("Warning", "Unhealthy", f"CreateFailed: {message}") in await environment.events()
        await environment.delete(failed)
        await environment.wait_until_deleted()
        found = await environment.get(JOB, "j")
        assert uid_of(found) == uid_of(foreign)
        assert not is_deleting(found)
        assert "before" not in await environment.object_names(POD)


async def test_forceful_deletion_removes_only_owned_pods(
    environment: AppWrapperEnvironment,
) -> None:
    slow_to_delete = wrapper(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "d"}},
                "template": {
                    "metadata": {
                        "labels": {"app": "d"},
                        "annotations": {"envtest.cfo/stop-after": "3600"},
                    },
                    "spec": {
                        "terminationGracePeriodSeconds": 3600,
                        "containers": [{"name": "main", "image": "busybox"}],
                    },
                },
            },
        },
        forcefulDeletionGracePeriodDuration="500ms",
    )
    async with run_appwrapper_controllers(environment):
        stranger = pod("stranger", labels={APPWRAPPER_LABEL: "w"})
        await environment.create(slow_to_delete)
        await environment.wait_for_condition("PodsReady", "True")
        await environment.create(
            {**stranger, "metadata": {**stranger["metadata"], "namespace": "ns"}}
        )
        await environment.set_suspend(True)
        await environment.wait_for_phase("Suspended")
        assert await environment.object_names(POD) == ["stranger"]
        assert not is_deleting(await environment.get(POD, "stranger"))
        await environment.wait_for_event("ForcefulDeletion", "exceeded its grace period of 500ms")


async def test_conditions_of_other_managers_are_kept(environment: AppWrapperEnvironment) -> None:
    async with run_appwrapper_controllers(environment):
        await environment.create(wrapper(pod()))
        await environment.wait_for_condition("PodsReady", "True")
        foreign = {
            "type": "example.com/Seen",
            "status": "True",
            "reason": "Checked",
            "message": "written by another client",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        await environment.client.with_field_manager("other").apply(
            {
                "apiVersion": APPWRAPPER.api_version,
                "kind": APPWRAPPER.kind,
                "metadata": {"namespace": "ns", "name": "w"},
                "status": {"conditions": [foreign]},
            },
            subresource="status",
        )
        await end_pod(environment, "Succeeded")
        done = await environment.wait_for_phase("Succeeded")
        assert condition(done, "example.com/Seen") == foreign


async def test_appwrapper_managed_by_another_controller_is_ignored(
    environment: AppWrapperEnvironment,
) -> None:
    foreign = wrapper(pod())
    foreign["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    async with run_appwrapper_controllers(environment):
        await environment.create(foreign)
        await environment.create(wrapper(pod("q", phase="Succeeded"), name="ours"))
        await environment.wait_for_phase("Succeeded", name="ours")
        assert "status" not in await environment.get_wrapper()
        assert await environment.object_names(POD) == ["q"]


async def test_unchanged_running_appwrapper_causes_no_requests(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment):
        await environment.create(wrapper(job()))
        await environment.wait_for_condition("PodsReady", "True")
        await environment.wait_until_idle()
        environment.clear_requests()
        await settle(0.3)
        assert environment.requests() == []
    async with run_appwrapper_controllers(environment):
        await environment.wait_until_idle()
        requests = [request for request in environment.requests() if request[0] != "discover"]
        assert requests == []


Callback = Callable[[], Awaitable[object]]


async def crash(environment: AppWrapperEnvironment, *, after: int, done: Callback) -> bool:
    """Run the controllers until they crash after ``after`` writes, or until ``done`` returns.

    Return whether they crashed.
    """
    async with FaultyTransport(
        local_config(environment.plane),
        observe=environment.exchanges.append,
        crash_after_writes=after,
    ) as transport:
        manager = Manager(transport, ManagerOptions(field_manager=FIELD_MANAGER))
        appwrapper.setup(manager, configuration())
        async with anyio.create_task_group() as tasks:

            async def stop_after_crash() -> None:
                await transport.crashed.wait()
                tasks.cancel_scope.cancel()

            async def stop_when_done() -> None:
                await manager.started()
                await done()
                tasks.cancel_scope.cancel()

            tasks.start_soon(stop_after_crash)
            tasks.start_soon(stop_when_done)
            tasks.start_soon(manager.run)
    return transport.crashed.is_set()


def count_creations(environment: AppWrapperEnvironment) -> Counter[str]:
    """Return the number of objects of each resource that the operator has created since the requests were cleared.

    Events are not counted.
    """
    return Counter(
        exchange.resource
        for exchange in environment.exchanges
        if exchange.verb == "create"
        and exchange.code == "201"
        and "events" not in exchange.resource
    )


@pytest.mark.sweep
async def test_crash_after_any_write_leads_to_same_final_state(
    environment: AppWrapperEnvironment,
) -> None:
    """Each iteration uses another namespace; nothing is created twice, and the AppWrapper owns each component."""
    final_states: set[Any] = set()
    for after in sampled_numbers():
        namespace = await environment.create_namespace(f"ns-{after}")
        component = pod("", phase="Succeeded", finish_after="0.1")
        component["metadata"] |= {"generateName": "gen-"}
        del component["metadata"]["name"]
        obj = wrapper(job(phase="Succeeded", finish_after="0.1"), component, namespace=namespace)
        await environment.create(obj)
        crashed = await crash(
            environment,
            after=after,
            done=partial(environment.wait_for_phase, "Succeeded", namespace=namespace),
        )
        async with run_appwrapper_controllers(environment):
            done = await environment.wait_for_phase("Succeeded", namespace=namespace)
            await environment.wait_for_phases(
                "", "Resuming", "Running", "Succeeded", namespace=namespace
            )
            # whether PodsReady was observed before the pods succeeded depends on timing
            final_states.add(
                (state(done)[:2], tuple(item for item in state(done)[2] if item[0] != "PodsReady"))
            )
            pods = await environment.client.list(POD, namespace=namespace)
            owned_pods = [
                item for item in pods if (controller_of(item) or {}).get("uid") == uid_of(done)
            ]
            assert [name_of(item) for item in owned_pods] == [
                done["status"]["componentStatus"][1]["name"]
            ]
            assert len(pods) == 2, [name_of(item) for item in pods]
            assert await environment.object_names(JOB, namespace) == ["j"]
        if not crashed:
            break
    assert len(final_states) == 1
    assert after >= 5, (
        "the operator writes more often than that"
    )  # pods that end early save one or two writes


@pytest.mark.sweep
async def test_suspension_continues_after_crash(environment: AppWrapperEnvironment) -> None:
    for after in sampled(range(1, 6)):
        namespace = await environment.create_namespace(f"ns-{after}")
        obj = wrapper(job(), pod(), namespace=namespace)
        async with run_appwrapper_controllers(environment):
            await environment.create(obj)
            await environment.wait_for_condition("PodsReady", "True", namespace=namespace)
        await environment.set_suspend(True, namespace=namespace)
        with anyio.move_on_after(2):
            await crash(environment, after=after, done=anyio.sleep_forever)
        async with run_appwrapper_controllers(environment):
            found = await environment.wait_for_phase("Suspended", namespace=namespace)
            assert condition(found, "QuotaReserved")["reason"] == "Suspended"
            assert condition(found, "DeletingResources")["reason"] == "DeletionComplete"
            assert (
                await environment.object_names(POD, namespace)
                == await environment.object_names(JOB, namespace)
                == []
            )


async def test_rbac_rules_are_sufficient(environment: AppWrapperEnvironment) -> None:
    granted = [*appwrapper.RULES, *AVAILABILITY_RULES, *EVENT_RULES]
    token = await service_account_token(environment, *granted)
    async with run_appwrapper_controllers(environment, token=token):
        await environment.create(wrapper(job(), pod(), {**SERVICE, "metadata": {"name": "s"}}))
        await environment.wait_for_condition("PodsReady", "True")
        await environment.set_suspend(True)
        await environment.wait_for_phase("Suspended")
        await environment.set_suspend(False)
        await environment.wait_for_condition("PodsReady", "True")
        await environment.delete(await environment.get_wrapper())
        await environment.wait_until_deleted()
        denied = [exchange for exchange in environment.exchanges if exchange.code in ("401", "403")]
        assert not denied


async def test_denied_component_creation_is_retried(environment: AppWrapperEnvironment) -> None:
    """An admission policy acts as a quota: it denies the creation now and allows it later."""
    async with run_appwrapper_controllers(environment):
        await environment.create(DENY_JOBS_POLICY)
        await environment.create(DENY_JOBS_BINDING)
        await settle(0.2)
        await environment.create(wrapper(pod("first"), job("second")))
        await environment.wait_for_phase("Resuming")

        async def check() -> bool:
            components = (await environment.get_wrapper())["status"]["componentStatus"]
            (first,), (second,) = (item.get("conditions") or [{}] for item in components)
            assert first.get("status") == "True"
            assert (second.get("status"), second.get("reason")) == (
                "False",
                "ComponentCreationErrored",
            )
            assert "not today" in second["message"]
            return True

        await eventually(check, "the first is created, the second is denied")
        assert state(await environment.get_wrapper())[0] == "Resuming"
        await environment.delete(DENY_JOBS_BINDING)
        await environment.wait_for_phase("Running")
        assert await environment.object_names(JOB) == ["second"]
        assert len([name for name in await environment.object_names(POD) if name == "first"]) == 1


async def test_misspelled_field_of_a_component_is_reported(
    environment: AppWrapperEnvironment,
) -> None:
    misspelled = job()
    misspelled["spec"]["paralelism"] = 3
    async with run_appwrapper_controllers(environment):
        await environment.create(wrapper(misspelled, pod("other")))
        await environment.wait_for_phase("Running")
        first, second = (await environment.get_wrapper())["status"]["componentStatus"]
        dropped = find_condition(first["conditions"], "UnknownFields")
        assert dropped is not None
        assert dropped["message"] == 'unknown field "spec.paralelism"'
        assert find_condition(second["conditions"], "UnknownFields") is None

        async def check() -> list[Object]:
            events = await environment.client.list(CORE_EVENT, namespace="ns")
            return [event for event in events if event["reason"] == "ComponentWarning"]

        (event,) = await eventually(check, "an Event about the field")
        assert event["involvedObject"]["kind"] == "AppWrapper"
        assert event["message"] == (
            'The API server warns about Job j: unknown field "spec.paralelism"'
        )


def workload(kind: str) -> Object:
    """Return a Deployment or StatefulSet with one pod."""
    labels = {"app": "j"}
    template = {"metadata": {"labels": labels}, "spec": pod()["spec"] | {"restartPolicy": "Always"}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "j"}, "spec": spec}


def suspended_job() -> Object:
    """Return a Job that creates no pods."""
    found = job()
    found["spec"]["suspend"] = True
    return found


@pytest.mark.parametrize(
    ("component", "limit", "dry_runs"),
    [
        (job(), "quota", 1),
        (workload("StatefulSet"), "quota", 1),
        (workload("Deployment"), "quota", 0),
        (job(), "LimitRange", 1),
        (suspended_job(), "suspend", 0),
    ],
    ids=["job", "statefulset", "deployment", "limit-range", "suspended"],
)
async def test_reason_of_refused_pods_is_reported_at_the_cost_of_two_requests(
    environment: AppWrapperEnvironment,
    monkeypatch: pytest.MonkeyPatch,
    component: Object,
    limit: str,
    dry_runs: int,
) -> None:
    monkeypatch.setattr(readiness, "_USUAL_CREATION", timedelta(seconds=1))
    reason = "FailedCreate"
    if limit == "suspend":
        reason = "ComponentSuspended"
        expected = "is suspended (spec.suspend): resume it, or suspend the AppWrapper instead"
    elif limit == "quota":
        hard = {"pods": "0"}
        quota = new_object(RESOURCE_QUOTA, "none", "ns", spec={"hard": hard})
        created = await environment.client.create(quota)
        counted = {"hard": hard, "used": {"pods": "0"}}
        await environment.client.update({**created, "status": counted}, subresource="status")
        expected = "exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0"
    else:
        limits = [{"type": "Container", "min": {"cpu": "1"}, "default": {"cpu": "1"}}]
        limits[0]["defaultRequest"] = {"cpu": "1"}
        await environment.client.create(new_object(LIMIT_RANGE, "l", "ns", spec={"limits": limits}))
        component["spec"]["template"]["spec"]["containers"][0]["resources"] = {
            "requests": {"cpu": "100m"}
        }
        expected = "minimum cpu usage per Container is 1, but request is 100m"
    async with run_appwrapper_controllers(environment, clock=SteppedClock()):
        environment.clear_requests()
        settings = {"retryLimit": "1", "admissionGracePeriodDuration": "3s"}
        await environment.create(wrapper(component, retryPausePeriodDuration="0s", **settings))
        found = await environment.wait_until(
            lambda obj: expected in str(obj.get("status")), "the reason in the status"
        )
        ready = condition(found, "PodsReady")
        assert ready["status"] == "False"
        kind = component["kind"]
        assert ready["message"].startswith(f"A pod cannot start: {reason}: {kind} j")
        failed = await environment.wait_for_phase("Failed")
        assert f"1 pods missing ({reason}: {kind} j" in condition(failed, "Unhealthy")["message"]
        assert expected in condition(failed, "Unhealthy")["message"]
        attempts = 2
        requests = Counter(environment.requests())
        assert requests["create", "pods"] == attempts * dry_runs
        assert requests["get", f"{kind.lower()}s"] <= attempts * 2, "one confirms the absence"

        async def check() -> list[str]:
            events = await environment.client.list(CORE_EVENT, namespace="ns")
            return [each["message"] for each in events if each["reason"] == "PodsNotReady"]

        for message in await eventually(check, "an Event with the reason"):
            assert expected in message


async def test_permanently_denied_creation_removes_all_components(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment):
        await environment.create(DENY_JOBS_POLICY)
        await environment.create(DENY_JOBS_BINDING)
        await settle(0.2)
        await environment.create(
            wrapper(
                pod("first"), job("second"), admissionGracePeriodDuration="300ms", retryLimit="0"
            )
        )
        failed = await environment.wait_for_condition("QuotaReserved", "False", "Failed")
        assert "not today" in condition(failed, "Unhealthy")["message"]
        assert await environment.object_names(POD) == await environment.object_names(JOB) == []


async def test_deletion_during_component_creation(environment: AppWrapperEnvironment) -> None:
    async with run_appwrapper_controllers(environment):
        await environment.create(DENY_JOBS_POLICY)
        await environment.create(DENY_JOBS_BINDING)
        await settle(0.2)
        obj = await environment.create(wrapper(pod("first"), job("second")))
        await environment.wait_for_phase("Resuming")
        await eventually(lambda: environment.object_names(POD), "the first component")
        await environment.delete(obj)
        await environment.wait_until_deleted()
        assert await environment.object_names(POD) == []


async def test_component_without_label_is_deleted_on_suspend(
    environment: AppWrapperEnvironment,
) -> None:
    """The component is no longer watched, but it is deleted with the others."""
    async with run_appwrapper_controllers(environment):
        await environment.create(wrapper(job(), pod()))
        await environment.wait_for_condition("PodsReady", "True")
        await environment.patch(
            await environment.get(JOB, "j"), {"metadata": {"labels": {APPWRAPPER_LABEL: None}}}
        )
        await environment.wait_until_idle()
        assert state(await environment.get_wrapper())[0] == "Running"
        await environment.set_suspend(True)
        await environment.wait_for_phase("Suspended")
        assert await environment.object_names(JOB) == []


async def test_creation_waits_for_components_of_previous_appwrapper(
    environment: AppWrapperEnvironment,
) -> None:
    """An AppWrapper of the same name was deleted, and its component is not garbage collected yet."""
    former_owner = {
        "apiVersion": APPWRAPPER.api_version,
        "kind": APPWRAPPER.kind,
        "name": "w",
        "uid": "11111111-2222-3333-4444-555555555555",
        "controller": True,
    }
    held_pod = {
        **pod("p"),
        "metadata": {"name": "p", "namespace": "ns", "finalizers": ["example.com/hold"]},
    }
    component = await environment.create(held_pod)
    await environment.patch(component, {"metadata": {"ownerReferences": [former_owner]}})
    async with run_appwrapper_controllers(environment):
        await environment.create(wrapper(pod("p")))
        await environment.wait_for_phase("Resuming")
        await environment.wait_until(
            lambda obj: (
                "componentStatus" in obj["status"]
                and any("conditions" in item for item in obj["status"]["componentStatus"])
            ),
            "the first attempt",
        )
        await environment.patch(component, {"metadata": {"finalizers": None}})
        await environment.wait_for_phase("Running")
        assert (controller_of(await environment.get(POD, "p")) or {})["uid"] == uid_of(
            await environment.get_wrapper()
        )


async def test_status_of_go_operator_is_continued(environment: AppWrapperEnvironment) -> None:
    """The status is as the Go operator writes it: times in whole seconds, its spelling and its field manager."""
    old = await environment.create(wrapper(pod(), suspend=True))
    now = "2026-01-01T00:00:00Z"

    def status_condition(kind: str, status: str, reason: str) -> dict[str, str]:
        return {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": "",
            "lastTransitionTime": now,
        }

    status = {
        "phase": "Suspended",
        "resettingCount": 2,
        "conditions": [
            status_condition("QuotaReserved", "False", "Suspended"),
            status_condition("ResourcesDeployed", "False", "Suspended"),
        ],
        "componentStatus": [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": "p",
                "podSets": [{"path": "template", "replicas": 1}],
                "conditions": [status_condition("ResourcesDeployed", "False", "CompononetDeleted")],
            }
        ],
    }
    await environment.client.with_field_manager("codeflare-operator").patch(
        APPWRAPPER, NamespacedName("ns", "w"), {"status": status}, subresource="status"
    )
    async with run_appwrapper_controllers(environment):
        await environment.wait_until_idle()
        assert [item for item in environment.requests() if item[0] == "apply"] == [], (
            "the status must not be written"
        )
        await environment.set_suspend(False)
        found = await environment.wait_for_condition("PodsReady", "True")
        assert state(found)[:2] == ("Running", 0)
        assert uid_of(found) == uid_of(old)


@pytest.mark.sweep
async def test_crash_during_retries_leads_to_same_final_state(
    environment: AppWrapperEnvironment,
) -> None:
    """The operator crashes after each write of an AppWrapper that fails twice."""
    final_states: set[Any] = set()
    for after in sampled_numbers():
        namespace = await environment.create_namespace(f"ns-{after}")
        finished = partial(
            environment.wait_for_condition, "QuotaReserved", "False", "Failed", namespace=namespace
        )
        environment.clear_requests()
        await environment.create(wrapper(pod(phase="Failed"), namespace=namespace, retryLimit="1"))
        crashed = await crash(environment, after=after, done=finished)
        before = count_creations(environment)
        async with run_appwrapper_controllers(environment):
            failed = await finished()
            final_states.add(
                (
                    state(failed)[:2],
                    tuple(item for item in state(failed)[2] if item[0] != "PodsReady"),
                )
            )
            assert await environment.object_names(POD, namespace) == []
            assert before + count_creations(environment) == {"pods": 2}, f"after {after} writes"
        if not crashed:
            break
    assert len(final_states) == 1, final_states
    assert after > 12, "the operator writes more often than that"


@pytest.mark.sweep
async def test_deletion_continues_after_crash(environment: AppWrapperEnvironment) -> None:
    for after in sampled(range(1, 5)):
        namespace = await environment.create_namespace(f"ns-{after}")
        obj = wrapper(job(), pod(), namespace=namespace)
        async with run_appwrapper_controllers(environment):
            await environment.create(obj)
            await environment.wait_for_condition("PodsReady", "True", namespace=namespace)
        await environment.delete(obj)
        await crash(
            environment,
            after=after,
            done=partial(environment.wait_until_deleted, namespace=namespace),
        )
        async with run_appwrapper_controllers(environment):
            await environment.wait_until_deleted(namespace=namespace)

            async def check(namespace: str = namespace) -> bool:
                return not await environment.object_names(
                    POD, namespace
                ) and not await environment.object_names(JOB, namespace)

            await eventually(check, "the deletion of all components")


async def test_duplicate_and_reordered_watch_events_are_harmless(
    environment: AppWrapperEnvironment,
) -> None:
    async with FaultyTransport(
        local_config(environment.plane),
        observe=environment.exchanges.append,
        repeat_probability=0.5,
        seed=7,
    ) as transport:
        async with run_appwrapper_controllers(environment, transport=transport):
            for number in range(3):
                await environment.create(
                    wrapper(job(f"j-{number}", phase="Succeeded"), name=f"w-{number}")
                )
            for number in range(3):
                await environment.wait_for_phase("Succeeded", name=f"w-{number}")
                await environment.wait_for_phases(
                    "", "Resuming", "Running", "Succeeded", name=f"w-{number}"
                )
        assert count_creations(environment) == {"jobs.batch": 3}


@pytest.mark.sweep
@pytest.mark.parametrize(
    "fault",
    sampled([{"code": 500}, {"code": 429, "retry_after": 0}, {"reset": True}, {"code": 409}]),
)
async def test_api_server_faults_cause_no_duplicate_components(
    environment: AppWrapperEnvironment, fault: dict[str, Any]
) -> None:
    """Each kind of write fails a few times before it takes effect, and the watch breaks repeatedly."""
    assert isinstance(environment.plane, EmbeddedControlPlane)
    for resources in (("appwrappers",), ("appwrappers/status",), ("jobs",)):
        environment.plane.faults.add(
            Fault(verbs=("create", "patch", "delete"), resources=resources, count=4, **fault)
        )
    environment.plane.faults.add(
        Fault(verbs=("watch",), resources=("appwrappers", "jobs", "pods"), cut_after=3, count=6)
    )
    operator = Transport(local_config(environment.plane), observe=environment.exchanges.append)
    async with (
        operator,
        run_appwrapper_controllers(environment, transport=operator, clock=FastClock()),
    ):
        for number in range(3):

            async def created(number: int = number) -> bool:
                try:
                    await environment.create(
                        wrapper(job(f"j-{number}", phase="Succeeded"), name=f"w-{number}")
                    )
                except (APIError, TransportError):
                    return False
                return True

            await eventually(created, "an AppWrapper")
        for number in range(3):
            await environment.wait_for_phase("Succeeded", name=f"w-{number}")
        assert await environment.object_names(JOB) == ["j-0", "j-1", "j-2"]
        assert count_creations(environment) == {"jobs.batch": 3}


async def test_components_outside_label_selector_are_deleted(
    environment: AppWrapperEnvironment,
) -> None:
    """With a ``labelSelector``, the informers of the selected kinds do not contain every component."""
    obj = wrapper(job(), pod())
    obj["metadata"]["labels"] = {"mine": "yes"}
    async with Transport(local_config(environment.plane)) as transport:
        options = ManagerOptions(
            field_manager=FIELD_MANAGER, selectors={APPWRAPPER: "mine=yes", JOB: "mine=yes"}
        )
        manager = Manager(transport, options)
        appwrapper.setup(manager, configuration())
        async with manager:
            await manager.started()
            await environment.create(obj)
            await environment.wait_for_condition("PodsReady", "True")
            held_job = await environment.get(JOB, "j")
            await environment.patch(held_job, {"metadata": {"finalizers": ["example.com/hold"]}})
            await environment.set_suspend(True)
            await environment.wait_for_condition("DeletingResources", "True")
            await settle(0.3)
            assert state(await environment.get_wrapper())[0] == "Suspending"
            await environment.patch(held_job, {"metadata": {"finalizers": None}})
            await environment.wait_for_phase("Suspended")


async def test_appwrapper_with_unknown_phase_is_ignored_and_others_continue(
    environment: AppWrapperEnvironment,
) -> None:
    unknown_phase = await environment.create(wrapper(pod("odd"), name="odd", suspend=True))
    await environment.patch(unknown_phase, {"status": {"phase": "Dancing"}}, subresource="status")
    async with run_appwrapper_controllers(environment) as manager:
        await environment.create(wrapper(pod("p", phase="Succeeded")))
        await environment.wait_for_phase("Succeeded")
        assert state(await environment.get_wrapper("odd"))[0] == "Dancing"
        errors = manager.metrics.registry.get_sample_value(
            "controller_runtime_terminal_reconcile_errors_total", {"controller": "AppWrapper"}
        )
        assert errors == 1
