"""Finds errors that a reconcile got and did not read: nothing would show them, or retry what failed.

:func:`~cfo.runtime.client.reconcile_children` returns errors instead of raising them. A controller collects what its
reconciler got, and reports what was not read when the reconcile has ended without an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Results(Protocol):
    """What became of several requests."""

    @property
    def unread_errors(self) -> Sequence[Exception]:
        """The errors, unless they were read."""
        ...


_collected: ContextVar[list[Results] | None] = ContextVar("cfo_results", default=None)


@contextmanager
def collected_results() -> Iterator[list[Results]]:
    """Collect the results with errors that are passed to :func:`collect` inside the block."""
    results: list[Results] = []
    token = _collected.set(results)
    try:
        yield results
    finally:
        _collected.reset(token)


def collect(results: Results) -> None:
    """Pass results with errors to the controller whose reconcile runs, if there is one."""
    collected = _collected.get()
    if collected is not None:
        collected.append(results)
