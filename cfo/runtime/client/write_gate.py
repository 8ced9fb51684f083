"""Who may write: a gate through which every request other than a read goes, of tasks that need a lease for it.

What runs on the leader alone must not write when it is leader no more. It need not know: the manager starts it with
:data:`write_gate` set, all tasks that it starts inherit that, and the transport asks the gate when the connection
stands, right before the first byte leaves. Reads, and what other tasks write, pass.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol

from cfo.runtime.client.errors import TransportError

__all__ = ["WriteGate", "WriteRefused", "write_gate"]


class WriteRefused(TransportError):
    """The request was not sent: this process may not write now."""

    def __init__(self, message: str) -> None:
        super().__init__(message, outcome_unknown=False)


class WriteGate(Protocol):
    """Says whether this process may write."""

    def check(self) -> None:
        """Returns when it may; raises :class:`WriteRefused`, with the reason, when it may not."""


write_gate: ContextVar[WriteGate | None] = ContextVar("cfo_write_gate", default=None)
"""The gate of the task that runs; ``None`` lets everything pass."""
