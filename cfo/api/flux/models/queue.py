"""The types of FluxJobs and FluxSetups, and their CRDs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cfo.api.flux.models.minicluster import RESULT_COLUMN, MiniClusterSpec, PodOptions
from cfo.api.flux.models.parts import FluxOptions, LabelSelector, ResourceRequirements
from cfo.api.flux.names import FLUX_JOB, FLUX_SETUP, Fairness, Preemption, Queue, QueueingStrategy
from cfo.runtime import (
    APIModel,
    ConditionList,
    CustomResource,
    Int32,
    Int64,
    Object,
    PrinterColumn,
    Quantity,
    custom_resource_definition,
)
from cfo.runtime.objects import Time, optional, without_defaults

_Size = Annotated[Int32, Field(json_schema_extra={"minimum": 1})]
_Count = Annotated[Int32, Field(json_schema_extra={"minimum": 0})]


class FluxJobSpec(APIModel):
    """The desired state of a FluxJob. Fields replace those of the template."""

    backoff_limit: Int32 | None = optional(
        "Number of retries before the job fails; 0 if unset.", minimum=0
    )
    command: str | None = optional(
        "Command line that runs in the MiniCluster; it stays ready without one."
    )
    deadline_seconds: Int64 | None = optional(
        "Time in seconds after its start at which the job fails.", minimum=1
    )
    environment: dict[str, str] | None = optional("Environment variables of the command.")
    image: str | None = optional(
        "Container image, which contains Flux unless flux.container of the template (or the FluxSetup) "
        "is set; that of the FluxSetup, or fluxrm/flux-sched:focal, if unset."
    )
    priority: Int32 | None = optional(
        "Priority in the queue; jobs with higher priorities are admitted first."
    )
    priority_class_name: str | None = optional(
        "PriorityClass with the priority in the queue; not together with priority."
    )
    resources: ResourceRequirements | None = optional("Resources of the command in each pod.")
    size: _Size | None = optional(
        "Number of pods of the MiniCluster; that of the FluxSetup if unset."
    )
    suspend: bool | None = optional(
        "Whether the job is suspended: it is not admitted, and holds no quota."
    )
    tasks: Int32 | None = optional(
        "Number of tasks of the command in the whole cluster.", minimum=0
    )
    template: MiniClusterSpec | None = optional(
        "Spec of the MiniCluster, for everything that the other fields do not set."
    )
    ttl_seconds_after_finished: _Count | None = optional(
        "Time in seconds after its end until the FluxJob is deleted, and its MiniCluster unless the template has "
        "another time; never if unset."
    )
    working_dir: str | None = optional("Working directory of the command.")


class FluxJobStatus(APIModel):
    """The observed state of a FluxJob."""

    brokers_ready_since: Time | None = optional(
        "Time since which the brokers were ready, in pods of the job that had all existed."
    )
    completion_time: Time | None = optional("Time at which the job finished.")
    conditions: ConditionList | None = optional(
        "The five states, of which one is True, and further conditions."
    )
    exit_code: Int32 | None = optional("Exit code of the command.")
    flux_setup: str | None = optional("NAMESPACE/NAME of the FluxSetup that governs the job.")
    jobid: str = Field(description="Identifier of the job.")
    mini_cluster: str | None = optional("Name of the job's MiniCluster.")
    observed_generation: Int64 | None = optional(
        "The metadata.generation that the status is based on."
    )
    pods_missing_seconds: Int32 | None = optional(
        "How many seconds longer pods were missing than they all existed, when that last changed."
    )
    position: Int32 | None = optional("Position in the queue, from 1, while the job waits.")
    start_time: Time | None = optional("Time at which the job was launched.")
    starting_since: Time | None = optional(
        "Time since which the job has been starting, until its pods have started."
    )


_JOB_COLUMNS = [
    PrinterColumn("State", '.status.conditions[?(@.status=="True")].type'),
    RESULT_COLUMN,
    PrinterColumn("Size", ".spec.size", "integer"),
    PrinterColumn("Position", ".status.position", "integer"),
    PrinterColumn("Exit Code", ".status.exitCode", "integer", priority=1),
    PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
]


class FluxJob(
    CustomResource, group=FLUX_JOB.group, version=FLUX_JOB.version, printer_columns=_JOB_COLUMNS
):
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


class MiniClusterDefaults(APIModel):
    """Defaults for the MiniClusters of FluxJobs."""

    cleanup: bool | None = optional(
        "Whether MiniClusters are deleted when their jobs have finished; true if unset, for failed jobs an hour later."
    )
    flux: FluxOptions | None = optional("The installation and the configuration of Flux.")
    image: str | None = optional("Container image of jobs that have none.")
    pod: PodOptions | None = optional("Options of the pods.")
    size: Annotated[
        Int32,
        Field(
            json_schema_extra={"minimum": 1},
            description="Number of pods of jobs that have no size.",
        ),
    ] = 1
    ttl_seconds_after_finished: _Count | None = optional(
        "Time in seconds after the end until MiniClusters are cleaned up; if unset, 0, for failed jobs 3600."
    )


class KueueOptions(APIModel):
    """How jobs are handed over to Kueue."""

    local_queue: str | None = optional("LocalQueue in the namespaces of the jobs.")


class FluxSetupSpec(APIModel):
    """The quota of a set of namespaces, and how their FluxJobs are queued."""

    fairness: Fairness | None = optional(
        "Between whom the quota is shared: None (the default) or Namespace."
    )
    kueue: KueueOptions | None = optional("How jobs are handed over to Kueue.")
    max_jobs: Annotated[
        _Count | None,
        Field(
            alias="max-jobs",
            description="Maximum number of jobs that hold quota; unlimited if unset.",
        ),
    ] = None
    max_size: Annotated[
        int,
        Field(
            alias="max-size",
            json_schema_extra={"format": "int32", "minimum": 0},
            description="Maximum number of pods of all jobs; 0 admits none.",
        ),
    ] = 20
    mini_cluster: MiniClusterDefaults = Field(
        alias="mini-cluster", description="Defaults for the MiniClusters of the jobs."
    )
    namespace_selector: LabelSelector | None = optional(
        "Namespaces whose jobs are governed; only the namespace of the FluxSetup if unset, all if empty."
    )
    preemption: Preemption | None = optional(
        "Which running jobs may be suspended: Never (the default) or LowerPriority."
    )
    queue: Queue | None = optional(
        "Who admits the jobs: Internal (the default, this operator) or Kueue."
    )
    queueing_strategy: QueueingStrategy = Field(
        default=QueueingStrategy.BEST_EFFORT_FIFO,
        description="Which jobs may be admitted before one that does not fit: all, none, or those that end in time.",
    )
    resources: dict[str, Quantity] | None = optional(
        "Maximum sum of the requests of all pods, for each resource."
    )
    weights: dict[str, Annotated[Int32, Field(json_schema_extra={"minimum": 1})]] | None = optional(
        "Weights of the namespaces for fairness; 1 if unset."
    )


class FluxSetupStatus(APIModel):
    """The observed state of a FluxSetup."""

    admitted_workloads: Int32 | None = optional("Number of jobs that hold quota.")
    conditions: ConditionList | None = optional("The FluxSetup's state.")
    observed_generation: Int64 | None = optional(
        "The metadata.generation that the status is based on."
    )
    pending_workloads: Int32 | None = optional("Number of jobs that wait.")
    used_resources: Int32 | None = optional("Number of pods that hold quota.")
    used_without_job: Int32 | None = optional(
        "Number of these pods whose MiniClusters no FluxJob created. They hold quota until these end or are deleted."
    )


_SETUP_COLUMNS = [
    PrinterColumn("Active", '.status.conditions[?(@.type=="Active")].status'),
    PrinterColumn("Max Size", ".spec.max-size", "integer"),
    PrinterColumn("Used", ".status.usedResources", "integer"),
    PrinterColumn("Admitted", ".status.admittedWorkloads", "integer"),
    PrinterColumn("Pending", ".status.pendingWorkloads", "integer"),
    PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
]


class FluxSetup(
    CustomResource,
    group=FLUX_SETUP.group,
    version=FLUX_SETUP.version,
    printer_columns=_SETUP_COLUMNS,
):
    """An administrator's quota for the FluxJobs of a set of namespaces."""

    spec: FluxSetupSpec | None = None
    status: FluxSetupStatus | None = None


def fluxsetup_crd() -> Object:
    """Return the CRD of FluxSetups.

    The parts of a MiniCluster's spec have no defaults, because the FluxJob's template replaces them field by field.
    """
    crd = custom_resource_definition(FluxSetup)
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    defaults = spec["properties"]["mini-cluster"]["properties"]
    for name in ("flux", "pod"):
        defaults[name] = without_defaults(defaults[name])
    spec["required"] = ["max-size", "mini-cluster"]
    return crd
