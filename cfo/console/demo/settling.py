"""Whether the applied objects have settled: ``cfo run --embedded --until-settled`` waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import anyio

from cfo.api.appwrapper import APPWRAPPER, Phase
from cfo.api.flux import FLUX_JOB, MINICLUSTER, State
from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.api.raycluster.cluster import is_suspended
from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.api.raycluster.naming import CLUSTER_LABEL, names_of
from cfo.console.summaries import Overview, Summary
from cfo.runtime import (
    GVK,
    INGRESS,
    NETWORK_POLICY,
    SECRET,
    Informer,
    Manager,
    NamespacedName,
    Object,
)

__all__ = ["SETTLING_KINDS", "Settling"]

_FINAL_STATES: Final[Mapping[GVK, str]] = {
    APPWRAPPER: Phase.SUCCEEDED,
    FLUX_JOB: State.FINISHED,
    MINICLUSTER: State.FINISHED,
    **dict.fromkeys(INFERENCE_STACKS, "Ready"),
}

SETTLING_KINDS: Final = (RAY_CLUSTER, *_FINAL_STATES)
"""The kinds that settle."""


class Settling:
    """Which objects have not settled yet, by the summaries of ``overview`` and the informers of ``manager``."""

    def __init__(self, manager: Manager, overview: Overview) -> None:
        self._overview = overview
        self._clusters = manager.cache.informer(RAY_CLUSTER)
        self._children: dict[GVK, Informer] = {
            gvk: manager.cache.informer(gvk, label_selector=CLUSTER_LABEL, metadata_only=True)
            for gvk in (INGRESS, NETWORK_POLICY, SECRET)
        }

    async def wait(self, expected: list[tuple[GVK, NamespacedName]]) -> None:
        """Wait until all of ``expected`` have settled.

        RayClusters have all objects, AppWrappers have succeeded, FluxJobs and MiniClusters have finished,
        InferenceStacks are ready.
        """
        changed = anyio.Event()

        def on_event(_: object) -> None:
            changed.set()

        for informer in (*self._children.values(), *self._overview.informers):
            informer.add_handler(on_event)
        try:
            while await self.reasons(expected):
                await changed.wait()
                changed = anyio.Event()
        finally:
            for informer in (*self._children.values(), *self._overview.informers):
                informer.remove_handler(on_event)

    async def reasons(self, expected: list[tuple[GVK, NamespacedName]]) -> list[str]:
        """Return why objects of ``expected`` have not settled yet."""
        summaries = {(each.gvk, each.key): each for each in await self._overview.snapshot()}
        found = (self._reason(gvk, key, summaries.get((gvk, key))) for gvk, key in expected)
        return [reason for reason in found if reason]

    def _reason(self, gvk: GVK, key: NamespacedName, summary: Summary | None) -> str:
        if gvk == RAY_CLUSTER:
            missing = self._missing_objects(key)
            return f"RayCluster {key} is missing {', '.join(missing)}" if missing else ""
        state = "missing" if summary is None else summary.state or "new"
        return "" if state == _FINAL_STATES[gvk] else f"{gvk.kind} {key} is {state}"

    def _missing_objects(self, key: NamespacedName) -> list[str]:
        """Return the missing objects of the RayCluster ``key`` (or the RayCluster itself), as kind and name."""
        cluster = self._clusters.reader.get(key)
        if cluster is None:
            return [f"RayCluster {key}"]
        return [
            f"{gvk.kind} {name}"
            for gvk, name in _expected(cluster)
            if not self._children[gvk].reader.contains(NamespacedName(key.namespace, name))
        ]


def _expected(cluster: Object) -> list[tuple[GVK, str]]:
    """Return the objects that a RayCluster gets on vanilla Kubernetes with OAuth disabled and mTLS enabled."""
    if is_suspended(cluster):
        return []
    names = names_of(cluster)
    return [
        (INGRESS, names.dashboard),
        (INGRESS, names.client),
        (NETWORK_POLICY, names.head_policy),
        (NETWORK_POLICY, names.workers_policy),
        (SECRET, names.ca_secret),
    ]
