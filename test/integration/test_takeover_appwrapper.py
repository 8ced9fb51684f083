"""Tests of the switch from the Go operator: AppWrappers continue from the recorded state in which it left them."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cfo.api.appwrapper.names import APPWRAPPER, APPWRAPPER_LABEL, FINALIZER
from cfo.runtime.objects.kinds import POD
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    gvk_of,
    key_of,
    name_of,
    owner_reference,
    uid_of,
)
from cfo.runtime.process.clock import rfc3339
from test.support.appwrapper_environment import (
    AppWrapperEnvironment,
    configuration,
    run_appwrapper_controllers,
    start_appwrapper_environment,
    state,
)
from test.support.appwrapper_recordings import recorded_crds, recreatable
from test.support.recordings import GOLDEN, load_appwrapper

pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason="no recordings next to the repository")

CASES = (
    "delete-running",
    "delete-suspended",
    "failed-job-component",
    "failed-kept-for-a-while",
    "failing-pods-retry",
    "success-two-pods",
    "suspend-while-running",
)
NEXT_PHASE = {
    "": "Running",
    "Suspended": "Running",
    "Resuming": "Running",
    "Running": "Running",
    "Resetting": "Running",
    "Suspending": "Suspended",
    "Succeeded": "Succeeded",
    "Failed": "Failed",
}
"""The next phase of each phase when the pods are healthy; a suspended AppWrapper stays suspended."""


def moments(case: str) -> dict[tuple[str, str], Object]:
    """Return the first and the last recorded state of each phase, with the AppWrapper as created, without periods."""
    recording = load_appwrapper(f"default/{case}")
    (created,) = [
        step["do"]["object"]
        for step in recording["steps"]
        if "do" in step and (step["do"].get("object") or {}).get("kind") == "AppWrapper"
    ]
    found: dict[tuple[str, str], Object] = {}
    for shot in recording["snapshots"]:
        if shot["type"] != "DELETED":
            obj = copy.deepcopy(recreatable(created))
            obj["metadata"].pop("annotations", None)
            obj["metadata"]["finalizers"] = shot["finalizers"]
            obj["spec"]["suspend"] = shot["suspend"]
            obj["status"] = copy.deepcopy(shot["status"])
            phase = obj["status"].get("phase", "")
            found.setdefault((phase, "first"), obj)
            found[phase, "last"] = copy.deepcopy(obj)
    return found


async def recreate(
    env: AppWrapperEnvironment, obj: Object, namespace: str
) -> tuple[Object, list[Object]]:
    """Create the AppWrapper with its status and the components that exist according to it; the pods are healthy."""
    status = obj.pop("status")
    _add_times(status)
    obj["metadata"]["namespace"] = namespace
    created = await env.create(obj)
    created = await env.client.patch(
        APPWRAPPER, key_of(created), {"status": status}, subresource="status"
    )
    components = []
    for component, component_status in zip(
        obj["spec"]["components"], status.get("componentStatus", ()), strict=False
    ):
        if any(item["status"] != "False" for item in component_status.get("conditions", ())):
            template = copy.deepcopy(component["template"])
            metadata = template["metadata"]
            metadata["namespace"] = namespace
            metadata["labels"] = {**metadata.get("labels", {}), APPWRAPPER_LABEL: name_of(created)}
            metadata["ownerReferences"] = [owner_reference(created)]
            components.append(await env.create(template))
            if gvk_of(template) == POD:
                phase = "Succeeded" if status["phase"] == "Succeeded" else "Running"
                await env.set_pod_status(name_of(template), phase, namespace)
    return created, components


def _add_times(status: dict[str, Any]) -> None:
    """Set the transition time of all conditions, which the recordings lack."""
    time = rfc3339(datetime.now(UTC) - timedelta(seconds=2))
    for part in (status, *status.get("componentStatus", ())):
        for condition in part.get("conditions", ()):
            condition["lastTransitionTime"] = time


async def test_appwrappers_continue_from_state_left_by_go_operator() -> None:
    recreated: dict[tuple[str, str, str], tuple[Object, list[Object]]] = {}
    async with start_appwrapper_environment(*recorded_crds()) as env:
        for case in CASES:
            for (phase, which), obj in moments(case).items():
                namespace = await env.create_namespace(f"{case}-{phase.lower() or 'new'}-{which}")
                recreated[case, phase, which] = await recreate(env, obj, namespace)
                if phase == "Terminating":
                    await env.delete(recreated[case, phase, which][0])
        assert {phase for _, phase, _ in recreated} == {*NEXT_PHASE, "Terminating"}
        # no pods of Jobs exist here, so the grace periods must not end while the test runs
        periods = {"admissionGracePeriod": "1h", "warmupGracePeriod": "1h"}
        config = configuration(autopilot={"monitorNodes": False}, faultTolerance=periods)
        async with run_appwrapper_controllers(env, config):
            for (case, phase, _), (wrapper, components) in recreated.items():
                await _assert_continued(env, case, phase, wrapper, components)
            await env.wait_until_idle()


async def _assert_continued(
    env: AppWrapperEnvironment, case: str, phase: str, wrapper: Object, components: list[Object]
) -> None:
    identity = {"name": name_of(wrapper), "namespace": key_of(wrapper).namespace}
    if phase == "Terminating":
        await env.wait_until_deleted(**identity)
        return
    expected = (
        "Suspended"
        if wrapper["spec"]["suspend"] and phase in ("", "Suspended")
        else NEXT_PHASE[phase]
    )

    def is_settled(obj: Object) -> bool:
        conditions = {item[0]: item[1] for item in state(obj)[2]}
        deployed = conditions.get("ResourcesDeployed", "False")
        has_components = expected == "Running" or (expected == "Succeeded" and bool(components))
        return state(obj)[0] == expected and deployed == str(has_components)

    after = await env.wait_until(
        is_settled, f"{case}, left in phase {phase!r}: {expected}", **identity
    )
    assert after["metadata"]["uid"] == uid_of(wrapper)
    if phase in ("Resuming", "Running", "Succeeded"):
        for component in components:
            found = await env.get(gvk_of(component), name_of(component), identity["namespace"])
            assert uid_of(found) == uid_of(component), (
                f"{case}, {phase}: {name_of(component)} was recreated"
            )
        phases = {item[0] for item in env.states[identity["namespace"], identity["name"]]}
        assert phases <= {"", phase, expected}, f"{case} had the phases {phases}"
    elif expected != "Running":
        for component in components:
            gvk: GVK = gvk_of(component)
            assert (
                await env.client.get(gvk, NamespacedName(identity["namespace"], name_of(component)))
                is None
            ), case
    if expected == "Running":
        assert FINALIZER in after["metadata"]["finalizers"]
