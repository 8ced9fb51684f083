"""The objects of each sample, compared with those that the original chart renders.

:data:`DIFFERENCES` are all deliberate differences; docs/differences-inferencestack.md gives the reasons.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from cfo.api.inferencestack.names import CONFIG_HASH, HELM_LABELS, MANAGED_BY, MANAGED_BY_LABEL
from cfo.api.inferencestack.profiles import PROFILES
from cfo.controllers.inferencestack.profile_choice import adopted_profile
from cfo.controllers.inferencestack.rendering.facts import Facts, LiveDeployment, StoredConfig
from cfo.controllers.inferencestack.rendering.stack import render
from cfo.runtime.objects.unstructured import Object, gvk_of, name_of
from test.support.inference_stacks import expected_objects, needs_samples, samples

CASES = [
    ("01-seed", "01-seed.v1", "v0.2"),
    ("02-seed-v2", "02-seed.v2.1", "v2.1"),
    ("02-seed-v2", "02-seed.v2.13", "v2.13"),
    ("04-empty", "04-empty.v2.13", "v2.13"),
]


def without_helm(labels: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key not in HELM_LABELS}


def with_differences(expected: Object) -> Object:
    """Return the object as we render it: ``expected`` with the deliberate differences."""
    result = copy.deepcopy(expected)
    metadata = result["metadata"]
    # the versions of chart and application would change with each release; the manager is not Helm
    metadata["labels"] = {**without_helm(metadata["labels"]), MANAGED_BY_LABEL: MANAGED_BY}
    if result["kind"] == "Deployment":
        template = result["spec"]["template"]
        # for the same reason; a change of a label would restart all pods
        template["metadata"]["labels"] = without_helm(template["metadata"]["labels"])
        for container in template["spec"]["containers"]:
            for variable in container["env"]:
                if field := variable.get("valueFrom", {}).get("fieldRef"):
                    field["apiVersion"] = "v1"  # the API server's default in an atomic field
    return result


def split_hash(obj: Object) -> tuple[Object, str]:
    """Return ``obj`` without the annotation with the hash of its configuration, and the hash."""
    if obj["kind"] != "Deployment":
        return obj, ""
    metadata = obj["spec"]["template"]["metadata"]
    return obj, (metadata.pop("annotations", None) or {}).get(CONFIG_HASH, "")


@needs_samples
@pytest.mark.parametrize(("sample", "expected", "profile"), CASES)
def test_objects_equal_those_of_the_chart(sample: str, expected: str, profile: str) -> None:
    (stack,) = samples(sample)
    rendered = [split_hash(obj) for obj in render(stack, PROFILES[profile])]
    assert [obj for obj, _ in rendered] == [
        with_differences(obj) for obj in expected_objects(expected)
    ]
    assert all(bool(found) == (obj["kind"] == "Deployment") for obj, found in rendered)


@needs_samples
def test_released_operator_v1_adds_only_the_pod_name() -> None:
    (stack,) = samples("01-seed")
    deployments = [
        next(
            obj
            for obj in render(stack, PROFILES[name])
            if name_of(obj).endswith("hello-world") and "spec" in obj
        )
        for name in ("v0.2", "v1.0")
    ]
    old, new = (obj["spec"]["template"]["spec"]["containers"][0] for obj in deployments)
    added = [variable["name"] for variable in new["env"] if variable not in old["env"]]
    assert added == ["POD_NAME"]
    old["env"] = new["env"]
    assert deployments[0] == deployments[1]


def as_stored(obj: Object) -> Object:
    """Return a Deployment of Helm with defaults of the API server."""
    stored = copy.deepcopy(obj)
    pod: dict[str, Any] = stored["spec"]["template"]["spec"]
    pod |= {"restartPolicy": "Always", "schedulerName": "default-scheduler"}
    for container in pod["containers"]:
        container["terminationMessagePath"] = "/dev/termination-log"
        for variable in container["env"]:
            if field := variable.get("valueFrom", {}).get("fieldRef"):
                field["apiVersion"] = "v1"
    return stored


@needs_samples
@pytest.mark.parametrize(("sample", "expected", "profile"), CASES)
def test_adopted_stack_keeps_its_pod_templates(sample: str, expected: str, profile: str) -> None:
    (stack,) = samples(sample)
    existing = expected_objects(expected)
    deployments = {name_of(obj): as_stored(obj) for obj in existing if obj["kind"] == "Deployment"}
    config_maps = {name_of(obj): obj for obj in existing if obj["kind"] == "ConfigMap"}
    found = adopted_profile(stack, deployments)
    assert found is not None
    if deployments.keys() - {"console-inference-stack-gateway"}:
        assert found.name == profile
    facts = Facts(
        deployments={
            name: LiveDeployment.of(obj, owns_replicas=False) for name, obj in deployments.items()
        },
        config_maps={name: StoredConfig.of(obj) for name, obj in config_maps.items()},
    )
    for obj in render(stack, found, facts):
        if gvk_of(obj).kind == "Deployment":
            original = next(
                one
                for one in existing
                if one["kind"] == "Deployment" and name_of(one) == name_of(obj)
            )
            template = as_stored(original)["spec"]["template"]
            rendered = obj["spec"]["template"]
            assert rendered["metadata"] == template["metadata"]
            assert contains(template["spec"], rendered["spec"])
            assert obj["spec"]["replicas"] == original["spec"]["replicas"]
        if gvk_of(obj).kind == "ConfigMap":
            assert obj["data"]["config.yaml"] == config_maps[name_of(obj)]["data"]["config.yaml"]
            assert yaml.safe_load(obj["data"]["config.yaml"])["takeoff"]["server_config"] == {
                "internal_port": 3005
            }


def contains(whole: Any, part: Any) -> bool:
    if isinstance(part, dict):
        return all(key in whole and contains(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(contains, whole, part))
    return bool(whole == part)
