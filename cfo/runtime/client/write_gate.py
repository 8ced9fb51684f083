"""The write gate: rejects writes of leader-only tasks while this process is not the leader.

Leader-only code must not write after this process loses the Lease, but should not have to check the Lease itself. The
manager starts leader-only tasks with :data:`write_gates` set, and all tasks that they start inherit them. The transport
checks the gates when the connection is established, right before the first byte is sent. Reads, and writes of other
tasks, are never blocked. WebSockets (exec, attach, port-forward) count as writes.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol

from cfo.runtime.client.errors import TransportError


class WriteRejected(TransportError):
    """Raised instead of sending a request, because this process is not allowed to write now."""

    def __init__(self, message: str) -> None:
        super().__init__(message, outcome_unknown=False)


class WriteGate(Protocol):
    """Decides whether this process is allowed to write."""

    def check(self) -> None:
        """Return if writing is allowed; raise :class:`WriteRejected` with the reason if it is not."""


write_gates: ContextVar[tuple[WriteGate, ...]] = ContextVar("cfo_write_gates", default=())
"""The gates of the current task, all of which must allow a write."""
