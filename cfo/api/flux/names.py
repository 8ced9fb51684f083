"""Names that the Flux controllers, webhooks and users share: kinds, states, condition types, labels and policies."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final

from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.runtime import GVK

GROUP: Final = "flux-framework.org"

MINICLUSTER: Final = GVK(GROUP, "v1alpha2", "MiniCluster")
FLUX_JOB: Final = GVK(GROUP, "v1alpha1", "FluxJob")
FLUX_SETUP: Final = GVK(GROUP, "v1alpha1", "FluxSetup")


class JobState(StrEnum):
    """The condition types that are the states of a FluxJob; a MiniCluster has the same condition types.

    The reason of each condition equals its type. The order is the order in ``status.conditions``, in which clients take
    the first condition that is ``True`` as the state.
    """

    REQUESTED = "JobRequested"
    WAITING = "JobWaitingForResources"
    RUNNING = "JobRunning"
    READY = "JobMiniClusterReady"
    FINISHED = "JobFinished"


FIELD_MANAGER: Final = "codeflare-flux"
"""The field manager for the objects of MiniClusters, and for the status of every Flux kind."""

STATES: Final = tuple(JobState)

COMMANDS: Final = (
    "brokerPre",
    "init",
    "post",
    "pre",
    "prefix",
    "script",
    "servicePre",
    "workerPre",
)
"""The fields that ``commands`` has in a container, all of which are shell code."""

COVERS: Final = "FluxSetup covers namespace"
"""The part of the message about a namespace without a FluxSetup that precedes the name of the namespace."""

VALID: Final = "Valid"
"""Condition type: ``False`` with the validation errors as message if the spec is invalid."""

UP_TO_DATE: Final = "UpToDate"
"""Condition type: ``False`` if a change of the spec is not applied, because the MiniCluster started or is admitted."""

OBJECTS_READY: Final = "ObjectsReady"
"""Condition type of a MiniCluster: all its objects exist, also while its Job is suspended."""

SUCCEEDED: Final = "Succeeded"
"""Condition type of a finished MiniCluster or FluxJob: whether its command succeeded."""

PODS_READY: Final = "PodsReady"
"""Condition type of a FluxJob that was launched: whether its brokers are ready, and why a pod cannot start.

A MiniCluster has it once a pod could not start."""

COMMAND_FAILED: Final = "CommandFailed"
"""Condition type of a MiniCluster: ``True`` if the last run of its command that has ended failed, also while the
command runs again. The reason is kubelet's, such as ``OOMKilled``."""

BROKERS_READY: Final = "BrokersReady"
"""The reason of a FluxJob's ``PodsReady`` when it is true."""

STARTING: Final = "Starting"
"""The reason of ``PodsReady`` while no pod reports a problem, but not all brokers are ready."""

PODS_MISSING: Final = "PodsMissing"
"""The reason of ``PodsReady`` while pods do not exist that the Job should have created."""

USUAL_CREATION: Final = timedelta(seconds=30)
"""How long the controller of Jobs usually needs at most until it has created the first pods."""

PODS_PER_SECOND: Final = 20
"""How many pods the controller of Jobs creates in a second: the default limit of kube-controller-manager's requests."""

QUOTA_RESERVED: Final = "QuotaReserved"
"""Condition type of a FluxJob: the queue has admitted it. The same type as of a Kueue Workload."""

EVICTED: Final = "Evicted"
"""Condition type of a FluxJob: its quota is or was taken back.

By the queue, because of ``spec.suspend``, or because its pods did not exist in time."""

ACTIVE: Final = "Active"
"""Condition type of a FluxSetup: whether it governs jobs; the reason says why not."""

MINICLUSTER_LABEL: Final = "flux-framework.org/minicluster"
"""Label of the Job and the pods (workers and service pod) of a MiniCluster; the value is its name."""

COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""Label of the pods of an indexed Job; the lead broker of a MiniCluster has index 0."""

NOTHING_RESUMES: Final = "The Job is suspended, and nothing resumes it"
"""The beginning of the message about a MiniCluster that lost its queue while it waited."""

RESUME_REMEDY: Final = (
    f"set spec.suspend to false, or the label {QUEUE_NAME_LABEL} in spec.jobLabels"
)
"""What to do about such a MiniCluster."""

SUSPEND_ANNOTATION: Final = "flux-framework.org/suspend"
"""Annotation that replaces ``spec.suspend`` of a MiniCluster if upstream's CRD, without that field, is installed."""

DEFAULT_IMAGE: Final = "fluxrm/flux-sched:focal"
"""The image of a FluxJob if neither the job nor its FluxSetup has one."""


class QueueingStrategy(StrEnum):
    """Which waiting FluxJobs may be admitted before one that does not fit."""

    BEST_EFFORT_FIFO = "BestEffortFIFO"
    STRICT_FIFO = "StrictFIFO"
    BACKFILL = "Backfill"


class Fairness(StrEnum):
    """Between whom the quota of a FluxSetup is shared."""

    NONE = "None"
    NAMESPACE = "Namespace"


class Preemption(StrEnum):
    """Which running FluxJobs may be suspended in favor of a waiting one."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"


class Queue(StrEnum):
    """Which queue admits the jobs of a FluxSetup."""

    INTERNAL = "Internal"
    KUEUE = "Kueue"
