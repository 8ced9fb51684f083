"""The model of the whole configuration document, with its small sections; each large section has a module of its own.

The models contain settings, defaults, and the validation of single values. Error messages state the allowed values.
:mod:`cfo.config.document` parses documents into these models. ``docs/configuration.md`` is generated from the
descriptions and from the first docstring line of each model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import combinations
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StrictBool, StrictInt, model_validator

from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.config.durations import Duration, duration_of, format_duration
from cfo.config.endpoints import DebugConfiguration, HealthConfiguration, MetricsConfiguration, WebhookConfiguration
from cfo.config.kuberay import KubeRayConfiguration
from cfo.config.section import Namespace, ObjectName, OptionalNamespace, Section, Selector, matching


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
    user_rbac_admission_check: StrictBool = Field(
        default=True,
        alias="userRBACAdmissionCheck",
        description="Whether the creator of a MiniCluster or FluxJob must have permission to create Jobs.",
    )


class InferenceStackConfiguration(Section):
    """The InferenceStack controller and webhook."""

    enabled: StrictBool = Field(default=False, description="Whether the InferenceStack controller runs.")
    operator_version: Annotated[str, matching(r"v(0|[1-9][0-9]{0,5})", "must be v<major>, such as v1")] = Field(
        default="v1",
        description="Major version of this operator: it reconciles and validates the InferenceStacks with this value "
        "of the label `operatorVersion`. The webhook configuration must have the same value.",
    )
    user_rbac_admission_check: StrictBool = Field(
        default=True,
        alias="userRBACAdmissionCheck",
        description="Whether users must have permission to create the objects that the operator creates for their "
        "InferenceStack, such as Deployments, HTTPRoutes and ScaledObjects.",
    )
    allow_cluster_trigger_authentication: StrictBool = Field(
        default=False,
        description="Whether triggers of KEDA in InferenceStacks may refer to ClusterTriggerAuthentications. Users can "
        "send the credentials in them to any address.",
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
        return isinstance(value, str) and duration_of(value) == timedelta(0)
    except ValueError:
        return False


_ALL_ADDRESSES = ("", "0.0.0.0", "[::]")  # noqa: S104 (compared, not bound)


def _overlap(first: str, second: str) -> bool:
    """Return whether two bind addresses have the same port on the same address; port 0 is any free port."""
    (host, _, port), (other_host, _, other_port) = first.rpartition(":"), second.rpartition(":")
    if not port.isdigit() or not other_port.isdigit() or int(port) == 0 or int(port) != int(other_port):
        return False
    return host == other_host or host in _ALL_ADDRESSES or other_host in _ALL_ADDRESSES


class ClientConnection(Section):
    """Rate limit of the API client. By default there is none, and only the server's Priority and Fairness applies."""

    qps: float | None = Field(
        default=None,
        description="Maximum requests per second; unset or negative means no limit.",
        strict=True,
        allow_inf_nan=False,
    )
    burst: StrictInt | None = Field(default=None, ge=0, description="Maximum burst of requests above `qps`.")


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
    debug: DebugConfiguration = Field(default_factory=DebugConfiguration)
    leader_election: LeaderElection = Field(default_factory=LeaderElection)
    webhook: WebhookConfiguration = Field(default_factory=WebhookConfiguration)
    kuberay: KubeRayConfiguration = Field(default_factory=KubeRayConfiguration)
    appwrapper: AppWrapperConfiguration = Field(default_factory=AppWrapperConfiguration)
    flux: FluxConfiguration = Field(default_factory=FluxConfiguration)
    inference_stack: InferenceStackConfiguration = Field(default_factory=InferenceStackConfiguration)

    @model_validator(mode="after")
    def _debug_clients_are_authenticated(self) -> Self:
        if self.debug.bind_address == "metrics" and not self.metrics.secure_serving:
            raise ValueError('debug.bindAddress "metrics" requires metrics.secureServing: true')
        return self

    @model_validator(mode="after")
    def _namespaces_can_be_selected(self) -> Self:
        if self.watch_namespaces and self.kuberay.network_policy.default_deny.namespace_selector is not None:
            raise ValueError(
                "kuberay.networkPolicy.defaultDeny.namespaceSelector requires an operator for all namespaces: "
                "unset it, or unset watchNamespaces"
            )
        return self

    @model_validator(mode="after")
    def _ports_differ(self) -> Self:
        servers = {"metrics": self.metrics.bind_address, "health": self.health.bind_address}
        if self.webhook.enabled is not False:
            servers["webhook"] = self.webhook.bind_address
        for (first, address), (second, other) in combinations(servers.items(), 2):
            if _overlap(address, other):
                raise ValueError(
                    f"{first}.bindAddress and {second}.bindAddress must not use the same port: {address}, {other}"
                )
        return self

    @model_validator(mode="after")
    def _profiles_need_all_namespaces(self) -> Self:
        if self.watch_namespaces and self.kuberay.profiles:
            raise ValueError(
                "kuberay.profiles requires an operator for all namespaces: unset it, or unset watchNamespaces"
            )
        return self


def effective_document(configuration: OperatorConfiguration) -> dict[str, Any]:
    """Return every setting of ``configuration`` under its key; those that are unset are ``None``."""
    return configuration.model_dump(mode="json", by_alias=True)


def changed_settings(old: OperatorConfiguration, new: OperatorConfiguration) -> list[str]:
    """Return the paths of the settings that differ, such as ``kuberay.ingressDomain``, in order.

    A list or map counts as one setting.
    """
    before, after = dict(_settings(effective_document(old))), dict(_settings(effective_document(new)))
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def _settings(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, dict) and value and prefix.count(".") < _DEPTH:
            yield from _settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


_DEPTH = 3
"""The number of nested sections; maps are not deeper in the document."""
