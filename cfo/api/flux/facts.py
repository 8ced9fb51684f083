"""Facts that controllers and validation share: what conditions say, and which container runs Flux and requests what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cfo.api.flux.names import QUEUE_NAME_LABEL
from cfo.runtime import Object, find_condition, labels_of


def is_true(obj: Mapping[str, Any], kind: str) -> bool:
    """Return whether the condition ``kind`` of an object exists and is true."""
    return _condition(obj, kind).get("status") == "True"


def is_false(obj: Mapping[str, Any], kind: str) -> bool:
    """Return whether the condition ``kind`` of an object exists and is false."""
    return _condition(obj, kind).get("status") == "False"


def message_of(obj: Mapping[str, Any], kind: str) -> str:
    """Return the message of the condition ``kind`` of an object; empty if there is none."""
    return str(_condition(obj, kind).get("message") or "")


def _condition(obj: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return find_condition((obj.get("status") or {}).get("conditions"), kind) or {}


def is_queued_by_kueue(cluster: Mapping[str, Any]) -> bool:
    """Return whether a MiniCluster's Job has the label of a queue of Kueue, which then decides when it starts."""
    return bool(((cluster.get("spec") or {}).get("jobLabels") or {}).get(QUEUE_NAME_LABEL))


def own_queue(job: Object) -> str:
    """Return the LocalQueue of Kueue that a FluxJob, or its template, names; empty if there is none."""
    labels = ((job.get("spec") or {}).get("template") or {}).get("jobLabels") or {}
    return labels_of(job).get(QUEUE_NAME_LABEL) or str(labels.get(QUEUE_NAME_LABEL) or "")


def resources_of(container: Mapping[str, Any]) -> Object:
    """Return limits and requests of a container; quantities may be numbers in the spec, and are strings in pods."""
    given = container.get("resources") or {}
    return {
        kind: {name: str(amount) for name, amount in given[kind].items()}
        for kind in ("limits", "requests")
        if given.get(kind)
    }


def runners(containers: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the indexes of the containers that run Flux: a single container, or those with ``runFlux``.

    Exactly one does in a valid MiniCluster.
    """
    if len(containers) == 1:
        return [0]
    return [index for index, container in enumerate(containers) if container.get("runFlux")]


def is_runner(container: Mapping[str, Any], containers: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether ``container``, one of ``containers``, runs Flux."""
    return len(containers) == 1 or bool(container.get("runFlux"))
