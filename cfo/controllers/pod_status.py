"""The status of pods, decoded from the cache; only the fields that controllers read."""

from __future__ import annotations

import msgspec


class _Terminated(msgspec.Struct, gc=False, rename="camel"):
    exit_code: int = 0
    reason: str = ""


class _Waiting(msgspec.Struct, gc=False):
    reason: str = ""
    message: str = ""


class _State(msgspec.Struct, gc=False):
    waiting: _Waiting | None = None
    terminated: _Terminated | None = None


class ContainerStatus(msgspec.Struct, gc=False, rename="camel"):
    """The status of one container."""

    name: str = ""
    restart_count: int = 0
    state: _State | None = None
    last_state: _State | None = None


class _Condition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class PodStatus(msgspec.Struct, gc=False, rename="camel"):
    """The status of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[_Condition, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None


class _Pod(msgspec.Struct, gc=False):
    status: PodStatus | None = None


_decoder = msgspec.json.Decoder(_Pod)


def status_of(pod: bytes) -> PodStatus:
    """Return the status in the JSON of a pod; empty if it has none."""
    return _decoder.decode(pod).status or PodStatus()
