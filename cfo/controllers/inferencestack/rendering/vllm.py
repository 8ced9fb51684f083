"""What is rendered for the engine ``vllm`` only: vLLM's container and its Service, and the gateway onwards.

vLLM gets all settings as arguments, so a change of one restarts the pods. The configuration of onwards is in the
ConfigMap of the gateway, in JSON.
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
    {"name": name, "value": value}
    for name, value in (("HF_HOME", MODELS_PATH), ("HOME", MODELS_PATH), ("USER", "vllm"))
]
"""Models, and the caches in the home directory, are in the models volume. PyTorch asks for the name of the user, and
fails for a user without one if this variable is not set."""
_NUMBERS: Final = {
    "tensorParallel": "--tensor-parallel-size",
    "maxSequenceLength": "--max-model-len",
}
_PERIOD_SECONDS: Final = 10
_HEALTH: Final = {
    "httpGet": {"path": VLLM.health, "port": VLLM.port},
    "periodSeconds": _PERIOD_SECONDS,
}
_START_SECONDS: Final = 3600
"""How long downloading and loading a model can take before vLLM is restarted."""

_GATEWAY_ARGS: Final = [
    f"--targets={CONFIG_MOUNT['mountPath']}",
    f"--port={GATEWAY_PORT}",
    f"--metrics-port={VLLM.metrics_port}",
]
_GATEWAY_HEALTH: Final = {
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
    result = container(stack, name, section, default_tag="", env=env, mounts=mounts)
    probes = {
        "startupProbe": {**_HEALTH, "failureThreshold": _START_SECONDS // _PERIOD_SECONDS},
        "readinessProbe": _HEALTH,
        "livenessProbe": _HEALTH,
    }
    server = {**probes, **result, "command": ["vllm", "serve"], "args": list(_arguments(section))}
    # vLLM reads variables such as VLLM_PORT, which a Service named vllm would set to its address
    return PodParts(
        [server],
        volumes,
        settings={"enableServiceLinks": False},
        start_seconds=_START_SECONDS + 300,
    )


def _arguments(section: Mapping[str, Any]) -> Iterator[str]:
    """Yield the arguments of vLLM. Of an argument that is set twice, the last one applies, so the user's are first."""
    reader = section["readerConfig"]
    yield str(reader["modelName"])
    yield from section.get("extraArgs") or ()
    yield f"--served-model-name={reader['consumerGroup']}"
    yield f"--port={VLLM.port}"
    yield from (f"{argument}={reader[key]}" for key, argument in _NUMBERS.items() if key in reader)
    adapters = adapters_of(section)
    if adapters:
        yield from ("--enable-lora", "--lora-modules")
        # JSON, because vLLM does not accept every path in the form name=path
        yield from (json.dumps({"name": name, "path": path}) for name, path in adapters.items())


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
        for model in (str(section["readerConfig"]["consumerGroup"]), *adapters_of(section)):
            urls.setdefault(model, []).append(url)
    targets: dict[str, Object] = {}
    for model, found in sorted(urls.items()):
        providers = [{"url": url} for url in found]
        targets[model] = providers[0] if len(providers) == 1 else {"providers": providers}
    return json.dumps({"targets": targets}, indent=2) + "\n"


def gateway_server(result: Object) -> Object:
    """Return the container of the gateway, ``result``, with what onwards needs."""
    return {
        "livenessProbe": _GATEWAY_HEALTH,
        "readinessProbe": _GATEWAY_HEALTH,
        **result,
        "args": _GATEWAY_ARGS,
    }
