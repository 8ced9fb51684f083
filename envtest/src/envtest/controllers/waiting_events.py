"""The kubelet's Events about containers that wait because of a failure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from envtest.apimachinery.objects import Object
from envtest.controllers.events import EventRecorder

__all__ = ["report_waiting"]

_IMAGE_FAILURES: Final = frozenset(
    {"ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"}
)


async def report_waiting(events: EventRecorder, pod: Object, changes: Mapping[str, Any]) -> None:
    """Record an Event about each container of ``pod`` that has begun to wait because of a failure.

    ``changes`` are the new fields of the status of ``pod``.
    """
    before = _waiting_reasons(pod.get("status") or {})
    for (name, reason), message in _waiting_reasons(changes).items():
        if (name, reason) in before:
            continue
        if reason == "CrashLoopBackOff":
            where = message.partition(" pod=")[2]
            text = f"Back-off restarting failed container {name} in pod {where}"
            await events.warning(pod, "BackOff", text)
        elif reason in _IMAGE_FAILURES:
            await events.warning(pod, "Failed", f"Error: {reason}: {message}")
        elif reason == "ImagePullBackOff":
            await events.normal(pod, "BackOff", message.partition(": ErrImagePull")[0])


def _waiting_reasons(status: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Return the messages of the containers that wait, by name and reason."""
    found = {}
    for kind in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(kind) or ():
            waiting = (each.get("state") or {}).get("waiting") or {}
            if waiting:
                found[each["name"], waiting.get("reason", "")] = waiting.get("message", "")
    return found
