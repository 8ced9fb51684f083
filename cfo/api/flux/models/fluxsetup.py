"""The types of FluxSetups, and their CRD."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cfo.api.flux.kinds import FLUX_SETUP
from cfo.api.flux.models.core import LabelSelector
from cfo.api.flux.models.flux_options import FluxOptions
from cfo.api.flux.models.minicluster import PodOptions
from cfo.api.flux.names import Fairness, Preemption, Queue, QueueingStrategy
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
from cfo.runtime.objects import without_defaults

__all__ = ["FluxSetup", "FluxSetupSpec", "FluxSetupStatus", "fluxsetup_crd"]

_Count = Annotated[Int32, Field(json_schema_extra={"minimum": 0})]


class MiniClusterDefaults(APIModel):
    """Defaults for the MiniClusters of FluxJobs."""

    cleanup: bool | None = Field(
        default=None, description="Whether MiniClusters are deleted when their jobs have finished; true if unset."
    )
    flux: FluxOptions | None = Field(default=None, description="The installation and the configuration of Flux.")
    image: str | None = Field(default=None, description="Container image of jobs that have none.")
    pod: PodOptions | None = Field(default=None, description="Options of the pods.")
    size: Annotated[
        Int32, Field(json_schema_extra={"minimum": 1}, description="Number of pods of jobs that have no size.")
    ] = 1
    ttl_seconds_after_finished: Annotated[
        _Count | None, Field(description="Time in seconds after the end until MiniClusters are cleaned up; 0 if unset.")
    ] = None


class KueueOptions(APIModel):
    """How jobs are handed over to Kueue."""

    local_queue: str | None = Field(default=None, description="LocalQueue in the namespaces of the jobs.")


class FluxSetupSpec(APIModel):
    """The quota of a set of namespaces, and how their FluxJobs are queued."""

    fairness: Fairness | None = Field(
        default=None, description="Between whom the quota is shared: None (the default) or Namespace."
    )
    kueue: KueueOptions | None = Field(default=None, description="How jobs are handed over to Kueue.")
    max_jobs: Annotated[
        _Count | None,
        Field(alias="max-jobs", description="Maximum number of jobs that hold quota; unlimited if unset."),
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
    namespace_selector: LabelSelector | None = Field(
        default=None,
        description="Namespaces whose jobs are governed; only the namespace of the FluxSetup if unset, all if empty.",
    )
    preemption: Preemption | None = Field(
        default=None, description="Which running jobs may be suspended: Never (the default) or LowerPriority."
    )
    queue: Queue | None = Field(
        default=None, description="Who admits the jobs: Internal (the default, this operator) or Kueue."
    )
    queueing_strategy: QueueingStrategy = Field(
        default=QueueingStrategy.BEST_EFFORT_FIFO,
        description="Which jobs may be admitted before one that does not fit: all, none, or those that end in time.",
    )
    resources: dict[str, Quantity] | None = Field(
        default=None, description="Maximum sum of the requests of all pods, for each resource."
    )
    weights: Annotated[
        dict[str, Annotated[Int32, Field(json_schema_extra={"minimum": 1})]] | None,
        Field(description="Weights of the namespaces for fairness; 1 if unset."),
    ] = None


class FluxSetupStatus(APIModel):
    """The observed state of a FluxSetup."""

    admitted_workloads: Int32 | None = Field(default=None, description="Number of jobs that hold quota.")
    conditions: ConditionList | None = Field(default=None, description="The FluxSetup's state.")
    observed_generation: Int64 | None = Field(
        default=None, description="The metadata.generation that the status is based on."
    )
    pending_workloads: Int32 | None = Field(default=None, description="Number of jobs that wait.")
    used_resources: Int32 | None = Field(default=None, description="Number of pods that hold quota.")


_COLUMNS = [
    PrinterColumn("Active", '.status.conditions[?(@.type=="Active")].status'),
    PrinterColumn("Max Size", ".spec.max-size", "integer"),
    PrinterColumn("Used", ".status.usedResources", "integer"),
    PrinterColumn("Admitted", ".status.admittedWorkloads", "integer"),
    PrinterColumn("Pending", ".status.pendingWorkloads", "integer"),
    PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
]


class FluxSetup(CustomResource, group=FLUX_SETUP.group, version=FLUX_SETUP.version, printer_columns=_COLUMNS):
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
