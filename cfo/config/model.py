"""The model of the whole configuration document, with its small sections; each large section has a module of its own.

The models contain settings, defaults, and the validation of single values. Error messages state the allowed values.
:mod:`cfo.config.document` parses documents into these models. ``docs/configuration.md`` is generated from the
descriptions and from the first docstring line of each model.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import combinations
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, field

from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.config.durations import Duration, is_zero_duration
from cfo.config.endpoints import (
    DebugConfiguration,
    HealthConfiguration,
    MetricsConfiguration,
    WebhookConfiguration,
)
from cfo.config.kuberay import KubeRayConfiguration
from cfo.config.section import Section
from cfo.config.values import Namespace, ObjectName, OptionalNamespace, Selector, between, matching
from cfo.runtime.objects import format_duration

_SHORTEST_WARMUP: Final = timedelta(seconds=10)


class DefaultSetupConfiguration(Section):
    """The FluxSetup `default`, with which FluxJobs run before an administrator has created a FluxSetup."""

    enabled: Annotated[
        bool,
        "Whether to create the FluxSetup at start, in the operator's namespace, for all namespaces, if the cluster "
        "has none.",
    ] = False
    max_size: Annotated[int, between(0), "Maximum number of pods of all FluxJobs."] = 20
    mini_cluster_size: Annotated[
        int, between(1, 100_000), "Number of pods of FluxJobs that have no size."
    ] = 1
    queueing_strategy: Annotated[
        Literal["BestEffortFIFO", "StrictFIFO", "Backfill"],
        "Which FluxJobs may be admitted before one that does not fit.",
    ] = "BestEffortFIFO"


class FluxConfiguration(Section):
    """The controllers of MiniClusters, FluxJobs and FluxSetups."""

    enabled: Annotated[bool, "Whether the Flux controllers run."] = False
    warmup_grace_period: Annotated[
        Duration,
        "Deadline for the pods of an admitted FluxJob to start, from its launch.",
    ] = Duration(minutes=15)
    admin_namespaces: Annotated[
        list[Namespace],
        "Namespaces whose FluxSetups may select other namespaces, in addition to the operator's own namespace.",
    ] = field(default_factory=list)
    default_setup: DefaultSetupConfiguration = DefaultSetupConfiguration()
    user_rbac_admission_check: Annotated[
        bool, "Whether the creator of a MiniCluster or FluxJob must have permission to create Jobs."
    ] = field(default=True, name="userRBACAdmissionCheck")

    def conflicts(self) -> Iterator[str]:
        """Yield what is wrong with settings that depend on each other."""
        period = self.warmup_grace_period
        if self.enabled and period < _SHORTEST_WARMUP:
            yield (
                f"warmupGracePeriod ({format_duration(period)}) must be at least "
                f"{format_duration(_SHORTEST_WARMUP)}, or no pod starts in time"
            )


class InferenceStackConfiguration(Section):
    """The InferenceStack controller and webhook."""

    enabled: Annotated[bool, "Whether the InferenceStack controller runs."] = False
    operator_version: Annotated[
        str,
        matching(r"v(0|[1-9][0-9]{0,5})", "v<major>, such as v1"),
        "Major version of this operator: it reconciles and validates the InferenceStacks with this value "
        "of the label `operatorVersion`. The webhook configuration must have the same value.",
    ] = "v1"
    user_rbac_admission_check: Annotated[
        bool,
        "Whether users must have permission to create the objects that the operator creates for their InferenceStack.",
    ] = field(default=True, name="userRBACAdmissionCheck")
    allow_cluster_trigger_authentication: Annotated[
        bool,
        "Whether triggers of KEDA in InferenceStacks may refer to ClusterTriggerAuthentications. Users can "
        "send the credentials in them to any address.",
    ] = False


class LeaderElection(Section):
    """Leader election: which one of several replicas reconciles."""

    leader_elect: Annotated[
        bool | None,
        "Whether to use leader election. If unset: only in a cluster. Without it, an operator that serves webhooks, or "
        "runs outside the cluster, renews the Lease as well, as a heartbeat. In the cluster, it reconciles whether or "
        "not it holds the Lease; outside, it starts once it holds it, and exits if another process renews it.",
    ] = None
    lease_duration: Annotated[Duration, "How long a Lease that is not renewed stays valid."] = (
        Duration(seconds=15)
    )
    renew_deadline: Annotated[
        Duration, "How long the leader retries a renewal before it gives up leadership."
    ] = Duration(seconds=10)
    retry_period: Annotated[
        Duration, "Interval between attempts to acquire or renew the Lease."
    ] = Duration(seconds=2)
    resource_lock: Annotated[Literal["leases"], "The only kind that is supported."] = "leases"
    resource_name: Annotated[
        ObjectName, "Name of the Lease. The operator's default Role allows only the default name."
    ] = "codeflare-operator-lock"
    resource_namespace: Annotated[
        OptionalNamespace, "Namespace of the Lease; if empty, the operator's own namespace."
    ] = ""
    release_on_cancel: Annotated[bool, "Whether the leader releases the Lease when it exits."] = (
        True
    )

    @classmethod
    def normalized(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``data`` without values that mean the default, as for the Go operator."""
        names = ("leaseDuration", "renewDeadline", "retryPeriod", "resourceLock", "resourceName")
        return {
            key: value
            for key, value in data.items()
            if not (key in names and (value in ("", 0) or is_zero_duration(value)))
        }

    def conflicts(self) -> Iterator[str]:
        """Yield what is wrong with settings that depend on each other."""
        if self.lease_duration < timedelta(seconds=1):
            yield f"leaseDuration ({format_duration(self.lease_duration)}) must be at least 1s"
        if self.lease_duration <= self.renew_deadline:
            yield (
                f"leaseDuration ({format_duration(self.lease_duration)}) must be greater than "
                f"renewDeadline ({format_duration(self.renew_deadline)})"
            )
        if self.renew_deadline <= self.retry_period * 1.2:
            yield (
                f"renewDeadline ({format_duration(self.renew_deadline)}) must be greater than "
                f"1.2 times retryPeriod ({format_duration(self.retry_period)})"
            )


_ALL_ADDRESSES = ("", "0.0.0.0", "[::]")  # noqa: S104 (compared, not bound)


def _overlap(first: str, second: str) -> bool:
    """Return whether two bind addresses have the same port on the same address; port 0 is any free port."""
    host, _, port = first.rpartition(":")
    other_host, _, other_port = second.rpartition(":")
    if not port.isdigit() or not other_port.isdigit():
        return False
    if int(port) == 0 or int(port) != int(other_port):
        return False
    return host == other_host or host in _ALL_ADDRESSES or other_host in _ALL_ADDRESSES


_LIMIT: Final = 2**31 - 1
Rate = Annotated[
    float, Meta(ge=-_LIMIT, le=_LIMIT, description=f"a number from {-_LIMIT} to {_LIMIT}")
]


class ClientConnection(Section):
    """Rate limit of the API client. By default there is none, and only the server's Priority and Fairness applies."""

    qps: Annotated[
        Rate | None,
        "Maximum requests per second; unset or negative means no limit.",
    ] = None
    burst: Annotated[
        Annotated[int, between(0)] | None, "Maximum burst of requests above `qps`."
    ] = None


class OperatorConfiguration(Section):
    """The whole configuration document."""

    watch_namespaces: Annotated[
        list[Namespace],
        "Namespaces whose RayClusters, AppWrappers and Flux objects are reconciled; if empty, all. If set, the "
        "operator needs permissions on these objects, and on those that it creates for them, only there (`cfo "
        "manifests --watch-namespace`), and in the whole cluster on kinds without a namespace (such as CRDs), the "
        "hosts of Ingresses and routes, and other operators' Leases. Set `kuberay.operatorNamespaces` as well, which "
        "it cannot detect.",
    ] = field(default_factory=list)
    label_selector: Annotated[
        Selector,
        "Label selector of the RayClusters, AppWrappers and Flux objects that are reconciled, such as "
        "`operatorVersion=v1`; if empty, all.",
    ] = Selector("")
    client_connection: ClientConnection = ClientConnection()
    metrics: MetricsConfiguration = MetricsConfiguration()
    health: HealthConfiguration = HealthConfiguration()
    debug: DebugConfiguration = DebugConfiguration()
    leader_election: LeaderElection = LeaderElection()
    webhook: WebhookConfiguration = WebhookConfiguration()
    kuberay: KubeRayConfiguration = KubeRayConfiguration()
    appwrapper: AppWrapperConfiguration = AppWrapperConfiguration()
    flux: FluxConfiguration = FluxConfiguration()
    inference_stack: InferenceStackConfiguration = InferenceStackConfiguration()

    def conflicts(self) -> Iterator[str]:
        """Yield what is wrong with settings that depend on each other."""
        if self.debug.bind_address == "metrics" and not self.metrics.secure_serving:
            yield ('debug.bindAddress "metrics" requires metrics.secureServing: true')
        if (
            self.watch_namespaces
            and self.kuberay.network_policy.default_deny.namespace_selector is not None
        ):
            yield (
                "kuberay.networkPolicy.defaultDeny.namespaceSelector requires an operator for all namespaces: "
                "unset it, or unset watchNamespaces"
            )
        servers = {"metrics": self.metrics.bind_address, "health": self.health.bind_address}
        if self.webhook.enabled is not False:
            servers["webhook"] = self.webhook.bind_address
        for (first, address), (second, other) in combinations(servers.items(), 2):
            if _overlap(address, other):
                yield f"{first}.bindAddress and {second}.bindAddress must not use the same port: {address}, {other}"
        if self.watch_namespaces and self.kuberay.profiles:
            yield "kuberay.profiles requires an operator for all namespaces: unset it, or unset watchNamespaces"


def changed_settings(old: OperatorConfiguration, new: OperatorConfiguration) -> list[str]:
    """Return the paths of the settings that differ, such as ``kuberay.ingressDomain``, in order.

    A list or map counts as one setting.
    """
    before = dict(_settings(old.to_document()))
    after = dict(_settings(new.to_document()))
    paths = before.keys() | after.keys()
    return sorted(path for path in paths if before.get(path) != after.get(path))


def _settings(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, dict) and value and prefix.count(".") < _DEPTH:
            yield from _settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


_DEPTH = 3
"""The number of nested sections; maps are not deeper in the document."""
