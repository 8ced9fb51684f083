"""The types of AppWrappers, and their CRD.

Users write the spec; the controller writes the status. As everywhere, reconcilers work on the wire form; the CRD is
generated from these models, and a program that needs a typed spec can parse one with them.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.runtime import (
    APIModel,
    ConditionList,
    CustomResource,
    Int32,
    Int64,
    Object,
    PrinterColumn,
    custom_resource_definition,
)
from cfo.runtime.objects import EmbeddedResource, optional


class AppWrapperPodSet(APIModel):
    """The pods of one pod template of a component."""

    annotations: dict[str, str] | None = optional("Annotations of the pod set, for the queue.")
    path: str = Field(
        description="Path of the PodTemplateSpec from the root of the component: template.spec..."
    )
    replicas: Int32 | None = optional("Number of pods; one if unset.")


class SchedulingGate(APIModel):
    """A gate that keeps a pod from being scheduled."""

    name: str


class Toleration(APIModel):
    """A taint that a pod tolerates."""

    effect: str | None = None
    key: str | None = None
    operator: str | None = None
    toleration_seconds: Int64 | None = None
    value: str | None = None


class AppWrapperPodSetInfo(APIModel):
    """Changes to the pod template of the pod set with the same index that the queue requires on admission."""

    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    node_selector: dict[str, str] | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    tolerations: list[Toleration] | None = None


class AppWrapperComponent(APIModel):
    """One wrapped resource."""

    annotations: dict[str, str] | None = optional("Annotations for the controller.")
    pod_set_infos: list[AppWrapperPodSetInfo] | None = optional(
        "Changes to the pod templates, one for each pod set; written by the queue."
    )
    pod_sets: list[AppWrapperPodSet] | None = optional(
        "The component's pod sets; inferred for well-known kinds if unset."
    )
    template: Annotated[EmbeddedResource, Field(description="The resource to create.")]


class AppWrapperSpec(APIModel):
    """The desired state of an AppWrapper."""

    components: list[AppWrapperComponent] = Field(description="The wrapped resources.")
    managed_by: str | None = optional(
        "The controller that manages the AppWrapper; this operator if unset."
    )
    suspend: bool | None = optional(
        "Whether the AppWrapper is suspended, so that its resources do not exist."
    )


class ComponentStatus(APIModel):
    """The observed state of one component."""

    api_version: str = Field(description="apiVersion of the component.")
    conditions: ConditionList | None = optional("The component's state.")
    kind: str = Field(description="Kind of the component.")
    name: str = Field(description="Name of the component.")
    pod_sets: list[AppWrapperPodSet] = Field(
        description="Pod sets of the component, declared or inferred."
    )


class AppWrapperStatus(APIModel):
    """The observed state of an AppWrapper."""

    component_status: list[ComponentStatus] | None = optional(
        "State of the components, in the order of the spec."
    )
    conditions: ConditionList | None = optional("The AppWrapper's state.")
    phase: str | None = optional("Phase of the AppWrapper.")
    resetting_count: Int32 | None = optional("Number of retries since admission.")


_CONDITIONS = (
    ("QuotaReserved", "Quota Reserved"),
    ("ResourcesDeployed", "Resources Deployed"),
    ("Unhealthy",) * 2,
)
_COLUMNS = [
    PrinterColumn("Status", ".status.phase"),
    *(
        PrinterColumn(title, f'.status.conditions[?(@.type=="{kind}")].status')
        for kind, title in _CONDITIONS
    ),
    PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
]


class AppWrapper(
    CustomResource,
    group=APPWRAPPER.group,
    version=APPWRAPPER.version,
    short_names=["aw"],
    printer_columns=_COLUMNS,
):
    """Any resources, wrapped as one unit that a queue admits, suspends, retries and cleans up."""

    spec: AppWrapperSpec | None = None
    status: AppWrapperStatus | None = None


def appwrapper_crd() -> Object:
    """Return the CRD of AppWrappers."""
    return custom_resource_definition(AppWrapper)
