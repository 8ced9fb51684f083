"""The queue of a stack: which labels are passed on, and which changes Kueue would reject."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.inferencestack.profiles import newest_profile
from cfo.api.inferencestack.queue import embedded_queue_errors, queue_labels, queue_of
from cfo.api.inferencestack.validation.stack import validate, validate_update
from cfo.controllers.inferencestack.rendering.stack import render
from cfo.runtime.objects.unstructured import Object
from test.support.inference_stacks import stack

V2 = newest_profile("v2")
QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY = "kueue.x-k8s.io/priority-class"


def queued(
    queue: str | None = "team", priority: str | None = None, *, deployed: bool = True, **spec: Any
) -> Object:
    obj = stack({"a": {}}, **spec)
    labels = {QUEUE: queue, PRIORITY: priority}
    obj["metadata"]["labels"] |= {key: value for key, value in labels.items() if value is not None}
    if deployed:
        obj["status"] = {"conditions": [{"type": "Deployed", "status": "True"}]}
    return obj


def test_labels_of_kueue_are_passed_on_only_with_a_queue() -> None:
    assert queue_labels(queued("team", "high")) == {QUEUE: "team", PRIORITY: "high"}
    assert queue_of(queued("team")) == "team"
    for queue in ("", None):
        assert queue_labels(queued(queue, "high")) == {}


def test_deployments_and_pods_of_a_queue() -> None:
    obj = queued("team", "high", applicationTemplate={"podLabels": {"team": "x"}})
    deployments = [each for each in render(obj, V2) if each["kind"] == "Deployment"]
    assert len(deployments) == 2
    for deployment in deployments:
        template = deployment["spec"]["template"]
        for labels in (deployment["metadata"]["labels"], template["metadata"]["labels"]):
            assert (labels[QUEUE], labels[PRIORITY]) == ("team", "high")
        assert template["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/admission"}]
        rolling = deployment["spec"]["strategy"]["rollingUpdate"]
        assert rolling == {"maxSurge": 0, "maxUnavailable": 1}
        assert QUEUE not in deployment["spec"]["selector"]["matchLabels"]


def test_strategy_of_the_user_applies_in_a_queue() -> None:
    obj = queued("team", gateway={"strategy": {"type": "Recreate"}})
    found = {
        each["metadata"]["name"]: each for each in render(obj, V2) if each["kind"] == "Deployment"
    }
    assert found["s-inference-stack-gateway"]["spec"]["strategy"] == {"type": "Recreate"}


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        (queued("team"), queued("other"), f"metadata.labels[{QUEUE}]: Forbidden: immutable while"),
        (queued(None), queued("team"), f"metadata.labels[{QUEUE}]: Forbidden: immutable while"),
        (queued("team"), queued(None), f"metadata.labels[{QUEUE}]: Forbidden: cannot be removed"),
        (queued("team", suspend=True), queued(None), "cannot be removed"),
        (queued("team"), queued("team", "high"), f"metadata.labels[{PRIORITY}]: Forbidden: immuta"),
        (queued("team", "high"), queued("team"), f"metadata.labels[{PRIORITY}]: Forbidden: cannot"),
        (queued("team", suspend=True), queued("other", suspend=True), ""),
        (queued("team", suspend=True), queued("other"), ""),
        (queued("team", suspend=True), queued("team", "high"), ""),
        (queued("team", "high"), queued("team", "low"), ""),
        (queued("team", deployed=False), queued("other"), ""),
        (queued("team", deployed=False), queued(None), ""),
        (queued("team"), queued("team", replicas=2), ""),
    ],
)
def test_changes_that_kueue_rejects_are_rejected(old: Object, new: Object, error: str) -> None:
    errors = [str(each) for each in validate_update(old, new, V2).errors]
    if not error:
        assert errors == []
        return
    assert len(errors) == 1
    assert error in errors[0]


def test_queue_does_not_change_together_with_an_error_that_is_known() -> None:
    wrong = {"upgradePolicy": "Never"}
    (error,) = validate_update(queued("team", **wrong), queued("other", **wrong), V2).errors
    assert str(error).startswith(f"metadata.labels[{QUEUE}]: Forbidden")


@pytest.mark.parametrize(
    ("section", "path"),
    [
        ({"podLabels": {"kueue.x-k8s.io/pod-group-name": "x"}}, "podLabels"),
        ({"podLabels": {QUEUE: "other"}}, "podLabels"),
        ({"podLabels": {"kueue.x-k8s.io/podset-required-topology": "x"}}, "podLabels"),
        ({"podAnnotations": {"kueue.x-k8s.io/prebuilt-workload-name": "x"}}, "podAnnotations"),
    ],
)
def test_pods_cannot_leave_the_queue_of_their_stack(section: dict[str, Any], path: str) -> None:
    for spec in (
        {"gateway": section},
        {"applicationTemplate": section},
        {"applications": {"a": section}},
    ):
        obj = queued("team")
        obj["spec"] |= spec
        (error,) = validate(obj, V2).errors
        assert f".{path}[kueue.x-k8s.io/" in str(error)
        del obj["metadata"]["labels"][QUEUE]
        assert validate(obj, V2).errors == (), "without a queue, Kueue's labels are the user's"


def test_pods_in_a_queue_can_be_placed_near_each_other() -> None:
    annotations = {"kueue.x-k8s.io/podset-required-topology": "rack"}
    obj = queued("team", applicationTemplate={"podAnnotations": annotations})
    assert validate(obj, V2).errors == ()


@pytest.mark.parametrize("name", ["Team", "a_b", "a..b"])
def test_queue_must_be_the_name_of_an_object(name: str) -> None:
    (error,) = validate(queued(name), V2).errors
    assert f"metadata.labels[{QUEUE}]: Invalid value" in str(error)


def test_stack_in_another_object_has_no_queue_of_its_own() -> None:
    assert list(embedded_queue_errors(queued(None))) == []
    (error,) = embedded_queue_errors(queued("team"))
    assert "the AppWrapper has the queue" in str(error)
