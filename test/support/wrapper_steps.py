"""Steps of the state machine that decides about AppWrappers, for the tests of its parts."""

from __future__ import annotations

from typing import Any

from cfo.api.appwrapper.names import FINALIZER
from cfo.controllers.appwrapper.creation import Creation, after_creation
from cfo.controllers.appwrapper.decision import WrapperDecision
from cfo.controllers.appwrapper.pods import Termination, WrapperPod
from cfo.controllers.appwrapper.transition import decide
from cfo.runtime.objects.unstructured import Object, find_condition
from test.support.observations import observe, with_decided_status, wrapper

RUNNING_POD = WrapperPod("Running")
PENDING_POD = WrapperPod("Pending")
FAILED_POD = WrapperPod("Failed", terminated=(Termination("main", 1),))
SUCCEEDED_POD = WrapperPod("Succeeded")


def step(obj: Object, **observed: Any) -> tuple[Object, WrapperDecision]:
    decision = decide(observe(obj, **observed))
    return with_decided_status(obj, decision), decision


def resumed_wrapper(*kinds: str, **annotations: Any) -> Object:
    obj, decision = step(wrapper(*kinds, **annotations))
    assert decision.add_finalizer
    obj["metadata"]["finalizers"] = [FINALIZER]
    return obj


def running_wrapper(*kinds: str, **annotations: Any) -> Object:
    obj = resumed_wrapper(*kinds, **annotations)
    observation = observe(obj)
    created = [
        Creation(component, uid=f"c-{component.index}") for component in observation.components
    ]
    return with_decided_status(obj, after_creation(observation, created))


def phase(obj: Object) -> str:
    return str(obj["status"]["phase"])


def condition(obj: Object, kind: str) -> dict[str, Any]:
    return dict(find_condition(obj["status"]["conditions"], kind) or {})


def running_component(**template: Any) -> Object:
    obj = wrapper()
    obj["spec"]["components"] = [{"template": {"metadata": {"name": "x"}, **template}}]
    obj, _ = step(obj)
    observation = observe(obj)
    return with_decided_status(
        obj, after_creation(observation, [Creation(observation.components[0], uid="u")])
    )


def queued(obj: Object) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "labels": {"kueue.x-k8s.io/queue-name": "q"}}}
