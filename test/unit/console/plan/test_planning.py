"""Plans of InferenceStacks: changes of the label, the profile and the spec, with and without existing objects."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from cfo.api.inferencestack.profiles import PROFILES
from cfo.console.plan.plan_command import diff, summary
from cfo.console.plan.planning import Action, StackPlan, plan_stack, restricted
from cfo.controllers.inferencestack.rendering.stack import render
from cfo.runtime.objects.unstructured import Object, name_of
from test.support.inference_stacks import expected_objects, needs_samples, samples, stack

APPLICATION = {"readerConfig": {"modelName": "m"}}


def pinned(obj: Object, profile: str) -> Object:
    return {**obj, "status": {"profile": profile}}


def actions(plan: StackPlan) -> dict[str, tuple[Action, int]]:
    return {
        f"{change.object['kind']}/{name_of(change.object)}": (change.action, change.restarted_pods)
        for change in plan.changes
    }


def test_new_stack_is_created_with_the_newest_profile() -> None:
    plan = plan_stack(stack({"a": APPLICATION}), None)
    assert set(actions(plan).values()) == {(Action.CREATE, 0)}
    assert (plan.profile.name, plan.profile_before, len(plan.changes)) == ("v2.13", None, 6)


def test_upgrade_of_the_operator_changes_nothing_until_the_spec_changes() -> None:
    current = pinned(stack({"a": {**APPLICATION, "replicaCount": 3}}), "v2.9")
    plan = plan_stack(current, current)
    assert (plan.changes, plan.unchanged) == ((), 6)
    assert plan.pending is PROFILES["v2.13"]
    assert any("--spec-change" in line for line in summary(plan))
    changed = plan_stack(current, current, spec_changes=True)
    assert changed.pending is None
    assert actions(changed) == {"Deployment/s-inference-stack-gateway": (Action.CHANGE, 1)}


def test_upgrade_policy_automatic_applies_the_newest_profile() -> None:
    current = pinned(stack({"a": APPLICATION}, upgradePolicy="Automatic"), "v2.9")
    assert plan_stack(current, current).profile is PROFILES["v2.13"]


def test_upgrade_that_is_in_progress_is_continued() -> None:
    current = pinned(stack({"a": APPLICATION}), "v2.9")
    assert (
        plan_stack(current, current, render(current, PROFILES["v2.9"])).profile is PROFILES["v2.9"]
    )
    assert (
        plan_stack(current, current, render(current, PROFILES["v2.13"])).profile
        is PROFILES["v2.13"]
    )


def test_change_of_the_label_keeps_the_profile() -> None:
    current = pinned(stack({"a": APPLICATION}, version="v1"), "v1.0")
    plan = plan_stack(pinned(stack({"a": APPLICATION}, version="v2"), "v1.0"), current)
    assert plan.changes == ()
    assert next(summary(plan)) == "InferenceStack ns/s: operatorVersion v1 -> v2, profile v1.0"


def test_edit_of_reader_config_restarts_exactly_its_pods() -> None:
    current = pinned(stack({"a": {**APPLICATION, "replicaCount": 3}, "b": APPLICATION}), "v2.13")
    edited = deepcopy(current)
    edited["spec"]["applications"]["a"]["readerConfig"] = {"modelName": "m", "maxBatchSize": 8}
    assert actions(plan_stack(edited, current)) == {
        "ConfigMap/s-inference-stack-a": (Action.CHANGE, 0),
        "Deployment/s-inference-stack-a": (Action.CHANGE, 3),
    }


def test_removed_application_is_deleted_and_its_retained_cache_is_kept() -> None:
    current = pinned(
        stack({"a": {**APPLICATION, "cache": {"size": "1Gi"}}, "b": APPLICATION}), "v2.13"
    )
    plan = plan_stack(pinned(stack({"b": APPLICATION}), "v2.13"), current)
    assert actions(plan) == {
        "ConfigMap/s-inference-stack-a": (Action.DELETE, 0),
        "Deployment/s-inference-stack-a": (Action.DELETE, 0),
        "PersistentVolumeClaim/s-inference-stack-a-models": (Action.KEEP, 0),
    }
    assert not any("PersistentVolumeClaim" in line for line in diff(plan.changes))


def test_existing_objects_are_compared_without_their_defaults() -> None:
    current = pinned(stack({"a": {**APPLICATION, "resources": {"limits": {"cpu": 1}}}}), "v2.13")
    existing = render(current, PROFILES["v2.13"])
    for obj in existing:
        obj["metadata"] = {**obj["metadata"], "resourceVersion": "7", "generation": 1}
        obj["status"] = {"replicas": 1}
        if obj["kind"] == "Deployment":
            obj["spec"]["progressDeadlineSeconds"] = 600
            (container,) = obj["spec"]["template"]["spec"]["containers"]
            container["terminationMessagePath"] = "/dev/termination-log"
            if container.get("resources"):
                container["resources"]["limits"]["cpu"] = "1"
    plan = plan_stack(current, current, existing)
    assert (plan.changes, plan.unchanged, plan.is_compared_with_existing) == ((), 6, True)
    (deployment,) = [
        obj for obj in existing if name_of(obj).endswith("-a") and obj["kind"] == "Deployment"
    ]
    deployment["spec"]["replicas"] = 5
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    assert actions(plan_stack(current, current, existing)) == {
        "Deployment/s-inference-stack-a": (Action.CHANGE, 5)
    }


def test_kinds_without_existing_objects_are_compared_with_rendered_ones() -> None:
    current = pinned(stack({"a": APPLICATION}), "v2.13")
    existing = [obj for obj in render(current, PROFILES["v2.13"]) if obj["kind"] == "Deployment"]
    assert plan_stack(current, current, existing).changes == ()
    (gateway,) = [obj for obj in existing if name_of(obj).endswith("-gateway")]
    missing = plan_stack(current, current, [gateway])
    assert actions(missing) == {"Deployment/s-inference-stack-a": (Action.CREATE, 0)}


def test_removed_field_of_an_existing_object_is_a_change() -> None:
    current = pinned(stack({"a": {**APPLICATION, "terminationGracePeriodSeconds": 90}}), "v2.13")
    existing = render(current, PROFILES["v2.13"])
    edited = pinned(stack({"a": APPLICATION}), "v2.13")
    plan = plan_stack(edited, current, existing)
    assert actions(plan) == {"Deployment/s-inference-stack-a": (Action.CHANGE, 1)}
    assert any(
        line.startswith("-") and "terminationGracePeriodSeconds" in line
        for line in diff(plan.changes)
    )


def test_objects_of_other_owners_are_ignored() -> None:
    current = pinned(stack({}), "v2.13")
    other = deepcopy(render(pinned(stack({}, name="other"), "v2.13"), PROFILES["v2.13"]))
    foreign = deepcopy(render(current, PROFILES["v2.13"])[0])
    foreign["metadata"]["ownerReferences"] = [
        {"uid": "x", "controller": True, "kind": "K", "name": "n"}
    ]
    plan = plan_stack(current, current, [*other, foreign])
    assert (plan.changes, plan.is_compared_with_existing) == ((), False)


@needs_samples
def test_adopting_a_helm_release_restarts_no_pod() -> None:
    (current,) = samples("01-seed")
    existing = expected_objects("01-seed.v1")
    for obj in existing:
        obj["metadata"]["namespace"] = "default"
    plan = plan_stack(current, current, existing)
    assert (plan.profile.name, plan.restarted_pods) == ("v0.2", 0)
    assert {change.action for change in plan.changes} == {Action.CHANGE}  # labels and annotations
    assert all("helm" not in line for line in diff(plan.changes) if line.startswith("+"))


@pytest.mark.parametrize(
    ("live", "shape", "expected"),
    [
        ({"a": 1, "b": 2}, {"a": 3}, {"a": 1}),
        ({"limits": {"cpu": "1"}}, {"limits": {"cpu": 1}}, {"limits": {"cpu": 1}}),
        ({"limits": {"cpu": "1"}}, {"limits": {"cpu": "1000m"}}, {"limits": {"cpu": "1000m"}}),
        ({"limits": {"cpu": "2"}}, {"limits": {"cpu": 1}}, {"limits": {"cpu": "2"}}),
        ({"value": "1"}, {"value": "1.0"}, {"value": "1"}),
        (
            {"ports": [{"port": 1, "nodePort": 9}, {"port": 2}]},
            {"ports": [{"port": 2}, {"port": 1}]},
            {"ports": [{"port": 2}, {"port": 1}]},
        ),
        ({"args": ["a", "b"]}, {"args": ["a"]}, {"args": ["a", "b"]}),
        (
            {"paths": [{"path": "/", "x": 1}]},
            {"paths": [{"path": "/"}]},
            {"paths": [{"path": "/"}]},
        ),
        ({"spec": {"a": 1}}, {"spec": None}, {"spec": {"a": 1}}),
    ],
)
def test_existing_object_is_restricted_to_the_applied_fields(
    live: Any, shape: Any, expected: Any
) -> None:
    assert restricted(live, shape) == expected


@pytest.mark.parametrize(("new", "is_shown"), [("hf_old", False), ("hf_new", True)])
def test_access_tokens_are_not_shown(new: str, is_shown: bool) -> None:
    def with_token(token: str, size: int) -> Object:
        config = {"modelName": "m", "accessToken": token, "maxBatchSize": size}
        return pinned(stack({"a": {"readerConfig": config}}), "v2.13")

    lines = "\n".join(diff(plan_stack(with_token(new, 9), with_token("hf_old", 8)).changes))
    assert ("*** (before)" in lines, "*** (after)" in lines) == (is_shown, is_shown)
    assert "max_batch_size: 9" in lines
    assert "hf_" not in lines
