"""The exceptions by which a handler says what happens next, and how other exceptions are treated."""

from __future__ import annotations

import enum


class TemporaryError(Exception):
    """Raised by a handler to be called again after ``delay`` seconds (``None``: immediately).

    Raises :class:`TypeError` for a delay of another type.
    """

    def __init__(self, message: object = None, delay: float | None = 60) -> None:
        given: object = delay
        if given is not None and (isinstance(given, bool) or not isinstance(given, int | float)):
            raise TypeError(f"TemporaryError: delay: {given!r:.200}: must be a number of seconds")
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


class InvalidProgram(InvalidParameter):
    """Raised for a setting or a handler that is not valid: the program must be changed, not its parameters."""


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
