"""The kinds of components whose pods are known from their fields, in whichever version they are created.

An API server serves some of them in several versions, such as RayClusters also as ``ray.io/v1alpha1``: the object is
the same, and so are its pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.api.reading import path
from cfo.runtime import DEPLOYMENT, GVK, JOB, POD, gvk_of

RAY_JOB: Final = GVK("ray.io", "v1", "RayJob")
RAY_SERVICE: Final = GVK("ray.io", "v1", "RayService")

RAY_SPECS: Final[Mapping[GVK, str]] = {
    RAY_CLUSTER: "template.spec",
    RAY_JOB: "template.spec.rayClusterSpec",
    RAY_SERVICE: "template.spec.rayClusterConfig",
}
"""The paths of the RayClusterSpecs in components of Ray's kinds."""

EMBEDDED_KINDS: Final = dict.fromkeys(RAY_SPECS, RAY_CLUSTER)
"""The kinds of objects, created from components, that have their own webhook."""

RAY_RESOURCES: Final = ("rayclusters", "rayjobs", "rayservices")
"""The resources of Ray's kinds in RBAC rules."""

MPI_JOBS: Final = (GVK("kubeflow.org", "v2beta1", "MPIJob"), GVK("kubeflow.org", "v1", "MPIJob"))
"""The MPIJobs of the MPI operator, and those of the training operator."""

JOB_SET: Final = GVK("jobset.x-k8s.io", "v1alpha2", "JobSet")
PYTORCH_JOB: Final = GVK("kubeflow.org", "v1", "PyTorchJob")
TRAIN_JOB: Final = GVK("trainer.kubeflow.org", "v1alpha1", "TrainJob")
LEADER_WORKER_SET: Final = GVK("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet")
STATEFUL_SET: Final = GVK("apps", "v1", "StatefulSet")

SERVICES: Final = frozenset({RAY_CLUSTER, RAY_SERVICE, DEPLOYMENT, STATEFUL_SET, LEADER_WORKER_SET})
"""Kinds whose controllers replace each pod that ends, so that they run until they are deleted."""

KNOWN_KINDS: Final = frozenset(
    {*SERVICES, RAY_JOB, POD, JOB, JOB_SET, PYTORCH_JOB, TRAIN_JOB, *MPI_JOBS}
)
"""The kinds of which is known where their pod templates are, and how many pods they create."""

_SUSPENSIONS: Final[Mapping[GVK, tuple[str, ...]]] = {
    **dict.fromkeys((RAY_CLUSTER, RAY_JOB, JOB, JOB_SET, TRAIN_JOB), ("spec", "suspend")),
    **dict.fromkeys((PYTORCH_JOB, *MPI_JOBS), ("spec", "runPolicy", "suspend")),
}
"""The field with which an object of a kind is suspended, so that its controller deletes its pods."""

_BY_GROUP_AND_KIND: Final = {(gvk.group, gvk.kind): gvk for gvk in KNOWN_KINDS}


def known_kind(gvk: GVK) -> GVK:
    """Return the version in which a kind is known, or ``gvk`` itself if the kind is known in it, or in none."""
    if gvk in KNOWN_KINDS:
        return gvk
    return _BY_GROUP_AND_KIND.get((gvk.group, gvk.kind), gvk)


def kind_of(template: Mapping[str, Any]) -> GVK:
    """Return the kind of a component's object, in the version in which it is known."""
    return known_kind(gvk_of(template))


def suspension_of(obj: Mapping[str, Any]) -> str:
    """Return the field that suspends the object of a component, such as ``spec.suspend``; empty if none does."""
    field = _SUSPENSIONS.get(kind_of(obj))
    if field is None or path(obj, *field) is not True:
        return ""
    return ".".join(field)
