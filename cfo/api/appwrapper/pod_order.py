"""In which order the controllers of components create their pods.

Sources: the API of StatefulSets; ``jobset_types.go`` of JobSet 0.12 (``startupPolicy``, ``dependsOn``);
``leaderworkerset_types.go`` of LeaderWorkerSet 0.9; ``types.go`` of the MPI operator 0.8; Kubeflow Trainer 2.3, whose
JobSet creates the initializers of a TrainJob before its nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Final

from cfo.api.appwrapper.kinds import (
    JOB_SET,
    LEADER_WORKER_SET,
    MPI_JOBS,
    STATEFUL_SET,
    TRAIN_JOB,
    kind_of,
)
from cfo.api.reading import elements, mapping
from cfo.runtime import GVK


class PodOrder(Enum):
    """What the creation of pods waits for."""

    AT_ONCE = auto()
    AFTER_READINESS = auto()
    """Some pods are created when others are ready."""
    AFTER_COMPLETION = auto()
    """Some pods are created when others have ended, such as those that download the data of the others."""

    @property
    def awaits_end(self) -> bool:
        """Whether the running time of some pods delays the creation of others."""
        return self is PodOrder.AFTER_COMPLETION


def pod_order(template: Mapping[str, Any]) -> PodOrder:
    """Return in which order the controller of a component's object creates the pods."""
    order_of = _ORDERS.get(kind_of(template))
    return order_of(mapping(template.get("spec"))) if order_of is not None else PodOrder.AT_ONCE


def _of_stateful_set(spec: Mapping[str, Any]) -> PodOrder:
    is_parallel = spec.get("podManagementPolicy") == "Parallel"
    return PodOrder.AT_ONCE if is_parallel else PodOrder.AFTER_READINESS


def _of_leader_worker_set(spec: Mapping[str, Any]) -> PodOrder:
    waits = spec.get("startupPolicy") == "LeaderReady"
    return PodOrder.AFTER_READINESS if waits else PodOrder.AT_ONCE


def _of_mpi_job(spec: Mapping[str, Any]) -> PodOrder:
    waits = spec.get("launcherCreationPolicy") == "WaitForWorkersReady"
    return PodOrder.AFTER_READINESS if waits else PodOrder.AT_ONCE


def _of_job_set(spec: Mapping[str, Any]) -> PodOrder:
    awaited = [
        mapping(dependency).get("status")
        for job in elements(spec.get("replicatedJobs"))
        for dependency in elements(mapping(job).get("dependsOn"))
    ]
    if "Complete" in awaited:
        return PodOrder.AFTER_COMPLETION
    is_in_order = mapping(spec.get("startupPolicy")).get("startupPolicyOrder") == "InOrder"
    return PodOrder.AFTER_READINESS if awaited or is_in_order else PodOrder.AT_ONCE


def _of_train_job(spec: Mapping[str, Any]) -> PodOrder:
    return PodOrder.AFTER_COMPLETION  # its training runtime, which is not known here, decides


_ORDERS: Final[Mapping[GVK, Callable[[Mapping[str, Any]], PodOrder]]] = {
    STATEFUL_SET: _of_stateful_set,
    LEADER_WORKER_SET: _of_leader_worker_set,
    JOB_SET: _of_job_set,
    TRAIN_JOB: _of_train_job,
    **dict.fromkeys(MPI_JOBS, _of_mpi_job),
}
