"""The status of a FluxSetup: pure functions."""

from __future__ import annotations

import copy
from datetime import datetime
from typing import Any

from cfo.api.flux import ACTIVE
from cfo.controllers.flux.queue.governance import READY, REPLACED, Setup
from cfo.controllers.flux.queue.ledger import Totals
from cfo.runtime import NamespacedName, Object, find_condition, set_condition
from cfo.runtime.process import micro_time

__all__ = ["desired_status", "is_only_numbers"]


def desired_status(
    obj: Object, setup: Setup, replacement: NamespacedName | None, totals: Totals, now: datetime
) -> Object:
    """Return the status of the FluxSetup ``obj``; ``replacement`` is the newer setup that governs instead."""
    conditions: list[Object] = copy.deepcopy((obj.get("status") or {}).get("conditions") or [])
    if setup.problem is not None:
        active, reason, message = False, *setup.problem
    elif replacement is not None:
        active, reason = False, REPLACED
        message = f"FluxSetup {replacement} is newer, or in the same namespace as the jobs"
    else:
        active, reason, message = True, READY, "The FluxSetup governs FluxJobs"
    condition: dict[str, Any] = {
        "type": ACTIVE,
        "status": str(active),
        "reason": reason,
        "message": message,
        "observedGeneration": setup.generation,
    }
    set_condition(conditions, condition, now=micro_time(now))
    return {
        "conditions": conditions,
        "observedGeneration": setup.generation,
        "usedResources": totals.pods,
        "admittedWorkloads": totals.admitted,
        "pendingWorkloads": totals.pending,
    }


def is_only_numbers(before: Object, after: Object) -> bool:
    """Return whether two statuses differ in nothing but their numbers, so that the change can be written later."""
    old, new = (find_condition(status.get("conditions"), ACTIVE) for status in (before, after))
    return old == new and before.get("observedGeneration") == after.get("observedGeneration")
