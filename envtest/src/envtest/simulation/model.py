"""The data of a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from envtest.apimachinery.objects import Object, controller_of, labels_of

__all__ = [
    "DEFAULT_CAPACITY",
    "Behavior",
    "CommandAnswer",
    "Eviction",
    "ImageProblem",
    "LogLine",
    "Match",
    "NodeFailure",
    "NodeTemplate",
    "PodRule",
    "Run",
]

DEFAULT_CAPACITY: Final = {"cpu": "64", "memory": "256Gi", "pods": "110"}


class NodeFailure(NamedTuple):
    """After ``after`` seconds of the plane, a node is not ready (``lost``: unreachable), for ``seconds`` or forever."""

    after: float
    seconds: float | None
    lost: bool


@dataclass(frozen=True)
class NodeTemplate:
    """A node that the scenario creates."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[dict[str, str], ...] = ()
    unschedulable: bool = False
    capacity: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_CAPACITY))
    allocatable: Mapping[str, str] = field(default_factory=dict)
    failures: tuple[NodeFailure, ...] = ()


class Run(NamedTuple):
    """How a container ends: after ``after`` seconds with an exit code; ``None`` is a container that keeps running."""

    after: float | None = None
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class ImageProblem(NamedTuple):
    """The images of ``containers`` (all, if it is empty) cannot be pulled, for ``seconds`` or forever."""

    reason: str
    message: str
    seconds: float | None
    containers: tuple[str, ...]


class Eviction(NamedTuple):
    """The kubelet evicts the pod ``after`` seconds."""

    after: float
    message: str


class LogLine(NamedTuple):
    """A line of the log, ``after`` seconds since the container started."""

    after: float
    text: str


class CommandAnswer(NamedTuple):
    """What a command answers; ``command`` are patterns of its arguments, and none match any command.

    ``echo`` copies stdin to stdout.
    """

    command: tuple[str, ...]
    container: str
    stdout: str
    stderr: str
    exit_code: int
    echo: bool
    after: float

    def matches(self, command: list[str], container: str) -> bool:
        """Return whether this answers a command in a container."""
        if self.container not in ("", container):
            return False
        if not self.command:
            return True
        return len(command) == len(self.command) and all(map(fnmatchcase, command, self.command))


@dataclass(frozen=True)
class Match:
    """Which pods a rule concerns. ``starts`` are the numbers of matching pods, in the order in which they start."""

    labels: Mapping[str, str] = field(default_factory=dict)
    namespace: str = ""
    name: str = ""
    owner_kind: str = ""
    owner_name: str = ""
    node: str = ""
    starts: tuple[int, ...] = ()

    def matches(self, pod: Object) -> bool:
        """Return whether a pod matches, whatever its number is. Names are patterns with ``*`` and ``?``."""
        metadata = pod["metadata"]
        labels = labels_of(pod)
        if any(labels.get(name) != value for name, value in self.labels.items()):
            return False
        owner = controller_of(pod) or {}
        node = (pod.get("spec") or {}).get("nodeName") or ""
        patterns = (
            (metadata.get("namespace") or "", self.namespace),
            (metadata.get("name") or "", self.name),
            (owner.get("kind") or "", self.owner_kind),
            (owner.get("name") or "", self.owner_name),
            (node, self.node),
        )
        return all(not pattern or fnmatchcase(text, pattern) for text, pattern in patterns)


@dataclass(frozen=True)
class Behavior:
    """What happens to a pod; ``None`` leaves it to the next rule, and finally to the default.

    ``runs`` are those of each container, or of ``*``; the last run of a container repeats.
    """

    start_after: float | None = None
    ready: bool | None = None
    ready_after: float | None = None
    stop_after: float | None = None
    image: ImageProblem | None = None
    runs: Mapping[str, tuple[Run, ...]] | None = None
    evict: Eviction | None = None
    exec: tuple[CommandAnswer, ...] | None = None
    attach: CommandAnswer | None = None
    logs: Mapping[str, tuple[LogLine, ...]] | None = None
    previous_logs: Mapping[str, tuple[LogLine, ...]] | None = None
    ports: Mapping[int, tuple[str, int]] | None = None

    def completed_by(self, other: Behavior) -> Behavior:
        """Return this behavior, with what it leaves open taken from ``other``."""
        values: dict[str, Any] = {}
        for each in fields(self):
            own = getattr(self, each.name)
            values[each.name] = getattr(other, each.name) if own is None else own
        return Behavior(**values)


class PodRule(NamedTuple):
    """What happens to the pods that match."""

    match: Match
    behavior: Behavior
