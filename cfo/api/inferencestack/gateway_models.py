"""The types of the gateway."""

from __future__ import annotations

from pydantic import Field

from cfo.api.inferencestack.field_types import (
    AnyObject,
    OpenModel,
    Scalar,
    ServicePort,
    Strings,
    optional,
)
from cfo.api.inferencestack.pod_models import PodSettings

__all__ = ["Gateway"]


class GatewayService(OpenModel):
    """The Service of the gateway."""

    type: str | None = optional("Type of the Service. ClusterIP if unset.")
    ports: list[ServicePort] | None = optional("Ports of the Service.")
    annotations: Strings | None = optional("Annotations of the Service (extension).")


class IngressPath(OpenModel):
    """A path of an Ingress host."""

    path: str | None = optional("The path.")
    path_type: str | None = optional("pathType; ImplementationSpecific if unset.")


class IngressHost(OpenModel):
    """A host of the Ingress."""

    host: str | None = optional("The host name.")
    paths: list[IngressPath] | None = optional("The paths that are routed to the gateway.")


class IngressTLS(OpenModel):
    """A certificate of the Ingress."""

    hosts: list[str] | None = optional("The hosts of the certificate.")
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
    hostnames: list[str] | None = optional("The host names of the route.")
    rules: list[HTTPRouteRule] | None = optional(
        "The rules; the gateway is the backend of rules without backendRefs. One rule for all paths if unset."
    )
    annotations: Strings | None = optional("Annotations of the HTTPRoute.")


class GatewayConfig(OpenModel):
    """The configuration file of the gateway. Further keys are written to it as well."""

    internal_port: Scalar | None = optional("Port for applications and KEDA. 3005 if unset.")
    allow_remote_images: Scalar | None = optional("Whether requests can contain URLs of images.")
    reader_message_timeout_ms: Scalar | None = optional("Time in ms between tokens after which a reader times out.")
    reserved_consumers: Scalar | None = optional("Consumer groups whose requests are buffered instead of rejected.")
    max_prompt_string_bytes: Scalar | None = optional("Maximum size of a prompt in bytes.")
    max_user_batch_size: Scalar | None = optional("Maximum number of prompts in a request.")
    body_size_limit_bytes: Scalar | None = optional("Maximum size of a request in bytes.")
    heartbeat_check_interval: Scalar | None = optional("Interval in seconds of checks for dead readers; 0: never.")


class Gateway(PodSettings):
    """The gateway, which receives all requests and queues them for the applications."""

    config: GatewayConfig | None = optional("Configuration of the gateway.")
    service: GatewayService | None = optional("The Service of the gateway.")
    ingress: GatewayIngress | None = optional("The Ingress of the gateway.")
    http_route: HTTPRoute | None = optional("Creates an HTTPRoute (extension).")
    export_prometheus_metrics: bool | None = optional("Whether to create a ServiceMonitor.")
