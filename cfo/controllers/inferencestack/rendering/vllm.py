"""Renders the engine ``vllm``: vLLM's container and Service, and the gateway, which is the program onwards.

vLLM gets all settings as arguments, so a change of one restarts the pods. The configuration of onwards is JSON in the
ConfigMap of the gateway.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from cfo.api.inferencestack.engines import GATEWAY_PORT, VLLM, adapters_of
from cfo.api.inferencestack.resolution import ResolvedStack, merge_env
from cfo.controllers.inferencestack.rendering.pods import (
    CONFIG_MOUNT,
    MODELS_PATH,
    PodParts,
    container,
    new_object,
)
from cfo.runtime import SERVICE, Object

_ENV: Final = [
    {"name": "HF_HOME", "value": MODELS_PATH},
    {"name": "HOME", "value": MODELS_PATH},
    {"name": "USER", "value": "vllm"},
]
"""``HF_HOME`` and ``HOME`` put models, and the caches in the home directory, into the models volume.

PyTorch fails if the user of the process has no name and ``USER`` is not set.
"""

_ARGUMENT_BY_READER_FIELD: Final = {
    "tensorParallel": "--tensor-parallel-size",
    "maxSequenceLength": "--max-model-len",
}
"""The arguments of the fields of ``readerConfig`` that are passed to vLLM as they are."""

_PERIOD_SECONDS: Final = 10
_MODEL_PROBE: Final = {
    "httpGet": {"path": VLLM.health, "port": VLLM.port},
    "periodSeconds": _PERIOD_SECONDS,
}
_START_SECONDS: Final = 3600
"""How long downloading and loading a model can take before vLLM is restarted."""

_POD_START_SECONDS: Final = 300
"""How long it can take in addition until the pod runs: scheduling, and pulling the image."""

_GATEWAY_ARGS: Final = [
    f"--targets={CONFIG_MOUNT['mountPath']}",
    f"--port={GATEWAY_PORT}",
    f"--metrics-port={VLLM.metrics_port}",
]
_GATEWAY_PROBE: Final = {
    "httpGet": {"path": "/v1/models", "port": GATEWAY_PORT},
    "periodSeconds": _PERIOD_SECONDS,
}


def model_pod(
    stack: ResolvedStack,
    name: str,
    section: Mapping[str, Any],
    volumes: Sequence[Mapping[str, Any]],
    mounts: Sequence[Mapping[str, Any]],
    token: Iterable[Object],
) -> PodParts:
    """Return the pod of an application; ``token`` is the variable with the token for Hugging Face, if any."""
    env = merge_env(section.get("env") or (), _ENV, token)
    server: Object = {
        "startupProbe": {**_MODEL_PROBE, "failureThreshold": _START_SECONDS // _PERIOD_SECONDS},
        "readinessProbe": _MODEL_PROBE,
        "livenessProbe": _MODEL_PROBE,
    }
    # The user's probes replace the default ones.
    server |= container(stack, name, section, default_tag="", env=env, mounts=mounts)
    server["command"] = ["vllm", "serve"]
    server["args"] = list(_arguments(section))
    return PodParts(
        [server],
        volumes,
        # vLLM reads variables such as VLLM_PORT, which a Service named vllm would set to its address.
        settings={"enableServiceLinks": False},
        start_seconds=_START_SECONDS + _POD_START_SECONDS,
    )


def _arguments(section: Mapping[str, Any]) -> Iterator[str]:
    """Yield the arguments of vLLM.

    If an argument is given twice, vLLM uses the last one. The user's come first, so they cannot replace ours.
    """
    reader = section["readerConfig"]
    yield str(reader["modelName"])
    yield from section.get("extraArgs") or ()
    yield f"--served-model-name={reader['consumerGroup']}"
    yield f"--port={VLLM.port}"
    for field, argument in _ARGUMENT_BY_READER_FIELD.items():
        if field in reader:
            yield f"{argument}={reader[field]}"
    adapters = adapters_of(section)
    if adapters:
        yield "--enable-lora"
        yield "--lora-modules"
    for adapter, path in adapters.items():
        # JSON, because vLLM does not accept every path in the form name=path
        yield json.dumps({"name": adapter, "path": path})


def model_service(stack: ResolvedStack, name: str, component: str) -> Object:
    """Return the Service through which the gateway calls an application."""
    ports = [{"name": "http", "port": VLLM.port, "protocol": "TCP", "targetPort": VLLM.port}]
    spec = {"type": "ClusterIP", "ports": ports, "selector": stack.names.selector(component)}
    return new_object(stack, SERVICE, name, component, spec=spec)


def targets_file(stack: ResolvedStack) -> str:
    """Return the configuration file of onwards: where it sends requests, by their ``model``.

    A model is a consumer group or a LoRA adapter. The applications of one consumer group share its requests.
    """
    urls: dict[str, list[str]] = {}
    for application, section in sorted(stack.applications.items()):
        url = f"http://{stack.names.application(application)}.{stack.namespace}.svc:{VLLM.port}"
        consumer_group = str(section["readerConfig"]["consumerGroup"])
        models = [consumer_group, *adapters_of(section)]
        for model in models:
            urls.setdefault(model, []).append(url)
    targets: dict[str, Object] = {}
    for model, model_urls in sorted(urls.items()):
        providers = [{"url": url} for url in model_urls]
        if len(providers) == 1:
            targets[model] = providers[0]
        else:
            targets[model] = {"providers": providers}
    return json.dumps({"targets": targets}, indent=2) + "\n"


def gateway_server(server: Object) -> Object:
    """Return the container ``server`` with the arguments of onwards, and with probes unless the user has set them."""
    return {
        "livenessProbe": _GATEWAY_PROBE,
        "readinessProbe": _GATEWAY_PROBE,
        **server,
        "args": _GATEWAY_ARGS,
    }
