"""The sections ``metrics``, ``health``, ``debug`` and ``webhook``: the servers of the operator."""

from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, StrictBool, StrictStr, model_validator

from cfo.config.section import DNS_LABEL, Section, matching
from cfo.runtime import GVK
from cfo.runtime.objects import MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION


def _bind_address(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError('must be a string such as ":8080", or "0" to disable the server')  # noqa: TRY004 (pydantic's contract)
    if value in ("", "0"):
        return "0" if value == "0" else value
    host, separator, port = value.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError('must be HOST:PORT such as ":8080" (port 0 to 65535), or "0" to disable the server')
    if host.startswith("[") and host.endswith("]"):
        try:
            ip_address(host[1:-1])
        except ValueError:
            raise ValueError(f"{host} is not an IP address") from None
    return value


BindAddress = Annotated[str, BeforeValidator(_bind_address)]


EndpointName = Annotated[str, matching(r"[A-Za-z0-9._~-]*", "must be one path segment of letters, digits and . _ ~ -")]


class MetricsConfiguration(Section):
    """The Prometheus metrics endpoint."""

    bind_address: BindAddress = Field(
        default=":8080", description='Address to listen on, `HOST:PORT`; `"0"` disables the endpoint.'
    )
    secure_serving: StrictBool = Field(
        default=False,
        description="Serve over HTTPS, only to clients whose bearer token has permission to `get` the path `/metrics`.",
    )
    cert_dir: StrictStr = Field(
        default="",
        description="Directory with `tls.crt` and `tls.key` for `secureServing`; if empty, a certificate is generated.",
    )
    dashboard: StrictBool = Field(
        default=False,
        description="Serve a page with the state of all objects at `/dashboard/`, only to clients whose bearer token "
        "has permission to `get` the path `/dashboard/*`. Requires `secureServing`.",
    )

    @model_validator(mode="after")
    def _dashboard_is_authorized(self) -> Self:
        if self.dashboard and (not self.secure_serving or self.bind_address in ("", "0")):
            raise ValueError("dashboard requires secureServing: true and a bindAddress, to authorize its clients")
        return self


class HealthConfiguration(Section):
    """The endpoint for the kubelet's liveness and readiness probes."""

    bind_address: BindAddress = Field(
        default=":8081", description='Address to listen on, `HOST:PORT`; `"0"` disables the endpoint.'
    )
    readiness_endpoint_name: EndpointName = Field(
        default="readyz", description="Name of the readiness check, a path below `/readyz`."
    )
    liveness_endpoint_name: EndpointName = Field(
        default="healthz", description="Name of the liveness check, a path below `/healthz`."
    )


def _debug_address(value: object) -> object:
    if value == "metrics" or _bind_address(value) in ("", "0"):
        return value
    host = str(value).rpartition(":")[0].strip("[]")
    with suppress(ValueError):
        if host == "localhost" or ip_address(host).is_loopback:
            return value
    raise ValueError('must be a loopback address such as "127.0.0.1:6060", "metrics", or "0" to disable the server')


class DebugConfiguration(Section):
    """Reports about queues, informers, leases, tasks and the largest objects, under the path `/debug`."""

    bind_address: Annotated[str, BeforeValidator(_debug_address)] = Field(
        default="0",
        description='Loopback address to listen on, such as `127.0.0.1:6060`; `"metrics"` serves the reports on the '
        'metrics endpoint, which requires `metrics.secureServing`; `"0"` disables them.',
    )


def _webhook_address(value: object) -> object:
    if _bind_address(value) in ("", "0"):
        raise ValueError('must be HOST:PORT such as ":9443"; to disable webhooks, set webhook.enabled to false')
    return value


class WebhookConfiguration(Section):
    """The admission webhooks: server, certificate, Service and webhook configurations."""

    enabled: StrictBool | None = Field(
        default=None,
        description="Whether to serve webhooks. If unset: yes in a cluster and with `--webhook-url`, otherwise only if "
        "their webhook configurations exist.",
    )
    bind_address: Annotated[str, BeforeValidator(_webhook_address)] = Field(
        default=":9443", description="Address to listen on, `HOST:PORT`."
    )
    rotate_certificates: StrictBool = Field(
        default=True,
        description="Whether the operator creates and renews the certificate itself, in the Secret "
        "`codeflare-operator-webhook-server-cert`. If false, cert-manager or OLM mounts it in `certDir`.",
    )
    cert_dir: StrictStr = Field(
        default="/tmp/k8s-webhook-server/serving-certs",  # noqa: S108 (controller-runtime's default)
        min_length=1,
        description="Directory with `tls.crt` and `tls.key`; used if `rotateCertificates` is false.",
    )
    client_ca_file: Annotated[StrictStr, Field(min_length=1)] | None = Field(
        default=None,
        alias="clientCAFile",
        description="PEM file with the CAs of the API servers' client certificates. If set, connections without such a "
        "certificate are refused. The file is reloaded when it changes.",
    )
    service_name: Annotated[str, matching(DNS_LABEL, "must be the name of a Service (a lower-case DNS label)")] = Field(
        default="codeflare-operator-webhook-service",
        description="Name of the Service through which the API server calls the webhooks.",
    )
    mutating_configuration_name: StrictStr = Field(
        default="codeflare-operator-mutating-webhook-configuration",
        description="The MutatingWebhookConfiguration to inject the CA bundle into; empty if OLM manages it.",
    )
    validating_configuration_name: StrictStr = Field(
        default="codeflare-operator-validating-webhook-configuration",
        description="The ValidatingWebhookConfiguration to inject the CA bundle into; empty if OLM manages it.",
    )

    @property
    def configurations(self) -> list[tuple[GVK, str]]:
        """Kind and name of the webhook configurations, without those that OLM manages."""
        mutating = (MUTATING_WEBHOOK_CONFIGURATION, self.mutating_configuration_name)
        validating = (VALIDATING_WEBHOOK_CONFIGURATION, self.validating_configuration_name)
        return [(kind, name) for kind, name in (mutating, validating) if name]
