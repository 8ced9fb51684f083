"""Passes errors of a program's own functions to tests.

The library logs and counts an error in a reconciler, a webhook or a map function, and continues. In a test of the
program, the pytest plugin collects these errors, so that the test fails because of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec


class FunctionError(msgspec.Struct, frozen=True):
    """An error that a function of the program raised, and which function that was, for people.

    ``is_bug`` is false if the error can have another cause, such as an invalid object.
    """

    error: Exception
    function: str
    is_bug: bool


_collections: list[list[FunctionError]] = []
"""The lists of the tests that run: errors are collected only inside :func:`collected`."""


def report(error: Exception, function: str, *, is_bug: bool = True) -> None:
    """Pass an error, which was logged, to the tests that run."""
    for errors in _collections:
        errors.append(FunctionError(error, function, is_bug))


@contextmanager
def collected() -> Iterator[list[FunctionError]]:
    """Return a list to which the errors of this process are appended until the block ends."""
    errors: list[FunctionError] = []
    _collections.append(errors)
    try:
        yield errors
    finally:
        _collections[:] = [other for other in _collections if other is not errors]
