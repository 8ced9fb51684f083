"""Errors that say whether a reconcile is retried, and the errors of typed resources."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from cfo.runtime.objects.field import FieldError, aggregate


class ReconcileError(Exception):
    """Base class of expected failures: the log line has the message, and no stack trace.

    A request that fails with it is retried like after any other exception.
    """


class TerminalError(Exception):
    """Raised by a reconciler when a retry cannot help: the request is reconciled again only when something changes.

    ``raise TerminalError("...") from error`` keeps the cause.
    """


class InvalidResource(TerminalError, ValueError):
    """Raised for an object that does not fit its class; ``errors`` has the path and the value of each field.

    The API server rejects such objects with the CRD of the class, but may have stored them before the CRD was changed.
    A retry cannot help, so a reconcile that raises it is logged once, and repeated when the object changes.
    """

    def __init__(self, identity: str, errors: Sequence[FieldError]) -> None:
        self.errors = tuple(errors)
        super().__init__(f"{identity}: {aggregate(self.errors)}")


class SchemaError(TypeError):
    """Raised for a class that has no structural schema or is declared incorrectly; the message names the field."""


def raise_together(errors: Sequence[Exception], message: str) -> None:
    """Raise the only error, or several as a group with this message; do nothing without an error."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup(message, errors)


def clear_frames(error: BaseException) -> None:
    """Clear the local variables in the tracebacks of an error that was handled.

    They keep the objects of failed requests in memory. If one of them refers to the error, they do so until a
    collection of garbage, which may be a minute later. Frames that still run keep their variables.
    """
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__context__
