"""A queue of Kueue with a quota of pods, for AppWrappers whose Workloads the operator creates."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from cfo.api.appwrapper.names import APPWRAPPER_LABEL
from cfo.controllers.appwrapper.status import is_true
from cfo.runtime.objects.kinds import POD
from cfo.runtime.objects.unstructured import GVK, Object, controller_of, labels_of, uid_of
from test.support.appwrapper_environment import AppWrapperEnvironment
from test.support.recordings import load_crd

WORKLOAD: Final = GVK("kueue.x-k8s.io", "v1beta2", "Workload")
FLAVOR: Final = GVK("kueue.x-k8s.io", "v1beta2", "ResourceFlavor")

_KINDS: Final = ("workloads", "clusterqueues", "localqueues", "resourceflavors")
_TIME: Final = "2026-01-01T00:00:00Z"


@cache
def kueue_crds() -> tuple[Object, ...]:
    """Return Kueue's CRDs of queues and Workloads, with one version; tests share them and must not modify them."""
    return tuple(_with_one_version(load_crd(f"kueue.x-k8s.io_{kind}")) for kind in _KINDS)


def _with_one_version(crd: Object) -> Object:
    """Return a CRD of Kueue with the version of :data:`WORKLOAD` only, which needs no conversion."""
    spec = {key: value for key, value in crd["spec"].items() if key != "conversion"}
    spec["versions"] = [each for each in spec["versions"] if each["name"] == WORKLOAD.version]
    return {**crd, "spec": spec}


def workload_condition(kind: str, status: str = "True", message: str = "") -> Object:
    """Return a condition of a Workload, as Kueue writes it."""
    return {
        "type": kind,
        "status": status,
        "reason": "Preempted" if kind == "Evicted" else kind,
        "message": message,
        "lastTransitionTime": _TIME,
    }


def admission_of(workload: Object) -> Object:
    """Return the admission of a Workload by the ClusterQueue ``cq`` with the flavor ``gold``."""
    assignments = [
        {
            "name": item["name"],
            "count": item["count"],
            "flavors": {"cpu": "gold"},
            "resourceUsage": {"cpu": "1"},
        }
        for item in workload["spec"]["podSets"]
    ]
    return {"clusterQueue": "cq", "podSetAssignments": assignments}


def pods_of_workload(workload: Object) -> int:
    """Return how many pods a Workload asks for."""
    return sum(int(item["count"]) for item in workload["spec"]["podSets"])


class PodQueue:
    """A queue whose quota is a number of pods, as Kueue's scheduler fills it."""

    def __init__(self, environment: AppWrapperEnvironment, quota: int) -> None:
        self._environment = environment
        self._quota = quota

    async def workloads(self) -> list[Object]:
        """Return all Workloads, ordered by name."""
        found = await self._environment.client.list(WORKLOAD, namespace="ns")
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    async def schedule(self) -> None:
        """Admit the waiting Workloads that fit."""
        workloads = await self.workloads()
        free = self._quota - sum(pods_of_workload(each) for each in workloads if is_reserved(each))
        for workload in workloads:
            wanted = pods_of_workload(workload)
            if is_reserved(workload) or _is_finished(workload) or wanted > free:
                continue
            free -= wanted
            conditions = [
                workload_condition("QuotaReserved"),
                workload_condition("Admitted"),
                workload_condition("Evicted", "False"),
            ]
            status = {"conditions": conditions, "admission": admission_of(workload)}
            await self._environment.patch(workload, {"status": status}, subresource="status")

    async def evict(self, number: int) -> None:
        """Evict one of the admitted Workloads, if there are any."""
        admitted = [each for each in await self.workloads() if is_reserved(each)]
        if not admitted:
            return
        workload = admitted[number % len(admitted)]
        others = [each for each in workload["status"]["conditions"] if each["type"] != "Evicted"]
        status = {"conditions": [*others, workload_condition("Evicted")]}
        await self._environment.patch(workload, {"status": status}, subresource="status")

    async def excess(self) -> list[str]:
        """Return which AppWrappers have more pods, that hold resources, than quota."""
        before = await self.workloads()
        pods = await self._environment.client.list(
            POD, namespace="ns", label_selector=APPWRAPPER_LABEL
        )
        after = {uid_of(each): each for each in await self.workloads()}
        found: list[str] = []
        for workload in before:
            if after.get(uid_of(workload)) != workload:
                continue  # it changed meanwhile, so that the pods may be those of another state
            name = str((controller_of(workload) or {}).get("name"))
            number = _holding(pods, name)
            allowed = pods_of_workload(workload) if is_reserved(workload) else 0
            if number > allowed:
                found.append(f"{number} pods of {name} on a quota for {allowed}")
        return found


def is_reserved(workload: Object) -> bool:
    """Return whether a Workload holds quota."""
    conditions = (workload.get("status") or {}).get("conditions")
    return is_true(conditions, "QuotaReserved") and not _is_finished(workload)


def _is_finished(workload: Object) -> bool:
    return is_true((workload.get("status") or {}).get("conditions"), "Finished")


def _holding(pods: Sequence[dict[str, Any]], name: str) -> int:
    """Return how many pods of the AppWrapper ``name`` hold resources and are not being replaced."""
    return len(
        [
            pod
            for pod in pods
            if labels_of(pod)[APPWRAPPER_LABEL] == name
            and pod["status"]["phase"] in ("Pending", "Running")
            and "deletionTimestamp" not in pod["metadata"]
        ]
    )
