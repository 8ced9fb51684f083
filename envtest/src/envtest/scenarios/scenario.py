"""The scenario of one control plane: its data, the callbacks of tests, and the lines that tests log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from envtest.apimachinery.objects import Object, annotations_of
from envtest.scenarios.fields import Fields, ScenarioError
from envtest.scenarios.loader import load_document, read_nodes, read_rules
from envtest.simulation.model import DEFAULT_CAPACITY, Behavior, Match, NodeTemplate, Run

__all__ = [
    "ANNOTATIONS",
    "DEFAULT_NODE",
    "Callback",
    "Scenario",
    "ScenarioError",
    "annotated_behavior",
]

ANNOTATIONS: Final = "envtest.cfo/"
DEFAULT_NODE: Final = "envtest"
MAX_LINES: Final = 10_000
"""The most lines of a container that a test logs; older ones are dropped."""

_MAX_LOGS: Final = 10_000
_FOREVER: Final = 100 * 365 * 86400.0

F = TypeVar("F", bound=Callable[..., Any])


class Callback(NamedTuple):
    """A function of a test that answers the requests to pods that match."""

    match: Match
    function: Callable[..., Any]


class _Log:
    """The latest lines of a container; a position counts all lines that were ever added."""

    def __init__(self) -> None:
        self._lines: list[tuple[datetime, str]] = []
        self._dropped = 0

    @property
    def end(self) -> int:
        return self._dropped + len(self._lines)

    def add(self, lines: list[tuple[datetime, str]]) -> None:
        self._lines += lines
        if len(self._lines) > 2 * MAX_LINES:
            extra = len(self._lines) - MAX_LINES
            del self._lines[:extra]
            self._dropped += extra

    def since(self, position: int) -> list[tuple[datetime, str]]:
        return self._lines[max(0, position - self._dropped, len(self._lines) - MAX_LINES) :]

    def fork(self) -> _Log:
        copied = _Log()
        copied._lines = list(self._lines)
        copied._dropped = self._dropped
        return copied


class Scenario:
    """Reads ``source``, a YAML or JSON file or a mapping. Raises ScenarioError, and OSError for the file.

    Without ``nodes`` there is the node ``envtest``. Tests answer with functions, which may be coroutines:
    :meth:`on_exec`, :meth:`on_attach` and :meth:`on_port_forward` are decorators. :meth:`log` adds lines to logs.
    """

    def __init__(self, source: Path | str | Mapping[str, Any] | None = None) -> None:
        file = f"{source}: " if isinstance(source, Path | str) else ""
        if source is None:
            source = {}
        document = load_document(source)
        try:
            fields = Fields(document, "", ("nodes", "pods"))
            nodes = read_nodes(fields)
            self.rules = read_rules(fields)
        except ScenarioError as error:
            raise ScenarioError(f"{file}{error}") from None
        self.nodes: tuple[NodeTemplate, ...] = (
            (NodeTemplate(DEFAULT_NODE, capacity={**DEFAULT_CAPACITY, "pods": "1000"}),)
            if nodes is None
            else nodes
        )
        self._numbers: list[dict[str, int]] = [{} for _ in self.rules]
        self._counts = [0 for _ in self.rules]
        self._exec: list[Callback] = []
        self._attach: list[Callback] = []
        self._forward: list[Callback] = []
        self._lines: dict[tuple[str, str, str], _Log] = {}
        self._followers: dict[tuple[str, str], set[asyncio.Event]] = {}
        self._connections: set[asyncio.Task[Any]] = set()
        self.now: Callable[[], datetime] = datetime.now
        """The time of the plane, set when it starts."""

    def fork(self) -> Scenario:
        """Return a copy for a copy of the control plane: callbacks, lines and counts are the same at first."""
        copied = Scenario.__new__(Scenario)
        copied.__dict__.update(self.__dict__)
        copied._numbers = [dict(each) for each in self._numbers]
        copied._counts = list(self._counts)
        copied._exec = list(self._exec)
        copied._attach = list(self._attach)
        copied._forward = list(self._forward)
        copied._lines = {key: log.fork() for key, log in self._lines.items()}
        copied._followers = {}
        copied._connections = set()
        return copied

    def behavior_of(self, pod: Object) -> Behavior:
        """Return what happens to a pod: for each field, the first rule that matches and sets it applies."""
        behavior = Behavior()
        uid = pod["metadata"]["uid"]
        for rule, numbers in zip(self.rules, self._numbers, strict=True):
            if rule.match.matches(pod) and (
                not rule.match.starts or numbers.get(uid) in rule.match.starts
            ):
                behavior = behavior.completed_by(rule.behavior)
        return behavior.completed_by(annotated_behavior(pod))

    def ports_of(self, pod: Object) -> Mapping[int, tuple[str, int]]:
        """Return the local host and port for each port of a pod."""
        return self.behavior_of(pod).ports or {}

    def start(self, pod: Object) -> None:
        """Number a pod that the kubelet sees for the first time, for the rules that count pods."""
        uid = pod["metadata"]["uid"]
        for index, rule in enumerate(self.rules):
            if rule.match.starts and uid not in self._numbers[index] and rule.match.matches(pod):
                self._counts[index] += 1
                self._numbers[index][uid] = self._counts[index]

    def forget(self, namespace: str, name: str, uid: str) -> None:
        """Forget a deleted pod and its lines, and end its logs that are followed."""
        for numbers in self._numbers:
            numbers.pop(uid, None)
        for key in [key for key in self._lines if key[:2] == (namespace, name)]:
            del self._lines[key]
        self.touch(namespace, name)

    @staticmethod
    def _register(callbacks: list[Callback], match: Match) -> Callable[[F], F]:
        def register(function: F) -> F:
            callbacks.insert(0, Callback(match, function))
            return function

        return register

    def on_exec(
        self, *, labels: Mapping[str, str] | None = None, namespace: str = "", name: str = ""
    ) -> Callable[[F], F]:
        """Decorate a function that answers the commands of exec in the pods that match; the latest one is asked first.

        It receives an :class:`~envtest.scenarios.answers.ExecCall`, and returns the exit code, or stdout as a string.
        """
        return self._register(self._exec, Match(dict(labels or {}), namespace, name))

    def on_attach(
        self, *, labels: Mapping[str, str] | None = None, namespace: str = "", name: str = ""
    ) -> Callable[[F], F]:
        """Decorate a function that answers attach, like :meth:`on_exec`; ``command`` is empty."""
        return self._register(self._attach, Match(dict(labels or {}), namespace, name))

    def on_port_forward(
        self, *, labels: Mapping[str, str] | None = None, namespace: str = "", name: str = ""
    ) -> Callable[[F], F]:
        """Decorate a function that answers the connections of port-forward to the pods that match.

        It receives a :class:`~envtest.scenarios.answers.PortCall`; the connection ends when it returns.
        """
        return self._register(self._forward, Match(dict(labels or {}), namespace, name))

    def callback(self, kind: str, pod: Object) -> Callable[..., Any] | None:
        """Return the function that answers ``exec``, ``attach`` or ``forward`` for a pod."""
        callbacks = {"exec": self._exec, "attach": self._attach, "forward": self._forward}[kind]
        return next((each.function for each in callbacks if each.match.matches(pod)), None)

    def log(self, namespace: str, name: str, *lines: str, container: str = "") -> None:
        """Add lines to the log of a pod's container, at the current time; without ``container``, to all of them.

        The pod can be created later. Raises ValueError if too many containers have logs.
        """
        key = (namespace, name, container)
        if key not in self._lines and len(self._lines) >= _MAX_LOGS:
            raise ValueError(f"logs of more than {_MAX_LOGS} containers")
        moment = self.now()
        self._lines.setdefault(key, _Log()).add([(moment, line) for line in lines])
        self.touch(namespace, name)

    def lines(
        self, namespace: str, name: str, container: str, after: tuple[int, int] = (0, 0)
    ) -> tuple[list[tuple[datetime, str]], tuple[int, int]]:
        """Return the lines that :meth:`log` added after a position, and the next position."""
        logs = [self._lines.get((namespace, name, each), _Log()) for each in (container, "")]
        lines = [
            line for log, position in zip(logs, after, strict=True) for line in log.since(position)
        ]
        return lines, (logs[0].end, logs[1].end)

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Register the current task as a connection to a pod, which :meth:`disconnect` ends."""
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            yield
        finally:
            self._connections.discard(task)

    def disconnect(self) -> None:
        """End all connections to pods, because the control plane stops."""
        for task in list(self._connections):
            task.cancel()

    def touch(self, namespace: str, name: str) -> None:
        """Wake up the logs of a pod that are followed."""
        for event in self._followers.get((namespace, name), ()):
            event.set()

    def follow(self, namespace: str, name: str) -> asyncio.Event:
        """Return an event that is set when the pod or its log changes; pass it to :meth:`unfollow`."""
        event = asyncio.Event()
        self._followers.setdefault((namespace, name), set()).add(event)
        return event

    def unfollow(self, namespace: str, name: str, event: asyncio.Event) -> None:
        """End :meth:`follow`."""
        events = self._followers.get((namespace, name), set())
        events.discard(event)
        if not events:
            self._followers.pop((namespace, name), None)


def annotated_behavior(pod: Object) -> Behavior:
    """Return the behavior that the annotations ``envtest.cfo/...`` of a pod describe."""
    annotations = {
        name.removeprefix(ANNOTATIONS): value
        for name, value in annotations_of(pod).items()
        if name.startswith(ANNOTATIONS)
    }
    if not annotations:
        return Behavior()

    def seconds(name: str) -> float | None:
        try:
            return (
                max(0.0, min(float(annotations[name]), _FOREVER)) if name in annotations else None
            )
        except ValueError:
            return None

    phase = annotations.get("phase")
    code = annotations.get("exit-code", "")
    runs = None
    if phase in ("Succeeded", "Failed"):
        exit_code = 0
        if phase == "Failed":
            exit_code = int(code) if code.isdigit() and int(code) else 1
        runs = {"*": (Run(seconds("finish-after") or 0.0, exit_code),)}
    return Behavior(
        start_after=_FOREVER if phase == "Pending" else seconds("start-after"),
        ready=False if annotations.get("ready") == "false" else None,
        stop_after=seconds("stop-after"),
        runs=runs,
    )
