"""The errors of typed resources."""

from __future__ import annotations

from collections.abc import Sequence

from cfo.runtime.objects.errors import TerminalError
from cfo.runtime.objects.field import FieldError, aggregate

__all__ = ["InvalidResource", "SchemaError"]


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
