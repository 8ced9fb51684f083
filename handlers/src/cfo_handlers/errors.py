"""The exceptions by which a handler says what happens next, and how other exceptions are treated."""

from __future__ import annotations

import enum


class TemporaryError(Exception):
    """Raised by a handler to be called again after ``delay`` seconds (``None``: immediately)."""

    def __init__(self, message: object = None, delay: float | None = 60) -> None:
        super().__init__(message)
        self.delay = delay


class PermanentError(Exception):
    """Raised by a handler to fail without a retry."""


class HandlerTimeoutError(PermanentError):
    """The handler did not succeed within its ``timeout``."""


class HandlerRetriesError(PermanentError):
    """The handler did not succeed within its number of ``retries``."""


class AdmissionError(PermanentError):
    """Raised by an admission handler to deny the request. ``code`` is the HTTP status in the response."""

    def __init__(self, message: str = "", code: int | None = 500) -> None:
        super().__init__(message)
        self.code = code


class LoginError(Exception):
    """Raised by a login handler that has no credentials."""


class InvalidParameter(ValueError):
    """Raised by :func:`~cfo_handlers.operator` for parameters and settings that are not valid."""


class SubhandlersPending(TemporaryError):
    """Some sub-handlers of a handler must be called again, therefore the handler itself, too."""


class ErrorsMode(enum.Enum):
    """How exceptions other than :class:`TemporaryError` and :class:`PermanentError` are treated."""

    IGNORED = enum.auto()
    """Logged; the handler counts as succeeded."""
    TEMPORARY = enum.auto()
    """The handler is called again after its ``backoff``."""
    PERMANENT = enum.auto()
    """The handler has failed."""
