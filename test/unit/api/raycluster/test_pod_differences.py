"""Which fields of a pod have values of an older spec, and that what others add or rewrite is not reported."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cfo.api.raycluster.pod_differences import differences, groups_of, has_other_image
from cfo.runtime import Object

START = "ray start --head --block --num-cpus=2 --dashboard-host=0.0.0.0"
PROBE = {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 5}


def template() -> Object:
    """Return a pod template that sets each field that is compared."""
    return {
        "metadata": {"labels": {"team": "a"}},
        "spec": {
            "nodeSelector": {"gpu": "yes"},
            "tolerations": [{"key": "gpu", "effect": "NoSchedule"}],
            "initContainers": [{"name": "fetch", "image": "fetch:1", "args": ["a", "b"]}],
            "containers": [
                {
                    "name": "ray",
                    "image": "quay.io/team/ray:1",
                    "command": ["echo", "hello"],
                    "resources": {
                        "requests": {"cpu": 1, "memory": "1024Mi"},
                        "limits": {"memory": "1024Mi"},
                    },
                    "env": [
                        {"name": "MODE", "value": "fast"},
                        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    ],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    "readinessProbe": dict(PROBE),
                },
                {"name": "log", "image": "log", "command": ["log", "all"]},
                {"name": "oauth-proxy", "image": "proxy:1"},
            ],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    }


def cluster_with(pod_template: Object, generation: int = 2) -> Object:
    return {
        "metadata": {"name": "x", "namespace": "n", "generation": generation},
        "spec": {
            "headGroupSpec": {
                "rayStartParams": {"num-cpus": "2", "block": "false", "resources": '"{}"'},
                "template": pod_template,
            }
        },
    }


def created_pod() -> Object:
    """Return the pod that a cluster has: with what KubeRay, the API server and webhooks add to the template."""
    pod = copy.deepcopy(template())
    pod["metadata"]["labels"]["ray.io/group"] = "headgroup"
    spec = pod["spec"]
    spec["nodeSelector"]["pool"] = "default"
    spec["tolerations"].append({"key": "node.kubernetes.io/not-ready", "operator": "Exists"})
    spec["volumes"].insert(0, {"name": "shared-mem", "emptyDir": {"medium": "Memory"}})
    ray, log, proxy = spec["containers"]
    ray["command"] = ["/bin/bash", "-lc", "--"]
    ray["args"] = [f" echo hello && ulimit -n ${{RAY_START_ULIMIT:-65536}}; {START} "]
    ray["image"] = "mirror.example.com/quay/ray:1@sha256:0123"
    ray["resources"] = {
        "requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"},
        "limits": {"memory": "1Gi", "cpu": "4"},
    }
    ray["env"][1]["valueFrom"]["fieldRef"]["apiVersion"] = "v1"
    ray["env"] += [
        {"name": "MODE", "value": "of a webhook"},
        {"name": "KUBERAY_GEN_RAY_START_CMD", "value": START},
    ]
    ray["volumeMounts"].append({"name": "shared-mem", "mountPath": "/dev/shm"})
    ray["readinessProbe"] = {
        "httpGet": {"path": "/app-health/ray/readyz", "port": 15020},
        "periodSeconds": 5,
        "timeoutSeconds": 1,
    }
    ray["livenessProbe"] = {"exec": {"command": ["bash"]}}
    log["image"] = "log:latest"
    log["command"] = ["/vault/vault-env"]
    log["args"] = ["log", "all"]
    proxy["image"] = "proxy:2"
    spec["containers"].insert(0, {"name": "istio-proxy", "image": "istio"})
    spec["initContainers"].append({"name": "wait-gcs-ready", "image": "ray"})
    return pod


def differences_of(pod_template: Object, pod: Object, **fields: Any) -> list[str]:
    cluster = cluster_with(pod_template, **fields)
    return differences(cluster, groups_of(cluster), pod)


def test_additions_and_rewritings_of_others_are_no_differences() -> None:
    assert differences_of(template(), created_pod()) == []
    assert differences_of({"spec": {"containers": [{"name": "ray", "image": "ray:1"}]}}, {}) == []


def changed(*path: str | int, value: Any) -> Object:
    """Return the template with another value at ``path`` below its spec; ``None`` removes the field."""
    result = template()
    target: Any = result["spec"]
    for field in path[:-1]:
        target = target[field]
    if value is None:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    return result


RAY = ("containers", 0)


@pytest.mark.parametrize(
    ("pod_template", "difference"),
    [
        (changed("nodeSelector", "gpu", value="no"), "nodeSelector"),
        (changed("nodeSelector", "zone", value="a"), "nodeSelector"),
        (changed("tolerations", 0, "key", value="tpu"), "tolerations"),
        (changed(*RAY, "image", value="quay.io/team/ray:2"), "image of container ray"),
        (changed(*RAY, "command", 1, value="bye"), "command of container ray"),
        (changed(*RAY, "command", value=["echo"]), "command of container ray"),
        (changed(*RAY, "command", value=None), "command of container ray"),
        (changed(*RAY, "args", value=["more"]), "command of container ray"),
        (changed(*RAY, "command", value=["ray start", "--x"]), "command of container ray"),
        (changed(*RAY, "resources", "requests", "cpu", value="500m"), "resources of container ray"),
        (changed(*RAY, "resources", "limits", "gpu", value=1), "resources of container ray"),
        (changed(*RAY, "env", 0, "value", value="slow"), "variable MODE of container ray"),
        (changed(*RAY, "env", 0, "name", value="NEW"), "variable NEW of container ray"),
        (
            changed(*RAY, "volumeMounts", 0, "mountPath", value="/new"),
            "volume mount /new of container ray",
        ),
        (
            changed(*RAY, "readinessProbe", "periodSeconds", value=9),
            "readinessProbe of container ray",
        ),
        (
            changed(*RAY, "livenessProbe", value={"exec": {"command": ["sh"]}}),
            "livenessProbe of container ray",
        ),
        (changed("containers", 1, "command", value=["log"]), "command of container log"),
        (changed("containers", 1, "name", value="new"), "container new"),
        (changed("initContainers", 0, "args", 0, value="c"), "command of container fetch"),
        (
            changed("volumes", 0, "persistentVolumeClaim", "claimName", value="other"),
            "volume data",
        ),
    ],
)
def test_change_of_the_template_is_a_difference(pod_template: Object, difference: str) -> None:
    assert differences_of(pod_template, created_pod()) == [difference]
    assert differences_of(pod_template, created_pod(), generation=1) == []


def test_removed_command_of_a_pod_that_kuberay_left_as_it_is_is_a_difference() -> None:
    pod = created_pod()
    ray = pod["spec"]["containers"][1]
    ray["command"], ray["args"] = ["echo"], ["hello"]
    assert differences_of(template(), pod) == ["command of container ray"]
    overwrites = template()
    overwrites["metadata"]["annotations"] = {"ray.io/overwrite-container-cmd": "true"}
    assert differences_of(overwrites, pod) == []
    ray["env"] = template()["spec"]["containers"][0]["env"]
    assert differences_of(template(), pod) == []  # without the variable nothing was added


def test_changed_parameter_of_ray_start_is_a_difference() -> None:
    cluster = cluster_with(template())
    cluster["spec"]["headGroupSpec"]["rayStartParams"] |= {"num-cpus": "4", "num-gpus": "1"}
    found = differences(cluster, groups_of(cluster), created_pod())
    assert found == ["rayStartParams num-cpus"]


def test_resources_that_gke_autopilot_adjusts_are_no_difference() -> None:
    pod_template = changed(*RAY, "resources", "requests", "cpu", value="500m")
    pod = created_pod()
    pod["metadata"]["annotations"] = {"autopilot.gke.io/resource-adjustment": "{}"}
    assert differences_of(pod_template, pod) == []


def test_image_of_another_registry_is_only_another_image_for_a_container_that_waits_for_it() -> (
    None
):
    groups = groups_of(cluster_with(template()))
    assert has_other_image(groups, created_pod(), "ray")
    assert not has_other_image(groups, created_pod(), "fetch")
    assert not has_other_image(groups, created_pod(), "istio-proxy")


@pytest.mark.parametrize("value", [7, "text", [7], {"name": 7}, None])
def test_fields_of_any_type_are_compared(value: Any) -> None:
    for at in (("containers",), RAY, (*RAY, "env"), (*RAY, "resources"), ("tolerations",)):
        assert isinstance(differences_of(changed(*at, value=value), created_pod()), list)
    pod = created_pod()
    pod["spec"]["containers"] = value
    assert differences_of(template(), pod)
