"""The types of InferenceStacks, and their CRDs in both API groups.

Users and consoles write the spec; the controller writes only the status. The field names of the spec and their meaning
are those of the original Helm chart, whose values the spec contains. Fields that are marked *extension* do not exist
there; without them, a stack is rendered as by the original operator. Defaults are not in the CRD but in a profile
(:mod:`.profiles`), because they are pinned for each stack.

``hack/generate/stack_types.py`` derives the types that validation checks from these models, so each field appears once.
The CRD has a CEL rule for what must hold even if no webhook is installed, unless the rule depends on defaults.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from cfo.api.inferencestack.field_types import (
    Affinity,
    AnyObject,
    ContainerPort,
    DeploymentStrategy,
    EnvVar,
    HorizontalPodAutoscalerBehavior,
    IntOrString,
    Lifecycle,
    LocalObjectReference,
    MetricSpec,
    OpenModel,
    PodSecurityContext,
    Probe,
    Quantity,
    ResourceRequirements,
    Scalar,
    SecretKeySelector,
    SecurityContext,
    ServicePort,
    Toleration,
    Volume,
    VolumeMount,
    open_schema,
    rule,
)
from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.api.inferencestack.status_models import InferenceStackStatus
from cfo.api.inferencestack.validation.limits import MAX_APPLICATIONS
from cfo.api.schema import APIModel, Int32, Int64, custom_resource_definition
from cfo.runtime import Object

__all__ = ["ApplicationTemplate", "InferenceStack", "InferenceStackSpec", "inference_stack_crds"]

Strings = dict[str, str]
AccessMode = Annotated[str, Field(json_schema_extra={"maxLength": 32})]
Count = Annotated[int, Field(json_schema_extra={"format": "int32", "minimum": 0})]


def _optional(description: str, **schema: Any) -> Any:
    return Field(default=None, description=description, json_schema_extra=schema or None)


def _immutable(name: str) -> dict[str, str]:
    return rule(
        f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})",
        f"{name} of an existing volume cannot be changed",
    )


class Image(OpenModel):
    """A container image."""

    repository: str | None = _optional("Repository of the image.")
    tag: str | None = _optional("Tag of the image. A digest belongs to the repository: `repository@sha256`.")
    pull_policy: str | None = _optional("imagePullPolicy of the container.")


class ServiceAccount(OpenModel):
    """The ServiceAccount of all pods of a stack."""

    create: bool | None = _optional("Whether to create the ServiceAccount. True if unset.")
    automount: bool | None = _optional("automountServiceAccountToken of the ServiceAccount. True if unset.")
    annotations: Strings | None = _optional("Annotations of the ServiceAccount.")
    name: str | None = _optional("Name of the ServiceAccount.")


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

    min_available: IntOrString | None = _optional("Number or percentage of pods that must be available.")
    max_unavailable: IntOrString | None = _optional("Number or percentage of pods that can be unavailable.")


class PodSettings(OpenModel):
    """What the gateway and the applications have in common: settings of the Deployment and its pods."""

    image: Image | None = _optional("Image of the container.")
    env: list[EnvVar] | None = _optional("Environment variables.")
    replica_count: Count | None = _optional("Number of replicas. Ignored while scaling is enabled.")
    pod_annotations: Strings | None = _optional("Annotations of the pods.")
    pod_labels: Strings | None = _optional("Labels of the pods.")
    pod_security_context: PodSecurityContext | None = _optional("securityContext of the pods.")
    security_context: SecurityContext | None = _optional("securityContext of the container.")
    ports: list[ContainerPort] | None = _optional("Ports of the container.")
    resources: ResourceRequirements | None = _optional("Resources of the container.")
    liveness_probe: Probe | None = _optional("Liveness probe of the container.")
    readiness_probe: Probe | None = _optional("Readiness probe of the container.")
    startup_probe: Probe | None = _optional("Startup probe of the container.")
    volumes: list[Volume] | None = _optional("Further volumes of the pods.")
    volume_mounts: list[VolumeMount] | None = _optional("Further volume mounts of the container.")
    node_selector: Strings | None = _optional("nodeSelector of the pods.")
    tolerations: list[Toleration] | None = _optional("Tolerations of the pods.")
    affinity: Affinity | None = _optional("Affinity of the pods.")
    strategy: DeploymentStrategy | None = _optional("Strategy of the Deployment (extension).")
    termination_grace_period_seconds: Int64 | None = _optional(
        "Time in seconds that a pod has to finish its requests when it is deleted (extension)."
    )
    lifecycle: Lifecycle | None = _optional("Lifecycle hooks of the container, such as preStop (extension).")
    pod_disruption_budget: PodDisruptionBudget | None = _optional("Creates a PodDisruptionBudget (extension).")


class GatewayService(OpenModel):
    """The Service of the gateway."""

    type: str | None = _optional("Type of the Service. ClusterIP if unset.")
    ports: list[ServicePort] | None = _optional("Ports of the Service.")
    annotations: Strings | None = _optional("Annotations of the Service (extension).")


class IngressPath(OpenModel):
    """A path of an Ingress host."""

    path: str | None = _optional("The path.")
    path_type: str | None = _optional("pathType; ImplementationSpecific if unset.")


class IngressHost(OpenModel):
    """A host of the Ingress."""

    host: str | None = _optional("The host name.")
    paths: list[IngressPath] | None = _optional("The paths that are routed to the gateway.")


class IngressTLS(OpenModel):
    """A certificate of the Ingress."""

    hosts: list[str] | None = _optional("The hosts of the certificate.")
    secret_name: str | None = _optional("The Secret with the certificate.")


class GatewayIngress(OpenModel):
    """The Ingress of the gateway."""

    enabled: bool | None = _optional("Whether to create the Ingress.")
    class_name: str | None = _optional("ingressClassName of the Ingress.")
    annotations: Strings | None = _optional("Annotations of the Ingress.")
    hosts: list[IngressHost] | None = _optional("The hosts.")
    tls: list[IngressTLS] | None = _optional("The certificates.")


class HTTPRoute(OpenModel):
    """The HTTPRoute of the gateway, as in the Gateway API."""

    parent_refs: list[AnyObject] = Field(
        description="The Gateways to which the route attaches.", json_schema_extra={"minItems": 1}
    )
    hostnames: list[str] | None = _optional("The host names of the route.")
    rules: list[AnyObject] | None = _optional(
        "The rules; the gateway is the backend of rules without backendRefs. One rule for all paths if unset."
    )
    annotations: Strings | None = _optional("Annotations of the HTTPRoute.")


class GatewayConfig(OpenModel):
    """The configuration file of the gateway. Further keys are written to it as well."""

    internal_port: Scalar | None = _optional("Port for applications and KEDA. 3005 if unset.")
    allow_remote_images: Scalar | None = _optional("Whether requests can contain URLs of images.")
    reader_message_timeout_ms: Scalar | None = _optional("Time in ms between tokens after which a reader times out.")
    reserved_consumers: Scalar | None = _optional("Consumer groups whose requests are buffered instead of rejected.")
    max_prompt_string_bytes: Scalar | None = _optional("Maximum size of a prompt in bytes.")
    max_user_batch_size: Scalar | None = _optional("Maximum number of prompts in a request.")
    body_size_limit_bytes: Scalar | None = _optional("Maximum size of a request in bytes.")
    heartbeat_check_interval: Scalar | None = _optional("Interval in seconds of checks for dead readers; 0: never.")


class Gateway(PodSettings):
    """The gateway, which receives all requests and queues them for the applications."""

    config: GatewayConfig | None = _optional("Configuration of the gateway.")
    service: GatewayService | None = _optional("The Service of the gateway.")
    ingress: GatewayIngress | None = _optional("The Ingress of the gateway.")
    http_route: HTTPRoute | None = _optional("Creates an HTTPRoute (extension).")
    export_prometheus_metrics: bool | None = _optional("Whether to create a ServiceMonitor.")


class ReaderConfig(OpenModel):
    """The configuration of a model's reader. Further keys are written to the configuration file as well."""

    model_name: Scalar | None = _optional("Hugging Face id or path of the model.")
    device: Scalar | None = _optional("cpu or cuda.")
    consumer_group: Scalar | None = _optional("Queue of the application; the `model` in requests of the OpenAI API.")
    buffer_requests: Scalar | None = _optional("Whether requests wait in the queue instead of being rejected.")
    access_token: Scalar | None = _optional("Access token for Hugging Face, in clear. Prefer accessTokenSecretRef.")
    access_token_secret_ref: SecretKeySelector | None = _optional(
        "Key of a Secret with the access token for Hugging Face (extension)."
    )
    log_level: Scalar | None = _optional("Log level.")
    reader_log_as_json: Scalar | None = _optional("Whether logs are JSON.")
    cuda_visible_devices: Scalar | None = _optional("Comma-separated indexes of GPUs.")
    max_batch_size: Scalar | None = _optional("Maximum batch size.")
    max_sequence_length: Scalar | None = _optional("Maximum length of a sequence in tokens.")
    prefill_chunk_size: Scalar | None = _optional("Size of prefill chunks in tokens.")
    quantize_cache_bits: Scalar | None = _optional("Bits of the quantized cache.")
    cuda_graph_cache_capacity: Scalar | None = _optional("Capacity of the cache of CUDA graphs.")
    disable_cuda_graph: Scalar | None = _optional("Whether CUDA graphs are disabled.")
    lmfe_max_consecutive_whitespaces: Scalar | None = _optional("Maximum run of whitespace in constrained output.")
    tensor_parallel: Scalar | None = _optional("Number of GPUs that share the model.")
    quant_type: Scalar | None = _optional("Type of the quantization.")
    loras: Scalar | None = _optional("LoRA adapters.")
    constrained_decoding_backend: Scalar | None = _optional("lmfe, outlines, all or none.")
    page_cache_size: Scalar | None = _optional("Size of the page cache: 10MB, 5GB or 90%.")
    ssd_cache_size: Scalar | None = _optional("Size of the cache on SSD in bytes.")
    enable_document_processing: Scalar | None = _optional("Whether documents are processed.")
    internal_gateway_ip: Scalar | None = _optional("Host of the gateway. Its Service if unset.")
    engine_port: Scalar | None = _optional("Port of an external engine. 3000 if unset.")
    is_embedding: Scalar | None = _optional("Whether an external engine serves embeddings.")


class Sidecar(OpenModel):
    """The sidecar of an external engine."""

    resources: ResourceRequirements | None = _optional("Resources of the sidecar.")
    env: list[EnvVar] | None = _optional("Environment variables of the sidecar.")
    ports: list[ContainerPort] | None = _optional("Ports of the sidecar.")


class QueueTarget(OpenModel):
    """The target of the autoscaler."""

    name: str | None = _optional("Name of the metric: consumerGroupSize.")
    value: Int32 | None = _optional("Number of queued requests for each replica.")


class Scaling(OpenModel):
    """Autoscaling of an application."""

    enabled: bool | None = _optional("Whether an autoscaler sets the number of replicas.")
    type: Literal["KEDA", "HPA"] | None = _optional("The autoscaler: KEDA (default) or HPA (extension).")
    metric_target: QueueTarget | None = _optional("The target of KEDA's trigger.")
    annotations: Strings | None = _optional("Annotations of the ScaledObject or HorizontalPodAutoscaler.")
    spec: AnyObject | None = _optional("Spec of the ScaledObject; triggers replace the generated trigger.")
    metrics: list[MetricSpec] | None = _optional("Metrics of a HorizontalPodAutoscaler (extension).")
    behavior: HorizontalPodAutoscalerBehavior | None = _optional("Behavior of a HorizontalPodAutoscaler (extension).")


class ModelCache(OpenModel):
    """A PersistentVolumeClaim for the models of an application."""

    model_config = ConfigDict(
        json_schema_extra=open_schema(*(_immutable(name) for name in ("storageClass", "accessModes")))
    )

    size: Quantity = Field(description="Size of the volume.")
    storage_class: str | None = _optional("StorageClass of the volume.", maxLength=253)
    access_modes: list[AccessMode] | None = _optional("Access modes of the volume. ReadWriteOnce if unset.", maxItems=4)
    retain: bool | None = _optional("Whether the volume outlives the stack. True if unset.")


class ApplicationTemplate(PodSettings):
    """An application, or the template of all applications: a Deployment that serves a model."""

    model_config = ConfigDict(
        json_schema_extra=open_schema(
            rule("!has(self.cache) || !has(self.modelsVolume)", "cache and modelsVolume must not both be set")
        )
    )

    engine: Literal["takeoff", "external"] | None = _optional(
        "takeoff: one container; external: an engine with a sidecar."
    )
    external_engine_image: Image | None = _optional("Image of an external engine.")
    sidecar_image: Image | None = _optional("Image of the sidecar of an external engine.")
    sidecar: Sidecar | None = _optional("The sidecar of an external engine.")
    reader_config: ReaderConfig | None = _optional("Configuration of the reader.")
    shm_size: Quantity | None = _optional("Maximum size of /dev/shm.")
    models_volume: Volume | None = _optional("Volume for the models, with its name. Replaces the default as a whole.")
    scaling: Scaling | None = _optional("Autoscaling.")
    cache: ModelCache | None = _optional("Creates a PersistentVolumeClaim for the models (extension).")


class NetworkPolicy(OpenModel):
    """The NetworkPolicy of the gateway: only the stack's applications and KEDA reach its internal port."""

    enabled: bool | None = _optional("Whether to create the NetworkPolicy.")
    keda_namespace: str | None = _optional("Namespace of KEDA. keda if unset.")


class InferenceStackSpec(OpenModel):
    """The desired state of an InferenceStack."""

    image_pull_secrets: list[LocalObjectReference] | None = _optional("Pull secrets of all pods.")
    name_override: str | None = _optional("Replaces `inference-stack` in names and labels.")
    fullname_override: str | None = _optional("The prefix of the names of all objects.")
    service_account: ServiceAccount | None = _optional("The ServiceAccount of all pods.")
    gateway: Gateway | None = _optional("The gateway.")
    application_template: ApplicationTemplate | None = _optional("Defaults of all applications.")
    applications: (
        Annotated[dict[str, ApplicationTemplate], Field(json_schema_extra={"maxProperties": MAX_APPLICATIONS})] | None
    ) = _optional("The applications by name, a DNS label.")
    suspend: bool | None = _optional("Whether all Deployments are scaled to zero (extension).")
    upgrade_policy: Literal["OnSpecChange", "Automatic"] | None = _optional(
        "When newer defaults are applied: OnSpecChange (default) or Automatic (extension)."
    )
    max_concurrent_rollouts: Annotated[int, Field(json_schema_extra={"format": "int32", "minimum": 1})] | None = (
        _optional("Maximum number of applications that newer defaults restart at a time; 1 if unset (extension).")
    )
    security_profile: Literal["restricted"] | None = _optional(
        "restricted: pods comply with the restricted Pod Security Standard (extension)."
    )
    network_policy: NetworkPolicy | None = _optional("Restricts access to the gateway's internal port (extension).")


class InferenceStack(APIModel):
    """A gateway and the applications that serve models behind it."""

    spec: InferenceStackSpec | None = None
    status: InferenceStackStatus | None = None


def inference_stack_crds() -> list[Object]:
    """Return the CRD of InferenceStacks in each API group."""
    columns: list[dict[str, Any]] = [
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "Apps", "type": "string", "jsonPath": ".status.readyApplications"},
        {"name": "Operator", "type": "string", "jsonPath": ".metadata.labels.operatorVersion"},
        {"name": "URL", "type": "string", "jsonPath": ".status.url"},
        {
            "name": "Reason",
            "type": "string",
            "jsonPath": '.status.conditions[?(@.type=="Ready")].reason',
            "priority": 1,
        },
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    return [
        custom_resource_definition(
            InferenceStack,
            group=gvk.group,
            version=gvk.version,
            kind=gvk.kind,
            plural="inferencestacks",
            printer_columns=columns,
        )
        for gvk in INFERENCE_STACKS
    ]
