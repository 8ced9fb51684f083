"""Validation of MiniClusters, FluxJobs and FluxSetups: pure functions that return field errors.

Webhooks deny an invalid object with these errors. Controllers report the same message (:func:`error_message`) in a
condition and an Event, for objects that were created without webhooks.

The schemas of the CRDs have been checked before, so values have the types of the models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from cfo.runtime import FieldError, FieldErrors, Object

_MAX_MESSAGE: Final = 1024
"""The maximum length of the message of an Event."""


def new_errors(
    validate: Callable[[Object], list[FieldError]], old: Object, new: Object
) -> list[FieldError]:
    """Return the errors in ``new`` that are not in ``old``.

    An object that was created before it was validated can so be changed and deleted, as with CRD validation ratcheting.
    """
    errors = validate(new)
    if not errors:
        return []
    known = {str(error) for error in validate(old)}
    return [error for error in errors if str(error) not in known]


def error_message(errors: Iterable[FieldError]) -> str:
    """Return the message for conditions and Events that report ``errors``, of which there is at least one."""
    text = str(FieldErrors(errors))
    if len(text) <= _MAX_MESSAGE:
        return text
    return f"{text[: _MAX_MESSAGE - 3]}..."
