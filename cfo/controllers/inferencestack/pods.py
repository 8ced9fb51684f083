"""Why pods of a stack do not run: the failures that a user must know, read from the status of the pods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from cfo.api.inferencestack.names import COMPONENT_LABEL, INSTANCE_LABEL
from cfo.runtime import Entry, Event, Informer, Reader, Request

__all__ = ["PodFailure", "add_index", "failure_has_changed", "failure_of", "pod_failure", "stack_of"]

_INDEX: Final = "inferencestack-component"
_MAX_MESSAGE: Final = 300
_CREATION_FAILURES: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
"""Reasons of waiting containers that do not resolve without a change."""


class _Terminated(msgspec.Struct, gc=False, rename="camel"):
    exit_code: int = 0
    reason: str = ""


class _Waiting(msgspec.Struct, gc=False):
    reason: str = ""
    message: str = ""


class _State(msgspec.Struct, gc=False):
    waiting: _Waiting | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    restart_count: int = 0
    state: _State | None = None
    last_state: _State | None = None


class _Condition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct, gc=False, rename="camel"):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[_Condition, ...] | None = None
    init_container_statuses: tuple[_ContainerStatus, ...] | None = None
    container_statuses: tuple[_ContainerStatus, ...] | None = None


class _Pod(msgspec.Struct, gc=False):
    status: _Status | None = None


_decoder = msgspec.json.Decoder(_Pod)


class PodFailure(NamedTuple):
    """The reason why a pod does not run, in CamelCase, and a sentence about it."""

    reason: str
    message: str


def add_index(pods: Informer) -> None:
    """Index the pods by stack and component, for :func:`pod_failure`."""
    pods.add_index(_INDEX, _components)


def _components(pod: Entry) -> Iterable[str]:
    labels = pod.meta.labels
    return (_index_value(pod.key.namespace, labels.get(INSTANCE_LABEL, ""), labels.get(COMPONENT_LABEL, "")),)


def _index_value(namespace: str, stack: str, component: str) -> str:
    return f"{namespace}/{stack}/{component}"


def stack_of(pod: Entry) -> Request:
    """Return the name of the stack that a pod's labels name."""
    return Request(pod.key.namespace, pod.meta.labels.get(INSTANCE_LABEL, ""))


def pod_failure(pods: Reader, stack: Request, component: str) -> PodFailure | None:
    """Return the failure of the newest pod of a component that has one, or ``None``."""
    found = pods.entries(index=(_INDEX, _index_value(stack.namespace, stack.name, component)))
    newest_first = sorted(found, key=lambda pod: (pod.meta.creation_timestamp, pod.key.name), reverse=True)
    for pod in newest_first:
        if not pod.meta.is_deleting and (failure := failure_of(pod)) is not None:
            return failure
    return None


def failure_has_changed(event: Event) -> bool:
    """Return whether the failure of a pod began, changed or ended."""
    return _failure(event.old) != _failure(event.new)


def _failure(pod: Entry | None) -> PodFailure | None:
    return failure_of(pod) if pod is not None else None


def failure_of(pod: Entry) -> PodFailure | None:
    """Return why ``pod`` does not run; ``None`` if it runs, or is only starting."""
    status = _decoder.decode(pod.raw).status
    if status is None:
        return None
    for condition in status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable":
            return PodFailure("Unschedulable", _shortened(condition.message or "no node fits"))
    if status.phase == "Failed" and status.reason:
        return PodFailure(_reason(status.reason), _shortened(status.message or f"pod {pod.key.name} failed"))
    for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        if (failure := _container_failure(container)) is not None:
            return failure
    return None


def _container_failure(container: _ContainerStatus) -> PodFailure | None:
    waiting = container.state.waiting if container.state is not None else None
    terminated = container.last_state.terminated if container.last_state is not None else None
    if waiting is None:
        return None
    if waiting.reason == "CrashLoopBackOff":
        ended = f"exited with code {terminated.exit_code}" if terminated is not None else "exits repeatedly"
        cause = f" ({terminated.reason})" if terminated is not None and terminated.reason not in ("", "Error") else ""
        message = f"container {container.name} {ended}{cause}, {container.restart_count} restarts"
        return PodFailure("CrashLoopBackOff", message)
    if waiting.reason in _CREATION_FAILURES:
        return PodFailure(waiting.reason, _shortened(f"container {container.name}: {waiting.message}".rstrip(": ")))
    return None


def _reason(text: str) -> str:
    return text if text.isascii() and text.isalnum() and text[0].isalpha() else "PodFailed"


def _shortened(message: str) -> str:
    return message if len(message) <= _MAX_MESSAGE else message[: _MAX_MESSAGE - 3] + "..."
