"""Errors that say whether a reconcile is retried."""

from __future__ import annotations

__all__ = ["ReconcileError", "TerminalError"]


class ReconcileError(Exception):
    """Base class of expected failures: the log line has the message, and no stack trace.

    A request that fails with it is retried like after any other exception.
    """


class TerminalError(Exception):
    """Raised by a reconciler when a retry cannot help: the request is reconciled again only when something changes.

    ``raise TerminalError("...") from error`` keeps the cause.
    """
