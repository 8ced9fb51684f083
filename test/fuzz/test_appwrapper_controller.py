"""The decisions about AppWrappers: whatever an API server stores, also without admission, has a next step."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import strategies as st

from cfo.api.appwrapper.podsets import PodSetError
from cfo.api.kueue import WORKLOADS
from cfo.controllers.appwrapper.components import (
    InjectionError,
    components_of,
    desired_object,
    recorded_uids,
    specified_infos,
)
from cfo.controllers.appwrapper.creation import Creation, after_creation
from cfo.controllers.appwrapper.pods import WrapperPod
from cfo.controllers.appwrapper.transition import decide
from cfo.controllers.appwrapper.workload import (
    WorkloadPriority,
    completion,
    desired_workload,
    pod_set_infos,
)
from cfo.runtime.objects.unstructured import Object
from test.fuzz.checks.appwrapper_controller import (
    ANNOTATIONS,
    CONFIG,
    IN_ORDER,
    MAX_SECONDS,
    MAX_STATUS,
    OBJECTS,
    OWNER,
    PODS,
    VALUES,
    WRAPPERS,
    check_settings,
)
from test.fuzz.profiles import fuzz
from test.fuzz.stored_objects import as_stored
from test.support.observations import observe, seconds_later, with_decided_status


@fuzz(0.08, WRAPPERS, PODS, OBJECTS, st.integers(0, 10**7))
def test_each_stored_appwrapper_has_a_next_step(
    wrapper: Any, pods: list[WrapperPod], obj: Any, seconds: int
) -> None:
    stored = as_stored(wrapper)
    if stored is None:
        return
    started = time.thread_time()
    for step in range(4):
        objects = [obj for _ in components_of(stored)]
        observation = observe(stored, pods=pods, objects=objects, now=seconds_later(seconds + step))
        decision = decide(observation)
        if decision.create:
            creations = [
                Creation(item, "u", error="no" if item.index == 2 else "", fatal=obj is None)
                for item in observation.components[:3]
            ]
            decision = after_creation(observation, creations)
        stored = with_decided_status(stored, decision)
        assert as_stored(stored) is not None, "the status violates the CRD"
        assert len(json.dumps(stored["status"])) < MAX_STATUS
    recorded_uids(stored)
    completion(stored)
    assert time.thread_time() - started < MAX_SECONDS * 4


@fuzz(0.08, WRAPPERS)
def test_each_component_can_be_created_or_is_rejected(wrapper: Any) -> None:
    stored = as_stored(wrapper)
    if stored is None:
        return
    before = json.dumps(stored)
    for component in components_of(stored):
        try:
            created = desired_object(
                stored, component, specified_infos(stored)[component.index], CONFIG
            )
        except InjectionError:
            continue
        json.dumps(created)
        assert created["metadata"]["namespace"] == "ns"
        assert created["metadata"]["ownerReferences"][-1]["uid"] == stored["metadata"]["uid"]
    assert json.dumps(stored) == before


@fuzz(0.04, WRAPPERS, st.sampled_from(WORKLOADS))
def test_each_stored_appwrapper_has_a_workload_or_is_rejected(wrapper: Any, gvk: Any) -> None:
    stored = as_stored(wrapper)
    if stored is None:
        return
    try:
        workload = desired_workload(
            stored, gvk, WorkloadPriority("scheduling.k8s.io", "PriorityClass", "high", 1)
        )
    except PodSetError:
        return
    json.dumps(workload)
    assignments = [
        {"name": item["name"], "flavors": {"cpu": "on"}} for item in workload["spec"]["podSets"]
    ]
    workload["status"] = {"admission": {"clusterQueue": "q", "podSetAssignments": assignments}}
    flavors: dict[str, Object] = {"on": {"nodeLabels": {"a": "b"}}}
    pod_set_infos(stored, workload, flavors.get)


@fuzz(0.04, st.dictionaries(st.sampled_from(ANNOTATIONS), VALUES))
def test_each_annotation_is_a_setting_or_a_problem(annotations: dict[str, str]) -> None:
    check_settings(annotations)


OTHER_TYPES: tuple[Any, ...] = (None, True, 5, 0.5, "x", [], [None], ["x"], {}, {"a": 1})


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each list or object in ``value`` with each of its indexes or keys."""
    keys: list[Any] = []
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    for key in keys:
        yield value, key
        yield from places(value[key])


@pytest.mark.parametrize("number", range(len(IN_ORDER)))
def test_field_of_any_type_is_read_or_rejected(number: int) -> None:
    """An exception in each reconcile would keep the quota of an AppWrapper for good."""
    wrapper = copy.deepcopy(IN_ORDER[number])
    template = wrapper["spec"]["components"][0]["template"]
    template["metadata"]["ownerReferences"] = [dict(OWNER)]
    assert as_stored(wrapper) is not None
    for parent, key in list(places(template)):
        kept = parent[key]
        for value in OTHER_TYPES:
            parent[key] = value
            stored = as_stored(wrapper)
            if stored is None:
                continue
            components = components_of(stored)
            decide(observe(stored, objects=[None for _ in components]))
            for component in components:
                with suppress(InjectionError):
                    desired_object(stored, component, [{}], CONFIG)
            with suppress(PodSetError):
                desired_workload(stored, WORKLOADS[0], WorkloadPriority())
        parent[key] = kept
