"""Flux (``flux-framework.org``): MiniClusters, and FluxJobs, which wait in the queue of a FluxSetup.

A MiniCluster (v1alpha2) is a Flux instance on the pods of an Indexed Job, compatible with upstream's. A FluxJob
(v1alpha1) is one command that runs in a MiniCluster of its own, once the FluxSetup (v1alpha1) that governs its
namespace has quota for it.

The types from which the CRDs are generated are in :mod:`.models`, which is not imported here because that takes time.
"""

from cfo.api.flux.kinds import FLUX_JOB, FLUX_SETUP, GROUP, MINICLUSTER
from cfo.api.flux.names import (
    ACTIVE,
    DEFAULT_IMAGE,
    EVICTED,
    MINICLUSTER_LABEL,
    OBJECTS_READY,
    QUEUE_NAME_LABEL,
    QUOTA_RESERVED,
    STATES,
    SUCCEEDED,
    SUSPEND_ANNOTATION,
    UP_TO_DATE,
    VALID,
    Fairness,
    Preemption,
    Queue,
    QueueingStrategy,
    State,
)

__all__ = [
    "ACTIVE",
    "DEFAULT_IMAGE",
    "EVICTED",
    "FLUX_JOB",
    "FLUX_SETUP",
    "GROUP",
    "MINICLUSTER",
    "MINICLUSTER_LABEL",
    "OBJECTS_READY",
    "QUEUE_NAME_LABEL",
    "QUOTA_RESERVED",
    "STATES",
    "SUCCEEDED",
    "SUSPEND_ANNOTATION",
    "UP_TO_DATE",
    "VALID",
    "Fairness",
    "Preemption",
    "Queue",
    "QueueingStrategy",
    "State",
]
