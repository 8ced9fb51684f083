"""The types of MiniClusters, and their CRD: upstream's v1alpha2 with further optional fields."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from cfo.api.flux.models.parts import FluxOptions, MiniClusterContainer, PodSecurityContext
from cfo.api.flux.names import MINICLUSTER, SUCCEEDED
from cfo.runtime import (
    APIModel,
    Condition,
    CustomResource,
    Int32,
    Int64,
    Object,
    PrinterColumn,
    Quantity,
    custom_resource_definition,
)
from cfo.runtime.objects import ATOMIC, Scale, optional


class Archive(APIModel):
    """A saved state of the Flux instance."""

    path: str | None = optional("Archive that is restored when the instance starts, if it exists.")


class Logging(APIModel):
    """What the pods log."""

    debug: bool = Field(default=False, description="Whether flux submit logs details.")
    quiet: bool = Field(
        default=False, description="Whether only the output of the command is logged."
    )
    strict: bool = Field(
        default=False, description="Whether the scripts stop at the first failing command."
    )
    timed: bool = Field(
        default=False, description="Whether the times of flux start and flux submit are logged."
    )
    zeromq: bool = Field(
        default=False, description="Whether the connections of the brokers are logged."
    )


class Network(APIModel):
    """The network of the cluster."""

    disable_affinity: bool | None = optional("Whether the pods have no affinity at all.")
    headless_name: str | None = optional(
        "Name of the headless Service; the cluster's name if unset."
    )


class Toleration(APIModel):
    """A taint that the pods tolerate."""

    effect: str | None = None
    key: str | None = None
    operator: str | None = None
    value: str | None = None


class PodOptions(APIModel):
    """Options of the pods of the cluster."""

    annotations: dict[str, str] | None = optional("Annotations of the pods.")
    automount_service_account_token: bool | None = optional(
        "Whether the token of the service account is mounted; false if unset."
    )
    dns_policy: str | None = optional("DNS policy of the pods.")
    host_ipc: bool | None = Field(
        alias="hostIPC", default=None, description="Whether the pods use the host's IPC namespace."
    )
    host_pid: bool | None = Field(
        alias="hostPID", default=None, description="Whether the pods use the host's PID namespace."
    )
    labels: dict[str, str] | None = optional("Labels of the pods.")
    node_affinity: dict[str, list[str]] | None = optional(
        "Labels that the nodes must have, each with the allowed values."
    )
    node_selector: dict[str, str] | None = optional("Labels that the nodes must have.")
    resources: dict[str, Quantity] | None = optional("Overhead of the pods; needs a runtime class.")
    restart_policy: str | None = optional("Restart policy: OnFailure (the default) or Never.")
    runtime_class_name: str | None = optional("Name of the runtime class of the pods.")
    scheduler_name: str | None = optional("Name of the scheduler of the pods.")
    security_context: PodSecurityContext | None = optional(
        "Security context of the pods; only fsGroup is used."
    )
    service_account_name: str | None = optional("Name of the service account of the pods.")
    tolerations: Annotated[list[Toleration] | None, ATOMIC] = optional(
        "Taints that the pods tolerate."
    )


class MiniClusterSpec(APIModel):
    """The desired state of a MiniCluster."""

    archive: Archive | None = optional("A saved state of the Flux instance.")
    backoff_limit: Int32 | None = optional(
        "Number of retries before the Job fails; if unset or 0, 100, but only for pods that were deleted, evicted "
        "or lost with their node: a command that fails or is killed is not run again."
    )
    cleanup: bool = Field(
        default=False, description="Whether the MiniCluster is deleted when its command has ended."
    )
    containers: Annotated[
        list[MiniClusterContainer],
        ATOMIC,
        Field(description="Containers of the pods, of which exactly one runs Flux."),
    ]
    deadline_seconds: Int64 = Field(
        default=31500000, description="Time in seconds after which the Job fails."
    )
    flux: FluxOptions | None = optional("The installation and the configuration of Flux.")
    interactive: bool = Field(
        default=False, description="Whether the brokers run without a command, until deleted."
    )
    job_labels: dict[str, str] | None = optional("Labels of the Job, such as that of a queue.")
    logging: Logging | None = optional("What the pods log.")
    max_size: Int32 | None = optional(
        "Maximum number of pods, to which the cluster can grow; the size if unset."
    )
    min_size: Int32 | None = optional("Number of brokers with which the command can start.")
    network: Network | None = optional("The network of the cluster.")
    pod: PodOptions | None = optional("Options of the pods.")
    services: Annotated[list[MiniClusterContainer] | None, ATOMIC] = optional(
        "Containers of one further pod, the service pod."
    )
    share_process_namespace: bool | None = optional(
        "Whether the containers of a pod see each other's processes."
    )
    size: Int32 = Field(default=1, description="Number of pods, and of brokers.")
    suspend: bool | None = optional(
        "Whether the Job is suspended, so that its pods do not exist; all other objects do."
    )
    tasks: Int32 = Field(
        default=1,
        description="Number of tasks of the command in the whole cluster; 0: no number is passed.",
    )
    ttl_seconds_after_finished: Int32 | None = optional(
        "Time in seconds after the end until the MiniCluster is deleted."
    )


class MiniClusterStatus(APIModel):
    """The observed state of a MiniCluster."""

    completion_time: str | None = optional("Time at which the Job ended.", format="date-time")
    conditions: Annotated[list[Condition] | None, ATOMIC] = optional("The MiniCluster's state.")
    exit_code: Int32 | None = optional(
        "Exit code of the container that runs Flux in the pod of the lead broker."
    )
    jobid: str = Field(description="Identifier of the MiniCluster.")
    maximum_size: Int32 = Field(description="Maximum number of pods.")
    observed_generation: Int64 | None = optional(
        "The metadata.generation that the status is based on."
    )
    ready: Int32 | None = optional("Number of ready pods.")
    selector: str = Field(description="Label selector of the pods, for autoscalers.")
    size: Int32 = Field(description="Number of pods that the Job has.")
    start_time: str | None = optional("Time at which the Job was started.", format="date-time")


RESULT_COLUMN: Final = PrinterColumn(
    "Result", f'.status.conditions[?(@.type=="{SUCCEEDED}")].reason'
)
"""How an object has ended, because its state is the same after a success and a failure."""

_COLUMNS = [
    PrinterColumn("Size", ".spec.size", "integer"),
    PrinterColumn("Ready", ".status.ready", "integer"),
    PrinterColumn("State", '.status.conditions[?(@.status=="True")].type'),
    RESULT_COLUMN,
    PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
]


class MiniCluster(
    CustomResource,
    group=MINICLUSTER.group,
    version=MINICLUSTER.version,
    printer_columns=_COLUMNS,
    scale=Scale(
        spec_replicas=".spec.size",
        status_replicas=".status.size",
        label_selector=".status.selector",
    ),
):
    """A Flux instance on the pods of an Indexed Job."""

    spec: MiniClusterSpec | None = None
    status: MiniClusterStatus | None = None


def minicluster_crd() -> Object:
    """Return the CRD of MiniClusters."""
    return custom_resource_definition(MiniCluster)
