"""Lets pods of Jobs end on the embedded control plane, where no container runs.

A pod of a Job, FluxJob or MiniCluster succeeds after the seconds in its ``sleep N``, or after
:data:`USUAL_SECONDS`. A command with ``sleep infinity`` and a MiniCluster for interactive use run until they are
deleted. This controller changes no pod that fails (envtest decides that by its image or command), and none with the
annotation ``envtest.cfo/phase``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from cfo.api.flux.names import MINICLUSTER, MINICLUSTER_LABEL
from cfo.api.reading import elements, items, path, text
from cfo.runtime import (
    POD,
    Builder,
    Client,
    Clock,
    Informer,
    Manager,
    NamespacedName,
    NotFound,
    Object,
    Request,
    Result,
    annotations_of,
    is_deleting,
    labels_of,
    uid_of,
)
from cfo.runtime.objects import parse_time
from cfo.summaries.conditions import conditions_of, is_true

USUAL_SECONDS: Final = 5.0
"""How long a pod runs, unless its command sleeps."""

_JOB_LABEL: Final = "batch.kubernetes.io/job-name"
_PHASE: Final = "envtest.cfo/phase"
_SLEEP: Final = re.compile(r"\bsleep (infinity|[0-9]{1,9})\b")
_MAX_LENGTH: Final = 4096
"""How many characters of a command are read."""


def setup(manager: Manager) -> None:
    """Add the controller that ends pods of Jobs to ``manager``."""
    pods = manager.cache.informer(POD, label_selector=_JOB_LABEL)
    reconciler = _PodReconciler(manager.client.with_field_manager("cfo-demo"), pods, manager.clock)
    Builder(manager, "fake-job-pods").for_(POD, label_selector=_JOB_LABEL).complete(reconciler)


class _PodReconciler:
    def __init__(self, client: Client, pods: Informer, clock: Clock) -> None:
        self._client = client
        self._pods = pods
        self._clock = clock

    async def reconcile(self, request: Request) -> Result:
        pod = self._pods.reader.get(request)
        if pod is None or not is_left_running(pod):
            return Result()
        cluster = None
        if MINICLUSTER_LABEL in labels_of(pod):
            key = NamespacedName(request.namespace, labels_of(pod)[MINICLUSTER_LABEL])
            cluster = await self._client.get(MINICLUSTER, key)
        seconds = seconds_of(pod, cluster)
        if seconds is None:
            return Result()
        started = parse_time(pod["status"]["startTime"])
        remaining = seconds - (self._clock.now() - started).total_seconds()
        if remaining > 0:
            return Result(requeue_after=remaining)
        metadata = {"uid": uid_of(pod), "annotations": {_PHASE: "Succeeded"}}
        with suppress(NotFound):  # it was deleted
            await self._client.patch(POD, request, {"metadata": metadata})
        return Result()


def is_left_running(pod: Object) -> bool:
    """Return whether a pod runs, and neither its user nor envtest ends it."""
    if is_deleting(pod) or _PHASE in annotations_of(pod):
        return False
    return path(pod, "status", "phase") == "Running" and is_true(conditions_of(pod), "Ready")


def seconds_of(pod: Mapping[str, Any], cluster: Mapping[str, Any] | None = None) -> float | None:
    """Return for how long a pod runs; ``None`` if it does not end. ``cluster``: the MiniCluster of the pod."""
    containers = list(items(path(pod, "spec", "containers")))
    commands = [" ".join(map(str, _words(each))) for each in containers]
    if cluster is not None:
        # The pod itself runs a script of the operator.
        containers = list(items(path(cluster, "spec", "containers")))
        commands = [text(each.get("command"), _MAX_LENGTH) for each in containers]
        if path(cluster, "spec", "interactive") is True or not any(commands):
            return None
    longest = 0.0
    for command in commands:
        sleeps = _SLEEP.findall(command[:_MAX_LENGTH])
        if "infinity" in sleeps:
            return None
        longest = max(longest, float(sum(map(int, sleeps))))
    return longest or USUAL_SECONDS


def _words(container: Mapping[str, Any]) -> list[Any]:
    return [*elements(container.get("command")), *elements(container.get("args"))]
