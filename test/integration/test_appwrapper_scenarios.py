"""AppWrappers with real pods (those of the embedded plane's pod runner), from creation to every end."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any

import anyio
import pytest

from cfo.api.appwrapper import APPWRAPPER
from cfo.controllers import appwrapper
from cfo.controllers.appwrapper.names import APPWRAPPER_LABEL, FINALIZER
from cfo.runtime.availability import AVAILABILITY_RULES
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.errors import APIError, TransportError
from cfo.runtime.client.transport import Transport
from cfo.runtime.events import EVENT_RULES
from cfo.runtime.kinds import JOB, NODE, POD
from cfo.runtime.manager import Manager, ManagerOptions
from cfo.runtime.objects import NamespacedName, Object, controller_of, find_condition, is_deleting, name_of, uid_of
from envtest.embedded import EmbeddedControlPlane
from envtest.faults import Fault
from test.support.appwrapper_environment import (
    CONTROLLERS,
    Watched,
    configuration,
    job,
    operating,
    pod,
    settle,
    state,
    watched_world,
    wrapper,
)
from test.support.faults import FaultyTransport
from test.support.permissions import create_token
from test.support.raycluster_environment import eventually

SERVICE: Object = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]}}
POLICY: Object = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "no-jobs"},
    "spec": {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
            ]
        },
        "validations": [{"expression": "false", "message": "not today", "reason": "Forbidden"}],
    },
}
BINDING: Object = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicyBinding",
    "metadata": {"name": "no-jobs"},
    "spec": {"policyName": "no-jobs", "validationActions": ["Deny"]},
}


@pytest.fixture
async def here() -> AsyncIterator[Watched]:
    async with watched_world(controllers=CONTROLLERS) as world:
        await world.create_namespace()
        yield world


async def ends(here: Watched, phase: str, namespace: str = "ns", **annotations: str) -> Object:
    """Lets the one pod of the AppWrapper that there is end so."""

    async def look() -> Object | None:
        found = await here.client.list(POD, namespace=namespace, label_selector=APPWRAPPER_LABEL)
        running = [item for item in found if not is_deleting(item) and item["status"].get("phase") == "Running"]
        return running[0] if len(running) == 1 else None

    there: Object = await eventually(look, "one running pod")
    told = {f"envtest.cfo/{key.replace('_', '-')}": value for key, value in {"phase": phase, **annotations}.items()}
    await here.client.patch(POD, NamespacedName(namespace, name_of(there)), {"metadata": {"annotations": told}})
    return there


def condition(obj: Object, kind: str) -> dict[str, Any]:
    found = find_condition(obj["status"]["conditions"], kind)
    assert found is not None
    return dict(found)


async def test_a_job_runs_to_its_end(here: Watched) -> None:
    async with operating(here) as manager:
        await here.create(wrapper(job(phase="Succeeded", finish_after="0.2", parallelism=2)))
        await here.phase("Succeeded")
        await here.wait_until_idle()
        await here.went_through("", "Resuming", "Running", "Succeeded")
        assert await here.names_of(JOB) == ["j"]
        assert len(await here.names_of(POD)) == 2
        writes = [request for request in here.requests() if request[0] in ("apply", "create", "patch", "delete")]
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


async def test_a_job_of_several_pods_one_after_the_other_is_over_with_the_last(here: Watched) -> None:
    several = job(phase="Succeeded", finish_after="0.1")
    several["spec"] |= {"completions": 3, "parallelism": 1}
    async with operating(here):
        await here.create(wrapper(several))
        done = await here.phase("Succeeded")
        assert condition(done, "QuotaReserved")["message"].startswith("3 pods succeeded")


async def test_what_succeeded_is_removed_when_its_time_is_over(here: Watched) -> None:
    async with operating(here):
        await here.create(wrapper(pod(phase="Succeeded"), successTTLDuration="700ms"))
        kept = await here.phase("Succeeded")
        assert await here.names_of(POD) == ["p"]
        over = await here.condition("ResourcesDeployed", "False", "Succeeded")
        assert await here.names_of(POD) == []
        since, until = (
            condition(obj, kind)["lastTransitionTime"]
            for obj, kind in ((kept, "QuotaReserved"), (over, "ResourcesDeployed"))
        )
        assert 0.7 <= seconds(since, until) < 5


def seconds(since: str, until: str) -> float:
    return (datetime.fromisoformat(until) - datetime.fromisoformat(since)).total_seconds()


async def test_a_failure_is_retried_after_the_pause_under_another_generated_name(here: Watched) -> None:
    one = pod("")
    one["metadata"] = {"generateName": "try-", "annotations": {}}
    async with operating(here):
        await here.create(wrapper(one, retryPausePeriodDuration="400ms"))
        first = await ends(here, "Failed")
        reset = await here.condition("ResourcesDeployed", "False", "Resetting")
        assert state(reset)[:2] == ("Resetting", 1)
        await here.phase("Running")
        second = await ends(here, "Succeeded")
        done = await here.phase("Succeeded")
        assert name_of(first) != name_of(second)
        assert done["status"]["componentStatus"][0]["name"] == name_of(second)
        again = next(item for item in here.states["ns", "w"] if item[0] == "Resuming" and item[1] == 1)
        assert ("ResourcesDeployed", "True", "Resuming", "Reset complete; resuming") in again[2]
        assert ("Warning", "Unhealthy", "FoundFailedPods: 1 failed pods") in await here.events()


async def test_a_failure_that_no_retry_can_help_is_the_end(here: Watched) -> None:
    async with operating(here):
        await here.create(wrapper(pod(), terminalExitCodes="3, 4"))
        await ends(here, "Failed", exit_code="4")
        failed = await here.condition("QuotaReserved", "False", "Failed")
        assert state(failed)[:2] == ("Failed", 0)
        assert await here.names_of(POD) == []


async def test_out_of_retries(here: Watched) -> None:
    async with operating(here):
        await here.create(wrapper(pod(phase="Failed"), retryLimit="2"))
        failed = await here.condition("QuotaReserved", "False", "Failed")
        assert state(failed)[:2] == ("Failed", 2)
        assert here.phases().count("Resuming") == 3


async def test_suspension_and_resumption_count_retries_anew(here: Watched) -> None:
    async with operating(here):
        await here.create(wrapper(job(), retryLimit="5"))
        await ends(here, "Failed")
        await here.when(lambda obj: state(obj)[:2] == ("Running", 1), "the retry")
        await here.suspend(True)
        await here.phase("Suspended")
        assert await here.names_of(POD) == await here.names_of(JOB) == []
        await here.suspend(False)
        again = await here.when(lambda obj: state(obj)[:2] == ("Running", 0), "the second admission")
        assert FINALIZER in again["metadata"]["finalizers"]
        await ends(here, "Succeeded")
        await here.phase("Succeeded")


async def test_a_suspension_during_the_pause_ends_it(here: Watched) -> None:
    async with operating(here):
        await here.create(wrapper(pod(phase="Failed"), retryPausePeriodDuration="1h"))
        await here.condition("ResourcesDeployed", "False", "Resetting")
        await here.suspend(True)
        await here.phase("Suspended")


async def test_pods_leave_a_node_that_is_to_be_evacuated_without_counting_a_retry(here: Watched) -> None:
    gpu = pod()
    gpu["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    async with operating(here):
        await here.create(wrapper(gpu, retryLimit="0"))
        await here.condition("PodsReady", "True")
        key = NamespacedName("", "envtest")
        await here.client.patch(NODE, key, {"metadata": {"labels": {"autopilot.ibm.com/gpuhealth": "EVICT"}}})
        await here.phase("Resetting", "Resuming")
        await here.client.patch(NODE, key, {"metadata": {"labels": {"autopilot.ibm.com/gpuhealth": None}}})
        back = await here.when(
            lambda obj: state(obj)[0] == "Running" and ("Unhealthy", "False") in {item[:2] for item in state(obj)[2]},
            "back again",
        )
        assert state(back)[1] == 0
        assert "Failed" not in here.phases()
        message = "Workload contains pods using NoExecute resources on Nodes: envtest"
        assert ("Warning", "Unhealthy", message) in await here.events()


async def test_a_pod_that_goes_is_given_time_to_be_replaced(here: Watched) -> None:
    async with operating(here):
        await here.create(wrapper(job(), warmupGracePeriodDuration="1h", admissionGracePeriodDuration="1h"))
        await here.condition("PodsReady", "True")
        (name,) = await here.names_of(POD)
        await here.client.delete(POD, NamespacedName("ns", name), grace_period_seconds=0)
        await here.when(lambda obj: len([s for s in here.states["ns", "w"] if s[0] == "Running"]) > 2, "noticed")
        await here.condition("PodsReady", "True")
        assert here.phases()[-1] == "Running"


Prepare = Callable[[Watched], Awaitable[None]]


async def _nothing(here: Watched) -> None:
    """The phase comes by itself."""


async def _suspend_when_ready(here: Watched) -> None:
    await here.condition("PodsReady", "True")
    await here.suspend(True)


PHASES: dict[str, tuple[Object, Prepare]] = {
    "Suspended": (wrapper(job(), suspend=True), _nothing),
    "Running": (wrapper(job()), _nothing),
    "Resetting": (wrapper(pod(phase="Failed"), retryPausePeriodDuration="1h"), _nothing),
    "Suspending": (wrapper(pod(stop_after="1")), _suspend_when_ready),
    "Failed": (
        wrapper(pod(phase="Failed"), retryLimit="0", deletionOnFailureGracePeriodDuration="1h"),
        _nothing,
    ),
    "Succeeded": (wrapper(job(phase="Succeeded")), _nothing),
}


@pytest.mark.parametrize("phase", PHASES)
async def test_deletion_leaves_nothing_behind(here: Watched, phase: str) -> None:
    obj, prepare = PHASES[phase]
    async with operating(here):
        await here.create(obj)
        await prepare(here)
        await here.phase(phase)
        await here.delete(obj)
        await here.gone()

        async def look() -> bool:
            return not await here.names_of(POD) and not await here.names_of(JOB)

        await eventually(look, "nothing left")


async def test_deletion_of_one_whose_creation_was_interrupted_leaves_nothing_behind(here: Watched) -> None:
    """What was created, and never noted: the operator died between the creation and the status."""
    obj = wrapper(pod(""), job())
    obj["spec"]["components"][0]["template"]["metadata"] = {"generateName": "gen-"}
    await here.create(obj)
    await crash(here, after=4, done=anyio.sleep_forever)  # finalizer, status, pod, job
    assert state(await here.wrapper())[0] == "Resuming"
    assert len(await here.names_of(JOB)) == 1
    await here.delete(obj)
    async with operating(here):
        await here.gone()

        async def look() -> bool:
            return not await here.names_of(POD) and not await here.names_of(JOB)

        await eventually(look, "nothing left")


async def test_a_name_that_is_taken_fails_the_appwrapper_and_stays_whose_it_is(here: Watched) -> None:
    theirs = await here.create({**job("j"), "metadata": {"name": "j", "namespace": "ns"}})
    async with operating(here):
        await here.create(wrapper(pod("before"), job("j")))
        failed = await here.condition("QuotaReserved", "False", "Failed")
        told = "error creating components: resource j exists, but is not controlled by appwrapper"
        assert condition(failed, "Unhealthy")["message"] == told
        assert ("Warning", "Unhealthy", f"CreateFailed: {told}") in await here.events()
        await here.delete(failed)
        await here.gone()
        there = await here.get(JOB, "j")
        assert uid_of(there) == uid_of(theirs)
        assert not is_deleting(there)
        assert "before" not in await here.names_of(POD)


async def test_only_what_descends_from_the_appwrapper_is_removed_by_force(here: Watched) -> None:
    hanging = wrapper(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "d"}},
                "template": {
                    "metadata": {"labels": {"app": "d"}, "annotations": {"envtest.cfo/stop-after": "3600"}},
                    "spec": {
                        "terminationGracePeriodSeconds": 3600,
                        "containers": [{"name": "main", "image": "busybox"}],
                    },
                },
            },
        },
        forcefulDeletionGracePeriodDuration="500ms",
    )
    async with operating(here):
        stranger = pod("stranger", labels={APPWRAPPER_LABEL: "w"})
        await here.create(hanging)
        await here.condition("PodsReady", "True")
        await here.create({**stranger, "metadata": {**stranger["metadata"], "namespace": "ns"}})
        await here.suspend(True)
        await here.phase("Suspended")
        assert await here.names_of(POD) == ["stranger"]
        assert not is_deleting(await here.get(POD, "stranger"))
        await here.wait_for_event("ForcefulDeletion", "takes longer than 500ms")


async def test_conditions_of_others_stay(here: Watched) -> None:
    async with operating(here):
        await here.create(wrapper(pod()))
        await here.condition("PodsReady", "True")
        theirs = {
            "type": "example.com/Seen",
            "status": "True",
            "reason": "Looked",
            "message": "by somebody else",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        await here.client.with_field_manager("other").apply(
            {
                "apiVersion": APPWRAPPER.api_version,
                "kind": APPWRAPPER.kind,
                "metadata": {"namespace": "ns", "name": "w"},
                "status": {"conditions": [theirs]},
            },
            subresource="status",
        )
        await ends(here, "Succeeded")
        done = await here.phase("Succeeded")
        assert condition(done, "example.com/Seen") == theirs


async def test_one_that_another_controller_manages_is_left_alone(here: Watched) -> None:
    theirs = wrapper(pod())
    theirs["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    async with operating(here):
        await here.create(theirs)
        await here.create(wrapper(pod("q", phase="Succeeded"), name="ours"))
        await here.phase("Succeeded", name="ours")
        assert "status" not in await here.wrapper()
        assert await here.names_of(POD) == ["q"]


async def test_what_runs_unchanged_costs_nothing(here: Watched) -> None:
    async with operating(here):
        await here.create(wrapper(job()))
        await here.condition("PodsReady", "True")
        await here.wait_until_idle()
        here.clear_requests()
        await settle(0.3)
        assert here.requests() == []
    async with operating(here):
        await here.wait_until_idle()
        asked = [request for request in here.requests() if request[0] != "discover"]
        assert asked == []


Done = Callable[[], Awaitable[object]]


async def crash(here: Watched, *, after: int, done: Done) -> bool:
    """Runs the controllers until they die after so many writes; false when they were ``done`` before that."""
    async with FaultyTransport(
        ClientConfig.for_control_plane(here.plane), observe=here.exchanges.append, crash_after_writes=after
    ) as transport:
        manager = Manager(transport, ManagerOptions(field_manager=appwrapper.FIELD_MANAGER))
        appwrapper.setup(manager, configuration())
        async with anyio.create_task_group() as tasks:

            async def die() -> None:
                await transport.crashed.wait()
                tasks.cancel_scope.cancel()

            async def rest() -> None:
                await manager.started()
                await done()
                tasks.cancel_scope.cancel()

            tasks.start_soon(die)
            tasks.start_soon(rest)
            tasks.start_soon(manager.run)
    return transport.crashed.is_set()


def creations(here: Watched) -> Counter[str]:
    """What the operator has created since :meth:`Environment.clear_requests`, Events left out."""
    return Counter(
        exchange.resource
        for exchange in here.exchanges
        if exchange.verb == "create" and exchange.code == "201" and "events" not in exchange.resource
    )


async def test_an_operator_that_dies_after_any_write_comes_to_the_same_end(here: Watched) -> None:
    """Each time in another namespace; nothing is created twice, and each component is the AppWrapper's."""
    after, crashed = 0, True
    ends_as: set[Any] = set()
    while crashed:
        after += 1
        namespace = await here.create_namespace(f"ns-{after}")
        one = pod("", phase="Succeeded", finish_after="0.1")
        one["metadata"] |= {"generateName": "gen-"}
        del one["metadata"]["name"]
        obj = wrapper(job(phase="Succeeded", finish_after="0.1"), one, namespace=namespace)
        await here.create(obj)
        crashed = await crash(here, after=after, done=partial(here.phase, "Succeeded", namespace=namespace))
        async with operating(here):
            done = await here.phase("Succeeded", namespace=namespace)
            await here.went_through("", "Resuming", "Running", "Succeeded", namespace=namespace)
            # whether the pods were seen to be ready before they were done depends on when somebody looked
            ends_as.add((state(done)[:2], tuple(item for item in state(done)[2] if item[0] != "PodsReady")))
            pods = await here.client.list(POD, namespace=namespace)
            ours = [item for item in pods if (controller_of(item) or {}).get("uid") == uid_of(done)]
            assert [name_of(item) for item in ours] == [done["status"]["componentStatus"][1]["name"]]
            assert len(pods) == 2, [name_of(item) for item in pods]
            assert await here.names_of(JOB, namespace) == ["j"]
    assert len(ends_as) == 1
    assert after > 6, "it writes more often than that"


async def test_an_operator_that_dies_in_a_suspension_goes_on_with_it(here: Watched) -> None:
    for after in range(1, 6):
        namespace = await here.create_namespace(f"ns-{after}")
        obj = wrapper(job(), pod(), namespace=namespace)
        async with operating(here):
            await here.create(obj)
            await here.condition("PodsReady", "True", namespace=namespace)
        await here.suspend(True, namespace=namespace)
        with anyio.move_on_after(2):
            await crash(here, after=after, done=anyio.sleep_forever)
        async with operating(here):
            there = await here.phase("Suspended", namespace=namespace)
            assert condition(there, "QuotaReserved")["reason"] == "Suspended"
            assert condition(there, "DeletingResources")["reason"] == "DeletionComplete"
            assert await here.names_of(POD, namespace) == await here.names_of(JOB, namespace) == []


async def test_the_rules_are_enough(here: Watched) -> None:
    granted = [*appwrapper.rules(), *AVAILABILITY_RULES, *EVENT_RULES]
    token = await create_token(here, granted)
    async with operating(here, token=token):
        await here.create(wrapper(job(), pod(), {**SERVICE, "metadata": {"name": "s"}}))
        await here.condition("PodsReady", "True")
        await here.suspend(True)
        await here.phase("Suspended")
        await here.suspend(False)
        await here.condition("PodsReady", "True")
        await here.delete(await here.wrapper())
        await here.gone()
        refused = [exchange for exchange in here.exchanges if exchange.code in ("401", "403")]
        assert not refused


async def test_a_creation_that_is_refused_is_tried_again(here: Watched) -> None:
    """An admission policy stands in for a quota: what it refuses now, it may allow later."""
    async with operating(here):
        await here.create(POLICY)
        await here.create(BINDING)
        await settle(0.2)
        await here.create(wrapper(pod("first"), job("second")))
        await here.phase("Resuming")

        async def look() -> bool:
            components = (await here.wrapper())["status"]["componentStatus"]
            (first,), (second,) = (item.get("conditions") or [{}] for item in components)
            assert first.get("status") == "True"
            assert (second.get("status"), second.get("reason")) == ("False", "ComponentCreationErrored")
            assert "not today" in second["message"]
            return True

        await eventually(look, "the first is there, the second is refused")
        assert state(await here.wrapper())[0] == "Resuming"
        await here.delete(BINDING)
        await here.phase("Running")
        assert await here.names_of(JOB) == ["second"]
        assert len([name for name in await here.names_of(POD) if name == "first"]) == 1


async def test_a_creation_that_stays_refused_leaves_nothing_behind(here: Watched) -> None:
    async with operating(here):
        await here.create(POLICY)
        await here.create(BINDING)
        await settle(0.2)
        await here.create(wrapper(pod("first"), job("second"), admissionGracePeriodDuration="300ms", retryLimit="0"))
        failed = await here.condition("QuotaReserved", "False", "Failed")
        assert "not today" in condition(failed, "Unhealthy")["message"]
        assert await here.names_of(POD) == await here.names_of(JOB) == []


async def test_deletion_while_components_are_being_created(here: Watched) -> None:
    async with operating(here):
        await here.create(POLICY)
        await here.create(BINDING)
        await settle(0.2)
        obj = await here.create(wrapper(pod("first"), job("second")))
        await here.phase("Resuming")
        await eventually(lambda: here.names_of(POD), "the first component")
        await here.delete(obj)
        await here.gone()
        assert await here.names_of(POD) == []


async def test_the_label_of_a_component_may_be_taken_away(here: Watched) -> None:
    """It is then not followed any more, but it is there, and goes with the others."""
    async with operating(here):
        await here.create(wrapper(job(), pod()))
        await here.condition("PodsReady", "True")
        await here.patch(await here.get(JOB, "j"), {"metadata": {"labels": {APPWRAPPER_LABEL: None}}})
        await here.wait_until_idle()
        assert state(await here.wrapper())[0] == "Running"
        await here.suspend(True)
        await here.phase("Suspended")
        assert await here.names_of(JOB) == []


async def test_a_predecessors_components_are_waited_for(here: Watched) -> None:
    """An AppWrapper of the same name is gone, and its component is about to be collected."""
    former = {
        "apiVersion": APPWRAPPER.api_version,
        "kind": APPWRAPPER.kind,
        "name": "w",
        "uid": "11111111-2222-3333-4444-555555555555",
        "controller": True,
    }
    held = {**pod("p"), "metadata": {"name": "p", "namespace": "ns", "finalizers": ["example.com/hold"]}}
    there = await here.create(held)
    await here.patch(there, {"metadata": {"ownerReferences": [former]}})
    async with operating(here):
        await here.create(wrapper(pod("p")))
        await here.phase("Resuming")
        await here.when(
            lambda obj: (
                "componentStatus" in obj["status"]
                and any("conditions" in item for item in obj["status"]["componentStatus"])
            ),
            "the first try",
        )
        await here.patch(there, {"metadata": {"finalizers": None}})
        await here.phase("Running")
        assert (controller_of(await here.get(POD, "p")) or {})["uid"] == uid_of(await here.wrapper())


async def test_a_restart_with_another_operators_status_goes_on(here: Watched) -> None:
    """What the Go operator wrote: times of whole seconds, its spelling, its field manager."""
    old = await here.create(wrapper(pod(), suspend=True))
    now = "2026-01-01T00:00:00Z"

    def said(kind: str, status: str, reason: str) -> dict[str, str]:
        return {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": now}

    status = {
        "phase": "Suspended",
        "resettingCount": 2,
        "conditions": [said("QuotaReserved", "False", "Suspended"), said("ResourcesDeployed", "False", "Suspended")],
        "componentStatus": [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": "p",
                "podSets": [{"path": "template", "replicas": 1}],
                "conditions": [said("ResourcesDeployed", "False", "CompononetDeleted")],
            }
        ],
    }
    await here.client.with_field_manager("codeflare-operator").patch(
        APPWRAPPER, NamespacedName("ns", "w"), {"status": status}, subresource="status"
    )
    async with operating(here):
        await here.wait_until_idle()
        assert [item for item in here.requests() if item[0] == "apply"] == [], "there is nothing to write"
        await here.suspend(False)
        there = await here.condition("PodsReady", "True")
        assert state(there)[:2] == ("Running", 0)
        assert uid_of(there) == uid_of(old)


async def test_an_operator_that_dies_in_a_retry_comes_to_the_same_end(here: Watched) -> None:
    """After any write between the creation and the clean end of one that fails twice."""
    after, crashed = 0, True
    ends_as: set[Any] = set()
    while crashed:
        after += 1
        namespace = await here.create_namespace(f"ns-{after}")
        over = partial(here.condition, "QuotaReserved", "False", "Failed", namespace=namespace)
        here.clear_requests()
        await here.create(wrapper(pod(phase="Failed"), namespace=namespace, retryLimit="1"))
        crashed = await crash(here, after=after, done=over)
        before = creations(here)
        async with operating(here):
            failed = await over()
            ends_as.add((state(failed)[:2], tuple(item for item in state(failed)[2] if item[0] != "PodsReady")))
            assert await here.names_of(POD, namespace) == []
            assert before + creations(here) == {"pods": 2}, f"after {after} writes"
    assert len(ends_as) == 1, ends_as
    assert after > 12, "it writes more often than that"


async def test_an_operator_that_dies_in_a_deletion_leaves_nothing_behind(here: Watched) -> None:
    for after in range(1, 5):
        namespace = await here.create_namespace(f"ns-{after}")
        obj = wrapper(job(), pod(), namespace=namespace)
        async with operating(here):
            await here.create(obj)
            await here.condition("PodsReady", "True", namespace=namespace)
        await here.delete(obj)
        await crash(here, after=after, done=partial(here.gone, namespace=namespace))
        async with operating(here):
            await here.gone(namespace=namespace)

            async def look(namespace: str = namespace) -> bool:
                return not await here.names_of(POD, namespace) and not await here.names_of(JOB, namespace)

            await eventually(look, "nothing left")


async def test_watches_that_say_things_again_and_out_of_order_change_nothing(here: Watched) -> None:
    async with FaultyTransport(
        ClientConfig.for_control_plane(here.plane), observe=here.exchanges.append, repeat_probability=0.5, seed=7
    ) as transport:
        async with operating(here, transport=transport):
            for number in range(5):
                await here.create(wrapper(job(f"j-{number}", phase="Succeeded"), name=f"w-{number}"))
            for number in range(5):
                await here.phase("Succeeded", name=f"w-{number}")
                await here.went_through("", "Resuming", "Running", "Succeeded", name=f"w-{number}")
        assert creations(here) == {"jobs.batch": 5}


@pytest.mark.parametrize("fault", [{"code": 500}, {"code": 429, "retry_after": 0}, {"reset": True}, {"code": 409}])
async def test_an_api_server_in_trouble_makes_nothing_twice(here: Watched, fault: dict[str, Any]) -> None:
    """Each sort of write fails a few times, before it did anything; the watch breaks now and then."""
    assert isinstance(here.plane, EmbeddedControlPlane)
    for resources in (("appwrappers",), ("appwrappers/status",), ("jobs",)):
        here.plane.faults.add(Fault(verbs=("create", "patch", "delete"), resources=resources, count=4, **fault))
    here.plane.faults.add(Fault(verbs=("watch",), resources=("appwrappers", "jobs", "pods"), cut_after=3, count=6))
    operator = Transport(ClientConfig.for_control_plane(here.plane), observe=here.exchanges.append)
    async with operator, operating(here, transport=operator):
        for number in range(3):

            async def made(number: int = number) -> bool:
                try:
                    await here.create(wrapper(job(f"j-{number}", phase="Succeeded"), name=f"w-{number}"))
                except (APIError, TransportError):
                    return False
                return True

            await eventually(made, "an AppWrapper")
        for number in range(3):
            await here.phase("Succeeded", name=f"w-{number}")
        assert await here.names_of(JOB) == ["j-0", "j-1", "j-2"]
        assert creations(here) == {"jobs.batch": 3}


async def test_components_that_the_operators_own_selector_leaves_out_go_too(here: Watched) -> None:
    """With ``labelSelector`` set the informers of selected kinds do not know every component."""
    obj = wrapper(job(), pod())
    obj["metadata"]["labels"] = {"mine": "yes"}
    async with Transport(ClientConfig.for_control_plane(here.plane)) as transport:
        options = ManagerOptions(
            field_manager=appwrapper.FIELD_MANAGER, selectors={APPWRAPPER: "mine=yes", JOB: "mine=yes"}
        )
        manager = Manager(transport, options)
        appwrapper.setup(manager, configuration())
        async with manager:
            await manager.started()
            await here.create(obj)
            await here.condition("PodsReady", "True")
            held = await here.get(JOB, "j")
            await here.patch(held, {"metadata": {"finalizers": ["example.com/hold"]}})
            await here.suspend(True)
            await here.condition("DeletingResources", "True")
            await settle(0.3)
            assert state(await here.wrapper())[0] == "Suspending"
            await here.patch(held, {"metadata": {"finalizers": None}})
            await here.phase("Suspended")


async def test_a_phase_of_another_version_is_left_alone_and_stops_nobody_else(here: Watched) -> None:
    odd = await here.create(wrapper(pod("odd"), name="odd", suspend=True))
    await here.patch(odd, {"status": {"phase": "Dancing"}}, subresource="status")
    async with operating(here) as manager:
        await here.create(wrapper(pod("p", phase="Succeeded")))
        await here.phase("Succeeded")
        assert state(await here.wrapper("odd"))[0] == "Dancing"
        errors = manager.metrics.registry.get_sample_value(
            "controller_runtime_terminal_reconcile_errors_total", {"controller": "appwrappers"}
        )
        assert errors == 1
