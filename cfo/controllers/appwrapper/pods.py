"""What an AppWrapper's pods are doing: how many wait, run, have succeeded or failed, and where that is unhealthy.

Pods are found by the label that they get from their template. Of each only the few fields that matter are decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from cfo.controllers.appwrapper.settings import Settings
from cfo.runtime.cache.entry import Entry

__all__ = ["Pod", "PodCounts", "count_pods", "pod_of"]


class _Terminated(msgspec.Struct, gc=False, rename="camel"):
    exit_code: int = 0


class _State(msgspec.Struct, gc=False):
    terminated: _Terminated | None = None


class _ContainerStatus(msgspec.Struct, gc=False):
    state: _State | None = None


class _Status(msgspec.Struct, gc=False, rename="camel"):
    phase: str = ""
    container_statuses: tuple[_ContainerStatus, ...] | None = None


class _Resources(msgspec.Struct, gc=False):
    limits: dict[str, str | int | float] | None = None
    requests: dict[str, str | int | float] | None = None


class _Container(msgspec.Struct, gc=False):
    resources: _Resources | None = None


class _Spec(msgspec.Struct, gc=False, rename="camel"):
    node_name: str = ""
    containers: tuple[_Container, ...] | None = None


class _Meta(msgspec.Struct, gc=False, rename="camel"):
    deletion_grace_period_seconds: int | None = None


class _Pod(msgspec.Struct, gc=False):
    metadata: _Meta
    spec: _Spec | None = None
    status: _Status | None = None


_decoder = msgspec.json.Decoder(_Pod)


@dataclass(frozen=True, slots=True)
class Pod:
    """What matters of one pod. ``forced``: its deletion leaves its node no time any more."""

    phase: str = ""
    node: str = ""
    deleting: bool = False
    forced: bool = False
    exit_codes: tuple[int, ...] = ()
    resources: frozenset[str] = frozenset()


def pod_of(entry: Entry) -> Pod:
    """What matters of the pod in ``entry``."""
    pod = _decoder.decode(entry.raw)
    status, spec = pod.status or _Status(), pod.spec or _Spec()
    deleting = entry.meta.is_deleting
    return Pod(
        phase=status.phase,
        node=spec.node_name,
        deleting=deleting,
        forced=deleting and pod.metadata.deletion_grace_period_seconds == 0,
        exit_codes=tuple(
            container.state.terminated.exit_code
            for container in status.container_statuses or ()
            if container.state is not None and container.state.terminated is not None
        ),
        resources=frozenset(
            name
            for container in spec.containers or ()
            if container.resources is not None
            for amounts in (container.resources.limits, container.resources.requests)
            for name, amount in (amounts or {}).items()
            if str(amount).strip("0.") != ""
        ),
    )


@dataclass(frozen=True, slots=True)
class PodCounts:
    """How many pods are in which phase.

    ``terminal_failure``: a container ended in a way that makes a retry pointless. ``no_execute_nodes``: where pods
    run with resources that must not be used there any more.
    """

    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    terminal_failure: bool = False
    no_execute_nodes: frozenset[str] = field(default_factory=frozenset)

    @property
    def existing(self) -> int:
        """Those that have not failed."""
        return self.pending + self.running + self.succeeded


def count_pods(pods: Iterable[Pod], settings: Settings, no_execute: Mapping[str, frozenset[str]]) -> PodCounts:
    """Counts ``pods``; ``no_execute`` are the resources, by node, that are not to be used there any more.

    A running pod that is being deleted is none; the others count until they are gone.
    """
    phases = {"Pending": 0, "Running": 0, "Succeeded": 0, "Failed": 0}
    terminal = False
    nodes: set[str] = set()
    for pod in pods:
        if pod.phase not in phases or (pod.phase == "Running" and pod.deleting):
            continue
        phases[pod.phase] += 1
        if pod.phase == "Failed":
            terminal = terminal or any(map(settings.is_terminal, pod.exit_codes))
        elif pod.phase == "Running" and pod.resources & no_execute.get(pod.node, frozenset()):
            nodes.add(pod.node)
    return PodCounts(
        pending=phases["Pending"],
        running=phases["Running"],
        succeeded=phases["Succeeded"],
        failed=phases["Failed"],
        terminal_failure=terminal,
        no_execute_nodes=frozenset(nodes),
    )
