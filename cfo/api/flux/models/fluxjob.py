"""The types of FluxJobs, and their CRD."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cfo.api.flux.kinds import FLUX_JOB
from cfo.api.flux.models.core import ResourceRequirements
from cfo.api.flux.models.minicluster import MiniClusterSpec
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
from cfo.runtime.objects import without_defaults

__all__ = ["FluxJob", "FluxJobSpec", "FluxJobStatus", "fluxjob_crd"]

_Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
_Size = Annotated[Int32, Field(json_schema_extra={"minimum": 1})]
_Seconds = Annotated[Int32, Field(json_schema_extra={"minimum": 0})]


class FluxJobSpec(APIModel):
    """The desired state of a FluxJob. Fields replace those of the template."""

    backoff_limit: Annotated[
        Int32 | None,
        Field(json_schema_extra={"minimum": 0}, description="Number of retries before the job fails; 0 if unset."),
    ] = None
    command: str | None = Field(
        default=None, description="Command line that runs in the MiniCluster; it stays ready without one."
    )
    deadline_seconds: Annotated[
        Int64 | None,
        Field(json_schema_extra={"minimum": 1}, description="Time in seconds after its start at which the job fails."),
    ] = None
    environment: dict[str, str] | None = Field(default=None, description="Environment variables of the command.")
    image: str | None = Field(
        default=None,
        description="Container image, which contains Flux unless flux.container of the template (or the FluxSetup) "
        "is set; that of the FluxSetup, or fluxrm/flux-sched:focal, if unset.",
    )
    priority: Int32 | None = Field(
        default=None, description="Priority in the queue; jobs with higher priorities are admitted first."
    )
    priority_class_name: str | None = Field(
        default=None, description="PriorityClass with the priority in the queue; not together with priority."
    )
    resources: ResourceRequirements | None = Field(default=None, description="Resources of the command in each pod.")
    size: Annotated[
        _Size | None, Field(description="Number of pods of the MiniCluster; that of the FluxSetup if unset.")
    ] = None
    suspend: bool | None = Field(
        default=None, description="Whether the job is suspended: it is not admitted, and holds no quota."
    )
    tasks: Annotated[
        Int32 | None,
        Field(json_schema_extra={"minimum": 0}, description="Number of tasks of the command in the whole cluster."),
    ] = None
    template: MiniClusterSpec | None = Field(
        default=None, description="Spec of the MiniCluster, for everything that the other fields do not set."
    )
    ttl_seconds_after_finished: Annotated[
        _Seconds | None,
        Field(description="Time in seconds after its end until the FluxJob is deleted; never if unset."),
    ] = None
    working_dir: str | None = Field(default=None, description="Working directory of the command.")


class FluxJobStatus(APIModel):
    """The observed state of a FluxJob."""

    completion_time: Annotated[_Time | None, Field(description="Time at which the job finished.")] = None
    conditions: ConditionList | None = Field(
        default=None, description="The five states, of which one is True, and further conditions."
    )
    exit_code: Int32 | None = Field(default=None, description="Exit code of the command.")
    flux_setup: str | None = Field(default=None, description="NAMESPACE/NAME of the FluxSetup that governs the job.")
    jobid: str = Field(description="Identifier of the job.")
    mini_cluster: str | None = Field(default=None, description="Name of the job's MiniCluster.")
    observed_generation: Int64 | None = Field(
        default=None, description="The metadata.generation that the status is based on."
    )
    position: Int32 | None = Field(default=None, description="Position in the queue, from 1, while the job waits.")
    start_time: Annotated[_Time | None, Field(description="Time at which the job was launched.")] = None


_COLUMNS = [
    PrinterColumn("State", '.status.conditions[?(@.status=="True")].type'),
    PrinterColumn("Size", ".spec.size", "integer"),
    PrinterColumn("Position", ".status.position", "integer"),
    PrinterColumn("Exit Code", ".status.exitCode", "integer", priority=1),
    PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
]


class FluxJob(CustomResource, group=FLUX_JOB.group, version=FLUX_JOB.version, printer_columns=_COLUMNS):
    """One command that runs in a MiniCluster of its own, once its FluxSetup has quota for it."""

    spec: FluxJobSpec | None = None
    status: FluxJobStatus | None = None


def fluxjob_crd() -> Object:
    """Return the CRD of FluxJobs.

    The template has no defaults and no required containers, because it is merged with the defaults of the FluxSetup.
    The API server adds the defaults to the MiniCluster that results.
    """
    crd = custom_resource_definition(FluxJob)
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = schema["properties"]["spec"]["properties"]
    spec["template"] = without_defaults(spec["template"])
    del spec["template"]["required"]
    return crd
