"""What the pods of a component must request so that they use the quota that was admitted for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import orjson

from cfo.api.appwrapper.inference import expected_pods
from cfo.api.appwrapper.kinds import TRAIN_JOB, kind_of
from cfo.api.appwrapper.podsets import PodSetError
from cfo.api.appwrapper.quota import required_pod_spec
from cfo.api.appwrapper.train_jobs import requested_nodes
from cfo.api.pod_requests import (
    counts_in_queues,
    least_requests,
    remembered,
    requests_of_spec,
)
from cfo.runtime import Object


class LeastUse(msgspec.Struct, frozen=True):
    """Each of so many ``pods`` must request at least ``requests``, in thousandths."""

    pods: int
    requests: Mapping[str, int]


def least_use(template: Object, pod_sets: Iterable[Mapping[str, Any]]) -> tuple[LeastUse, ...]:
    """Return what the pods of a component with the recorded ``pod_sets`` must request, as far as they must exist.

    These are the requests in its pod templates, and those that its user lets KubeRay add to its pods. KubeRay's own
    defaults do not count: earlier versions add less.
    """
    return remembered(_least_use, orjson.dumps([template, *pod_sets]))


def _least_use(encoded: bytes) -> tuple[LeastUse, ...]:
    template, *pod_sets = orjson.loads(encoded)
    try:
        return tuple(
            LeastUse(pods, _least(spec)) for pods, spec in _pods(template, pod_sets) if pods
        )
    except PodSetError:  # admission rejects it
        return ()


def _pods(template: Object, pod_sets: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, Object]]:
    """Yield the numbers of pods that must run, and their specs."""
    if kind_of(template) == TRAIN_JOB:
        yield requested_nodes(template, pod_sets)
        return
    for path, pods in expected_pods(template, pod_sets):
        yield pods, required_pod_spec(template, path)


def _least(spec: Mapping[str, Any]) -> Mapping[str, int]:
    requests = requests_of_spec(spec)
    return least_requests(requests, set(filter(counts_in_queues, requests)))
