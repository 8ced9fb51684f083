"""Validation of InferenceStacks."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.inferencestack.profiles import newest_profile
from cfo.api.inferencestack.validation.stack import validate, validate_update
from cfo.runtime.objects.unstructured import Object
from test.support.inference_stacks import needs_samples, samples, stack

V2 = newest_profile("v2")

ENGINES = '"takeoff", "external", "vllm"'


def errors(obj: Object) -> list[str]:
    return [str(error) for error in validate(obj, V2).errors]


def application_errors(**application: Any) -> list[str]:
    return errors(stack({"a": application}))


def warnings(obj: Object) -> list[str]:
    return list(validate(obj, V2).warnings)


def route_rule(rule: Any) -> dict[str, Any]:
    return {"gateway": {"httpRoute": {"parentRefs": [{"name": "g"}], "rules": [rule]}}}


ROUTE = "spec.gateway.httpRoute.rules[0]"

QUIET = {
    "resources": {"limits": {"memory": "1Gi"}},
    "env": [{"name": "TAKEOFF_MODEL_NAME", "value": "m"}],
}
"""An application without warnings."""


def application_warnings(**application: Any) -> list[str]:
    return warnings(stack({"a": {**QUIET, **application}}))


@needs_samples
@pytest.mark.parametrize(
    ("name", "error"),
    [
        (
            "bad-app-name",
            'spec.applications[Bad_Name]: Invalid value: "Bad_Name": application name must be a DNS label',
        ),
        ("reserved", "spec.applications[gateway]: Forbidden: reserved"),
        (
            "typo",
            "spec.applications[a].readerConfg: Forbidden: unknown field, did you mean readerConfig?",
        ),
        ("minmax", "minReplicaCount 5 exceeds maxReplicaCount 2"),
        ("tp", "tensorParallel 4 needs nvidia.com/gpu 4, limits give 1"),
        (
            "a-name-that-is-rather-long-for-an-inference-stack-of-this-kind",
            "names derived from it exceed 63 characters",
        ),
        ("label", '"2.13.0": operatorVersion must be of the form v<major>'),
    ],
)
def test_invalid_sample_is_rejected_with_its_message(name: str, error: str) -> None:
    (sample,) = [obj for obj in samples("90-invalid") if obj["metadata"]["name"] == name]
    assert any(error in found for found in errors(sample)), errors(sample)


@needs_samples
@pytest.mark.parametrize("name", ["01-seed", "02-seed-v2", "04-empty"])
def test_valid_sample_has_no_errors(name: str) -> None:
    (sample,) = samples(name)
    assert errors(sample) == []


@needs_samples
def test_seed_is_warned_about_missing_gpu_limit() -> None:
    (seed,) = samples("01-seed")
    gpu, memory = warnings(seed)
    assert gpu == (
        "spec.applications[hello-world].resources.limits: no GPU, but readerConfig.device is cuda: the pods can be "
        "scheduled to nodes without a free GPU; set a limit such as nvidia.com/gpu: 1"
    )
    assert memory.startswith("spec.applications[hello-world].modelsVolume: the model is in memory")


A = "spec.applications[a]"


@pytest.mark.parametrize(
    ("application", "message"),
    [
        (
            {"image": {"repository": ""}},
            f"{A}.image.repository: Required value: the stack's profile has no default",
        ),
        (
            {"engine": "sglang"},
            f'{A}.engine: Unsupported value: "sglang": supported values: {ENGINES}',
        ),
        ({"replicaCount": -1}, f"{A}.replicaCount: Invalid value: -1: must not be negative"),
        (
            {"replicaCount": "2"},
            f'{A}.replicaCount: Invalid value: "2": must be an integer of 32 bits',
        ),
        ({"env": [{"name": "A"}, {"name": "A"}]}, f'{A}.env[1].name: Duplicate value: "A"'),
        ({"env": [{"value": "x"}]}, f"{A}.env[0].name: Required value"),
        ({"env": [None]}, f"{A}.env[0]: Invalid value: must be an object"),
        (
            {"env": [{"name": "A", "vale": "x"}]},
            f"{A}.env[0].vale: Forbidden: unknown field, did you mean value?",
        ),
        (
            {"livenessProbe": {"httpGet": {"port": 1}, "exec": {"command": ["x"]}}},
            f"{A}.livenessProbe.httpGet: Forbidden: must not be set together with exec",
        ),
        (
            {"podLabels": {"app.kubernetes.io/instance": "x"}},
            f"{A}.podLabels[app.kubernetes.io/instance]: Forbidden: selects the pods of the stack",
        ),
        (
            {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}},
            f'{A}.strategy.rollingUpdate.maxUnavailable: Invalid value: "0%": may not be 0 when `maxSurge` is 0',
        ),
        (
            {"strategy": {"type": "Recreate", "rollingUpdate": {}}},
            f"{A}.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
        ),
        ({"modelsVolume": {"name": "m"}}, f"{A}.modelsVolume: Required value: must have a source"),
        ({"modelsVolume": {"emptyDir": {}}}, f"{A}.modelsVolume.name: Required value"),
        (
            {"modelsVolume": {"name": "dshm", "emptyDir": {}}},
            f'{A}.modelsVolume.name: Duplicate value: "dshm"',
        ),
        (
            {"volumes": [{"name": "models", "emptyDir": {}}]},
            f'{A}.volumes[0].name: Duplicate value: "models"',
        ),
        (
            {"cache": {"size": 0}},
            f"{A}.cache.size: Invalid value: 0: must be a positive quantity such as 50Gi",
        ),
        ({"cache": {}}, f"{A}.cache.size: Required value"),
        ({"ports": [{"name": "http"}]}, f"{A}.ports[0].containerPort: Required value"),
        ({"ports": [{"containerPort": 1}] * 2}, f"{A}.ports[1].containerPort: Duplicate value: 1"),
        ({"ports": [{"containerPort": 1}, {"containerPort": 1, "protocol": "UDP"}]}, None),
        (
            {"sidecar": {"ports": [{"containerPort": 0}]}},
            f"{A}.sidecar.ports[0].containerPort: Invalid value: 0",
        ),
        ({"volumeMounts": [{"name": "v"}]}, f"{A}.volumeMounts[0].mountPath: Required value"),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/code/models"}]},
            f'{A}.volumeMounts[0].mountPath: Duplicate value: "/code/models"',
        ),
        ({"cache": None, "modelsVolume": {}}, None),
        (
            {"cache": {"size": "1Gi", "accessModes": ["RWO"]}},
            f'{A}.cache.accessModes[0]: Unsupported value: "RWO"',
        ),
        (
            {"cache": {"size": "1Gi"}, "modelsVolume": {"name": "m", "emptyDir": {}}},
            f"{A}.modelsVolume: Forbidden: must not be set together with cache",
        ),
        (
            {"readerConfig": {"loras": ["a", "b"]}},
            f"{A}.readerConfig.loras: Invalid value: must be a string, a number, true or false",
        ),
        (
            {"readerConfig": {"future": {"a": 1}}},
            f"{A}.readerConfig.future: Invalid value: must be a string, a number, true or false",
        ),
        (
            {"readerConfig": {"a b": 1}},
            f"{A}.readerConfig[a b]: Invalid value: \"a b\": must consist of letters, digits, '-' and '_'",
        ),
        (
            {"readerConfig": {"model_name": "x"}},
            f"{A}.readerConfig.model_name: Forbidden: is the same parameter as modelName: model_name",
        ),
        (
            {"readerConfig": {"enginePort": 70000}},
            f"{A}.readerConfig.enginePort: Invalid value: 70000: must be a port",
        ),
        (
            {"readerConfig": {"accessTokenSecretRef": {"name": "hf"}}},
            f"{A}.readerConfig.accessTokenSecretRef.key: Required value",
        ),
        (
            {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
            f'{A}.resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            {"engine": "external", "sidecar": {"resources": {"requests": {"nvidia.com/gpu": 1}}}},
            f"{A}.sidecar.resources.limits: Required value: Limit must be set",
        ),
        (
            {"readerConfig": {"tensorParallel": "many"}},
            f'{A}.readerConfig.tensorParallel: Invalid value: "many": must be a positive integer',
        ),
        (
            {"scaling": {"enabled": True, "spec": {"minReplicaCount": "one"}}},
            f'{A}.scaling.spec.minReplicaCount: Invalid value: "one": must be an integer of at least 0',
        ),
        (
            {"scaling": {"enabled": True, "spec": {"idleReplicaCount": 1}}},
            f"{A}.scaling.spec.idleReplicaCount: Invalid value: 1: must be less than minReplicaCount 1",
        ),
        (
            {"scaling": {"enabled": True, "spec": {"scaleTargetRef": {"name": "x"}}}},
            f"{A}.scaling.spec.scaleTargetRef: Forbidden: the target is the Deployment of the application",
        ),
        (
            {"scaling": {"enabled": True}, "readerConfig": {"consumerGroup": None}},
            f"{A}.readerConfig.consumerGroup: Required value: KEDA scales by the queue of the consumer group",
        ),
        (
            {"scaling": {"enabled": True, "metricTarget": {"value": 0}}},
            f"{A}.scaling.metricTarget.value: Invalid value: 0: must be at least 1",
        ),
        (
            {"scaling": {"enabled": True, "type": "HPA"}},
            f"{A}.scaling.metrics: Required value: a HorizontalPodAutoscaler needs at least one metric",
        ),
        (
            {
                "scaling": {
                    "enabled": True,
                    "type": "HPA",
                    "metrics": [{}],
                    "spec": {"minReplicaCount": 0},
                }
            },
            f"{A}.scaling.spec.minReplicaCount: Invalid value: 0: a HorizontalPodAutoscaler cannot scale to zero",
        ),
        ({"scaling": {"enabled": False, "spec": {"minReplicaCount": 9}}}, None),
        (
            {
                "scaling": {"enabled": True, "spec": {"triggers": [{}]}},
                "readerConfig": {"consumerGroup": None},
            },
            None,
        ),
    ],
)
def test_setting_of_an_application_is_validated(
    application: dict[str, Any], message: str | None
) -> None:
    found = application_errors(**application)
    assert [error for error in found if message and error.startswith(message)] == found, found
    assert len(found) == (1 if message else 0)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"gateway": {"service": {"ports": []}}}, "spec.gateway.service.ports: Required value"),
        (
            {"gateway": {"service": {"ports": [{}]}}},
            "spec.gateway.service.ports[0].port: Required value",
        ),
        ({"gateway": {"volumeMounts": [{"mountPath": "/dev/shm", "name": "v"}]}}, None),
        ({"gateway": {"ingress": {"enabled": True}}}, "spec.gateway.ingress.hosts: Required value"),
        (
            {"gateway": {"httpRoute": {"parentRefs": []}}},
            "spec.gateway.httpRoute.parentRefs: Required value",
        ),
        (route_rule(None), f"{ROUTE}: Invalid value: must be an object"),
        (route_rule({"matches": "x"}), f"{ROUTE}.matches: Invalid value"),
        (route_rule({"matches": [1]}), f"{ROUTE}.matches[0]: Invalid value"),
        (route_rule({"matches": [{"path": "/a"}]}), f"{ROUTE}.matches[0].path: Invalid value"),
        (
            route_rule({"matches": [{"headers": [1]}]}),
            f"{ROUTE}.matches[0].headers[0]: Invalid value: 1",
        ),
        (
            route_rule({"matches": [{"queryParams": {}}]}),
            f"{ROUTE}.matches[0].queryParams: Invalid value",
        ),
        (route_rule({"backendRefs": ["x"]}), f"{ROUTE}.backendRefs[0]: Invalid value"),
        (route_rule({"match": []}), f"{ROUTE}.match: Forbidden: unknown field, did you mean"),
        (
            {"gateway": {"config": {"internalPort": 0}}},
            "spec.gateway.config.internalPort: Invalid value: 0",
        ),
        ({"gateway": {"config": {"a": {}}}}, "spec.gateway.config.a: Invalid value"),
        (
            {"gateway": {"podDisruptionBudget": {"minAvailable": 1, "maxUnavailable": 1}}},
            "spec.gateway.podDisruptionBudget.maxUnavailable: Forbidden",
        ),
        ({"gateway": []}, "spec.gateway: Invalid value: must be an object"),
        (
            {"applications": {"a": None}},
            "spec.applications[a]: Invalid value: must be an object; {}",
        ),
        (
            {"applicationTemplate": {"env": [{"name": ""}]}},
            "spec.applicationTemplate.env[0].name: Required value",
        ),
        ({"imagePullSecrets": [{}]}, "spec.imagePullSecrets[0].name: Required value"),
        ({"upgradePolicy": "Never"}, 'spec.upgradePolicy: Unsupported value: "Never"'),
        ({"securityProfile": "baseline"}, 'spec.securityProfile: Unsupported value: "baseline"'),
        (
            {"maxConcurrentRollouts": 0},
            "spec.maxConcurrentRollouts: Invalid value: 0: must be at least 1",
        ),
        (
            {"fullnameOverride": "1a"},
            "spec.fullnameOverride: Invalid value: \"1a\": '1a', the prefix of all names",
        ),
        (
            {"nameOverride": "a b"},
            'spec.nameOverride: Invalid value: "a b": must be a valid label value',
        ),
        (
            {"serviceAccount": {"name": "default"}},
            "spec.serviceAccount.name: Forbidden: the ServiceAccount default belongs to the namespace",
        ),
        (
            {"serviceAccount": {"name": "A"}},
            'spec.serviceAccount.name: Invalid value: "A": must be a DNS name',
        ),
        (
            {"applicationTemplat": {}},
            "spec.applicationTemplat: Forbidden: unknown field, did you mean applicationT",
        ),
        ({"GATEWAY": {}}, "spec.GATEWAY: Forbidden: unknown field, did you mean gateway?"),
        ({"applications": {"a" * 52: {}}}, f"spec.applications[{'a' * 52}]: Invalid value"),
        ({"serviceAccount": {"create": False, "name": "default"}}, None),
        ({"gateway": {"config": {"internalPort": "3005", "future": 1}}}, None),
        ({"gateway": None, "applicationTemplate": None, "serviceAccount": None}, None),
    ],
)
def test_setting_of_the_stack_is_validated(spec: dict[str, Any], message: str | None) -> None:
    found = errors(stack(**spec))
    assert [error for error in found if message and error.startswith(message)] == found, found
    assert len(found) == (1 if message else 0)


def test_external_engine_needs_an_image_in_profiles_that_have_none() -> None:
    obj = stack({"a": {"engine": "external"}})
    assert errors(obj) == []
    assert [error.field for error in validate(obj, newest_profile("v1")).errors] == [
        "spec.applications[a].externalEngineImage.repository",
        "spec.applications[a].sidecarImage.repository",
    ]


def test_sidecar_suffix_counts_for_the_length_of_names() -> None:
    name = "a" * 40  # s-inference-stack-a...: 58 characters
    assert errors(stack({name: {}})) == []
    (error,) = errors(stack({name: {"engine": "external"}}))
    assert "exceed 63 characters" in error


@pytest.mark.parametrize(
    ("application", "warning"),
    [
        (
            {"readerConfig": {"accessToken": "hf_x"}},
            "readerConfig.accessToken: the token is in clear",
        ),
        ({"replicas": 2}, "replicas: has no effect: use replicaCount"),
        (
            {"service": {}},
            "service: has no effect: applications have no Service; use gateway.service",
        ),
        (
            {"modelName": "x"},
            "modelName: unknown field, has no effect; did you mean readerConfig.modelName?",
        ),
        ({"minReplicaCount": 1}, "minReplicaCount: unknown field, has no effect"),
        (
            {"readerConfig": {"modelNam": "x"}},
            "readerConfig.modelNam: unknown field, did you mean modelName?",
        ),
        ({"scaling": {"spec": {"metricTarget": {}}}}, "scaling.spec.metricTarget: has no effect"),
        (
            {
                "resources": {"limits": {"nvidia.com/gpu": 4, "memory": "1Gi"}},
                "readerConfig": {"tensorParallel": 2},
            },
            "readerConfig.tensorParallel: 2, but the limits give 4 GPUs: 2 of them stay idle",
        ),
        (
            {"cache": {"size": "1Gi"}, "replicaCount": 2},
            "cache.accessModes: the volume can be",
        ),
        (
            {"cache": {"size": "1Gi"}, "scaling": {"enabled": True}},
            "cache.accessModes: the volume can be",
        ),
        ({"resources": {}}, "modelsVolume: the model is in memory"),
        (
            {"resources": {"limits": {"memory": "8500m"}}},
            'resources.limits[memory]: fractional byte value "8500m" is invalid',
        ),
        (
            {"sidecar": {"resources": {"requests": {"memory": "8m"}}}},
            "sidecar.resources.requests[memory]: fractional byte value",
        ),
        ({"cache": {"size": "1Gi", "accessModes": ["ReadWriteMany"]}, "replicaCount": 2}, None),
        (
            {
                "readerConfig": {"device": "cuda"},
                "resources": {"limits": {"nvidia.com/mig-1g.5gb": 1, "memory": 1}},
            },
            None,
        ),
        ({"readerConfig": {"newParameter": 1}}, None),
        ({"shmSize": "1Gi"}, None),
    ],
)
def test_warning_about_an_application(application: dict[str, Any], warning: str | None) -> None:
    found = application_warnings(**application)
    assert len(found) == (1 if warning else 0), found
    assert not warning or f"spec.applications[a].{warning}" in found[0]


def test_application_without_model_is_warned_about_the_dummy_that_it_serves() -> None:
    application = {"resources": QUIET["resources"]}
    named = {"readerConfig": {"modelName": "org/model"}}
    for quiet in (
        stack({"a": {**application, **named}}),
        stack({"a": application}, applicationTemplate=named),
        stack({"a": {**application, "engine": "external"}}),
    ):
        assert warnings(quiet) == []
    (warning,) = warnings(stack({"a": application}))
    assert (
        warning
        == f"{A}.readerConfig.modelName: not set, so the application serves TitanML/dummy_model"
    )


def test_warnings_about_the_stack() -> None:
    (missing,) = warnings(stack(version=""))
    assert missing.startswith(
        "metadata.labels[operatorVersion]: not set, so no operator reconciles this stack"
    )
    named = validate(stack(version=""), None, "v1").warnings
    assert named[0].endswith("the major version of an operator, such as v1, which runs")
    (error,) = validate(stack(version="1"), None, "v1").errors
    assert str(error).endswith("must be of the form v<major>, such as v1, which runs")
    (port,) = warnings(stack(gateway={"config": {"internalPort": 4000}}))
    assert port.startswith("spec.gateway.config.internalPort: applications and KEDA use port 3005")


def test_number_of_warnings_is_limited() -> None:
    found = warnings(stack({f"a{number}": {} for number in range(50)}))
    assert (len(found), found[-1]) == (21, "further warnings are not shown")


def test_update_is_rejected_only_for_new_errors() -> None:
    old = stack({"Bad_Name": {}})
    same = validate_update(old, stack({"Bad_Name": {"replicaCount": 2}}), V2)
    assert same.errors == ()
    assert same.warnings[0].startswith("spec.applications[Bad_Name]: Invalid value")
    worse = validate_update(old, stack({"Bad_Name": {"replicaCount": -2}}), V2)
    assert [error.field for error in worse.errors] == ["spec.applications[Bad_Name].replicaCount"]


def test_selector_of_existing_deployment_cannot_change() -> None:
    old = stack(fullnameOverride="x")
    (error,) = validate_update(old, stack(fullnameOverride="x", nameOverride="y"), V2).errors
    assert str(error).startswith(
        "spec.nameOverride: Forbidden: changes the selectors of the Deployments"
    )
    assert validate_update(old, stack(fullnameOverride="y", nameOverride="y"), V2).errors == ()
    assert (
        validate_update(
            {**old, "spec": []}, stack(fullnameOverride="x", nameOverride="y"), V2
        ).errors
        == ()
    )


@pytest.mark.parametrize(
    "unknown",
    [
        {f"applicationTemplat{index}": {} for index in range(101)},
        {f"unrelated{index}x": 1 for index in range(60)},
        {f"gatewa{index}": 1 for index in range(101)},
    ],
)
def test_many_unknown_fields_before_a_field_of_the_wrong_type(unknown: dict[str, Any]) -> None:
    obj = {**stack({}), "spec": {**unknown, "applications": {"a": 1}, "gateway": "x"}}
    assert errors(obj)
