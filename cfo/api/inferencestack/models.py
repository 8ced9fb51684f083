"""The types of InferenceStacks, and their CRDs in both API groups.

Users and consoles write the spec; the controller writes only the status. The field names of the spec and their meaning
are those of the original Helm chart, whose values the spec contains. Fields that are marked *extension* do not exist
there; without them, a stack is rendered as by the original operator. Defaults are not in the CRD but in a profile
(:mod:`.profiles`), because they are pinned for each stack.

The status keeps the conditions and ``deployedRelease.name`` of the original operator, which consoles read, and stays
valid for a status that the original wrote: its conditions can lack ``reason`` and ``message``.

``hack/generate/stack_types.py`` derives the types that validation checks from these models, so each field appears once.
The CRD has a CEL rule for what must hold even if no webhook is installed, unless the rule depends on defaults.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from cfo.api.inferencestack.component_models import ApplicationTemplate, Count, Gateway
from cfo.api.inferencestack.field_types import (
    LocalObjectReference,
    OpenModel,
    Strings,
    open_schema,
    rule,
)
from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.api.inferencestack.validation.fields import MAX_APPLICATIONS
from cfo.runtime import CustomResource, Int32, Int64, Object, PrinterColumn
from cfo.runtime.objects import Scale, custom_resource_definitions, optional


def _map_by(key: str) -> dict[str, Any]:
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


class StackCondition(OpenModel):
    """One aspect of a stack's state, as metav1.Condition, but only the type and status are required."""

    type: str = Field(
        description="Type of the condition, in CamelCase.", json_schema_extra={"maxLength": 316}
    )
    status: Annotated[
        Literal["True", "False", "Unknown"], Field(description="Status of the condition.")
    ]
    reason: str | None = optional("Reason of the last transition.", maxLength=1024)
    message: str | None = optional("Human-readable details of the last transition.")
    last_transition_time: str | None = optional(
        "Last time the status of the condition changed.", format="date-time"
    )
    observed_generation: Int64 | None = optional(
        "The metadata.generation that the condition is based on."
    )


class ApplicationStatus(OpenModel):
    """The observed state of one application."""

    name: str = Field(description="Name of the application.")
    model: str | None = optional("Name of the model.")
    consumer_group: str | None = optional("The `model` in requests of the OpenAI API.")
    state: str | None = optional(
        "Ready, Idle (scaled to zero), Waiting (for quota), Progressing, Stalled, Failed or Suspended."
    )
    reason: str | None = optional("Reason of the state, in CamelCase.")
    message: str | None = optional("Human-readable details of the state.")
    replicas: Int32 | None = optional("Number of desired pods.")
    ready_replicas: Int32 | None = optional("Number of ready pods of the current revision.")
    updated_replicas: Int32 | None = optional("Number of pods of the current revision.")
    config_hash: str | None = optional("Hash of the configuration of the pods.")
    autoscaler: str | None = optional("KEDA or HPA, if an autoscaler sets the replicas.")


class DeployedRelease(OpenModel):
    """The release, by the name that the original operator gave it."""

    name: str | None = optional("The name of the stack.")


class OperatorStatus(OpenModel):
    """The operator that reconciled the stack."""

    version: str | None = optional("Version of the operator.")
    major: str | None = optional("The value of the label operatorVersion that it serves.")


class InferenceStackStatus(OpenModel):
    """The observed state of an InferenceStack."""

    observed_generation: Int64 | None = optional("The generation that the status is based on.")
    conditions: list[StackCondition] | None = optional("The state of the stack.", **_map_by("type"))
    applications: list[ApplicationStatus] | None = optional(
        "The state of each application.", **_map_by("name")
    )
    ready_applications: str | None = optional("Number of ready applications, such as 2/3.")
    observed_replicas: Int32 | None = optional("The spec.replicas that the status is based on.")
    replicas: Int32 | None = optional(
        "Number of pods of the only application, if spec.replicas is set."
    )
    selector: str | None = optional("Label selector of these pods.")
    url: str | None = optional("URL of the gateway.")
    openai: str | None = optional("Base URL of the OpenAI API.")
    profile: str | None = optional("The pinned profile of defaults, such as v2.13.")
    operator: OperatorStatus | None = optional("The operator that reconciled the stack.")
    deployed_release: DeployedRelease | None = optional("The release of the stack.")


class ServiceAccount(OpenModel):
    """The ServiceAccount of all pods of a stack."""

    create: bool | None = optional("Whether to create the ServiceAccount. True if unset.")
    automount: bool | None = optional(
        "automountServiceAccountToken of the ServiceAccount. True if unset."
    )
    annotations: Strings | None = optional("Annotations of the ServiceAccount.")
    name: str | None = optional("Name of the ServiceAccount.")


class NetworkPolicy(OpenModel):
    """The NetworkPolicy of the gateway: only the stack's applications and KEDA reach its internal port."""

    enabled: bool | None = optional("Whether to create the NetworkPolicy.")
    keda_namespace: str | None = optional("Namespace of KEDA. keda if unset.")


class InferenceStackSpec(OpenModel):
    """The desired state of an InferenceStack."""

    # writes to the subresource scale reach no webhook, so this rule is in the CRD
    model_config = ConfigDict(
        json_schema_extra=open_schema(
            rule(
                "!has(self.replicas) || (has(self.applications) && size(self.applications) == 1)",
                "must be set only for a stack with exactly one application; others have a replicaCount for each",
                fieldPath=".replicas",
            )
        )
    )

    image_pull_secrets: list[LocalObjectReference] | None = optional("Pull secrets of all pods.")
    name_override: str | None = optional("Replaces `inference-stack` in names and labels.")
    fullname_override: str | None = optional("The prefix of the names of all objects.")
    service_account: ServiceAccount | None = optional("The ServiceAccount of all pods.")
    gateway: Gateway | None = optional("The gateway.")
    application_template: ApplicationTemplate | None = optional("Defaults of all applications.")
    applications: dict[str, ApplicationTemplate] | None = optional(
        "The applications by name, a DNS label.", maxProperties=MAX_APPLICATIONS
    )
    replicas: Count | None = optional(
        "Number of replicas of the only application, for the subresource scale; replaces its replicaCount (extension)."
    )
    suspend: bool | None = optional("Whether all Deployments are scaled to zero (extension).")
    upgrade_policy: Literal["OnSpecChange", "Automatic"] | None = optional(
        "When newer defaults are applied: OnSpecChange (default) or Automatic (extension)."
    )
    max_concurrent_rollouts: Int32 | None = optional(
        "Maximum number of applications that newer defaults restart at a time; 1 if unset (extension).",
        minimum=1,
    )
    security_profile: Literal["restricted"] | None = optional(
        "restricted: pods comply with the restricted Pod Security Standard (extension)."
    )
    network_policy: NetworkPolicy | None = optional(
        "Restricts access to the gateway's internal port (extension)."
    )


_COLUMNS = [
    PrinterColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
    PrinterColumn("Apps", ".status.readyApplications"),
    PrinterColumn("Operator", ".metadata.labels.operatorVersion"),
    PrinterColumn("URL", ".status.url"),
    PrinterColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason', priority=1),
    PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
]

_SCALE = Scale(
    spec_replicas=".spec.replicas",
    status_replicas=".status.replicas",
    label_selector=".status.selector",
)


class InferenceStack(
    CustomResource,
    group=INFERENCE_STACKS[0].group,
    version=INFERENCE_STACKS[0].version,
    printer_columns=_COLUMNS,
    scale=_SCALE,
):
    """A gateway and the applications that serve models behind it."""

    spec: InferenceStackSpec | None = None
    status: InferenceStackStatus | None = None


class DoublewordInferenceStack(
    InferenceStack,
    group=INFERENCE_STACKS[1].group,
    version=INFERENCE_STACKS[1].version,
    kind=INFERENCE_STACKS[1].kind,
    printer_columns=_COLUMNS,
    scale=_SCALE,
):
    """A gateway and the applications that serve models behind it."""


def inference_stack_crds() -> list[Object]:
    """Return the CRD of InferenceStacks in each API group."""
    return custom_resource_definitions([InferenceStack, DoublewordInferenceStack])
