"""The types of applications, and of their common template."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from cfo.api.inferencestack.field_types import (
    AnyObject,
    ContainerPort,
    EnvVar,
    HorizontalPodAutoscalerBehavior,
    MetricSpec,
    OpenModel,
    Quantity,
    ResourceRequirements,
    Scalar,
    SecretKeySelector,
    Strings,
    Volume,
    open_schema,
    optional,
    rule,
)
from cfo.api.inferencestack.pod_models import Image, PodSettings
from cfo.runtime import Int32

__all__ = ["ApplicationTemplate"]

AccessMode = Annotated[str, Field(json_schema_extra={"maxLength": 32})]


def _immutable(name: str) -> dict[str, str]:
    return rule(
        f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})",
        f"{name} of an existing volume cannot be changed",
    )


class ReaderConfig(OpenModel):
    """The configuration of a model's reader. Further keys are written to the configuration file as well."""

    model_name: Scalar | None = optional("Hugging Face id or path of the model.")
    device: Scalar | None = optional("cpu or cuda.")
    consumer_group: Scalar | None = optional("Queue of the application; the `model` in requests of the OpenAI API.")
    buffer_requests: Scalar | None = optional("Whether requests wait in the queue instead of being rejected.")
    access_token: Scalar | None = optional("Access token for Hugging Face, in clear. Prefer accessTokenSecretRef.")
    access_token_secret_ref: SecretKeySelector | None = optional(
        "Key of a Secret with the access token for Hugging Face (extension)."
    )
    log_level: Scalar | None = optional("Log level.")
    reader_log_as_json: Scalar | None = optional("Whether logs are JSON.")
    cuda_visible_devices: Scalar | None = optional("Comma-separated indexes of GPUs.")
    max_batch_size: Scalar | None = optional("Maximum batch size.")
    max_sequence_length: Scalar | None = optional("Maximum length of a sequence in tokens.")
    prefill_chunk_size: Scalar | None = optional("Size of prefill chunks in tokens.")
    quantize_cache_bits: Scalar | None = optional("Bits of the quantized cache.")
    cuda_graph_cache_capacity: Scalar | None = optional("Capacity of the cache of CUDA graphs.")
    disable_cuda_graph: Scalar | None = optional("Whether CUDA graphs are disabled.")
    lmfe_max_consecutive_whitespaces: Scalar | None = optional("Maximum run of whitespace in constrained output.")
    tensor_parallel: Scalar | None = optional("Number of GPUs that share the model.")
    quant_type: Scalar | None = optional("Type of the quantization.")
    loras: Scalar | None = optional("LoRA adapters.")
    constrained_decoding_backend: Scalar | None = optional("lmfe, outlines, all or none.")
    page_cache_size: Scalar | None = optional("Size of the page cache: 10MB, 5GB or 90%.")
    ssd_cache_size: Scalar | None = optional("Size of the cache on SSD in bytes.")
    enable_document_processing: Scalar | None = optional("Whether documents are processed.")
    internal_gateway_ip: Scalar | None = optional("Host of the gateway. Its Service if unset.")
    engine_port: Scalar | None = optional("Port of an external engine. 3000 if unset.")
    is_embedding: Scalar | None = optional("Whether an external engine serves embeddings.")


class Sidecar(OpenModel):
    """The sidecar of an external engine."""

    resources: ResourceRequirements | None = optional("Resources of the sidecar.")
    env: list[EnvVar] | None = optional("Environment variables of the sidecar.")
    ports: list[ContainerPort] | None = optional("Ports of the sidecar.")


class QueueTarget(OpenModel):
    """The target of the autoscaler."""

    name: str | None = optional("Name of the metric: consumerGroupSize.")
    value: Int32 | None = optional("Number of queued requests for each replica.")


class Scaling(OpenModel):
    """Autoscaling of an application."""

    enabled: bool | None = optional("Whether an autoscaler sets the number of replicas.")
    type: Literal["KEDA", "HPA"] | None = optional("The autoscaler: KEDA (default) or HPA (extension).")
    metric_target: QueueTarget | None = optional("The target of KEDA's trigger.")
    annotations: Strings | None = optional("Annotations of the ScaledObject or HorizontalPodAutoscaler.")
    spec: AnyObject | None = optional("Spec of the ScaledObject; triggers replace the generated trigger.")
    metrics: list[MetricSpec] | None = optional("Metrics of a HorizontalPodAutoscaler (extension).")
    behavior: HorizontalPodAutoscalerBehavior | None = optional("Behavior of a HorizontalPodAutoscaler (extension).")


class ModelCache(OpenModel):
    """A PersistentVolumeClaim for the models of an application."""

    model_config = ConfigDict(
        json_schema_extra=open_schema(*(_immutable(name) for name in ("storageClass", "accessModes")))
    )

    size: Quantity = Field(description="Size of the volume.")
    storage_class: str | None = optional("StorageClass of the volume.", maxLength=253)
    access_modes: list[AccessMode] | None = optional("Access modes of the volume. ReadWriteOnce if unset.", maxItems=4)
    retain: bool | None = optional("Whether the volume outlives the stack. True if unset.")


class ApplicationTemplate(PodSettings):
    """An application, or the template of all applications: a Deployment that serves a model."""

    model_config = ConfigDict(
        json_schema_extra=open_schema(
            rule("!has(self.cache) || !has(self.modelsVolume)", "cache and modelsVolume must not both be set")
        )
    )

    engine: Literal["takeoff", "external"] | None = optional(
        "takeoff: one container; external: an engine with a sidecar."
    )
    external_engine_image: Image | None = optional("Image of an external engine.")
    sidecar_image: Image | None = optional("Image of the sidecar of an external engine.")
    sidecar: Sidecar | None = optional("The sidecar of an external engine.")
    reader_config: ReaderConfig | None = optional("Configuration of the reader.")
    shm_size: Quantity | None = optional("Maximum size of /dev/shm.")
    models_volume: Volume | None = optional("Volume for the models, with its name. Replaces the default as a whole.")
    scaling: Scaling | None = optional("Autoscaling.")
    cache: ModelCache | None = optional("Creates a PersistentVolumeClaim for the models (extension).")
