"""The types of AppWrappers, and their CustomResourceDefinition.

The spec is the user's, the status the controller's. Reconcilers work on the wire form, as everywhere; these models
are where the CustomResourceDefinition comes from, and what reads a spec with types where that pays.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.schema import APIModel, Conditions, EmbeddedResource, Int32, Int64, custom_resource_definition
from cfo.runtime.objects import Object

__all__ = [
    "AppWrapper",
    "AppWrapperComponent",
    "AppWrapperPodSet",
    "AppWrapperPodSetInfo",
    "AppWrapperSpec",
    "AppWrapperStatus",
    "ComponentStatus",
    "definition",
]


class AppWrapperPodSet(APIModel):
    """Pods of one template in a component, and how many."""

    annotations: dict[str, str] | None = Field(default=None, description="Annotations of the pods' set for the queue.")
    path: str = Field(description="Where the PodTemplateSpec stands, from the component's root: template.spec...")
    replicas: Int32 | None = Field(default=None, description="How many pods; one if unset.")


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
    """What the queue wants in the pod template of the set with the same index, once it admits."""

    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    node_selector: dict[str, str] | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    tolerations: list[Toleration] | None = None


class AppWrapperComponent(APIModel):
    """One wrapped resource."""

    annotations: dict[str, str] | None = Field(default=None, description="Annotations for the controller's use.")
    pod_set_infos: list[AppWrapperPodSetInfo] | None = Field(
        default=None, description="What the queue injects, one for each pod set; written by the queue."
    )
    pod_sets: list[AppWrapperPodSet] | None = Field(
        default=None, description="The component's pods; found out for well-known kinds if unset."
    )
    template: Annotated[EmbeddedResource, Field(description="The resource to create.")]


class AppWrapperSpec(APIModel):
    """What the user wants."""

    components: list[AppWrapperComponent] = Field(description="The wrapped resources.")
    managed_by: str | None = Field(default=None, description="The controller in charge; this one if unset.")
    suspend: bool | None = Field(default=None, description="Whether the resources should not exist (now).")


class ComponentStatus(APIModel):
    """What became of one component."""

    api_version: str = Field(description="apiVersion of the component.")
    conditions: Conditions | None = Field(default=None, description="The component's state.")
    kind: str = Field(description="Kind of the component.")
    name: str = Field(description="Name of the component.")
    pod_sets: list[AppWrapperPodSet] = Field(description="Its pods, as declared or found out.")


class AppWrapperStatus(APIModel):
    """What the controller sees."""

    component_status: list[ComponentStatus] | None = Field(default=None, description="One for each component.")
    conditions: Conditions | None = Field(default=None, description="The AppWrapper's state.")
    phase: str | None = Field(default=None, description="Where the AppWrapper is in its life.")
    resetting_count: Int32 | None = Field(default=None, description="How many retries there were since admission.")


class AppWrapper(APIModel):
    """Any resources, wrapped as one unit that a queue admits, suspends, retries and cleans up."""

    spec: AppWrapperSpec | None = None
    status: AppWrapperStatus | None = None


def definition() -> Object:
    """The CustomResourceDefinition of AppWrappers."""
    conditions = ("QuotaReserved", "Quota Reserved"), ("ResourcesDeployed", "Resources Deployed"), ("Unhealthy",) * 2
    columns = [
        {"name": "Status", "type": "string", "jsonPath": ".status.phase"},
        *(
            {"name": title, "type": "string", "jsonPath": f'.status.conditions[?(@.type=="{kind}")].status'}
            for kind, title in conditions
        ),
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    return custom_resource_definition(
        AppWrapper,
        group=APPWRAPPER.group,
        version=APPWRAPPER.version,
        kind=APPWRAPPER.kind,
        plural="appwrappers",
        short_names=["aw"],
        printer_columns=columns,
    )
