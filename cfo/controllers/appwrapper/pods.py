"""The pods of AppWrappers: lookup, counts of pending, running, succeeded and failed pods, and why they failed.

Pods are found by the label that is injected into their template. Only the required fields of each pod are decoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import Final, Literal

import msgspec
from anyio.lowlevel import checkpoint

from cfo.api.appwrapper.names import APPWRAPPER_LABEL, POD_FAILURE_PREFIX
from cfo.api.appwrapper.waiting_pods import cause_with_pod
from cfo.api.pod_requests import (
    ContainerShape,
    PodShape,
    Quantities,
    Resources,
    format_amount,
    requests_of_pod,
)
from cfo.api.quantity import is_zero
from cfo.api.waiting_reasons import CREATING_REASONS
from cfo.config.appwrapper_settings import Settings
from cfo.controllers.naming_label import NamingLabel
from cfo.controllers.pod_status import (
    MAX_WHOLE_MESSAGE,
    ContainerStatus,
    PodFailure,
    PodStatus,
    failure_of,
)
from cfo.runtime import (
    Entry,
    Informer,
    NamespacedName,
    Object,
    Reader,
    controller_of,
    is_deleting,
    key_of,
    uid_of,
)
from cfo.runtime.objects import parse_time

_BATCH: Final = 100
"""How many pods are decoded at a time: less than 2 ms."""

_MAX_KEPT: Final = 32
"""How many containers that have ended, and resources, of a pod are kept outside the cache."""

_NODE_INDEX = "appwrapper-node"


class _PodSpec(PodShape, gc=False, omit_defaults=True, rename="camel"):
    node_name: str = ""


class _PodMeta(msgspec.Struct, gc=False, rename="camel"):
    creation_timestamp: str = ""
    deletion_grace_period_seconds: int | None = None
    deletion_timestamp: str | None = None


class _Pod(msgspec.Struct, gc=False):
    metadata: _PodMeta
    spec: _PodSpec | None = None
    status: PodStatus | None = None


_decoder = msgspec.json.Decoder(_Pod)


class Termination(msgspec.Struct, frozen=True):
    """The end of a container at the RFC 3339 time ``at``; ``reason`` is the kubelet's, such as ``OOMKilled``."""

    container: str
    exit_code: int
    reason: str = ""
    at: str = ""


_UNNAMED: Final = NamespacedName("", "")


@dataclass(frozen=True, slots=True)
class WrapperPod:
    """The decoded state of a pod with the AppWrapper's label.

    ``reason``: why it failed as a whole, such as ``Evicted``. ``has_node``: it has a node, or may have one.
    ``has_controller``: an object controls it. ``is_read``: unless only its metadata is known. ``created``
    is the RFC 3339 time of its creation. ``forced``: it is being deleted with a grace period of zero;
    ``forced_since`` is when that was seen first, if a decision depends on it. ``end_requested_for``: the RFC 3339 time
    at which its deletion should end. ``terminated`` and ``init_terminated`` are the containers that ended, and the init
    containers. ``shape`` determines what it requests. ``ancestor``: the uid of the component, or of the AppWrapper,
    from which it descends by owner uids, if this has been determined.
    """

    phase: str = ""
    reason: str = ""
    node: str = ""
    has_node: bool = False
    has_controller: bool = False
    is_read: bool = True
    created: str = ""
    deleting: bool = False
    forced: bool = False
    forced_since: datetime | None = None
    end_requested_for: str = ""
    terminated: tuple[Termination, ...] = ()
    init_terminated: tuple[Termination, ...] = ()
    resources: frozenset[str] = frozenset()
    shape: PodShape = field(default_factory=PodShape, hash=False)
    key: NamespacedName = _UNNAMED
    uid: str = ""
    ancestor: str = ""
    status: PodStatus = field(default_factory=PodStatus, compare=False)

    @property
    def exit_codes(self) -> tuple[int, ...]:
        """The exit codes of the containers that ended."""
        return tuple(end.exit_code for end in self.terminated)

    @property
    def runs(self) -> bool:
        """Whether it runs, and is to run on."""
        return self.phase == "Running" and not self.deleting

    @property
    def holds_resources(self) -> bool:
        """Whether it may use resources of a node, as it does until its termination is complete."""
        return self.phase not in ("Succeeded", "Failed")


def pod_of(entry: Entry) -> WrapperPod:
    """Decode the pod in ``entry``."""
    pod = _decoder.decode(entry.raw)
    meta = entry.meta
    return _wrapper_pod(
        pod,
        entry.key,
        meta.uid,
        deleting=meta.is_deleting,
        has_controller=meta.controller is not None,
    )


def pod_of_object(obj: Object) -> WrapperPod:
    """Return the state of a pod that was read from the API server."""
    return _wrapper_pod(
        msgspec.convert(obj, _Pod),
        key_of(obj),
        uid_of(obj),
        deleting=is_deleting(obj),
        has_controller=controller_of(obj) is not None,
    )


def _wrapper_pod(
    pod: _Pod, key: NamespacedName, uid: str, *, deleting: bool, has_controller: bool
) -> WrapperPod:
    status = pod.status or PodStatus()
    spec = pod.spec or _PodSpec()
    return WrapperPod(
        phase=status.phase,
        reason=status.reason,
        node=spec.node_name,
        has_node=bool(spec.node_name),
        has_controller=has_controller,
        created=pod.metadata.creation_timestamp,
        deleting=deleting,
        forced=deleting and pod.metadata.deletion_grace_period_seconds == 0,
        end_requested_for=pod.metadata.deletion_timestamp or "",
        terminated=_terminations(status.container_statuses),
        init_terminated=_terminations(status.init_container_statuses),
        resources=_resources_of(spec.containers or ()),
        shape=PodShape(spec.containers, spec.init_containers, spec.overhead, spec.resources),
        key=key,
        uid=uid,
        status=status,
    )


def compact(pod: WrapperPod) -> WrapperPod:
    """Return a pod that takes little memory, without what only people read: tenants choose how large pods are."""
    requests: Quantities = {
        name: format_amount(amount) for name, amount in requests_of_pod(pod.shape).items()
    }
    return replace(
        pod,
        terminated=pod.terminated[:_MAX_KEPT],
        init_terminated=(),
        resources=frozenset(sorted(pod.resources)[:_MAX_KEPT]),
        shape=PodShape(containers=(ContainerShape(Resources(requests)),)),
        status=PodStatus(),
    )


def _resources_of(containers: Iterable[ContainerShape]) -> frozenset[str]:
    """Return the names of the resources that ``containers`` request or limit, unless it is to nothing."""
    found: set[str] = set()
    for container in containers:
        if container.resources is None:
            continue
        for amounts in (container.resources.limits, container.resources.requests):
            found.update(name for name, amount in (amounts or {}).items() if not is_zero(amount))
    return frozenset(found)


async def pods_of(entries: Iterable[Entry]) -> list[WrapperPod]:
    """Decode pods. Others run in between, because a tenant can create any number with the label."""
    found = []
    for entry in entries:
        found.append(pod_of(entry))
        if len(found) % _BATCH == 0:
            await checkpoint()
    return found


def _terminations(statuses: Iterable[ContainerStatus] | None) -> tuple[Termination, ...]:
    found: list[Termination] = []
    for container in statuses or ():
        end = container.state.terminated if container.state is not None else None
        if end is not None:
            found.append(
                Termination(container.name, end.exit_code, end.reason, end.finished_at or "")
            )
    return tuple(found)


WRAPPERS: Final = NamingLabel(APPWRAPPER_LABEL)
"""The AppWrappers that labels of pods name."""


def add_indexes(pods: Informer) -> None:
    """Add the indexes of this module to the informer of pods."""
    WRAPPERS.add_index(pods).add_index(_NODE_INDEX, _index_node)


def pods_on_node(pods: Reader, node: str) -> list[Entry]:
    """Return the pods that are scheduled to a node."""
    return pods.entries(index=(_NODE_INDEX, node))


def _index_node(pod: Entry) -> list[str]:
    node = pod_of(pod).node
    return [node] if node else []


@dataclass(frozen=True, slots=True)
class PodCounts:
    """The number of pods in each phase.

    ``terminal_failure``: a container ended with an exit code that makes the failure terminal. ``no_execute_nodes``: the
    nodes on which running pods have resources that they must not continue to use.
    """

    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    terminal_failure: bool = False
    no_execute_nodes: frozenset[str] = field(default_factory=frozenset)

    @property
    def existing(self) -> int:
        """The number of pods that have not failed."""
        return self.pending + self.running + self.succeeded

    @property
    def is_active(self) -> bool:
        """Whether a pod runs or waits."""
        return self.pending + self.running > 0


def count_pods(
    pods: Iterable[WrapperPod], settings: Settings, no_execute: Mapping[str, frozenset[str]]
) -> PodCounts:
    """Count ``pods`` by phase; ``no_execute`` are, by node, the resources that pods must not continue to use there.

    A running pod that is being deleted does not count; pods in other phases count until they no longer exist.
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


def last_end(pods: Iterable[WrapperPod]) -> datetime | None:
    """Return when the last container of ``pods`` ended; ``None`` if that is not known."""
    # Kubelets write all times in UTC and with the same precision, so that their order is that of the strings.
    ends: list[str] = []
    for pod in pods:
        ends += (end.at for end in pod.terminated)
    return time_or_none(max(ends, default=""))


def time_or_none(text: str) -> datetime | None:
    """Return an RFC 3339 time; ``None`` if ``text`` is not one."""
    try:
        return parse_time(text)
    except ValueError:
        return None


_MAX_NAMED: Final = 3
"""How many failed pods a message names, so that it remains readable and rarely changes."""

_MAX_CAUSES: Final = 2
_MAX_REASON_LENGTH: Final = 64


def failed_pods_message(pods: Iterable[WrapperPod]) -> str:
    """Return the number of failed pods and how the first of them, by name, failed."""
    failed = sorted((pod for pod in pods if pod.phase == "Failed"), key=lambda pod: pod.key)
    named = [f"{pod.key.name}{_cause(pod)}" for pod in failed[:_MAX_NAMED]]
    more = [f"{len(failed) - _MAX_NAMED} more"] if len(failed) > _MAX_NAMED else []
    return f"{len(failed)} failed pods: {', '.join(named + more)}"


def _cause(pod: WrapperPod) -> str:
    """Return why ``pod`` failed, in parentheses; empty if its status does not tell."""
    ends = [_end(end) for end in (*pod.init_terminated, *pod.terminated) if end.exit_code]
    causes = [pod.reason[:_MAX_REASON_LENGTH], *ends[:_MAX_NAMED]]
    shown = "; ".join(filter(None, causes))
    return f" ({shown})" if shown else ""


def _end(end: Termination) -> str:
    reason = "" if end.reason in ("", "Error") else f", {end.reason[:_MAX_REASON_LENGTH]}"
    return f"container {end.container}: exit code {end.exit_code}{reason}"


def waiting_pods_message(
    pods: Iterable[WrapperPod], missing: int, refusal: PodFailure | None = None
) -> str:
    """Return why pods wait, the most frequent causes first, and how many pods do not exist; each begins with ``; ``.

    The first pod is named whose containers were not created: its Events, which remain after it, say why.

    ``refusal``: why they do not exist, if that is known.
    """
    waiting = sorted((pod for pod in pods if pod.phase == "Pending"), key=lambda pod: pod.key)
    causes = Counter(_waiting_cause(pod.status) for pod in waiting)
    del causes[""]
    found = sorted(causes.items(), key=lambda item: (-item[1], item[0]))
    parts = []
    for cause, count in found[:_MAX_CAUSES]:
        shown = cause
        if cause in CREATING_REASONS:
            first = next(pod for pod in waiting if _waiting_cause(pod.status) == cause)
            shown = cause_with_pod(cause, first.key.name)
        parts.append(f"{count} waiting pods: {shown}")
    if len(found) > _MAX_CAUSES:
        parts.append(f"{len(found) - _MAX_CAUSES} more causes")
    if missing > 0:
        cause = f" ({refusal.reason}: {refusal.message})" if refusal is not None else ""
        parts.append(f"{missing} pods missing{cause}")
    return "".join(f"; {part}" for part in parts)


_MAX_EXAMINED: Final = 200


def first_failure(
    pods: Iterable[WrapperPod], phase: Literal["Pending", "Running"]
) -> PodFailure | None:
    """Return why a container of the first pod by name in this phase does not run; only 200 of them are examined."""
    found = sorted((pod for pod in pods if pod.phase == phase), key=lambda pod: pod.key)
    for pod in found[:_MAX_EXAMINED]:
        failure = failure_of(pod.status, MAX_WHOLE_MESSAGE)
        if failure is not None:
            return PodFailure(failure.reason, f"Pod {pod.key.name}: {failure.message}")
    return None


def failure_text(failure: PodFailure) -> str:
    """Return a failure as the message of a condition."""
    return f"{POD_FAILURE_PREFIX}{failure.reason}: {failure.message}"


def reported_failure(message: str) -> PodFailure | None:
    """Return the failure in the message of a condition; ``None`` if it contains none."""
    if not message.startswith(POD_FAILURE_PREFIX):
        return None
    reason, _, rest = message.removeprefix(POD_FAILURE_PREFIX).partition(": ")
    return PodFailure(reason, rest)


def _waiting_cause(status: PodStatus) -> str:
    """Return why a pod waits: what cannot start, or else why its first container waits; empty if nothing says it."""
    failure = failure_of(status)
    if failure is not None:
        return f"{failure.reason} ({failure.message})"
    for container in chain(status.init_container_statuses or (), status.container_statuses or ()):
        state = container.state
        if state is not None and state.waiting is not None and state.waiting.reason:
            return state.waiting.reason[:_MAX_REASON_LENGTH]
    return ""
