"""The tables of FluxSetups, FluxJobs and MiniClusters in the overview."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from cfo.api.flux import FLUX_JOB, FLUX_SETUP, MINICLUSTER, STATES, State
from cfo.runtime import GVK, Event, Manager, NamespacedName, Object, find_condition, key_of

__all__ = ["FluxTables"]

_Rows = list[tuple[str, ...]]


class FluxTables:
    """Watches the Flux kinds through the cache of ``manager``, and sets ``on_event`` on each of their events."""

    kinds: Final = (FLUX_JOB, MINICLUSTER)
    """The kinds that settle: their objects finish."""

    def __init__(self, manager: Manager, on_event: Callable[[Event], None]) -> None:
        self._informers = {gvk: manager.cache.informer(gvk) for gvk in (FLUX_SETUP, FLUX_JOB, MINICLUSTER)}
        for informer in self._informers.values():
            informer.add_handler(on_event)

    def unsettled_reason(self, gvk: GVK, key: NamespacedName) -> str:
        """Return why the FluxJob or MiniCluster ``key`` has not finished yet; empty if it has finished."""
        obj = self._informers[gvk].reader.get(key)
        state = "missing" if obj is None else _state(obj) or "new"
        return "" if state == State.FINISHED else f"{gvk.kind} {key} is {state}"

    def tables(self, events_about: Callable[[Object], list[str]]) -> Iterator[tuple[tuple[str, ...], _Rows]]:
        """Yield the columns and rows of each table that has rows; ``events_about`` returns the Events of an object."""
        for gvk, columns, row in (
            (FLUX_SETUP, ("FluxSetup", "pods", "jobs", "events"), _setup_row),
            (FLUX_JOB, ("FluxJob", "state", "message", "events"), _job_row),
            (MINICLUSTER, ("MiniCluster", "state", "pods", "events"), _cluster_row),
        ):
            objects = sorted(self._informers[gvk].reader.list(), key=key_of)
            if objects:
                yield columns, [(str(key_of(obj)), *row(obj), "\n".join(events_about(obj))) for obj in objects]


def _status(obj: Object) -> Mapping[str, Any]:
    return obj.get("status") or {}


def _true_condition(obj: Object) -> Mapping[str, Any]:
    """Return the condition that is the state of a FluxJob or MiniCluster: the first of the states that is true."""
    conditions = _status(obj).get("conditions")
    found = (find_condition(conditions, state) for state in STATES)
    return next((condition for condition in found if condition and condition["status"] == "True"), {})


def _state(obj: Object) -> str:
    return str(_true_condition(obj).get("type") or "")


def _setup_row(setup: Object) -> tuple[str, str]:
    status = _status(setup)
    return (
        f"{status.get('usedResources', 0)} of {setup['spec'].get('max-size', 0)}",
        f"{status.get('admittedWorkloads', 0)} admitted, {status.get('pendingWorkloads', 0)} waiting",
    )


def _job_row(job: Object) -> tuple[str, str]:
    return _state(job), str(_true_condition(job).get("message") or "")


def _cluster_row(cluster: Object) -> tuple[str, str]:
    return _state(cluster), f"{_status(cluster).get('ready', 0)} of {cluster['spec'].get('size', 1)} ready"
