"""The logs of containers: lines of the scenario and of the test, selected as the kubelet does."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from envtest.apimachinery.clock import Clock
from envtest.apimachinery.errors import bad_request
from envtest.apimachinery.objects import Object
from envtest.scenarios.scenario import Scenario

__all__ = ["Line", "LogOptions", "container_status", "log_source", "select", "stream"]


class Line(NamedTuple):
    """A line with its time."""

    moment: datetime
    text: str


class LogOptions(NamedTuple):
    """The parameters of a request."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: datetime | None = None
    limit: int | None = None


def container_status(pod: Object, name: str) -> Mapping[str, Any]:
    """Return the status of a container, or an empty one."""
    status = pod.get("status") or {}
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for each in status.get(kind) or ():
            if each.get("name") == name:
                found: Mapping[str, Any] = each
                return found
    return {}


def log_source(pod: Object, container: str, *, previous: bool) -> Mapping[str, Any]:
    """Return the state of the run whose log is asked for. Raises StatusError (400) if it has none."""
    status = container_status(pod, container)
    name = pod["metadata"]["name"]
    state = status.get("state") or {}
    last = (status.get("lastState") or {}).get("terminated")
    if previous:
        if last is None:
            raise bad_request(
                f'previous terminated container "{container}" in pod "{name}" not found'
            )
        found: Mapping[str, Any] = last
        return found
    current: Mapping[str, Any] | None = state.get("running") or state.get("terminated") or last
    if current is None:
        reason = (state.get("waiting") or {}).get("reason", "")
        why = {
            "ErrImagePull": "image can't be pulled",
            "ImagePullBackOff": "trying and failing to pull image",
        }
        text = f": {why.get(reason, reason)}" if reason else " - no logs yet"
        raise bad_request(f'container "{container}" in pod "{name}" is waiting to start{text}')
    return current


class _Source:
    """The lines of one run of a container; each is returned once."""

    def __init__(self, scenario: Scenario, pod: Object, container: str, *, previous: bool) -> None:
        run = log_source(pod, container, previous=previous)
        start = datetime.fromisoformat(run["startedAt"])
        end = datetime.fromisoformat(run["finishedAt"]) if run.get("finishedAt") else None
        behavior = scenario.behavior_of(pod)
        data = (behavior.previous_logs if previous else behavior.logs) or {}
        lines = [
            Line(start + timedelta(seconds=each.after), each.text)
            for each in data.get(container) or data.get("*") or ()
        ]
        self._pending = deque(line for line in lines if end is None or line.moment <= end)
        self._scenario = scenario
        self._previous = previous
        self._key = (pod["metadata"]["namespace"], pod["metadata"]["name"], container)
        self._position = (0, 0)

    def take(self, now: datetime) -> list[Line]:
        """Return the lines until now that were not returned before, in the order of their times."""
        lines = []
        while self._pending and self._pending[0].moment <= now:
            lines.append(self._pending.popleft())
        if not self._previous:
            logged, self._position = self._scenario.lines(*self._key, self._position)
            lines += [Line(*line) for line in logged]
        return sorted(lines, key=lambda line: line.moment)

    def seconds_until_next(self, now: datetime) -> float | None:
        """Return the seconds until the next line of the scenario, or ``None``."""
        return (self._pending[0].moment - now).total_seconds() if self._pending else None


def _format(line: Line, *, timestamps: bool) -> bytes:
    prefix = line.moment.strftime("%Y-%m-%dT%H:%M:%S.%f000Z ") if timestamps else ""
    return f"{prefix}{line.text}\n".encode()


def select(lines: list[Line], options: LogOptions) -> list[Line]:
    """Return the lines that ``since`` and ``tail`` select."""
    if options.since is not None:
        lines = [line for line in lines if line.moment >= options.since]
    if options.tail is not None:
        lines = lines[len(lines) - options.tail :] if options.tail < len(lines) else lines
    return lines


class _Limit:
    """Cuts the output after a number of bytes."""

    def __init__(self, size: int | None) -> None:
        self._left = size

    @property
    def is_reached(self) -> bool:
        return self._left == 0

    def cut(self, data: bytes) -> bytes:
        if self._left is None:
            return data
        data = data[: self._left]
        self._left -= len(data)
        return data


async def stream(
    scenario: Scenario,
    clock: Clock,
    read: Callable[[], Object | None],
    container: str,
    options: LogOptions,
) -> AsyncGenerator[bytes, None]:
    """Yield the log of a container; with ``follow``, until the container ends or the pod is deleted.

    ``read`` returns the current pod, or ``None``. Raises StatusError before the first bytes.
    """
    pod = read()
    if pod is None:
        return
    namespace = pod["metadata"]["namespace"]
    name = pod["metadata"]["name"]
    uid = pod["metadata"]["uid"]
    limit = _Limit(options.limit)
    source = _Source(scenario, pod, container, previous=options.previous)
    event = scenario.follow(namespace, name)
    try:
        now = clock.now()
        lines = select(source.take(now), options)
        while True:
            for line in lines:
                if not limit.is_reached:
                    yield limit.cut(_format(line, timestamps=options.timestamps))
            running = pod is not None and (container_status(pod, container).get("state") or {}).get(
                "running"
            )
            if not options.follow or options.previous or limit.is_reached or not running:
                return
            await _wait(event, clock, source.seconds_until_next(now))
            event.clear()
            now = clock.now()
            lines = source.take(now)
            pod = read()
            if pod is not None and pod["metadata"]["uid"] != uid:
                pod = None
    finally:
        scenario.unfollow(namespace, name, event)


async def _wait(event: asyncio.Event, clock: Clock, seconds: float | None) -> None:
    timer = None if seconds is None else clock.call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        if timer is not None:
            timer.cancel()
