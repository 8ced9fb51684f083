"""The switch from the Go operator: AppWrappers go on from the state in which it left them, as it was recorded."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cfo.api.appwrapper import APPWRAPPER
from cfo.controllers.appwrapper.names import APPWRAPPER_LABEL, FINALIZER
from cfo.runtime.clock import rfc3339
from cfo.runtime.kinds import POD
from cfo.runtime.objects import GVK, NamespacedName, Object, gvk_of, key_of, name_of, owner_reference, uid_of
from test.support.appwrapper_environment import Watched, configuration, operating, state, watched_world
from test.support.appwrapper_recordings import prepared, recorded_crds
from test.support.recordings import GOLDEN, load_appwrapper

pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason="no recordings beside the repository")

LIVES = (
    "delete-running",
    "delete-suspended",
    "failed-job-component",
    "failed-kept-for-a-while",
    "failing-pods-retry",
    "success-two-pods",
    "suspend-while-running",
)
NEXT = {
    "": "Running",
    "Suspended": "Running",
    "Resuming": "Running",
    "Running": "Running",
    "Resetting": "Running",
    "Suspending": "Suspended",
    "Succeeded": "Succeeded",
    "Failed": "Failed",
}
"""Where each phase leads, when the pods are well; one that is suspended stays so."""


def moments(case: str) -> dict[tuple[str, str], Object]:
    """The first and the last recorded state of each phase, with the AppWrapper as it was created (no periods set)."""
    recording = load_appwrapper(f"default/{case}")
    (created,) = [
        step["do"]["object"]
        for step in recording["steps"]
        if "do" in step and (step["do"].get("object") or {}).get("kind") == "AppWrapper"
    ]
    found: dict[tuple[str, str], Object] = {}
    for shot in recording["snapshots"]:
        if shot["type"] != "DELETED":
            obj = copy.deepcopy(prepared(created))
            obj["metadata"].pop("annotations", None)
            obj["metadata"]["finalizers"] = shot["finalizers"]
            obj["spec"]["suspend"] = shot["suspend"]
            obj["status"] = copy.deepcopy(shot["status"])
            phase = obj["status"].get("phase", "")
            found.setdefault((phase, "first"), obj)
            found[phase, "last"] = copy.deepcopy(obj)
    return found


async def recreate(here: Watched, obj: Object, namespace: str) -> tuple[Object, list[Object]]:
    """Makes the AppWrapper, its status, and the components of which that says that they exist; pods are well."""
    status = obj.pop("status")
    _dated(status)
    obj["metadata"]["namespace"] = namespace
    made = await here.create(obj)
    made = await here.client.patch(APPWRAPPER, key_of(made), {"status": status}, subresource="status")
    components = []
    for component, told in zip(obj["spec"]["components"], status.get("componentStatus", ()), strict=False):
        if any(item["status"] != "False" for item in told.get("conditions", ())):
            template = copy.deepcopy(component["template"])
            metadata = template["metadata"]
            metadata["namespace"] = namespace
            metadata["labels"] = {**metadata.get("labels", {}), APPWRAPPER_LABEL: name_of(made)}
            metadata["ownerReferences"] = [owner_reference(made)]
            components.append(await here.create(template))
            if gvk_of(template) == POD:
                phase = "Succeeded" if status["phase"] == "Succeeded" else "Running"
                await here.pod_status(name_of(template), phase, namespace)
    return made, components


def _dated(status: dict[str, Any]) -> None:
    """Gives the conditions a time: the recordings have none."""
    then = rfc3339(datetime.now(UTC) - timedelta(seconds=2))
    for part in (status, *status.get("componentStatus", ())):
        for condition in part.get("conditions", ()):
            condition["lastTransitionTime"] = then


@pytest.mark.timeout(120)
async def test_appwrappers_go_on_from_where_the_go_operator_left_them() -> None:
    left: dict[tuple[str, str, str], tuple[Object, list[Object]]] = {}
    async with watched_world(*recorded_crds()) as here:
        for case in LIVES:
            for (phase, which), obj in moments(case).items():
                namespace = await here.create_namespace(f"{case}-{phase.lower() or 'new'}-{which}")
                left[case, phase, which] = await recreate(here, obj, namespace)
                if phase == "Terminating":
                    await here.delete(left[case, phase, which][0])
        assert {phase for _, phase, _ in left} == {*NEXT, "Terminating"}
        async with operating(here, configuration(autopilot={"monitorNodes": False})):
            for (case, phase, _), (wrapper, components) in left.items():
                await _went_on(here, case, phase, wrapper, components)
            await here.wait_until_idle()


async def _went_on(here: Watched, case: str, phase: str, wrapper: Object, components: list[Object]) -> None:
    named = {"name": name_of(wrapper), "namespace": key_of(wrapper).namespace}
    if phase == "Terminating":
        await here.gone(**named)
        return
    wanted = "Suspended" if wrapper["spec"]["suspend"] and phase in ("", "Suspended") else NEXT[phase]

    def settled(obj: Object) -> bool:
        conditions = {item[0]: item[1] for item in state(obj)[2]}
        deployed = conditions.get("ResourcesDeployed", "False")
        exist = wanted == "Running" or (wanted == "Succeeded" and bool(components))
        return state(obj)[0] == wanted and deployed == str(exist)

    after = await here.when(settled, f"{case}, left in phase {phase!r}: {wanted}", **named)
    assert after["metadata"]["uid"] == uid_of(wrapper)
    if phase in ("Resuming", "Running", "Succeeded"):
        for component in components:
            found = await here.get(gvk_of(component), name_of(component), named["namespace"])
            assert uid_of(found) == uid_of(component), f"{case}, {phase}: {name_of(component)} was made anew"
        seen = {item[0] for item in here.states[named["namespace"], named["name"]]}
        assert seen <= {"", phase, wanted}, f"{case} went through {seen}"
    elif wanted != "Running":
        for component in components:
            gvk: GVK = gvk_of(component)
            assert await here.client.get(gvk, NamespacedName(named["namespace"], name_of(component))) is None, case
    if wanted == "Running":
        assert FINALIZER in after["metadata"]["finalizers"]
