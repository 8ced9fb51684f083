"""The status of cached pods, and why a pod does not run."""

from __future__ import annotations

from typing import Final

import msgspec

from cfo.api.waiting_reasons import CRASH_LOOP, OOM_KILLED, WAITING_REASONS
from cfo.controllers.cached_fields import CachedCondition, field_reader
from cfo.runtime import Event


class Terminated(msgspec.Struct, gc=False, rename="camel"):
    """The end of a run of a container."""

    exit_code: int = 0
    reason: str = ""
    finished_at: str | None = None


class _Waiting(msgspec.Struct, gc=False):
    reason: str = ""
    message: str = ""


class _State(msgspec.Struct, gc=False):
    waiting: _Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, gc=False, rename="camel"):
    """The status of one container."""

    name: str = ""
    ready: bool = True
    restart_count: int = 0
    state: _State | None = None
    last_state: _State | None = None


class PodStatus(msgspec.Struct, gc=False, rename="camel"):
    """The status of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[CachedCondition, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None


status_of_pod = field_reader("status", kind=PodStatus, default=PodStatus())
"""Return the status of a pod; empty if it has none."""

_MAX_MESSAGE: Final = 300
_MAX_REASON: Final = 80

ERROR: Final = "Error"
"""Kubelet's reason for the end of a container with an exit code other than 0, of which it knows no more."""

MAX_WHOLE_MESSAGE: Final = 800
"""The limit for a message of its own: an Event of at most 1,024 bytes has room for it and the names before it."""


class PodFailure(msgspec.Struct, frozen=True):
    """The reason why a pod does not run, in CamelCase, and a sentence about it."""

    reason: str
    message: str


def failure_has_changed(event: Event) -> bool:
    """Return whether the failure of a pod began, changed or ended."""
    before = failure_of(status_of_pod(event.old)) if event.old is not None else None
    after = failure_of(status_of_pod(event.new)) if event.new is not None else None
    return before != after


def failure_of(status: PodStatus, limit: int = _MAX_MESSAGE) -> PodFailure | None:
    """Return why a pod does not run, in at most ``limit`` characters; ``None`` if it runs, or is only starting."""
    for condition in status.conditions or ():
        if (
            condition.type == "PodScheduled"
            and condition.status == "False"
            and condition.reason == "Unschedulable"
        ):
            return PodFailure(
                "Unschedulable", shortened(condition.message or "no node fits", limit)
            )
    if status.phase == "Failed" and status.reason:
        return PodFailure(
            _reason(status.reason, "PodFailed"),
            shortened(status.message or "the pod failed", limit),
        )
    for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        if (failure := _container_failure(container, limit)) is not None:
            return failure
    return None


_IMAGE_REASONS: Final = frozenset({"ErrImagePull", "ImagePullBackOff"})


def is_same_failure(known: PodFailure, failure: PodFailure) -> bool:
    """Return whether both are about the image of one container of one pod: the reason alternates with each attempt."""
    if known.reason not in _IMAGE_REASONS or failure.reason not in _IMAGE_REASONS:
        return False
    return _subject(known.message) == _subject(failure.message)


def _subject(message: str) -> str:
    """Return the part of the message of a failure that names the container, and its pod if that is named."""
    subject, _, _ = message.partition("container ")
    container, _, _ = message.removeprefix(subject).partition(":")
    return subject + container


def _container_failure(container: ContainerStatus, limit: int) -> PodFailure | None:
    state = container.state
    waiting = state.waiting if state is not None else None
    terminated = container.last_state.terminated if container.last_state is not None else None
    is_crashing = waiting is not None and waiting.reason == CRASH_LOOP
    runs = state is not None and waiting is None and state.terminated is None
    is_starting = is_crashing or (runs and not container.ready)
    if terminated is not None and terminated.reason == OOM_KILLED and is_starting:
        message = (
            f"container {container.name} used more memory than its limit, "
            f"{container.restart_count} restarts"
        )
        return PodFailure(OOM_KILLED, shortened(message, limit))
    if waiting is None:
        return None
    if is_crashing:
        ended = (
            f"exited with code {terminated.exit_code}"
            if terminated is not None
            else "exits repeatedly"
        )
        cause = (
            f" ({terminated.reason})"
            if terminated is not None and terminated.reason not in ("", "Error")
            else ""
        )
        message = f"container {container.name} {ended}{cause}, {container.restart_count} restarts"
        return PodFailure(CRASH_LOOP, shortened(message, limit))
    if waiting.reason in WAITING_REASONS:
        message = f"container {container.name}: {waiting.message}".rstrip(": ")
        return PodFailure(waiting.reason, shortened(message, limit))
    return None


_LOST_REASONS: Final = frozenset({"ContainerStatusUnknown", "Unknown"})
"""Reasons of kubelet and containerd for the end of a container that they lost, as when its node was restarted."""


def failed_by_itself(status: PodStatus, ended: Terminated) -> bool:
    """Return whether a container ended with an error, and neither was its pod evicted, nor did the node lose it.

    That a pod is being deleted is not in its status.
    """
    is_disrupted = any(
        condition.type == "DisruptionTarget" and condition.status == "True"
        for condition in status.conditions or ()
    )
    return ended.exit_code != 0 and not is_disrupted and ended.reason not in _LOST_REASONS


def end_reason(ended: Terminated) -> str:
    """Return kubelet's reason for the end of a container with an error, such as ``OOMKilled``, in CamelCase."""
    return _reason(ended.reason, ERROR)


def _reason(text: str, default: str) -> str:
    is_valid = text.isascii() and text.isalnum() and text[0].isalpha() and len(text) <= _MAX_REASON
    return text if is_valid else default


def shortened(message: str, limit: int = _MAX_MESSAGE) -> str:
    """Return at most ``limit`` characters of ``message``."""
    return message if len(message) <= limit else message[: limit - 3] + "..."
