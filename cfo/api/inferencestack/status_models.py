"""The status of InferenceStacks, which only the controller writes.

It keeps the conditions and ``deployedRelease.name`` of the original operator, which consoles read, and stays valid for
a status that the original wrote: its conditions can lack ``reason`` and ``message``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cfo.api.inferencestack.field_types import OpenModel
from cfo.runtime import Int32, Int64

__all__ = ["ApplicationStatus", "InferenceStackStatus", "StackCondition"]


class StackCondition(OpenModel):
    """One aspect of a stack's state, as metav1.Condition, but only the type and status are required."""

    type: str = Field(description="Type of the condition, in CamelCase.", json_schema_extra={"maxLength": 316})
    status: Annotated[Literal["True", "False", "Unknown"], Field(description="Status of the condition.")]
    reason: str | None = Field(
        default=None, description="Reason of the last transition.", json_schema_extra={"maxLength": 1024}
    )
    message: str | None = Field(default=None, description="Human-readable details of the last transition.")
    last_transition_time: str | None = Field(
        default=None,
        description="Last time the status of the condition changed.",
        json_schema_extra={"format": "date-time"},
    )
    observed_generation: Int64 | None = Field(
        default=None, description="The metadata.generation that the condition is based on."
    )


StackConditions = Annotated[
    list[StackCondition],
    Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
]


class ApplicationStatus(OpenModel):
    """The observed state of one application."""

    name: str = Field(description="Name of the application.")
    model: str | None = Field(default=None, description="Name of the model.")
    consumer_group: str | None = Field(default=None, description="The `model` in requests of the OpenAI API.")
    state: str | None = Field(
        default=None, description="Ready, Idle (scaled to zero), Progressing, Stalled, Failed or Suspended."
    )
    reason: str | None = Field(default=None, description="Reason of the state, in CamelCase.")
    message: str | None = Field(default=None, description="Human-readable details of the state.")
    replicas: Int32 | None = Field(default=None, description="Number of desired pods.")
    ready_replicas: Int32 | None = Field(default=None, description="Number of ready pods of the current revision.")
    updated_replicas: Int32 | None = Field(default=None, description="Number of pods of the current revision.")
    config_hash: str | None = Field(default=None, description="Hash of the configuration of the pods.")
    autoscaler: str | None = Field(default=None, description="KEDA or HPA, if an autoscaler sets the replicas.")


class DeployedRelease(OpenModel):
    """The release, by the name that the original operator gave it."""

    name: str | None = Field(default=None, description="The name of the stack.")


class OperatorStatus(OpenModel):
    """The operator that reconciled the stack."""

    version: str | None = Field(default=None, description="Version of the operator.")
    major: str | None = Field(default=None, description="The value of the label operatorVersion that it serves.")


class InferenceStackStatus(OpenModel):
    """The observed state of an InferenceStack."""

    observed_generation: Int64 | None = Field(default=None, description="The generation that the status is based on.")
    conditions: StackConditions | None = Field(default=None, description="The state of the stack.")
    applications: (
        Annotated[
            list[ApplicationStatus],
            Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}),
        ]
        | None
    ) = Field(default=None, description="The state of each application.")
    ready_applications: str | None = Field(default=None, description="Number of ready applications, such as 2/3.")
    url: str | None = Field(default=None, description="URL of the gateway.")
    openai: str | None = Field(default=None, description="Base URL of the OpenAI API.")
    profile: str | None = Field(default=None, description="The pinned profile of defaults, such as v2.13.")
    operator: OperatorStatus | None = Field(default=None, description="The operator that reconciled the stack.")
    deployed_release: DeployedRelease | None = Field(default=None, description="The release of the stack.")
