"""The pydantic models of the configuration document: settings, defaults, and validation of single values.

Error messages state the allowed values. :mod:`cfo.config.document` parses documents into these models.
``docs/configuration.md`` is generated from the descriptions and from the first docstring line of each model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from ipaddress import ip_address
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    StrictBool,
    StrictInt,
    StrictStr,
    model_validator,
)
from pydantic.alias_generators import to_camel

from cfo.config.authentication import AuthenticationConfiguration
from cfo.config.durations import format_duration, parse_duration
from cfo.config.network_policy import NetworkPolicyConfiguration
from cfo.config.section import (
    DNS_LABEL,
    Namespace,
    ObjectName,
    OptionalObjectName,
    Section,
    Selector,
    check_namespace,
)

__all__ = [
    "AppWrapperConfiguration",
    "AutopilotConfiguration",
    "CAConfiguration",
    "ClientConnection",
    "DefaultSetupConfiguration",
    "FaultToleranceConfiguration",
    "FluxConfiguration",
    "GatewayConfiguration",
    "HealthConfiguration",
    "InferenceStackConfiguration",
    "IngressConfiguration",
    "KubeRayConfiguration",
    "LeaderElection",
    "MetricsConfiguration",
    "OperatorConfiguration",
    "ProfileConfiguration",
    "ResourceTaint",
    "WebhookConfiguration",
]


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


OptionalNamespace = Annotated[str, BeforeValidator(lambda value: value if value == "" else check_namespace(value))]


def _domain(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("must be a domain name such as apps.example.com")  # noqa: TRY004 (pydantic's contract)
    if value and (len(value) > 253 or not all(DNS_LABEL.fullmatch(label) for label in value.split("."))):
        raise ValueError("must be a domain name such as apps.example.com (lower-case DNS labels joined by dots)")
    return value


Domain = Annotated[str, BeforeValidator(_domain)]


def _endpoint(value: object) -> object:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9._~-]*", value):
        raise ValueError("must be one path segment of letters, digits and . _ ~ -")
    return value


EndpointName = Annotated[str, BeforeValidator(_endpoint)]


class ClientConnection(Section):
    """Rate limit of the API client. By default there is none, and only the server's Priority and Fairness applies."""

    qps: float | None = Field(
        default=None,
        description="Maximum requests per second; unset or negative means no limit.",
        strict=True,
        allow_inf_nan=False,
    )
    burst: StrictInt | None = Field(default=None, ge=0, description="Maximum burst of requests above `qps`.")


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


def _webhook_address(value: object) -> object:
    if _bind_address(value) in ("", "0"):
        raise ValueError('must be HOST:PORT such as ":9443"; to disable webhooks, set webhook.enabled to false')
    return value


def _service(value: object) -> object:
    if not isinstance(value, str) or not DNS_LABEL.fullmatch(value):
        raise ValueError("must be the name of a Service (a lower-case DNS label)")
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
    service_name: Annotated[str, BeforeValidator(_service)] = Field(
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


class LeaderElection(Section):
    """Leader election: which one of several replicas reconciles."""

    leader_elect: StrictBool | None = Field(
        default=None, description="Whether to use leader election. If unset: yes in a cluster, otherwise no."
    )
    lease_duration: Duration = Field(
        default=timedelta(seconds=15),
        description="How long a Lease that is not renewed stays valid before another replica takes over.",
    )
    renew_deadline: Duration = Field(
        default=timedelta(seconds=10),
        description="How long the leader retries a renewal before it gives up leadership.",
    )
    retry_period: Duration = Field(
        default=timedelta(seconds=2), description="Interval between attempts to acquire or renew the Lease."
    )
    resource_lock: Literal["leases"] = Field(
        default="leases", description="Kind of the lock; only Leases are supported."
    )
    resource_name: ObjectName = Field(
        default="codeflare-operator-lock",
        description="Name of the Lease. The operator's default Role allows only the default name.",
    )
    resource_namespace: OptionalNamespace = Field(
        default="", description="Namespace of the Lease; if empty, the operator's own namespace."
    )
    release_on_cancel: StrictBool = Field(
        default=True, description="Whether the leader releases the Lease when it exits."
    )

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
    def _durations_are_consistent(self) -> Self:
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


class IngressConfiguration(Section):
    """The Ingresses for the dashboard and the Ray client, on clusters without Routes."""

    class_name: StrictStr | None = Field(
        default=None,
        description="`ingressClassName` of both Ingresses. If unset: none for the dashboard, `nginx` for the client "
        "(or the default IngressClass if `nginx` does not exist).",
    )
    annotations: dict[StrictStr, StrictStr] | None = Field(
        default=None,
        description="Annotations of both Ingresses. If unset: those with which the controller of the IngressClass "
        "passes the client's TLS through, and connects to a dashboard that serves HTTPS.",
    )
    tls_secret_name: StrictStr = Field(
        default="",
        description="Secret with the dashboard's certificate, in the RayCluster's namespace; if empty, no TLS.",
    )
    namespaces: list[Namespace] = Field(
        default_factory=list,
        description="Namespaces of the ingress controllers (or of the pods of the Gateway) that the NetworkPolicies "
        "allow to reach the dashboard (port 8265), the client (port 10001) and Serve (port 8000), or the ports that "
        "the RayCluster sets.",
    )


def _profile_name(value: object) -> object:
    if not isinstance(value, str) or not DNS_LABEL.fullmatch(value):
        raise ValueError("must be a lower-case DNS label")
    return value


class GatewayConfiguration(Section):
    """The Gateway (Gateway API) through which dashboards and Ray clients are reachable, instead of Ingresses."""

    name: OptionalObjectName = Field(default="", description="Name of the Gateway; if empty, Ingresses are used.")
    namespace: OptionalNamespace = Field(default="", description="Namespace of the Gateway.")
    dashboard_listener: OptionalObjectName = Field(
        default="",
        description="Name of the listener for dashboards, which should have the protocol `HTTPS`. It must admit "
        "HTTPRoutes of the RayClusters' namespaces.",
    )
    client_listener: OptionalObjectName = Field(
        default="",
        description="Name of the listener for Ray clients, with the protocol `TLS` and the mode `Passthrough`. It must "
        "admit TLSRoutes of the RayClusters' namespaces. If empty, Ray clients are not reachable through the Gateway.",
    )
    dashboard_host: Domain = Field(
        default="",
        description="One host for all dashboards, each at the path `/ray/NAMESPACE/NAME`, where CodeFlare SDK expects "
        "it. If empty, each dashboard has a host of its own below `kuberay.ingressDomain`, which isolates dashboards "
        "from each other in browsers.",
    )

    @property
    def enabled(self) -> bool:
        """Whether a Gateway is configured."""
        return bool(self.name)

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        given = {to_camel(name) for name in type(self).model_fields if getattr(self, name)}
        missing = [key for key in ("name", "namespace", "dashboardListener") if key not in given]
        if given and missing:
            raise ValueError(f"{', '.join(missing)} must be set as well")
        return self


def _algorithm(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _at_least_one_hour(value: timedelta) -> timedelta:
    if value < timedelta(hours=1):
        raise ValueError("must be at least 1h")
    return value


class CAConfiguration(Section):
    """The certificate authority (CA) that each RayCluster gets for mTLS."""

    key_algorithm: Annotated[Literal["ecdsa", "rsa"], BeforeValidator(_algorithm)] = Field(
        default="ecdsa", description="Key algorithm of new CAs: `ecdsa` (P-256) or `rsa` (2048 bits)."
    )
    issuer: Literal["secret", "certificateSigningRequest"] = Field(
        default="secret",
        description="How the pods of new RayClusters get their certificates: `secret`: an init container signs them "
        "with the CA's key, which it mounts; `certificateSigningRequest`: an init container requests them from the "
        "operator with the pod's token, and no pod mounts the key. The latter needs the component `csr`.",
    )
    node_certificate_lifetime: Annotated[Duration, AfterValidator(_at_least_one_hour)] = Field(
        default=timedelta(days=365),
        description="Validity of the certificates that the operator issues for pods, at least 1h. Ray does not reload "
        "certificates, so a pod has to be restarted before its certificate expires.",
    )


class ProfileConfiguration(Section):
    """What every RayCluster in some namespaces gets; each setting that is not enforced is as without the profile."""

    name: Annotated[str, BeforeValidator(_profile_name)]
    namespace_selector: Selector = ""
    network_policy: Literal["default", "enforced"] = "default"
    mtls: Literal["default", "enforced"] = Field(default="default", alias="mTLS")
    authentication: Literal["default", "enforced"] = "default"


class KubeRayConfiguration(Section):
    """The RayCluster controllers and webhooks."""

    enabled: StrictBool = Field(
        default=True,
        description="Whether the RayCluster controllers run and their webhooks are served. Operators that run only for "
        "InferenceStacks disable it.",
    )
    ray_dashboard_oauth_enabled: StrictBool = Field(
        default=True,
        alias="rayDashboardOAuthEnabled",
        description="Whether the dashboard requires authentication: by OpenShift's OAuth proxy or by `authentication`.",
    )
    ingress_domain: Domain = Field(
        default="",
        description="Domain of the Ingress hosts and of the client's host in the head's certificate; if empty, the "
        "domain in `ingresses.config.openshift.io/cluster`, if that exists.",
    )
    mtls_enabled: StrictBool = Field(
        default=True, alias="mTLSEnabled", description="Whether Ray nodes and clients use mutual TLS."
    )
    operator_namespaces: list[Namespace] = Field(
        default_factory=list,
        description="Namespaces of the KubeRay operator, which the NetworkPolicies allow to reach head pods; if empty, "
        "they are detected.",
    )
    kuberay_features: list[
        Literal[
            "networkIsolation", "networkPolicy", "secureTrustedNetwork", "tlsOptions", "authOptions", "ingressOptions"
        ]
    ] = Field(
        default_factory=list,
        alias="kubeRayFeatures",
        description="Features that are active in KubeRay. RayClusters that use one do not get the operator's own "
        "objects and pod template entries for it. Possible values: the fields `networkPolicy` (feature gate "
        "`RayClusterNetworkPolicy`), `tlsOptions` (feature gate `RayClusterMTLS`), `authOptions` and `ingressOptions` "
        "(with `enableIngress`, which is refused otherwise); of Open Data Hub's KubeRay, `networkIsolation` and "
        "`secureTrustedNetwork` (the annotation `odh.ray.io/secure-trusted-network`).",
    )
    profiles: list[ProfileConfiguration] = Field(
        default_factory=list,
        description="Profiles for namespaces; the first one whose `namespaceSelector` (a label selector such as "
        "`tenant=research`; if empty, all namespaces) matches applies. Each has a `name`. `networkPolicy`, `mTLS` and "
        "`authentication` can be `enforced`: every RayCluster in these namespaces gets it, whatever its own settings "
        "are. Not with `watchNamespaces`, because the operator has to read Namespaces.",
    )
    authentication: AuthenticationConfiguration = Field(default_factory=AuthenticationConfiguration)
    ingress: IngressConfiguration = Field(default_factory=IngressConfiguration)
    gateway: GatewayConfiguration = Field(default_factory=GatewayConfiguration)
    network_policy: NetworkPolicyConfiguration = Field(default_factory=NetworkPolicyConfiguration)
    ca: CAConfiguration = Field(default_factory=CAConfiguration)

    @model_validator(mode="after")
    def _profile_names_are_unique(self) -> Self:
        names = [profile.name for profile in self.profiles]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"profiles: the name {name} is used more than once")
        return self

    @model_validator(mode="after")
    def _logins_have_hosts_of_their_own(self) -> Self:
        # browsers would send the session of one dashboard to the proxies of all others, which run in tenants' pods
        if self.gateway.dashboard_host and self.authentication.oidc is not None:
            raise ValueError("gateway.dashboardHost and authentication.oidc must not be set together")
        return self


class ResourceTaint(Section):
    """A node label (and taint) with which Autopilot marks a resource of a node as unhealthy."""

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


class AutopilotConfiguration(Section):
    """Scheduling by node health, as reported by Autopilot."""

    inject_anti_affinities: StrictBool = Field(
        default=True,
        description="Whether to keep pods that request a resource off nodes on which it is marked as unhealthy.",
    )
    monitor_nodes: StrictBool = Field(
        default=True, description="Whether to watch nodes, and to evacuate AppWrappers from unhealthy ones."
    )
    prefer_no_schedule_weight: StrictInt = Field(
        default=50,
        ge=1,
        le=100,
        description="Weight of the preferred node affinity for marks with the effect `PreferNoSchedule`.",
    )
    resource_taints: dict[StrictStr, list[ResourceTaint]] = Field(
        default_factory=_autopilot_taints,
        description="For each resource, the node labels that mark it as unhealthy, and their effects.",
    )


class FaultToleranceConfiguration(Section):
    """Timeouts and retries of AppWrappers. Annotations on an AppWrapper override them, up to the ceilings."""

    admission_grace_period: Duration = Field(
        default=timedelta(minutes=1),
        description="Deadline for creating the components and all their pods.",
    )
    warmup_grace_period: Duration = Field(
        default=timedelta(minutes=5), description="Deadline for the pods to become ready."
    )
    failure_grace_period: Duration = Field(
        default=timedelta(minutes=1),
        description="How long a failure must persist before the AppWrapper is reset.",
    )
    reset_pause: Duration = Field(
        default=timedelta(seconds=90), description="Pause between a reset and the next attempt."
    )
    retry_limit: StrictInt = Field(default=3, ge=0, description="Maximum number of retries.")
    deletion_grace_period: Duration = Field(
        default=timedelta(minutes=10), description="How long the deletion of components may take before it is forced."
    )
    grace_period_ceiling: Duration = Field(
        default=timedelta(hours=24), description="Maximum of all grace periods, including those in annotations."
    )
    success_ttl_ceiling: Duration = Field(
        default=timedelta(days=7),
        alias="successTTLCeiling",
        description="Maximum time to keep a succeeded AppWrapper.",
    )


class AppWrapperConfiguration(Section):
    """The AppWrapper controller. Its settings can also be in `appwrapper.Config`, as for the Go operator."""

    enabled: StrictBool = Field(default=False, description="Whether the AppWrapper controller runs.")
    scheduler_name: StrictStr = Field(
        default="", description="`schedulerName` of the wrapped pods; if empty, it is not changed."
    )
    default_queue_name: StrictStr = Field(
        default="", description="Kueue LocalQueue of AppWrappers without a queue name label; if empty, none."
    )
    kueue_integration: StrictBool = Field(
        default=False,
        description="Whether the operator itself manages the Kueue Workloads of AppWrappers. Enable it only if Kueue's "
        "own AppWrapper integration is disabled.",
    )
    slack_queue_name: StrictStr = Field(
        default="",
        description="ClusterQueue whose lending limits are reduced by the capacity of unschedulable and unhealthy "
        "nodes; if empty, none.",
    )
    user_rbac_admission_check: StrictBool = Field(
        default=True,
        alias="userRBACAdmissionCheck",
        description="Whether the creator of an AppWrapper must have permission to create the wrapped objects.",
    )
    require_admission_webhook: StrictBool = Field(
        default=True,
        description="Whether an AppWrapper runs only if the validating webhook was registered with "
        "`failurePolicy: Fail` when it was created. If false, any user who creates an AppWrapper while the webhook is "
        "missing gains the operator's permissions in that namespace.",
    )
    autopilot: AutopilotConfiguration = Field(default_factory=AutopilotConfiguration)
    fault_tolerance: FaultToleranceConfiguration = Field(default_factory=FaultToleranceConfiguration)

    @model_validator(mode="after")
    def _periods_are_below_ceiling(self) -> Self:
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


def _operator_version(value: object) -> object:
    if not isinstance(value, str) or not re.fullmatch(r"v(0|[1-9][0-9]{0,5})", value):
        raise ValueError("must be v<major>, such as v1")
    return value


class InferenceStackConfiguration(Section):
    """The InferenceStack controller and webhook."""

    enabled: StrictBool = Field(default=False, description="Whether the InferenceStack controller runs.")
    operator_version: Annotated[str, BeforeValidator(_operator_version)] = Field(
        default="v1",
        description="Major version of this operator: it reconciles and validates the InferenceStacks with this value "
        "of the label `operatorVersion`. The webhook configuration must have the same value.",
    )


class DefaultSetupConfiguration(Section):
    """The FluxSetup `default`, with which FluxJobs run before an administrator has created a FluxSetup."""

    enabled: StrictBool = Field(
        default=False,
        description="Whether to create the FluxSetup at start, in the operator's namespace, if the cluster has none. "
        "It governs all namespaces. It is never changed or created again while another one exists.",
    )
    max_size: StrictInt = Field(default=20, ge=0, le=2**31 - 1, description="Maximum number of pods of all FluxJobs.")
    mini_cluster_size: StrictInt = Field(
        default=1, ge=1, le=100_000, description="Number of pods of FluxJobs that have no size."
    )
    queueing_strategy: Literal["BestEffortFIFO", "StrictFIFO", "Backfill"] = Field(
        default="BestEffortFIFO", description="Which FluxJobs may be admitted before one that does not fit."
    )


class FluxConfiguration(Section):
    """The controllers of MiniClusters, FluxJobs and FluxSetups."""

    enabled: StrictBool = Field(default=False, description="Whether the Flux controllers run.")
    admin_namespaces: list[Namespace] = Field(
        default_factory=list,
        description="Namespaces whose FluxSetups may select other namespaces; the operator's own namespace always may. "
        "A FluxSetup with a `namespaceSelector` in another namespace is inactive (`InvalidSelector`).",
    )
    default_setup: DefaultSetupConfiguration = Field(default_factory=DefaultSetupConfiguration)


class OperatorConfiguration(Section):
    """The whole configuration document."""

    watch_namespaces: list[Namespace] = Field(
        default_factory=list,
        description="Namespaces whose RayClusters, AppWrappers and Flux objects are reconciled; if empty, all. If set, "
        "the operator needs permissions only in these namespaces (except for the OAuth proxy, which needs "
        "ClusterRoleBindings, and AppWrappers, which need to read ValidatingWebhookConfigurations), and does not "
        "detect `kuberay.operatorNamespaces`, so set that as well.",
    )
    label_selector: Selector = Field(
        default="",
        description="Label selector of the RayClusters, AppWrappers and Flux objects that are reconciled; if empty, "
        "all. With selectors such as `operatorVersion=v1`, operators of several versions can share a cluster.",
    )
    client_connection: ClientConnection = Field(default_factory=ClientConnection)
    metrics: MetricsConfiguration = Field(default_factory=MetricsConfiguration)
    health: HealthConfiguration = Field(default_factory=HealthConfiguration)
    leader_election: LeaderElection = Field(default_factory=LeaderElection)
    webhook: WebhookConfiguration = Field(default_factory=WebhookConfiguration)
    kuberay: KubeRayConfiguration = Field(default_factory=KubeRayConfiguration)
    appwrapper: AppWrapperConfiguration = Field(default_factory=AppWrapperConfiguration)
    flux: FluxConfiguration = Field(default_factory=FluxConfiguration)
    inference_stack: InferenceStackConfiguration = Field(default_factory=InferenceStackConfiguration)

    @model_validator(mode="after")
    def _namespaces_can_be_selected(self) -> Self:
        if self.watch_namespaces and self.kuberay.network_policy.default_deny.namespace_selector is not None:
            raise ValueError(
                "kuberay.networkPolicy.defaultDeny.namespaceSelector requires an operator for all namespaces: "
                "unset it, or unset watchNamespaces"
            )
        return self

    @model_validator(mode="after")
    def _profiles_need_all_namespaces(self) -> Self:
        if self.watch_namespaces and self.kuberay.profiles:
            raise ValueError("kuberay.profiles: not possible with watchNamespaces")
        return self
