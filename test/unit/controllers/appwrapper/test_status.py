"""The status of an AppWrapper that is too large for it: what remains, and how small that is."""

from __future__ import annotations

import orjson
import pytest

from cfo.api.appwrapper.created_components import CREATED, identity_message, recorded_uid
from cfo.api.appwrapper.names import OWN_CONDITIONS, RESOURCES_DEPLOYED, UNHEALTHY, VALIDATED, Phase
from cfo.api.appwrapper.podsets import MAX_POD_SET_BYTES, PodSetError
from cfo.controllers.appwrapper.components import CREATION_ERRORED, components_of, initial_status
from cfo.controllers.appwrapper.status import MESSAGE_LIMIT, WrapperStatus
from cfo.runtime.objects.unstructured import GVK, Object, find_condition
from cfo.runtime.webhook.review import MAX_OBJECT_BYTES
from cfo.webhooks.appwrapper.validation import MAX_COMPONENTS
from test.support.full_objects import ETCD_LIMIT
from test.support.observations import NOW, observe, seconds_later, wrapper

POD_SET: Object = {"path": "template", "replicas": 3, "annotations": {"a": "x" * 100}}


def status_of(obj: Object) -> WrapperStatus:
    status = WrapperStatus(obj, NOW)
    status.components = initial_status(obj)
    return status


def test_small_status_of_the_largest_appwrapper_fits_next_to_its_spec() -> None:
    obj = wrapper(*["Pod"] * MAX_COMPONENTS)
    status = status_of(obj)
    longest = "\N{MATHEMATICAL FRAKTUR CAPITAL A}" * MESSAGE_LIMIT
    for kind in OWN_CONDITIONS:
        status.set(kind, True, "Reason", longest if kind != VALIDATED else "sha256:")
    for index in range(MAX_COMPONENTS):
        status.set_component_identity(index, GVK("g" * 200, "v1", "K" * 63), "n" * 253)
        identity = identity_message(f"{'K' * 63} {'n' * 253}", "u" * 36)
        status.set_component_condition(index, True, CREATED, identity)
        status.set_unknown_fields(index, longest)
    room = ETCD_LIMIT - MAX_OBJECT_BYTES
    assert len(orjson.dumps(status.as_object())) > room
    assert len(orjson.dumps(status.as_small_object())) < room


def test_small_status_has_all_that_the_next_step_needs() -> None:
    obj = wrapper("Job", "Pod")
    obj["spec"]["components"][1]["podSets"] = [POD_SET]
    status = status_of(obj)
    status.set(RESOURCES_DEPLOYED, True, "Resuming", "Suspend is false")
    status.set(VALIDATED, True, "AdmissionWebhook", "sha256:digest")
    status.set_component_identity(0, GVK("batch", "v1", "Job"), "job-0")
    status.set_component_condition(0, True, CREATED, identity_message("Job job-0", "abc-0"))
    status.set_component_identity(1, GVK("", "v1", "Pod"), "x" * 10_000)
    status.set_component_condition(1, False, CREATION_ERRORED, "x" * 1000)
    small = status.as_small_object()
    deployed = find_condition(small["conditions"], RESOURCES_DEPLOYED) or {}
    assert (deployed["status"], deployed["message"]) == ("True", "")
    validated = find_condition(small["conditions"], VALIDATED) or {}
    assert validated["message"] == "sha256:digest"
    created, failed = small["componentStatus"]
    assert (created["kind"], created["name"], recorded_uid(created)) == ("Job", "job-0", "abc-0")
    assert failed["podSets"] == [{"path": "template", "replicas": 3}]
    assert failed["name"] == failed["conditions"][0]["message"] == ""
    before = observe({**obj, "status": status.as_object()}).components
    after = observe({**obj, "status": small}).components
    assert [item.admitted_pods for item in after] == [item.admitted_pods for item in before]
    assert after[0].uid == before[0].uid
    assert after[1].may_exist


def test_recorded_pod_sets_that_are_too_large_are_shrunk_and_read_from_the_spec() -> None:
    obj = wrapper()
    status = status_of(obj)
    assert not status.shrink_pod_sets()
    status.components[0]["podSets"] = [{**POD_SET, "annotations": {"a": "x" * MAX_POD_SET_BYTES}}]
    assert status.shrink_pod_sets()
    assert status.components[0]["podSets"] == [{"path": "template", "replicas": 3}]
    status.components[0]["podSets"] = [{"path": "x" * MAX_POD_SET_BYTES}]
    assert status.shrink_pod_sets()
    assert status.components[0]["podSets"] == []
    (component,) = components_of({**obj, "status": status.as_object()})
    assert component.pod_sets == ({"path": "template", "replicas": 1},)


@pytest.mark.parametrize(
    ("phase", "is_deployed", "is_kept"),
    [
        (Phase.RUNNING, True, False),
        (Phase.RESETTING, False, False),
        (Phase.RESUMING, True, True),
        (Phase.RESETTING, True, True),
    ],
)
def test_times_in_the_future_are_now_unless_names_of_components_depend_on_them(
    phase: Phase, *, is_deployed: bool, is_kept: bool
) -> None:
    """The clock was ahead when they were written."""
    obj = wrapper()
    ahead = WrapperStatus({**obj, "status": {"phase": phase.value}}, seconds_later(3600))
    ahead.set(RESOURCES_DEPLOYED, is_deployed, "Reason")
    ahead.set(UNHEALTHY, True, "Reason")
    stored = {**obj, "status": ahead.as_object()}
    assert not WrapperStatus(stored, seconds_later(3600)).has_corrected_times
    status = WrapperStatus(stored, NOW)
    assert status.has_corrected_times
    assert status.last_transition(UNHEALTHY) == NOW
    assert status.last_transition(RESOURCES_DEPLOYED) == (seconds_later(3600) if is_kept else NOW)


def test_large_declared_pod_sets_are_not_recorded() -> None:
    obj = wrapper()
    obj["spec"]["components"][0]["podSets"] = [{"path": "template" + "x" * MAX_POD_SET_BYTES}]
    with pytest.raises(PodSetError, match="at most 16384 are allowed"):
        initial_status(obj)
