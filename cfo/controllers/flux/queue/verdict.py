"""What the queue reports about a FluxJob: the reason and message that its status shows, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from cfo.api.quantity import format_quantity
from cfo.controllers.flux.queue.governance import Setup
from cfo.controllers.flux.queue.model import Blocked, Demand

__all__ = [
    "ADMITTED",
    "EVICTED_BY_QUEUE",
    "KUEUE",
    "NAME_TAKEN",
    "NO_PRIORITY_CLASS",
    "NO_SETUP",
    "REFUSED",
    "SUSPENDED",
    "Verdict",
    "blocked_message",
    "position_changed",
]

ADMITTED: Final = "Admitted"
EVICTED_BY_QUEUE: Final = "Preempted"
KUEUE: Final = "WaitingForKueue"
NAME_TAKEN: Final = "NameTaken"
NO_PRIORITY_CLASS: Final = "PriorityClassNotFound"
NO_SETUP: Final = "NoFluxSetup"
REFUSED: Final = "MiniClusterRefused"
SUSPENDED: Final = "Suspended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the queue has decided about a FluxJob.

    ``reason`` is one of this module's constants, or the value of a :class:`.Blocked`. ``position`` is its place in the
    queue, from 1; 0 if it has none. ``setup`` is the FluxSetup that governs it. ``kueue_queue``: the LocalQueue of
    Kueue that admits it instead.
    """

    reason: str
    message: str
    position: int = 0
    setup: str = ""
    kueue_queue: str = ""


def blocked_message(reason: Blocked, demand: Demand, setup: Setup) -> str:
    """Return the message of a job that waits for quota.

    It depends only on the job and its setup, so that it changes as rarely as the reason.
    """
    name = setup.key
    if reason is Blocked.TOO_LARGE:
        return f"Needs {_amounts(demand, setup)}, which is more than FluxSetup {name} allows in total"
    if reason is Blocked.BEHIND:
        return f"Waiting behind another job in the queue of FluxSetup {name} ({setup.policy.strategy})"
    if reason is Blocked.RELEASING:
        return f"Waiting until evicted jobs have released {_amounts(demand, setup)} of FluxSetup {name}"
    return f"Waiting for {_amounts(demand, setup)} of the quota of FluxSetup {name}"


def _amounts(demand: Demand, setup: Setup) -> str:
    parts = [f"{demand.pods} pod{'' if demand.pods == 1 else 's'}"]
    requested = ((name, demand.resources.get(name, 0)) for name in sorted(setup.policy.resources))
    parts += (f"{name} {format_quantity(Decimal(amount) / 1000)}" for name, amount in requested if amount)
    return ", ".join(parts)


def position_changed(written: int, current: int) -> bool:
    """Return whether the position in the queue has changed so much that it is written.

    It is written when it has halved or doubled. Otherwise each admission would write the status of each waiting job.
    """
    return (written == 0) != (current == 0) or current * 2 <= written or current >= written * 2 > 0
