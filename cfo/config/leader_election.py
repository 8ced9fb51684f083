"""The section ``leaderElection``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Literal, Self

from pydantic import Field, StrictBool, model_validator

from cfo.config.durations import Duration, duration_of, format_duration
from cfo.config.section import ObjectName, OptionalNamespace, Section


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
