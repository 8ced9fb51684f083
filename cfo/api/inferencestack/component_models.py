"""The types of the gateway, the applications and their common template."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from cfo.api.inferencestack import field_types as fields
from cfo.api.inferencestack.field_types import (
    AnyObject,
    OpenModel,
    Scalar,
    Strings,
    open_schema,
    rule,
)
from cfo.runtime import Int32, Int64
from cfo.runtime.objects import optional

Count = Annotated[int, Field(json_schema_extra={"format": "int32", "minimum": 0})]


class Image(OpenModel):
    """A container image."""

    repository: str | None = optional("Repository of the image.")
    tag: str | None = optional(
        "Tag of the image. A digest belongs to the repository: `repository@sha256`."
    )
    pull_policy: str | None = optional("imagePullPolicy of the container.")


class PodDisruptionBudget(OpenModel):
    """How many pods an eviction can make unavailable."""

    model_config = ConfigDict(
        json_schema_extra=open_schema(
            rule(
                "!has(self.minAvailable) || !has(self.maxUnavailable)",
                "minAvailable and maxUnavailable must not both be set",
            )
        )
    )

    min_available: fields.IntOrString | None = optional(
        "Number or percentage of pods that must be available."
    )
    max_unavailable: fields.IntOrString | None = optional(
        "Number or percentage of pods that can be unavailable."
    )


class PodSettings(OpenModel):
    """What the gateway and the applications have in common: settings of the Deployment and its pods."""

    image: Image | None = optional("Image of the container.")
    env: list[fields.EnvVar] | None = optional("Environment variables.")
    replica_count: Count | None = optional("Number of replicas. Ignored while scaling is enabled.")
    pod_annotations: Strings | None = optional("Annotations of the pods.")
    pod_labels: Strings | None = optional("Labels of the pods.")
    pod_security_context: fields.PodSecurityContext | None = optional(
        "securityContext of the pods."
    )
    security_context: fields.SecurityContext | None = optional("securityContext of the container.")
    ports: list[fields.ContainerPort] | None = optional("Ports of the container.")
    resources: fields.ResourceRequirements | None = optional("Resources of the container.")
    liveness_probe: fields.Probe | None = optional("Liveness probe of the container.")
    readiness_probe: fields.Probe | None = optional("Readiness probe of the container.")
    startup_probe: fields.Probe | None = optional("Startup probe of the container.")
    volumes: list[fields.Volume] | None = optional("Further volumes of the pods.")
    volume_mounts: list[fields.VolumeMount] | None = optional(
        "Further volume mounts of the container."
    )
    node_selector: Strings | None = optional("nodeSelector of the pods.")
    tolerations: list[fields.Toleration] | None = optional("Tolerations of the pods.")
    affinity: fields.Affinity | None = optional("Affinity of the pods.")
    strategy: fields.DeploymentStrategy | None = optional("Strategy of the Deployment (extension).")
    termination_grace_period_seconds: Int64 | None = optional(
        "Time in seconds that a pod has to finish its requests when it is deleted (extension)."
    )
    lifecycle: fields.Lifecycle | None = optional(
        "Lifecycle hooks of the container, such as preStop (extension)."
    )
    pod_disruption_budget: PodDisruptionBudget | None = optional(
        "Creates a PodDisruptionBudget (extension)."
    )


class GatewayService(OpenModel):
    """The Service of the gateway."""

    type: str | None = optional("Type of the Service. ClusterIP if unset.")
    ports: list[fields.ServicePort] | None = optional("Ports of the Service.")
    annotations: Strings | None = optional("Annotations of the Service (extension).")


class IngressPath(OpenModel):
    """A path of an Ingress host."""

    path: str | None = optional("The path.")
    path_type: str | None = optional("pathType; ImplementationSpecific if unset.")


class IngressHost(OpenModel):
    """A host of the Ingress."""

    host: fields.Host | None = optional("The host name.")
    paths: list[IngressPath] | None = optional("The paths that are routed to the gateway.")


class IngressTLS(OpenModel):
    """A certificate of the Ingress."""

    hosts: list[fields.Host] | None = optional("The hosts of the certificate.")
    secret_name: str | None = optional("The Secret with the certificate.")


class GatewayIngress(OpenModel):
    """The Ingress of the gateway."""

    enabled: bool | None = optional("Whether to create the Ingress.")
    class_name: str | None = optional("ingressClassName of the Ingress.")
    annotations: Strings | None = optional("Annotations of the Ingress.")
    hosts: list[IngressHost] | None = optional("The hosts.")
    tls: list[IngressTLS] | None = optional("The certificates.")


class HTTPRouteMatch(OpenModel):
    """A condition of a rule of the HTTPRoute, as in the Gateway API."""

    path: AnyObject | None = optional("Match of the path. All paths if unset.")
    headers: list[AnyObject] | None = optional("Matches of headers.")
    query_params: list[AnyObject] | None = optional("Matches of query parameters.")
    method: str | None = optional("Match of the HTTP method.")


class HTTPRouteRule(OpenModel):
    """A rule of the HTTPRoute, as in the Gateway API."""

    name: str | None = optional("Name of the rule.")
    matches: list[HTTPRouteMatch] | None = optional("Matches of requests. All requests if unset.")
    filters: list[AnyObject] | None = optional("Filters of requests and responses.")
    backend_refs: list[AnyObject] | None = optional("The backends. The gateway if unset.")
    timeouts: AnyObject | None = optional("Timeouts of requests.")
    retry: AnyObject | None = optional("Retries of requests.")
    session_persistence: AnyObject | None = optional("Session persistence.")


class HTTPRoute(OpenModel):
    """The HTTPRoute of the gateway, as in the Gateway API."""

    parent_refs: list[AnyObject] = Field(
        description="The Gateways to which the route attaches.", json_schema_extra={"minItems": 1}
    )
    hostnames: list[fields.Host] | None = optional("The host names of the route.")
    rules: list[HTTPRouteRule] | None = optional(
        "The rules; the gateway is the backend of rules without backendRefs. One rule for all paths if unset."
    )
    annotations: Strings | None = optional("Annotations of the HTTPRoute.")


class GatewayConfig(OpenModel):
    """The configuration file of the gateway. Further keys are written to it as well."""

    internal_port: Scalar | None = optional("Port for applications and KEDA. 3005 if unset.")
    allow_remote_images: Scalar | None = optional("Whether requests can contain URLs of images.")
    reader_message_timeout_ms: Scalar | None = optional(
        "Time in ms between tokens after which a reader times out."
    )
    reserved_consumers: Scalar | None = optional(
        "Consumer groups whose requests are buffered instead of rejected."
    )
    max_prompt_string_bytes: Scalar | None = optional("Maximum size of a prompt in bytes.")
    max_user_batch_size: Scalar | None = optional("Maximum number of prompts in a request.")
    body_size_limit_bytes: Scalar | None = optional("Maximum size of a request in bytes.")
    heartbeat_check_interval: Scalar | None = optional(
        "Interval in seconds of checks for dead readers; 0: never."
    )


class Gateway(PodSettings):
    """The gateway, which receives all requests and queues them for the applications."""

    config: GatewayConfig | None = optional("Configuration of the gateway.")
    service: GatewayService | None = optional("The Service of the gateway.")
    ingress: GatewayIngress | None = optional("The Ingress of the gateway.")
    http_route: HTTPRoute | None = optional("Creates an HTTPRoute (extension).")
    export_prometheus_metrics: bool | None = optional("Whether to create a ServiceMonitor.")


class LoRAAdapter(OpenModel):
    """A LoRA adapter of the application's model."""

    name: str = Field(
        description="The `model` in requests for the adapter.", json_schema_extra={"maxLength": 128}
    )
    path: str = Field(
        description="Hugging Face id, or absolute path in the container.",
        json_schema_extra={"maxLength": 512},
    )


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
    consumer_group: Scalar | None = optional(
        "Queue of the application; the `model` in requests of the OpenAI API."
    )
    buffer_requests: Scalar | None = optional(
        "Whether requests wait in the queue instead of being rejected."
    )
    access_token: Scalar | None = optional(
        "Access token for Hugging Face, in clear. Prefer accessTokenSecretRef."
    )
    access_token_secret_ref: fields.SecretKeySelector | None = optional(
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
    lmfe_max_consecutive_whitespaces: Scalar | None = optional(
        "Maximum run of whitespace in constrained output."
    )
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

    resources: fields.ResourceRequirements | None = optional("Resources of the sidecar.")
    env: list[fields.EnvVar] | None = optional("Environment variables of the sidecar.")
    ports: list[fields.ContainerPort] | None = optional("Ports of the sidecar.")


class QueueTarget(OpenModel):
    """The target of the autoscaler."""

    name: str | None = optional("Name of the metric: consumerGroupSize.")
    value: Int32 | None = optional("Number of queued requests for each replica.")


class Scaling(OpenModel):
    """Autoscaling of an application."""

    enabled: bool | None = optional("Whether an autoscaler sets the number of replicas.")
    type: Literal["KEDA", "HPA"] | None = optional(
        "The autoscaler: KEDA (default) or HPA (extension)."
    )
    metric_target: QueueTarget | None = optional("The target of KEDA's trigger.")
    annotations: Strings | None = optional(
        "Annotations of the ScaledObject or HorizontalPodAutoscaler."
    )
    spec: AnyObject | None = optional(
        "Spec of the ScaledObject; triggers replace the generated trigger."
    )
    metrics: list[fields.MetricSpec] | None = optional(
        "Metrics of a HorizontalPodAutoscaler (extension)."
    )
    behavior: fields.HorizontalPodAutoscalerBehavior | None = optional(
        "Behavior of a HorizontalPodAutoscaler (extension)."
    )


class ModelCache(OpenModel):
    """A PersistentVolumeClaim for the models of an application."""

    model_config = ConfigDict(
        json_schema_extra=open_schema(
            *(_immutable(name) for name in ("storageClass", "accessModes"))
        )
    )

    size: fields.Quantity = Field(description="Size of the volume.")
    storage_class: str | None = optional("StorageClass of the volume.", maxLength=253)
    access_modes: list[AccessMode] | None = optional(
        "Access modes of the volume. ReadWriteOnce if unset.", maxItems=4
    )
    retain: bool | None = optional("Whether the volume outlives the stack. True if unset.")


class ApplicationTemplate(PodSettings):
    """An application, or the template of all applications: a Deployment that serves a model."""

    model_config = ConfigDict(
        json_schema_extra=open_schema(
            rule(
                "!has(self.cache) || !has(self.modelsVolume)",
                "cache and modelsVolume must not both be set",
            )
        )
    )

    engine: Literal["takeoff", "external", "vllm"] | None = optional(
        "takeoff: one container; external: an engine with a sidecar; vllm: public images (extension), for all "
        "applications of the stack."
    )
    external_engine_image: Image | None = optional("Image of an external engine.")
    sidecar_image: Image | None = optional("Image of the sidecar of an external engine.")
    sidecar: Sidecar | None = optional("The sidecar of an external engine.")
    reader_config: ReaderConfig | None = optional("Configuration of the reader.")
    shm_size: fields.Quantity | None = optional("Maximum size of /dev/shm.")
    models_volume: fields.Volume | None = optional(
        "Volume for the models, with its name. Replaces the default as a whole."
    )
    scaling: Scaling | None = optional("Autoscaling.")
    cache: ModelCache | None = optional(
        "Creates a PersistentVolumeClaim for the models (extension)."
    )
    lora_adapters: list[LoRAAdapter] | None = optional(
        "LoRA adapters, for the engine vllm (extension)."
    )
    extra_args: list[str] | None = optional(
        "Further arguments of the engine vllm, such as --dtype=float32 (extension).", maxItems=64
    )
