"""What can be set, and its defaults: pydantic models of the configuration document.

Every value is checked by itself here, with a message that says what is allowed; how a document becomes these models
is told in :mod:`cfo.config.document`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from ipaddress import ip_address
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictBool,
    StrictInt,
    StrictStr,
    model_validator,
)
from pydantic.alias_generators import to_camel

from cfo.config.durations import format_duration, parse_duration
from cfo.runtime.cache.selectors import LabelSelector

__all__ = [
    "AppWrapperConfiguration",
    "AutopilotConfiguration",
    "CAConfiguration",
    "ClientConnection",
    "FaultToleranceConfiguration",
    "HealthConfiguration",
    "IngressConfiguration",
    "KubeRayConfiguration",
    "LeaderElection",
    "MetricsConfiguration",
    "OperatorConfiguration",
    "ResourceTaint",
    "WebhookConfiguration",
]

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def _duration(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return timedelta(microseconds=value / 1000)
    if isinstance(value, str):
        with suppress(ValueError, OverflowError):
            return parse_duration(value.strip())
    raise ValueError("must be a duration such as 90s or 5m, or an integer of nanoseconds")


def _non_negative_duration(value: object) -> object:
    parsed = _duration(value)
    if (isinstance(value, int) and value < 0) or parsed < timedelta(0):
        raise ValueError("must not be negative")
    return parsed


Duration = Annotated[timedelta, BeforeValidator(_non_negative_duration), PlainSerializer(format_duration)]


def _bind_address(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError('must be a string such as ":8080", or "0" to serve nothing')  # noqa: TRY004 (pydantic's contract)
    if value in ("", "0"):
        return "0" if value == "0" else value
    host, separator, port = value.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError('must be host:port such as ":8080" (port 0 to 65535), or "0" to serve nothing')
    if host.startswith("[") and host.endswith("]"):
        try:
            ip_address(host[1:-1])
        except ValueError:
            raise ValueError(f"{host} is not an IP address") from None
    return value


BindAddress = Annotated[str, BeforeValidator(_bind_address)]


def _namespace(value: object) -> object:
    if not isinstance(value, str) or not _DNS_LABEL.fullmatch(value):
        raise ValueError("must be the name of a namespace (a lower-case DNS label)")
    return value


Namespace = Annotated[str, BeforeValidator(_namespace)]
OptionalNamespace = Annotated[str, BeforeValidator(lambda value: value if value == "" else _namespace(value))]


def _object_name(value: object) -> object:
    if (
        not isinstance(value, str)
        or len(value) > 253
        or not all(_DNS_LABEL.fullmatch(label) for label in value.split("."))
    ):
        raise ValueError("must be the name of an object (lower-case DNS labels joined by dots)")
    return value


ObjectName = Annotated[str, BeforeValidator(_object_name)]


def _domain(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("must be a domain name such as apps.example.com")  # noqa: TRY004 (pydantic's contract)
    if value and (len(value) > 253 or not all(_DNS_LABEL.fullmatch(label) for label in value.split("."))):
        raise ValueError("must be a domain name such as apps.example.com (lower-case DNS labels joined by dots)")
    return value


Domain = Annotated[str, BeforeValidator(_domain)]


def _endpoint(value: object) -> object:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9._~-]*", value):
        raise ValueError("must be one path segment, of letters, digits and . _ ~ -")
    return value


EndpointName = Annotated[str, BeforeValidator(_endpoint)]


class _Section(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, frozen=True, extra="forbid", populate_by_name=True)


class ClientConnection(_Section):
    """How fast the API client may ask. Unset: no client-side limit, the API server's priority and fairness governs."""

    qps: float | None = Field(
        default=None, description="Requests a second; unset or negative: no limit.", strict=True, allow_inf_nan=False
    )
    burst: StrictInt | None = Field(default=None, ge=0, description="Requests that may go at once above qps.")


class MetricsConfiguration(_Section):
    """Where Prometheus metrics are served."""

    bind_address: BindAddress = Field(default=":8080", description='host:port; "0" serves none.')
    secure_serving: StrictBool = Field(
        default=False,
        description="Serve over HTTPS, to those alone who may `get` the path `/metrics` (a bearer token is needed).",
    )
    cert_dir: StrictStr = Field(
        default="",
        description="Folder with `tls.crt` and `tls.key` for secureServing; empty: a certificate that is made up.",
    )


class HealthConfiguration(_Section):
    """Where the kubelet asks for liveness and readiness."""

    bind_address: BindAddress = Field(default=":8081", description='host:port; "0" serves none.')
    readiness_endpoint_name: EndpointName = Field(default="readyz", description="Name of the check below /readyz.")
    liveness_endpoint_name: EndpointName = Field(default="healthz", description="Name of the check below /healthz.")


def _webhook_address(value: object) -> object:
    if _bind_address(value) in ("", "0"):
        raise ValueError('must be host:port such as ":9443"; to serve no webhooks set webhook.enabled to false')
    return value


def _service(value: object) -> object:
    if not isinstance(value, str) or not _DNS_LABEL.fullmatch(value):
        raise ValueError("must be the name of a Service (a lower-case DNS label)")
    return value


class WebhookConfiguration(_Section):
    """How the API server reaches the admission webhooks, and why it believes them."""

    enabled: StrictBool | None = Field(
        default=None,
        description="Whether webhooks are served; unset: in a cluster, with `--webhook-url`, and elsewhere if their "
        "configurations exist.",
    )
    bind_address: Annotated[str, BeforeValidator(_webhook_address)] = Field(
        default=":9443", description="host:port to serve them on."
    )
    rotate_certificates: StrictBool = Field(
        default=True,
        description="Whether the operator makes and renews the certificate itself, in the Secret "
        "`codeflare-operator-webhook-server-cert`; false: cert-manager or OLM bring it into certDir.",
    )
    cert_dir: StrictStr = Field(
        default="/tmp/k8s-webhook-server/serving-certs",  # noqa: S108 (controller-runtime's default)
        min_length=1,
        description="Folder with `tls.crt` and `tls.key`, where rotateCertificates is false.",
    )
    service_name: Annotated[str, BeforeValidator(_service)] = Field(
        default="codeflare-operator-webhook-service", description="The Service that leads to the operator."
    )
    mutating_configuration_name: StrictStr = Field(
        default="codeflare-operator-mutating-webhook-configuration",
        description="The MutatingWebhookConfiguration to keep in order; empty: OLM does.",
    )
    validating_configuration_name: StrictStr = Field(
        default="codeflare-operator-validating-webhook-configuration",
        description="The ValidatingWebhookConfiguration to keep in order; empty: OLM does.",
    )


class LeaderElection(_Section):
    """Which one of several replicas reconciles."""

    leader_elect: StrictBool | None = Field(
        default=None, description="Whether to elect a leader; unset: in a cluster yes, elsewhere no."
    )
    lease_duration: Duration = Field(
        default=timedelta(seconds=15), description="How long others wait for a renewal before they take over."
    )
    renew_deadline: Duration = Field(
        default=timedelta(seconds=10), description="How long the leader tries to renew before it gives up."
    )
    retry_period: Duration = Field(default=timedelta(seconds=2), description="Pause between tries.")
    resource_lock: Literal["leases"] = Field(default="leases", description="The kind of lock; only leases exist.")
    resource_name: ObjectName = Field(
        default="codeflare-operator-lock", description="Name of the Lease; the operator has rights to the default one."
    )
    resource_namespace: OptionalNamespace = Field(default="", description="Its namespace; empty: the operator's own.")
    release_on_cancel: StrictBool = Field(default=True, description="Whether the lease is given up on exit.")

    @model_validator(mode="before")
    @classmethod
    def _zero_is_unset(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        names = ("leaseDuration", "renewDeadline", "retryPeriod", "resourceLock", "resourceName")
        return {
            key: value
            for key, value in data.items()
            if not (key in names and (value in ("", 0) or _is_zero_duration(value)))
        }

    @model_validator(mode="after")
    def _deadlines_fit(self) -> Self:
        if self.lease_duration < timedelta(seconds=1):
            raise ValueError(f"leaseDuration ({format_duration(self.lease_duration)}) must be at least 1s")
        if self.lease_duration <= self.renew_deadline:
            raise ValueError(
                f"leaseDuration ({format_duration(self.lease_duration)}) must be greater than "
                f"renewDeadline ({format_duration(self.renew_deadline)})"
            )
        if self.renew_deadline <= self.retry_period * 1.2:
            raise ValueError(
                f"renewDeadline ({format_duration(self.renew_deadline)}) must be greater than "
                f"1.2 times retryPeriod ({format_duration(self.retry_period)})"
            )
        return self


def _is_zero_duration(value: object) -> bool:
    try:
        return isinstance(value, str) and _duration(value) == timedelta(0)
    except ValueError:
        return False


class IngressConfiguration(_Section):
    """The Ingresses of the dashboard and the client, on clusters without Routes."""

    class_name: StrictStr | None = Field(
        default=None,
        description="ingressClassName of both Ingresses; unset: none for the dashboard, nginx for the client.",
    )
    annotations: dict[StrictStr, StrictStr] | None = Field(
        default=None,
        description="Annotations of both Ingresses; unset: none for the dashboard, TLS passthrough by nginx "
        "for the client.",
    )
    tls_secret_name: StrictStr = Field(
        default="", description="Secret with the dashboard's certificate, in the cluster's namespace; empty: no TLS."
    )
    namespaces: list[Namespace] = Field(
        default_factory=list,
        description="Namespaces of the ingress controllers that may reach the dashboard (8265) and the client (10001).",
    )


def _algorithm(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class CAConfiguration(_Section):
    """The certificate authority which each RayCluster gets for mTLS."""

    key_algorithm: Annotated[Literal["ecdsa", "rsa"], BeforeValidator(_algorithm)] = Field(
        default="ecdsa", description="Key of new authorities: ecdsa (P-256) or rsa (2048 bits)."
    )


class KubeRayConfiguration(_Section):
    """What RayClusters get."""

    ray_dashboard_oauth_enabled: StrictBool = Field(
        default=True, alias="rayDashboardOAuthEnabled", description="OpenShift: an OAuth proxy guards the dashboard."
    )
    ingress_domain: Domain = Field(
        default="",
        description="Domain of the hosts; empty: that of ingresses.config.openshift.io/cluster where it exists.",
    )
    mtls_enabled: StrictBool = Field(
        default=True, alias="mTLSEnabled", description="Ray's nodes and clients talk mutual TLS."
    )
    operator_namespaces: list[Namespace] = Field(
        default_factory=list,
        description="Namespaces from which the KubeRay operator may reach the heads; empty: they are found out.",
    )
    ingress: IngressConfiguration = Field(default_factory=IngressConfiguration)
    ca: CAConfiguration = Field(default_factory=CAConfiguration)


class ResourceTaint(_Section):
    """A node label (and taint) by which Autopilot marks a resource as unhealthy."""

    key: StrictStr = Field(min_length=1)
    value: StrictStr = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


def _autopilot_taints() -> dict[str, list[ResourceTaint]]:
    key = "autopilot.ibm.com/gpuhealth"
    return {
        "nvidia.com/gpu": [
            ResourceTaint(key=key, value="WARN", effect="PreferNoSchedule"),
            ResourceTaint(key=key, value="TESTING", effect="NoSchedule"),
            ResourceTaint(key=key, value="EVICT", effect="NoExecute"),
        ]
    }


class AutopilotConfiguration(_Section):
    """How node health steers pods."""

    inject_anti_affinities: StrictBool = Field(
        default=True, description="Whether pods that want a resource are kept off nodes where it is marked."
    )
    monitor_nodes: StrictBool = Field(default=True, description="Whether nodes are watched, and evacuated if need be.")
    prefer_no_schedule_weight: StrictInt = Field(
        default=50, ge=1, le=100, description="Weight of the preference against PreferNoSchedule marks."
    )
    resource_taints: dict[StrictStr, list[ResourceTaint]] = Field(
        default_factory=_autopilot_taints, description="By resource: the node labels that mark it, and their effect."
    )


class FaultToleranceConfiguration(_Section):
    """Patience with failing AppWrappers; each is a default that annotations override up to the ceiling."""

    admission_grace_period: Duration = Field(
        default=timedelta(minutes=1), description="How long creating the resources may fail."
    )
    warmup_grace_period: Duration = Field(
        default=timedelta(minutes=5), description="How long the pods may take until they are ready."
    )
    failure_grace_period: Duration = Field(
        default=timedelta(minutes=1), description="How long a failure may last before it counts."
    )
    reset_pause: Duration = Field(default=timedelta(seconds=90), description="Pause between a reset and the retry.")
    retry_limit: StrictInt = Field(default=3, ge=0, description="How many retries there are.")
    deletion_grace_period: Duration = Field(
        default=timedelta(minutes=10), description="How long a deletion may take before it is forced."
    )
    grace_period_ceiling: Duration = Field(
        default=timedelta(hours=24), description="The longest period that an annotation may ask for."
    )
    success_ttl_ceiling: Duration = Field(
        default=timedelta(days=7),
        alias="successTTLCeiling",
        description="How long a succeeded AppWrapper is kept at most.",
    )


class AppWrapperConfiguration(_Section):
    """The AppWrapper controller. Its settings may also stand under ``Config``, where the Go operator reads them."""

    enabled: StrictBool = Field(default=False, description="Whether the AppWrapper controller runs.")
    scheduler_name: StrictStr = Field(default="", description="schedulerName set on wrapped pods; empty: untouched.")
    default_queue_name: StrictStr = Field(default="", description="Queue of AppWrappers that name none.")
    kueue_integration: StrictBool = Field(
        default=False,
        description="Whether the operator itself makes and follows Kueue's Workloads of AppWrappers, for a Kueue "
        "whose own integration of AppWrappers is off.",
    )
    slack_queue_name: StrictStr = Field(
        default="",
        description="ClusterQueue whose lending limits leave out what cannot be scheduled on unhealthy nodes; "
        "empty: none.",
    )
    user_rbac_admission_check: StrictBool = Field(
        default=True,
        alias="userRBACAdmissionCheck",
        description="Whether the user must have the right to create what is wrapped.",
    )
    autopilot: AutopilotConfiguration = Field(default_factory=AutopilotConfiguration)
    fault_tolerance: FaultToleranceConfiguration = Field(default_factory=FaultToleranceConfiguration)

    @model_validator(mode="after")
    def _ceiling_is_highest(self) -> Self:
        limits = self.fault_tolerance
        for name in _PERIODS if self.enabled else ():
            period = getattr(limits, name)
            if period > limits.grace_period_ceiling:
                raise ValueError(
                    f"faultTolerance.{to_camel(name)} ({format_duration(period)}) must not exceed "
                    f"faultTolerance.gracePeriodCeiling ({format_duration(limits.grace_period_ceiling)})"
                )
        return self


_PERIODS = (
    "admission_grace_period",
    "warmup_grace_period",
    "failure_grace_period",
    "reset_pause",
    "deletion_grace_period",
)


def _label_selector(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("must be a label selector such as operatorVersion=v1")  # noqa: TRY004 (pydantic's contract)
    return str(LabelSelector.of(value))


class OperatorConfiguration(_Section):
    """The whole document."""

    watch_namespaces: list[Namespace] = Field(
        default_factory=list,
        description="The namespaces whose RayClusters and AppWrappers are looked after, by rights in these namespaces "
        "alone (but for the OAuth proxy, which needs ClusterRoleBindings); empty: all. "
        "`kuberay.operatorNamespaces` is then not found out: name it.",
    )
    label_selector: Annotated[str, BeforeValidator(_label_selector)] = Field(
        default="",
        description="Only RayClusters and AppWrappers with these labels are looked after, such as "
        "`operatorVersion=v1`: operators of several versions can share a cluster. Empty: all.",
    )
    client_connection: ClientConnection = Field(default_factory=ClientConnection)
    metrics: MetricsConfiguration = Field(default_factory=MetricsConfiguration)
    health: HealthConfiguration = Field(default_factory=HealthConfiguration)
    leader_election: LeaderElection = Field(default_factory=LeaderElection)
    webhook: WebhookConfiguration = Field(default_factory=WebhookConfiguration)
    kuberay: KubeRayConfiguration = Field(default_factory=KubeRayConfiguration)
    appwrapper: AppWrapperConfiguration = Field(default_factory=AppWrapperConfiguration)
