"""The engines of applications: what differs between them, as data.

``takeoff`` and ``external`` are those of the original. Their applications open connections to the gateway, and take
requests out of its queue. The images of ``vllm`` are public: the model server is vLLM, and the gateway is onwards,
which calls the applications. One gateway cannot serve both kinds, so ``vllm`` is the engine of a whole stack.

Sources: the pages "Using Docker", "Using Kubernetes", "LoRA Adapters" and "CPU" of vLLM's documentation and its release
script; the command line and configuration pages of onwards, and its Helm chart ``doublewordai/inference-stack``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cfo.runtime import Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine. ``images`` are the fields of its images, and ``port`` is where its server listens."""

    name: str
    images: tuple[str, ...] = ("image",)
    suffix: str = ""
    """The longest suffix of its containers' names."""
    hub_variable: str = "HF_TOKEN"
    """The variable with the token for Hugging Face."""
    port: int = 3000
    health: str
    """The path of the health check."""
    is_called: bool = False
    """Whether the gateway calls the applications: they have a Service, and arguments instead of a ConfigMap."""
    metrics_port: int = 3001
    """The port of the gateway's metrics."""
    reader_keys: frozenset[str] | None = None
    """The keys of ``readerConfig``; ``None``: any."""
    models_medium: str = "Memory"
    """The medium of the default volume for models; empty: the disk."""

    @property
    def models_volume(self) -> Object:
        """The default volume for models."""
        return {
            "name": "models",
            "emptyDir": {"medium": self.models_medium} if self.models_medium else {},
        }


TAKEOFF: Final = Engine(name="takeoff", hub_variable="TAKEOFF_ACCESS_TOKEN", health="/healthz")
EXTERNAL: Final = Engine(
    name="external",
    images=("externalEngineImage", "sidecarImage"),
    suffix="-sidecar",
    health="/health",
)
VLLM: Final = Engine(
    name="vllm",
    port=8000,
    health="/health",
    is_called=True,
    metrics_port=9090,
    reader_keys=frozenset(
        {
            "accessTokenSecretRef",
            "consumerGroup",
            "device",
            "maxSequenceLength",
            "modelName",
            "tensorParallel",
        }
    ),
    models_medium="",
)

ENGINES: Final[Mapping[str, Engine]] = {engine.name: engine for engine in (TAKEOFF, EXTERNAL, VLLM)}
"""All engines by name."""

GATEWAY_PORT: Final = 3003
"""The port of the OpenAI API in the gateway's container, which the original calls ``openai``."""

_VLLM_IMAGES: Final = {"cpu": "vllm/vllm-openai-cpu", "cuda": "vllm/vllm-openai"}
_ONWARDS: Final = "ghcr.io/doublewordai/onwards"
_ONWARDS_USER: Final = 1000
_VLLM_USER: Final = {"runAsUser": 2000, "runAsGroup": 0, "fsGroup": 0}
"""The user for which vLLM's image is prepared, and the group that its directories and volumes are writable for."""


def engine_of(section: Mapping[str, Any] | None) -> Engine:
    """Return the engine of an application or template. An unknown one, which validation rejects, is the default."""
    name = (section or {}).get("engine")
    return ENGINES.get(name, TAKEOFF) if isinstance(name, str) else TAKEOFF


def gateway_defaults(defaults: Object, tag: str, *, restricted: bool) -> Object:
    """Return the defaults of ``spec.gateway`` for :data:`VLLM`, given those of the original's gateway."""
    port = {"containerPort": GATEWAY_PORT, "protocol": "TCP", "name": "openai"}
    result = {
        **defaults,
        "image": default_image(_ONWARDS, tag),
        "config": {},
        "ports": [port, {"containerPort": VLLM.metrics_port, "protocol": "TCP", "name": "metrics"}],
        "service": {**defaults["service"], "ports": defaults["service"]["ports"][:1]},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    if restricted:
        # A number, because the name of the image's user does not prove to a kubelet that it is not root.
        result["podSecurityContext"] = {"runAsUser": _ONWARDS_USER}
    return result


def template_defaults(defaults: Object, *, restricted: bool) -> Object:
    """Return the defaults of ``spec.applicationTemplate`` for :data:`VLLM`, given those of the original."""
    scaling = {key: value for key, value in defaults["scaling"].items() if key != "metricTarget"}
    result: Object = {
        "engine": VLLM.name,
        "replicaCount": defaults["replicaCount"],
        "scaling": scaling,
        "shmSize": "2Gi",
        "readerConfig": {"device": "cpu"},
        "ports": [{"containerPort": VLLM.port, "protocol": "TCP", "name": "http"}],
    }
    if restricted:
        result["podSecurityContext"] = _VLLM_USER
    return result


def application_defaults(application: str, section: Mapping[str, Any], tag: str) -> Object:
    """Return the defaults of one application of :data:`VLLM` that depend on its name and device."""
    device = (section.get("readerConfig") or {}).get("device")
    repository = _VLLM_IMAGES["cpu"]
    if isinstance(device, str):
        repository = _VLLM_IMAGES.get(device, repository)
    return {"image": default_image(repository, tag), "readerConfig": {"consumerGroup": application}}


def adapters_of(section: Mapping[str, Any]) -> dict[str, str]:
    """Return the paths of an application's LoRA adapters by name."""
    return {adapter["name"]: adapter["path"] for adapter in section.get("loraAdapters") or ()}


def default_image(repository: str, tag: str) -> Object:
    """Return an image as a default of a profile."""
    return {"repository": repository, "tag": tag, "pullPolicy": "IfNotPresent"}
