"""The section ``appwrapper``."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, Self

from pydantic import Field, StrictBool, StrictInt, StrictStr, model_validator
from pydantic.alias_generators import to_camel

from cfo.config.durations import Duration, format_duration
from cfo.config.section import LabelKey, LabelValue, Section


class ResourceTaint(Section):
    """A node label (and taint) with which Autopilot marks a resource of a node as unhealthy."""

    key: LabelKey
    value: LabelValue = ""
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
        default=timedelta(minutes=1), description="Deadline for creating the components and all their pods."
    )
    warmup_grace_period: Duration = Field(
        default=timedelta(minutes=5), description="Deadline for the pods to become ready."
    )
    failure_grace_period: Duration = Field(
        default=timedelta(minutes=1), description="How long a failure must persist before the AppWrapper is reset."
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
        default=timedelta(days=7), alias="successTTLCeiling", description="Maximum time to keep a succeeded AppWrapper."
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

    @property
    def uses_kueue(self) -> bool:
        """Whether the controller itself reads and writes objects of Kueue."""
        return self.enabled and (self.kueue_integration or bool(self.slack_queue_name))

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
