"""The objects of a stack: each optional part, and where they differ from the original chart."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cfo.api.gateway import HTTP_ROUTE
from cfo.api.inferencestack.kinds import (
    HORIZONTAL_POD_AUTOSCALER,
    PERSISTENT_VOLUME_CLAIM,
    POD_DISRUPTION_BUDGET,
    SCALED_OBJECT,
    SERVICE_MONITOR,
)
from cfo.api.inferencestack.names import KEPT_REPLICAS, is_retained
from cfo.api.inferencestack.profiles import PROFILES, Profile, newest_profile
from cfo.api.inferencestack.validation.stack import validate
from cfo.controllers.inferencestack.profile_choice import adopted_profile, restarts_pods
from cfo.controllers.inferencestack.rendering.facts import Facts, LiveDeployment
from cfo.controllers.inferencestack.rendering.stack import render, unserved_kinds
from cfo.runtime.objects.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    INGRESS,
    NETWORK_POLICY,
    SERVICE,
    SERVICE_ACCOUNT,
)
from cfo.runtime.objects.unstructured import GVK, Object, gvk_of, name_of
from test.support.inference_stacks import stack

V2 = newest_profile("v2")
GATEWAY = "s-inference-stack-gateway"
APP = "s-inference-stack-a"


def rendered(
    obj: Object, profile: Profile = V2, facts: Facts | None = None
) -> dict[tuple[GVK, str], Any]:
    """Return the objects of a valid stack by kind and name."""
    assert validate(obj, profile).errors == ()
    before = copy.deepcopy(obj)
    objects = render(obj, profile, facts)
    assert obj == before, "the stack is not changed"
    by_key = {(gvk_of(item), name_of(item)): item for item in objects}
    assert len(by_key) == len(objects)
    return by_key


def application(own: dict[str, Any], profile: Profile = V2, **spec: Any) -> Any:
    """Return the pod spec of an application."""
    return rendered(stack({"a": own}, **spec), profile)[DEPLOYMENT, APP]["spec"]["template"]["spec"]


def env_of(container: Any) -> dict[str, Any]:
    return {
        variable["name"]: variable.get("value", variable.get("valueFrom"))
        for variable in container["env"]
    }


def test_empty_stack_has_a_gateway() -> None:
    assert list(rendered({**stack(), "spec": None})) == [
        (SERVICE_ACCOUNT, "s-inference-stack"),
        (CONFIG_MAP, GATEWAY),
        (DEPLOYMENT, GATEWAY),
        (SERVICE, GATEWAY),
    ]


def test_applications_are_sorted_and_each_has_its_objects() -> None:
    found = list(rendered(stack({"b": {}, "a": {}})))[4:]
    assert found == [
        (kind, f"s-inference-stack-{name}") for name in "ab" for kind in (CONFIG_MAP, DEPLOYMENT)
    ]


def test_stack_with_several_applications_has_the_objects_of_the_chart() -> None:
    scaled = {"scaling": {"enabled": True, "metricTarget": {"value": 15}}}
    obj = stack(
        {"plain": {}, "gpu": {"resources": {"limits": {"nvidia.com/gpu": 1}}}, "scaled": scaled},
        gateway={"exportPrometheusMetrics": True},
    )
    kinds = [kind.kind for kind, _ in rendered(obj)]
    assert sorted(kinds) == sorted(
        ["ServiceAccount", "Service", "ServiceMonitor", "ScaledObject"]
        + ["ConfigMap", "Deployment"] * 4
    )


def test_service_account_can_be_external() -> None:
    objects = rendered(stack(serviceAccount={"create": False, "name": "mine"}))
    assert not [key for key in objects if key[0] == SERVICE_ACCOUNT]
    assert objects[DEPLOYMENT, GATEWAY]["spec"]["template"]["spec"]["serviceAccountName"] == "mine"
    account = rendered(stack(serviceAccount={"automount": False, "annotations": {"a": "b"}}))
    found = account[SERVICE_ACCOUNT, "s-inference-stack"]
    assert (found["automountServiceAccountToken"], found["metadata"]["annotations"]) == (
        False,
        {"a": "b"},
    )


def test_gateway_environment_of_the_user_has_precedence() -> None:
    env = [
        {"name": "Z", "value": "1"},
        {"name": "TAKEOFF_ADD_READER_ID_SUFFIX", "value": "false"},
        {"name": "EMPTY", "value": ""},
    ]
    objects = rendered(stack(gateway={"env": env}))
    (container,) = objects[DEPLOYMENT, GATEWAY]["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [
        {"name": "TAKEOFF_ADD_READER_ID_SUFFIX", "value": "false"},
        {"name": "Z", "value": "1"},
    ]


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        ({}, "tytn/takeoff-pro:0.22.0-rc23-gpu"),
        ({"tag": ""}, "tytn/takeoff-pro:0.22.0-rc23-gpu"),
        ({"repository": "registry/x"}, "registry/x:0.22.0-rc23-gpu"),
        ({"repository": "registry/x@sha256:abc"}, "registry/x@sha256:abc"),
        ({"tag": "mine"}, "tytn/takeoff-pro:mine"),
    ],
)
def test_image_of_an_application(image: dict[str, str], reference: str) -> None:
    assert application({"image": image})["containers"][0]["image"] == reference


def test_external_engine_has_a_sidecar() -> None:
    pod = application(
        {
            "engine": "external",
            "readerConfig": {"enginePort": 8000, "isEmbedding": True},
            "sidecar": {
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "TAKEOFF_HEADLESS", "value": "false"},
                ],
                "ports": [{"containerPort": 9, "protocol": "TCP"}],
                "resources": {"limits": {"cpu": 0.5}},
            },
            "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "2048Mi"}},
        }
    )
    engine, sidecar = pod["containers"]
    assert (engine["name"], engine["image"]) == (f"{APP}-engine", "tytn/engine:1.1.4-sglang")
    assert (env_of(engine)["ENGINE_PORT"], env_of(engine)["IS_EMBEDDING"]) == ("8000", "true")
    assert engine["livenessProbe"]["httpGet"] == {"path": "/health", "port": 8000}
    assert engine["resources"] == {"limits": {"nvidia.com/gpu": "1", "memory": "2Gi"}}
    assert (sidecar["name"], sidecar["image"]) == (f"{APP}-sidecar", "tytn/gateway:0.3.4-py")
    assert sidecar["env"] == [
        {"name": "TAKEOFF_SGLANG_API_URL", "value": "http://localhost:8000"},
        {"name": "TAKEOFF_HEADLESS", "value": "false"},
        {"name": "A", "value": "1"},
    ]
    assert (sidecar["ports"], sidecar["resources"]) == (
        [{"containerPort": 9, "protocol": "TCP"}],
        {"limits": {"cpu": "500m"}},
    )
    assert [mount["mountPath"] for mount in sidecar["volumeMounts"]] == ["/code/config.yaml"]


@pytest.mark.parametrize(
    ("engine", "variable"), [("takeoff", "TAKEOFF_ACCESS_TOKEN"), ("external", "HF_TOKEN")]
)
def test_access_token_comes_from_a_secret(engine: str, variable: str) -> None:
    reference = {"name": "hf", "key": "token"}
    objects = rendered(
        stack({"a": {"engine": engine, "readerConfig": {"accessTokenSecretRef": reference}}})
    )
    container = objects[DEPLOYMENT, APP]["spec"]["template"]["spec"]["containers"][0]
    assert env_of(container)[variable] == {"secretKeyRef": reference}
    assert "hf" not in objects[CONFIG_MAP, APP]["data"]["config.yaml"]


def test_settings_of_the_pod_are_rendered() -> None:
    own = {
        "podAnnotations": {"a": "b"},
        "podLabels": {"team": "x"},
        "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
        "terminationGracePeriodSeconds": 0,
        "strategy": {"type": "Recreate"},
        "affinity": {"nodeAffinity": {}},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1024Mi"}}],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        "securityContext": {"runAsUser": 1},
        "podSecurityContext": {"fsGroup": 2},
        "startupProbe": {"httpGet": {"port": 3000}},
        "ports": [{"containerPort": 3000}],
        "shmSize": "4096Mi",
    }
    deployment = rendered(stack({"a": own}))[DEPLOYMENT, APP]
    template, pod = deployment["spec"]["template"], deployment["spec"]["template"]["spec"]
    assert template["metadata"]["labels"]["team"] == "x"
    assert template["metadata"]["annotations"]["a"] == "b"
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert (pod["terminationGracePeriodSeconds"], pod["securityContext"]) == (0, {"fsGroup": 2})
    assert {volume["name"]: volume.get("emptyDir") for volume in pod["volumes"]} == {
        "config": None,
        "dshm": {"medium": "Memory", "sizeLimit": "4Gi"},
        "models": {"medium": "Memory"},
        "v": {"sizeLimit": "1Gi"},
    }
    (container,) = pod["containers"]
    assert container["lifecycle"] == own["lifecycle"]
    assert container["securityContext"] == {"runAsUser": 1}
    assert container["startupProbe"] == own["startupProbe"]
    assert container["volumeMounts"][-1] == {"name": "v", "mountPath": "/v"}


def test_explicit_liveness_probe_replaces_the_default() -> None:
    probe = {"tcpSocket": {"port": 3000}}
    assert application({"livenessProbe": probe})["containers"][0]["livenessProbe"] == probe
    assert application({})["containers"][0]["livenessProbe"]["initialDelaySeconds"] == 600
    assert "livenessProbe" not in application({}, PROFILES["v2.1"])["containers"][0]


def test_restricted_pods_need_no_root() -> None:
    pod = application(
        {"securityContext": {"readOnlyRootFilesystem": True}}, securityProfile="restricted"
    )
    assert "initContainers" not in pod
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert pod["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


@pytest.mark.parametrize(
    ("cache", "spec", "retained"),
    [
        ({"size": "100Gi"}, {"accessModes": ["ReadWriteOnce"]}, True),
        (
            {"size": 1, "storageClass": "fast", "accessModes": ["ReadWriteMany"], "retain": False},
            {"accessModes": ["ReadWriteMany"], "storageClassName": "fast"},
            False,
        ),
    ],
)
def test_cache_is_a_claim_that_outlives_the_stack(
    cache: dict[str, Any], spec: dict[str, Any], retained: bool
) -> None:
    objects = rendered(stack({"a": {"cache": cache}}))
    claim = objects[PERSISTENT_VOLUME_CLAIM, f"{APP}-models"]
    assert claim["spec"] == {**spec, "resources": {"requests": {"storage": str(cache["size"])}}}
    assert is_retained(claim) == retained
    pod = objects[DEPLOYMENT, APP]["spec"]["template"]["spec"]
    assert pod["volumes"][2] == {
        "name": "models",
        "persistentVolumeClaim": {"claimName": f"{APP}-models"},
    }


def test_cache_with_a_group_needs_no_init_container() -> None:
    assert "initContainers" not in application(
        {"cache": {"size": "1Gi"}, "podSecurityContext": {"fsGroup": 1}}
    )
    assert "initContainers" in application({"cache": {"size": "1Gi"}})


def test_keda_scales_by_the_queue_of_the_consumer_group() -> None:
    own = {
        "readerConfig": {"consumerGroup": "chat"},
        "scaling": {
            "enabled": True,
            "annotations": {"autoscaling.keda.sh/paused": "true"},
            "metricTarget": {"value": 15},
            "spec": {"maxReplicaCount": 8, "metricTarget": "old"},
        },
    }
    objects = rendered(stack({"a": own}))
    scaled = objects[SCALED_OBJECT, APP]
    assert scaled["metadata"]["annotations"] == {"autoscaling.keda.sh/paused": "true"}
    assert scaled["spec"] == {
        "advanced": {},
        "pollingInterval": 60,
        "initialCooldownPeriod": 300,
        "cooldownPeriod": 300,
        "minReplicaCount": 1,
        "maxReplicaCount": 8,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": APP},
        "triggers": [
            {
                "type": "external-push",
                "metadata": {
                    "scalerAddress": f"{GATEWAY}.ns.svc.cluster.local:3005",
                    "target_chat": "15",
                },
            }
        ],
    }
    assert "replicas" not in objects[DEPLOYMENT, APP]["spec"]


def test_triggers_of_the_user_replace_the_generated_one() -> None:
    triggers = [{"type": "cron", "metadata": {"start": "0 8 * * *"}}]
    objects = rendered(stack({"a": {"scaling": {"enabled": True, "spec": {"triggers": triggers}}}}))
    assert objects[SCALED_OBJECT, APP]["spec"]["triggers"] == triggers


def test_horizontal_pod_autoscaler_can_be_chosen() -> None:
    target = {"type": "AverageValue", "averageValue": "0.5"}
    scaling = {
        "enabled": True,
        "type": "HPA",
        "spec": {"minReplicaCount": 2},
        "metrics": [
            {"type": "External", "external": {"metric": {"name": "queue"}, "target": target}}
        ],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}},
    }
    spec = rendered(stack({"a": {"scaling": scaling}}))[HORIZONTAL_POD_AUTOSCALER, APP]["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"], spec["behavior"]) == (
        2,
        4,
        scaling["behavior"],
    )
    assert spec["metrics"][0]["external"]["target"] == {
        "type": "AverageValue",
        "averageValue": "500m",
    }


@pytest.mark.parametrize("kind", ["KEDA", "HPA"])
def test_suspended_stack_has_no_pods_and_no_autoscaler(kind: str) -> None:
    scaling = {"enabled": True, "type": kind, "metrics": [{}]}
    live = Facts(deployments={APP: LiveDeployment(replicas=5)})
    objects = rendered(stack({"a": {"scaling": scaling}}, suspend=True), facts=live)
    assert [objects[DEPLOYMENT, name]["spec"]["replicas"] for name in (GATEWAY, APP)] == [0, 0]
    assert not {SCALED_OBJECT, HORIZONTAL_POD_AUTOSCALER} & {key[0] for key in objects}
    assert objects[DEPLOYMENT, APP]["metadata"]["labels"][KEPT_REPLICAS] == "5"


def test_kinds_that_are_not_served_are_left_out_and_reported() -> None:
    scaling = {"enabled": True, "spec": {"minReplicaCount": 3}}
    gateway = {"exportPrometheusMetrics": True, "httpRoute": {"parentRefs": [{"name": "gw"}]}}
    obj = stack({"a": {"scaling": scaling}}, gateway=gateway)
    served = frozenset({SERVICE_MONITOR})
    objects = rendered(obj, facts=Facts(served=served))
    assert {key[0] for key in objects} & {SCALED_OBJECT, HTTP_ROUTE, SERVICE_MONITOR} == {
        SERVICE_MONITOR
    }
    assert objects[DEPLOYMENT, APP]["spec"]["replicas"] == 3
    assert unserved_kinds(obj, V2, served) == [HTTP_ROUTE, SCALED_OBJECT]
    assert unserved_kinds(stack(), V2, frozenset()) == []


def test_ingress_refers_to_the_port_by_name() -> None:
    ingress = {
        "enabled": True,
        "className": "nginx",
        "annotations": {"a": "b"},
        "hosts": [{"host": "llm.example.com", "paths": [{"path": "/v1"}]}],
        "tls": [{"hosts": ["llm.example.com"], "secretName": "tls"}],
    }
    found = rendered(stack(gateway={"ingress": ingress}))[INGRESS, GATEWAY]
    assert found["metadata"]["annotations"] == {"a": "b"}
    backend = {"service": {"name": GATEWAY, "port": {"name": "http"}}}
    path = {"path": "/v1", "pathType": "ImplementationSpecific", "backend": backend}
    assert found["spec"] == {
        "ingressClassName": "nginx",
        "tls": ingress["tls"],
        "rules": [{"host": "llm.example.com", "http": {"paths": [path]}}],
    }


def test_ingress_uses_the_first_port_if_none_is_named_http() -> None:
    gateway = {
        "ingress": {"enabled": True, "hosts": [{"paths": [{}]}]},
        "service": {"ports": [{"port": 8080}]},
    }
    (rule,) = rendered(stack(gateway=gateway))[INGRESS, GATEWAY]["spec"]["rules"]
    assert rule["http"]["paths"][0]["backend"]["service"]["port"] == {"number": 8080}


def test_http_route_contains_the_defaults_of_the_api_server() -> None:
    route = {
        "parentRefs": [{"name": "gw", "namespace": "infra"}],
        "hostnames": ["llm.example.com"],
        "rules": [
            {
                "matches": [{"headers": [{"name": "x", "value": "1"}]}],
                "timeouts": {"request": "60s"},
            },
            {"backendRefs": [{"name": "other", "port": 1}]},
        ],
    }
    spec = rendered(stack(gateway={"httpRoute": route}))[HTTP_ROUTE, GATEWAY]["spec"]
    path = {"type": "PathPrefix", "value": "/"}
    own = {"group": "", "kind": "Service", "name": GATEWAY, "port": 80, "weight": 1}
    parent = {
        "group": "gateway.networking.k8s.io",
        "kind": "Gateway",
        "name": "gw",
        "namespace": "infra",
    }
    assert spec["parentRefs"] == [parent]
    assert spec["rules"] == [
        {
            "matches": [{"path": path, "headers": [{"type": "Exact", "name": "x", "value": "1"}]}],
            "timeouts": {"request": "60s"},
            "backendRefs": [own],
        },
        {
            "matches": [{"path": path}],
            "backendRefs": [
                {"group": "", "kind": "Service", "weight": 1, "name": "other", "port": 1}
            ],
        },
    ]
    default = rendered(stack(gateway={"httpRoute": {"parentRefs": [{"name": "gw"}]}}))[
        HTTP_ROUTE, GATEWAY
    ]["spec"]
    assert default["rules"] == [{"matches": [{"path": path}], "backendRefs": [own]}]


def test_service_monitor_selects_only_its_own_stack() -> None:
    monitor = rendered(stack(gateway={"exportPrometheusMetrics": True}))[SERVICE_MONITOR, GATEWAY]
    assert monitor["spec"]["selector"]["matchLabels"] == {
        "app.kubernetes.io/component": "gateway",
        "app.kubernetes.io/name": "inference-stack",
        "app.kubernetes.io/instance": "s",
    }


@pytest.mark.parametrize("scaled", [False, True])
def test_network_policy_allows_only_the_stack_and_keda_to_reach_the_internal_port(
    scaled: bool,
) -> None:
    objects = rendered(
        stack(
            {"a": {"scaling": {"enabled": scaled}}},
            networkPolicy={"enabled": True, "kedaNamespace": "scaling"},
        )
    )
    internal, public = objects[NETWORK_POLICY, GATEWAY]["spec"]["ingress"]
    own = {"app.kubernetes.io/name": "inference-stack", "app.kubernetes.io/instance": "s"}
    keda = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "scaling"}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "keda-operator"}},
    }
    assert internal["ports"] == [{"port": 3005, "protocol": "TCP"}]
    assert internal["from"] == [{"podSelector": {"matchLabels": own}}, *([keda] if scaled else [])]
    assert [port["port"] for port in public["ports"]] == [3000, 3001, 3003]
    assert "from" not in public


def test_disruption_budgets() -> None:
    objects = rendered(
        stack(
            {"a": {"podDisruptionBudget": {"maxUnavailable": "25%"}}, "b": {}},
            gateway={"podDisruptionBudget": {"minAvailable": 1}},
        )
    )
    budgets = {
        name: item["spec"]
        for (kind, name), item in objects.items()
        if kind == POD_DISRUPTION_BUDGET
    }
    assert budgets.keys() == {GATEWAY, APP}
    assert budgets[APP] == {
        "maxUnavailable": "25%",
        "selector": objects[DEPLOYMENT, APP]["spec"]["selector"],
    }


def test_only_the_deployment_with_a_changed_reader_configuration_restarts() -> None:
    def templates(obj: Object) -> dict[str, Any]:
        return {
            name: item["spec"]["template"]
            for (kind, name), item in rendered(obj).items()
            if kind == DEPLOYMENT
        }

    before = templates(stack({"a": {}, "b": {}}))
    after = templates(stack({"a": {"readerConfig": {"maxBatchSize": 8}}, "b": {}}))
    assert [name for name in before if before[name] != after[name]] == [APP]


def test_newer_profile_restarts_pods_and_the_same_does_not() -> None:
    obj = stack({"a": {}})
    old = {
        name: item
        for (kind, name), item in rendered(obj, PROFILES["v2.12"]).items()
        if kind == DEPLOYMENT
    }
    for profile, restarted in ((PROFILES["v2.12"], []), (V2, [GATEWAY])):
        new = {
            name: item
            for (kind, name), item in rendered(obj, profile).items()
            if kind == DEPLOYMENT
        }
        assert [name for name in new if restarts_pods(new[name], old[name])] == restarted


def helm_deployments(obj: Object, profile: Profile) -> dict[str, Object]:
    """Return the Deployments as Helm creates them with the chart of ``profile``."""
    found = {
        name: item for (kind, name), item in rendered(obj, profile).items() if kind == DEPLOYMENT
    }
    for item in found.values():
        labels = item["spec"]["template"]["metadata"]["labels"]
        labels |= {
            "helm.sh/chart": f"inference-stack-{profile.chart}",
            "app.kubernetes.io/version": profile.app_version,
            "app.kubernetes.io/managed-by": "Helm",
        }
        del item["spec"]["template"]["metadata"]["annotations"]
    return found


@pytest.mark.parametrize("name", PROFILES)
def test_profile_of_each_release_is_recognized(name: str) -> None:
    own: dict[str, Any] = (
        {"a": {}, "e": {"engine": "external"}} if PROFILES[name].engine_tag else {"a": {}}
    )
    obj = stack(own)
    found = adopted_profile(obj, helm_deployments(obj, PROFILES[name]))
    assert found is not None
    assert found.name == name


def test_profile_of_unknown_chart_is_not_recognized() -> None:
    obj = stack()
    deployments = helm_deployments(obj, V2)
    deployments[GATEWAY]["spec"]["template"]["metadata"]["labels"]["helm.sh/chart"] = (
        "inference-stack-77"
    )
    assert adopted_profile(obj, deployments) is None
    assert adopted_profile(obj, {}) is None
