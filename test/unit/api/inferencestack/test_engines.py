"""Stacks with the engine vllm: which fields it refuses, and why; hostile names, paths and arguments."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.inferencestack.profiles import PROFILES
from cfo.api.inferencestack.validation.engines import MAX_ADAPTERS, MAX_ARGUMENTS
from cfo.api.inferencestack.validation.stack import validate
from test.support.inference_stacks import stack, vllm_stack

PROFILE = PROFILES["v2.13"]
NAME = "must be a letter or digit, followed by at most 127 letters, digits and ._/:-"
LOCATION = "must be a letter, digit or '/', followed by at most 511 letters, digits and ._/:@+=~-"
ONE = "spec.replicas: Forbidden: only for a stack with exactly one application; use replicaCount"
FORM = "must be one argument of the form --name or --name=value"
CLOSED = "would make vLLM unreachable for the gateway"
QUEUE = "the gateway of the engine vllm has no queue"
KNOWN = "accessTokenSecretRef, consumerGroup, device, maxSequenceLength, modelName, tensorParallel"


def errors_of(obj: dict[str, Any]) -> list[str]:
    return [str(error) for error in validate(obj, PROFILE).errors]


def reader(**config: Any) -> dict[str, Any]:
    return {"readerConfig": {"modelName": "org/model", **config}}


def adapter(name: str = "sql", path: str = "org/sql") -> dict[str, Any]:
    return {"loraAdapters": [{"name": name, "path": path}]}


VALID: list[dict[str, Any]] = [
    reader(),
    reader(
        modelName="/code/models/my-model",
        consumerGroup="gpt-4o:latest",
        device="cuda",
        tensorParallel="2",
    ),
    reader(
        maxSequenceLength=4096,
        accessTokenSecretRef={"name": "hub", "key": "token"},
        pageCacheSize=None,
    ),
    adapter(),
    adapter("org/sql-v1.2", "/code/models/sql+v=1"),
    {
        "extraArgs": [
            "--dtype=float32",
            "--enforce-eager",
            "--limit-mm-per-prompt.image=2",
            '--x={"a": "b c"}',
            "--y=$(Z)",
        ]
    },
    {"scaling": {"enabled": True, "type": "HPA", "metrics": [{"type": "Resource"}]}},
    {"scaling": {"enabled": True, "spec": {"triggers": [{"type": "prometheus"}]}}},
    {"env": [{"name": "HF_HOME", "value": "/elsewhere"}]},
]


@pytest.mark.parametrize("application", VALID)
def test_setting_of_vllm_is_accepted(application: dict[str, Any]) -> None:
    assert errors_of(vllm_stack({"a": application})) == []


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"engine": "takeoff"},
        'engine: Invalid value: "takeoff": must be vllm, as in spec.applicationTemplate',
    ),
    ({"sidecar": {}}, "sidecar: Forbidden: the engine vllm has no sidecar"),
    ({"sidecarImage": {"tag": "x"}}, "sidecarImage: Forbidden: the engine vllm has no sidecar"),
    (
        {"externalEngineImage": {"tag": "x"}},
        "externalEngineImage: Forbidden: the engine vllm has one container; use image",
    ),
    (
        reader(pageCacheSize="5GB"),
        (
            "readerConfig.pageCacheSize: Forbidden: the engine vllm does not have it: "
            f"set arguments of vLLM in extraArgs; it has only {KNOWN}"
        ),
    ),
    (
        reader(maxBatchSize=8),
        "readerConfig.maxBatchSize: Forbidden: the engine vllm does not have it: use extraArgs: --max-num-seqs",
    ),
    (
        reader(loras="x"),
        "readerConfig.loras: Forbidden: the engine vllm does not have it: use loraAdapters",
    ),
    (
        reader(accessToken="hf_x"),
        "readerConfig.accessToken: Forbidden: the engine vllm does not have it: use accessTokenSecretRef",
    ),
    (
        reader(enginePort=80),
        "readerConfig.enginePort: Forbidden: the engine vllm does not have it: its port is 8000",
    ),
    (
        reader(modelName=None),
        "readerConfig.modelName: Required value: the Hugging Face id or the path of the model that vLLM serves",
    ),
    (
        reader(modelName="--trust-remote-code"),
        f'readerConfig.modelName: Invalid value: "--trust-remote-code": {LOCATION}',
    ),
    (
        reader(modelName="$(HF_TOKEN)"),
        f'readerConfig.modelName: Invalid value: "$(HF_TOKEN)": {LOCATION}',
    ),
    (reader(consumerGroup="a b"), f'readerConfig.consumerGroup: Invalid value: "a b": {NAME}'),
    (reader(consumerGroup=""), f'readerConfig.consumerGroup: Invalid value: "": {NAME}'),
    (
        reader(device="tpu"),
        'readerConfig.device: Unsupported value: "tpu": supported values: "cpu", "cuda"',
    ),
    (
        reader(maxSequenceLength="1 --x"),
        'readerConfig.maxSequenceLength: Invalid value: "1 --x": must be a positive integer',
    ),
    (
        reader(maxSequenceLength=True),
        "readerConfig.maxSequenceLength: Invalid value: true: must be a positive integer",
    ),
    (
        reader(tensorParallel="1,2"),
        'readerConfig.tensorParallel: Invalid value: "1,2": must be a positive integer',
    ),
    (adapter('x", "y'), f'loraAdapters[0].name: Invalid value: "x\\", \\"y": {NAME}'),
    (adapter("--port=1"), f'loraAdapters[0].name: Invalid value: "--port=1": {NAME}'),
    (adapter("a\n"), f'loraAdapters[0].name: Invalid value: "a\\n": {NAME}'),
    (adapter("a"), 'loraAdapters[0].name: Duplicate value: "a"'),
    (adapter(path="a,b"), f'loraAdapters[0].path: Invalid value: "a,b": {LOCATION}'),
    ({"loraAdapters": [{"name": "x"}]}, "loraAdapters[0].path: Required value"),
    ({"extraArgs": ["org/other"]}, f'extraArgs[0]: Invalid value: "org/other": {FORM}'),
    ({"extraArgs": ["-tp=2"]}, f'extraArgs[0]: Invalid value: "-tp=2": {FORM}'),
    ({"extraArgs": ["--"]}, f'extraArgs[0]: Invalid value: "--": {FORM}'),
    (
        {"extraArgs": ["--served_model_name=x"]},
        "extraArgs[0]: Forbidden: set by readerConfig.consumerGroup",
    ),
    ({"extraArgs": ["--lora-modules=x=y"]}, "extraArgs[0]: Forbidden: set by loraAdapters"),
    ({"extraArgs": ["--port=1"]}, f"extraArgs[0]: Forbidden: --port {CLOSED}"),
    ({"extraArgs": ["--ssl-keyfile=x"]}, f"extraArgs[0]: Forbidden: --ssl-keyfile {CLOSED}"),
    (
        {"extraArgs": [f"--x={'y' * 2000}"]},
        "extraArgs[0]: Too long: may not be more than 1024 bytes",
    ),
    ({"scaling": {"metricTarget": {"value": 2}}}, f"scaling.metricTarget: Forbidden: {QUEUE}"),
    (
        {"scaling": {"enabled": True}},
        f"scaling.spec.triggers: Required value: {QUEUE} by which KEDA could scale; set triggers, or the type HPA",
    ),
]


@pytest.mark.parametrize(("application", "error"), REFUSED)
def test_setting_without_meaning_for_vllm_is_refused(
    application: dict[str, Any], error: str
) -> None:
    assert errors_of(vllm_stack({"a": application})) == [f"spec.applications[a].{error}"]


def test_setting_of_the_template_is_refused_at_its_path() -> None:
    obj = vllm_stack(
        {"a": {}, "b": {}}, applicationTemplate={"engine": "vllm", **reader(bufferRequests=True)}
    )
    assert [error.partition(":")[0] for error in errors_of(obj)] == [
        "spec.applicationTemplate.readerConfig.bufferRequests"
    ]


def test_settings_of_the_gateway_without_meaning_for_vllm_are_refused() -> None:
    obj = vllm_stack(
        gateway={"config": {"allowRemoteImages": True}},
        networkPolicy={"enabled": True, "kedaNamespace": "keda"},
    )
    assert errors_of(obj) == [
        "spec.gateway.config.allowRemoteImages: Forbidden: the gateway of the engine vllm has no such parameters",
        "spec.networkPolicy.kedaNamespace: Forbidden: KEDA does not call the gateway of vllm",
    ]


def test_fields_of_vllm_are_refused_for_other_engines() -> None:
    obj = stack({"a": {"engine": "vllm"}, "b": {**adapter(), "extraArgs": ["--x"]}})
    assert errors_of(obj) == [
        "spec.applications[a].engine: Forbidden: set vllm in spec.applicationTemplate: the gateway depends on it",
        "spec.applications[b].extraArgs: Forbidden: only the engine vllm has it",
        "spec.applications[b].loraAdapters: Forbidden: only the engine vllm has it",
    ]


def test_numbers_of_adapters_and_arguments_are_limited() -> None:
    many = [{"name": f"x{index}", "path": "org/x"} for index in range(MAX_ADAPTERS // 2 + 1)]
    other = [{**item, "name": f"y{index}"} for index, item in enumerate(many)]
    obj = vllm_stack({"a": {"loraAdapters": many}, "b": {"loraAdapters": other}})
    assert errors_of(obj) == [
        (
            f"spec.applications: Too many: {MAX_ADAPTERS + 2}: "
            f"must have at most {MAX_ADAPTERS} loraAdapters in all applications"
        )
    ]
    arguments = ["--x"] * (MAX_ARGUMENTS + 1)
    (error,) = errors_of(vllm_stack({"a": {"extraArgs": arguments}}))
    assert error.startswith("spec.applications[a].extraArgs: Too many")


def test_gpus_without_the_device_are_a_warning() -> None:
    limits = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    assert validate(vllm_stack({"a": limits}), PROFILE).warnings == (
        (
            "spec.applications[a].readerConfig.device: cpu, so the image of vLLM for CPUs is used, "
            "and no GPU of the limits"
        ),
    )
    assert not validate(vllm_stack({"a": {**limits, **reader(device="cuda")}}), PROFILE).warnings


@pytest.mark.parametrize(
    ("applications", "replicas", "error"),
    [
        ({"a": {}}, 0, None),
        (
            {"a": {}},
            -1,
            "spec.applications[a].replicaCount: Invalid value: -1: must not be negative",
        ),
        *((applications, 2, ONE) for applications in ({}, {"a": {}, "b": {}})),
    ],
)
def test_replicas_are_those_of_the_only_application(
    applications: dict[str, Any], replicas: int, error: str | None
) -> None:
    assert errors_of(stack(applications, replicas=replicas)) == ([error] if error else [])
