"""The section ``appwrapper``."""

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import field

from cfo.config.durations import Duration
from cfo.config.section import Section
from cfo.config.values import LabelKey, LabelValue, OptionalObjectName, OptionalQueueName, between
from cfo.runtime.objects import format_duration


class ResourceTaint(Section):
    """A node label (and taint) with which Autopilot marks a resource of a node as unhealthy."""

    key: LabelKey
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    value: LabelValue = ""


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

    inject_anti_affinities: Annotated[
        bool,
        "Whether to keep pods that request a resource off nodes on which it is marked as unhealthy.",
    ] = True
    monitor_nodes: Annotated[
        bool, "Whether to watch nodes, and to evacuate AppWrappers from unhealthy ones."
    ] = True
    prefer_no_schedule_weight: Annotated[
        int,
        between(1, 100),
        "Weight of the preferred node affinity for marks with the effect `PreferNoSchedule`.",
    ] = 50
    resource_taints: Annotated[
        dict[str, list[ResourceTaint]],
        "For each resource, the node labels that mark it as unhealthy, and their effects.",
    ] = field(default_factory=_autopilot_taints)


class FaultToleranceConfiguration(Section):
    """Timeouts and retries of AppWrappers. Annotations on an AppWrapper override them, up to the ceilings."""

    admission_grace_period: Annotated[
        Duration, "Deadline for creating the components and all their pods."
    ] = Duration(minutes=1)
    warmup_grace_period: Annotated[Duration, "Deadline for the pods to become ready."] = Duration(
        minutes=5
    )
    failure_grace_period: Annotated[
        Duration, "How long a failure must persist before the AppWrapper is reset."
    ] = Duration(minutes=1)
    reset_pause: Annotated[Duration, "Pause between a reset and the next attempt."] = Duration(
        seconds=90
    )
    retry_limit: Annotated[int, between(0), "Maximum number of retries."] = 3
    deletion_grace_period: Annotated[
        Duration, "How long the deletion of components may take before it is forced."
    ] = Duration(minutes=10)
    grace_period_ceiling: Annotated[
        Duration, "Maximum of all grace periods, including those in annotations."
    ] = Duration(hours=24)
    unused_quota_limit: Annotated[
        Duration,
        "How long in all an AppWrapper in a queue keeps quota that no pod requests; at most `gracePeriodCeiling`.",
    ] = Duration(minutes=30)
    success_ttl_ceiling: Annotated[Duration, "Maximum time to keep components after a success."] = (
        field(default=Duration(days=7), name="successTTLCeiling")
    )


class AppWrapperConfiguration(Section):
    """The AppWrapper controller. Its settings can also be in `appwrapper.Config`, as for the Go operator."""

    enabled: Annotated[bool, "Whether the AppWrapper controller runs."] = False
    scheduler_name: Annotated[
        str, "`schedulerName` of the wrapped pods; if empty, it is not changed."
    ] = ""
    default_queue_name: Annotated[
        OptionalQueueName,
        "Kueue LocalQueue of AppWrappers without a queue name label; if empty, none.",
    ] = ""
    kueue_integration: Annotated[
        bool,
        "Whether the operator itself manages the Kueue Workloads of AppWrappers. Enable it only if Kueue's own "
        "AppWrapper integration is disabled.",
    ] = False
    slack_queue_name: Annotated[
        OptionalObjectName,
        "ClusterQueue whose lending limits are reduced by the capacity of unschedulable and unhealthy "
        "nodes; if empty, none.",
    ] = ""
    user_rbac_admission_check: Annotated[
        bool,
        "Whether the creator of an AppWrapper must have permission to create the wrapped objects.",
    ] = field(default=True, name="userRBACAdmissionCheck")
    require_admission_webhook: Annotated[
        bool,
        "Whether an AppWrapper runs only if the validating webhook was registered with `failurePolicy: Fail` when "
        "it was created. If false, any user who creates one while the webhook is missing gains the operator's "
        "permissions in that namespace.",
    ] = True
    autopilot: AutopilotConfiguration = AutopilotConfiguration()
    fault_tolerance: FaultToleranceConfiguration = FaultToleranceConfiguration()

    @property
    def uses_kueue(self) -> bool:
        """Whether the controller itself reads and writes objects of Kueue."""
        return self.enabled and (self.kueue_integration or bool(self.slack_queue_name))

    def conflicts(self) -> Iterator[str]:
        """Yield what is wrong with settings that depend on each other."""
        if not self.enabled:
            return
        limits = self.fault_tolerance
        periods = {
            "admissionGracePeriod": limits.admission_grace_period,
            "warmupGracePeriod": limits.warmup_grace_period,
            "failureGracePeriod": limits.failure_grace_period,
            "resetPause": limits.reset_pause,
            "deletionGracePeriod": limits.deletion_grace_period,
        }
        ceiling = limits.grace_period_ceiling
        for key, period in periods.items():
            if period > ceiling:
                yield (
                    f"faultTolerance.{key} ({format_duration(period)}) must not exceed "
                    f"faultTolerance.gracePeriodCeiling ({format_duration(ceiling)})"
                )
