"""Passes errors of a program's own functions to tests.

The library logs and counts an error in a reconciler, a webhook or a map function, and continues. In a test of the
program, the pytest plugin collects these errors, so that the test fails because of them. It also collects why
reconciles fail, such as a missing permission, to show it if the test fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec


class FunctionError(msgspec.Struct, frozen=True):
    """An error that a function of the program raised, and which function that was, for people.

    ``is_bug`` is false if the error can have another cause, such as an invalid object.
    """

    error: Exception
    function: str
    is_bug: bool


MAX_FAILING: Final = 100
"""How many functions that fail are remembered; the one that has failed first is forgotten first."""


class Collection(msgspec.Struct):
    """What a test collects: ``errors``, and by function why the last call failed (``failing``)."""

    errors: list[FunctionError] = []
    failing: dict[str, str] = {}


_collections: list[Collection] = []
"""Those of the tests that run: errors are collected only inside :func:`collected`."""


def report(error: Exception, function: str, *, is_bug: bool = True) -> None:
    """Pass an error, which was logged, to the tests that run."""
    for collection in _collections:
        collection.errors.append(FunctionError(error, function, is_bug))


def report_failure(function: str, text: str) -> None:
    """Pass the reason why a call of ``function`` failed to the tests that run, until :func:`report_success`."""
    for collection in _collections:
        failing = collection.failing
        failing.pop(function, None)
        failing[function] = text
        if len(failing) > MAX_FAILING:
            del failing[next(iter(failing))]


def report_success(function: str) -> None:
    """Remove the reason of an earlier failure of ``function``, because the last call succeeded."""
    for collection in _collections:
        collection.failing.pop(function, None)


@contextmanager
def collected(collection: Collection | None = None) -> Iterator[Collection]:
    """Collect the errors of this process until the block ends, in ``collection`` or a new one, which is returned."""
    if collection is None:
        collection = Collection()
    _collections.append(collection)
    try:
        yield collection
    finally:
        _collections[:] = [other for other in _collections if other is not collection]
