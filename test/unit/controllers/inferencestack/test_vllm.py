"""Rendering of stacks with the engine vllm."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cfo.api.inferencestack.profiles import PROFILES
from cfo.api.inferencestack.validation.stack import validate
from cfo.controllers.inferencestack.profile_choice import choose_profile
from cfo.controllers.inferencestack.rendering.stack import render
from cfo.runtime.objects.unstructured import Object, name_of
from test.support.inference_stacks import stack, vllm_stack

PROFILE = PROFILES["v2.13"]


def objects_of(obj: Object) -> dict[tuple[str, str], Object]:
    assert validate(obj, PROFILE).errors == ()
    return {(item["kind"], name_of(item)): item for item in render(obj, PROFILE)}


def pod_of(obj: Object, component: str = "a") -> dict[str, Any]:
    spec: dict[str, Any] = objects_of(obj)["Deployment", f"s-inference-stack-{component}"]["spec"][
        "template"
    ]["spec"]
    return spec


def container_of(obj: Object, component: str = "a") -> dict[str, Any]:
    container: dict[str, Any]
    (container,) = pod_of(obj, component)["containers"]
    return container


def targets_of(obj: Object) -> dict[str, Any]:
    config = objects_of(obj)["ConfigMap", "s-inference-stack-gateway"]["data"]["config.yaml"]
    targets: dict[str, Any] = json.loads(config)["targets"]
    return targets


def test_stack_has_a_service_instead_of_a_config_map_for_each_application() -> None:
    assert list(objects_of(vllm_stack({"a": {}, "b": {}}))) == [
        ("ServiceAccount", "s-inference-stack"),
        ("ConfigMap", "s-inference-stack-gateway"),
        ("Deployment", "s-inference-stack-gateway"),
        ("Service", "s-inference-stack-gateway"),
        ("Service", "s-inference-stack-a"),
        ("Deployment", "s-inference-stack-a"),
        ("Service", "s-inference-stack-b"),
        ("Deployment", "s-inference-stack-b"),
    ]


@pytest.mark.parametrize(
    ("device", "image"),
    [("cpu", "vllm/vllm-openai-cpu:v0.28.0"), ("cuda", "vllm/vllm-openai:v0.28.0")],
)
def test_image_follows_the_device_unless_it_is_set(device: str, image: str) -> None:
    reader = {"modelName": "org/model", "device": device}
    assert container_of(vllm_stack({"a": {"readerConfig": reader}}))["image"] == image
    own = {"a": {"readerConfig": reader, "image": {"repository": "example.com/vllm", "tag": "1"}}}
    assert container_of(vllm_stack(own))["image"] == "example.com/vllm:1"


def test_settings_become_arguments_after_those_of_the_user() -> None:
    application = {
        "readerConfig": {"tensorParallel": 2, "maxSequenceLength": 4096, "consumerGroup": "chat"},
        "extraArgs": ["--dtype=float32", "--x=$(Y)"],
        "loraAdapters": [
            {"name": "sql", "path": "/code/models/sql"},
            {"name": "de", "path": "org/de"},
        ],
    }
    container = container_of(vllm_stack({"a": application}))
    assert container["command"] == ["vllm", "serve"]
    assert container["args"] == [
        "org/model",
        "--dtype=float32",
        "--x=$(Y)",
        "--served-model-name=chat",
        "--port=8000",
        "--tensor-parallel-size=2",
        "--max-model-len=4096",
        "--enable-lora",
        "--lora-modules",
        '{"name": "sql", "path": "/code/models/sql"}',
        '{"name": "de", "path": "org/de"}',
    ]


def test_models_and_caches_are_in_the_models_volume() -> None:
    secret = {"name": "hub", "key": "token"}
    pod = pod_of(vllm_stack({"a": {"readerConfig": {"accessTokenSecretRef": secret}}}))
    (container,) = pod["containers"]
    assert container["env"] == [
        {"name": "HF_HOME", "value": "/code/models"},
        {"name": "HOME", "value": "/code/models"},
        {"name": "USER", "value": "vllm"},
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": secret}},
    ]
    assert pod["volumes"] == [
        {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}},
        {"name": "models", "emptyDir": {}},
    ]
    assert "initContainers" not in pod
    assert pod["enableServiceLinks"] is False, "a Service named vllm would set VLLM_PORT"
    own = container_of(
        vllm_stack({"a": {"env": [{"name": "HF_HOME", "value": "/x"}], "cache": {"size": "1Gi"}}})
    )
    assert own["env"][0] == {"name": "HF_HOME", "value": "/x"}


def test_probes_wait_for_the_model_and_can_be_replaced() -> None:
    deployment = objects_of(vllm_stack())["Deployment", "s-inference-stack-a"]
    assert deployment["spec"]["progressDeadlineSeconds"] > 3600, "a download is not stalled"
    container = container_of(vllm_stack())
    assert container["startupProbe"]["failureThreshold"] == 360
    assert container["readinessProbe"]["httpGet"] == {"path": "/health", "port": 8000}
    own = {"exec": {"command": ["true"]}}
    assert container_of(vllm_stack({"a": {"readinessProbe": own}}))["readinessProbe"] == own


def test_gateway_calls_the_applications_by_group_and_adapter() -> None:
    applications = {
        "a": {
            "readerConfig": {"consumerGroup": "chat"},
            "loraAdapters": [{"name": "sql", "path": "org/sql"}],
        },
        "b": {"readerConfig": {"consumerGroup": "chat"}},
        "c": {},
    }
    a, b, c = (f"http://s-inference-stack-{name}.ns.svc:8000" for name in "abc")
    assert targets_of(vllm_stack(applications)) == {
        "c": {"url": c},
        "chat": {"providers": [{"url": a}, {"url": b}]},
        "sql": {"url": a},
    }


def test_gateway_is_onwards() -> None:
    obj = vllm_stack(gateway={"exportPrometheusMetrics": True})
    container = container_of(obj, "gateway")
    assert container["image"] == "ghcr.io/doublewordai/onwards:0.38.1"
    assert container["args"] == [
        "--targets=/code/config.yaml",
        "--port=3003",
        "--metrics-port=9090",
    ]
    assert container["volumeMounts"][0]["mountPath"] == "/code/config.yaml"
    assert container["readinessProbe"]["httpGet"] == {"path": "/v1/models", "port": 3003}
    assert "env" not in container
    assert [port["containerPort"] for port in container["ports"]] == [3003, 9090]
    objects = objects_of(obj)
    (port,) = objects["Service", "s-inference-stack-gateway"]["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (80, "openai")
    (endpoint,) = objects["ServiceMonitor", "s-inference-stack-gateway"]["spec"]["endpoints"]
    assert endpoint["targetPort"] == 9090


def test_network_policy_lets_only_the_gateway_call_the_applications() -> None:
    objects = objects_of(vllm_stack({"a": {}, "b": {}}, networkPolicy={"enabled": True}))
    spec = objects["NetworkPolicy", "s-inference-stack-gateway"]["spec"]
    (rule,) = spec["ingress"]
    (peer,) = rule["from"]
    gateway, application = (
        objects["Deployment", f"s-inference-stack-{name}"]["spec"]["selector"]["matchLabels"]
        for name in ("gateway", "a")
    )
    assert peer["podSelector"]["matchLabels"] == gateway
    assert spec["podSelector"]["matchLabels"].items() <= application.items()
    (expression,) = spec["podSelector"]["matchExpressions"]
    assert (expression["operator"], expression["values"]) == ("NotIn", [gateway[expression["key"]]])


def test_restricted_pods_have_the_users_of_the_images() -> None:
    obj = vllm_stack(securityProfile="restricted")
    assert pod_of(obj)["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsUser": 2000,
        "runAsGroup": 0,
        "fsGroup": 0,
    }
    assert pod_of(obj, "gateway")["securityContext"]["runAsUser"] == 1000
    without = vllm_stack(
        gateway={"podSecurityContext": {"runAsUser": None}}, securityProfile="restricted"
    )
    assert "runAsUser" not in pod_of(without, "gateway")["securityContext"], (
        "OpenShift chooses the user"
    )


def test_change_of_an_adapter_restarts_only_its_application_and_the_gateway() -> None:
    before, after = (
        objects_of(vllm_stack({"a": {"loraAdapters": [{"name": name, "path": "org/x"}]}, "b": {}}))
        for name in ("x", "y")
    )
    changed = [key for key in before if before[key] != after[key]]
    assert changed == [
        ("ConfigMap", "s-inference-stack-gateway"),
        ("Deployment", "s-inference-stack-gateway"),
        ("Deployment", "s-inference-stack-a"),
    ]


@pytest.mark.parametrize(
    "obj", [vllm_stack({"a": {"replicaCount": 2}}, replicas=3), stack({"a": {}}, replicas=3)]
)
def test_replicas_of_the_stack_are_those_of_its_application(obj: Object) -> None:
    objects = objects_of(obj)
    assert objects["Deployment", "s-inference-stack-a"]["spec"]["replicas"] == 3
    assert objects["Deployment", "s-inference-stack-gateway"]["spec"]["replicas"] == 1


@pytest.mark.parametrize(
    ("replicas", "generation", "target"),
    [(2, 7, None), (3, 8, None), (2, 8, "v2.13"), (3, 9, "v2.13")],
)
def test_scaling_does_not_apply_newer_defaults(
    replicas: int, generation: int, target: str | None
) -> None:
    """Generation 7 was reconciled with two replicas."""
    obj = vllm_stack(replicas=replicas)
    obj["metadata"]["generation"] = generation
    obj["status"] = {"profile": "v2.12", "observedGeneration": 7, "observedReplicas": 2}
    _, newer = choose_profile(obj, "v2", {})
    assert (newer.name if newer else None) == target
