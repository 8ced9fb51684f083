"""The statuses of ephemeral containers, which ``kubectl debug`` adds to a pod that runs."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from envtest.apimachinery.objects import Object

__all__ = ["ended_ephemeral_statuses", "ephemeral_statuses"]

_KILLED: Final = 137


def ephemeral_statuses(pod: Object, now: str) -> list[dict[str, Any]] | None:
    """Return the statuses of the ephemeral containers of a running pod: each starts at once and is never restarted."""
    known = {
        status["name"]: status
        for status in (pod.get("status") or {}).get("ephemeralContainerStatuses") or ()
    }
    statuses = [
        known.get(container["name"]) or _running(pod, container, now)
        for container in pod["spec"].get("ephemeralContainers") or ()
    ]
    return statuses or None


def ended_ephemeral_statuses(pod: Object, now: str) -> list[dict[str, Any]] | None:
    """Return the statuses after the pod has ended, which kills the ephemeral containers that still run."""
    statuses = []
    for status in (pod.get("status") or {}).get("ephemeralContainerStatuses") or ():
        running = (status.get("state") or {}).get("running")
        if running is None:
            statuses.append(status)
            continue
        ended = {
            "exitCode": _KILLED,
            "reason": "Error",
            "startedAt": running.get("startedAt") or now,
            "finishedAt": now,
        }
        statuses.append({**status, "state": {"terminated": ended}})
    return statuses or None


def _running(pod: Object, container: Object, now: str) -> dict[str, Any]:
    image = container.get("image") or ""
    digest = hashlib.sha256(f"{pod['metadata']['uid']}/{container['name']}".encode()).hexdigest()
    return {
        "name": container["name"],
        "image": image,
        "imageID": f"envtest://{image}",
        "containerID": f"envtest://{digest}",
        "ready": False,
        "restartCount": 0,
        "state": {"running": {"startedAt": now}},
        "lastState": {},
    }
