"""Decisions after the creation of components: rejections, warnings and names."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cfo.api.appwrapper.names import (
    Phase,
)
from cfo.controllers.appwrapper.components import (
    components_of,
    desired_object,
)
from cfo.controllers.appwrapper.creation import Creation, after_creation
from cfo.controllers.appwrapper.decision import WrapperDecision
from cfo.controllers.appwrapper.reconciler import ComponentCreator
from cfo.controllers.appwrapper.transition import decide
from cfo.runtime.objects.unstructured import Object, find_condition
from test.support.observations import (
    CONFIG,
    NOW,
    observe,
    seconds_later,
    with_decided_status,
    wrapper,
)
from test.support.wrapper_steps import (
    phase,
    resumed_wrapper,
    step,
)


def created_with(*warnings: str) -> tuple[Object, WrapperDecision]:
    """Return an AppWrapper whose only component was created with these warnings, and the decision after that."""
    obj = resumed_wrapper("Job")
    observation = observe(obj)
    (component,) = observation.components
    decision = after_creation(observation, [Creation(component, uid="u", warnings=warnings)])
    return with_decided_status(obj, decision), decision


def test_dropped_fields_of_a_component_are_reported_until_it_is_created_again() -> None:
    obj, decision = created_with('unknown field "spec.paralelism"', "batch/v1 is deprecated")
    text = 'unknown field "spec.paralelism"; batch/v1 is deprecated'
    assert [(event.type, event.reason, event.message) for event in decision.events] == [
        ("Warning", "ComponentWarning", f"The API server warns about Job job-0: {text}")
    ]
    dropped = find_condition(obj["status"]["componentStatus"][0]["conditions"], "UnknownFields")
    assert dropped is not None
    assert (dropped["status"], dropped["message"]) == ("True", 'unknown field "spec.paralelism"')
    obj, _ = step(obj, objects=[None])
    obj["status"] |= {"phase": "Resetting"}
    for at in (1, 2, 200):
        obj, _ = step(obj, objects=[None], now=seconds_later(at))
    assert "conditions" not in obj["status"]["componentStatus"][0]


def test_warnings_about_a_component_are_bounded_and_printable() -> None:
    hostile = [f'unknown field "spec.{number}\n{"x" * 5000}"' for number in range(300)]
    _, decision = created_with(*hostile)
    (event,) = decision.events
    assert event.message.endswith("; 295 more")
    assert event.message.isprintable()
    assert len(event.message) < 1000
    _, decision = created_with("batch/v1 is deprecated")
    assert find_condition(decision.status.components[0]["conditions"], "UnknownFields") is None


@pytest.mark.parametrize(
    ("creation", "seconds", "expected", "retry_after"),
    [
        ({"error": "exceeded quota"}, 0, Phase.RESUMING, 1.0),
        ({"error": "exceeded quota"}, 59.5, Phase.RESUMING, 60.0),
        ({"error": "exceeded quota"}, 60, Phase.RESETTING, None),
        ({"error": "is invalid", "fatal": True}, 0, Phase.FAILED, None),
    ],
)
def test_denied_component_creation(
    creation: dict[str, Any], seconds: float, expected: Phase, retry_after: float | None
) -> None:
    observation = observe(resumed_wrapper(), now=seconds_later(seconds))
    decision = after_creation(observation, [Creation(observation.components[0], **creation)])
    assert decision.status.phase == expected
    assert decision.deadline == (None if retry_after is None else seconds_later(retry_after))
    (event,) = decision.events
    if expected == Phase.RESUMING:
        assert event.message == f"Pod pod-0 cannot be created, will retry: {creation['error']}"
    else:
        assert event.message == f"CreateFailed: error creating components: {creation['error']}"


def test_repeatedly_denied_component_creation_is_reported_once() -> None:
    obj, events = resumed_wrapper(), 0
    for seconds in range(5):
        observation = observe(obj, now=seconds_later(seconds))
        decision = after_creation(
            observation, [Creation(observation.components[0], error="exceeded quota")]
        )
        obj, events = with_decided_status(obj, decision), events + len(decision.events)
    assert events == 1


def test_components_are_not_deployed_before_admission() -> None:
    obj, decision = step(wrapper(), awaits_admission=True)
    assert (phase(obj), decision.add_finalizer) == (Phase.SUSPENDED, False)
    waiting, decision = step(obj, awaits_admission=True)
    assert (waiting, decision.add_finalizer) == (obj, False)
    obj, decision = step(obj)
    assert (phase(obj), decision.add_finalizer) == (Phase.RESUMING, True)


def test_components_are_not_created_after_an_eviction() -> None:
    obj, _ = step(resumed_wrapper(), awaits_admission=True)
    assert phase(obj) == Phase.RESUMING
    assert not decide(observe(resumed_wrapper(), awaits_admission=True)).create
    assert decide(observe(resumed_wrapper())).create


def test_generated_names_are_stable_per_deployment() -> None:
    obj = resumed_wrapper()
    obj["spec"]["components"][0]["template"]["metadata"] = {"generateName": "gen-"}
    (first,), (second,) = components_of(obj), components_of(obj)
    assert first.key.name == second.key.name
    assert first.key.name.startswith("gen-")
    assert desired_object(obj, first, [], CONFIG)["metadata"]["name"] == first.key.name
    other_wrapper = {**obj, "metadata": {**obj["metadata"], "uid": "other"}}
    assert components_of(other_wrapper)[0].key.name != first.key.name
    for item in obj["status"]["conditions"]:
        item["lastTransitionTime"] = "2026-01-02T00:00:00Z"
    assert components_of(obj)[0].key.name != first.key.name
    assert NOW.microsecond


async def test_template_with_a_field_of_a_wrong_type_is_a_fatal_error() -> None:
    """Admission does not read all fields. An exception in each reconcile would keep the quota for good."""
    obj = wrapper("Pod")
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": None}}
    template = obj["spec"]["components"][0]["template"]
    template["metadata"]["ownerReferences"] = 5
    template["spec"]["affinity"] = {"nodeAffinity": affinity}
    template["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    unused = cast("Any", None)
    creator = ComponentCreator(unused, CONFIG, unused, lambda *_: [[]])
    created = await creator.create_missing(observe(obj, objects=[None]))
    assert [(each.error, each.fatal) for each in created] == [
        ("Pod pod-0: a field of the template has a wrong type", True)
    ]
