"""Traces: what the library reports to a tracing system, without depending on one.

:class:`~cfo.runtime.manager.OpenTelemetryTracing` implements :class:`Tracing`. Without it, a traced place only
compares an attribute with ``None``.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from contextlib import AbstractContextManager
from typing import Protocol

from cfo.runtime.objects.unstructured import GVK, NamespacedName


class Tracing(Protocol):
    """Creates spans, which end with their ``with`` block; an exception that leaves the block is recorded."""

    def reconcile(
        self, controller: str, gvk: GVK | None, key: NamespacedName, identity: str, causes: object
    ) -> AbstractContextManager[Mapping[str, str]]:
        """Return the span of one reconcile; entering it returns fields for its log lines, such as ``traceID``.

        ``str(causes)`` is what queued it, and is computed only if the span is recorded.
        """
        ...

    def webhook(self, path: str, headers: Mapping[str, str]) -> AbstractContextManager[Mapping[str, str]]:
        """Return the span of one webhook call, a child of the span in the header ``traceparent``, like above."""
        ...

    def request(self, verb: str, resource: str, headers: MutableMapping[str, str]) -> AbstractContextManager[object]:
        """Return the span of one request to the API server; entering it adds ``traceparent`` to ``headers``.

        Requests outside a span are not traced, such as Lease renewals and the lists of informers.
        """
        ...

    def record_failure(self, error: BaseException) -> None:
        """Mark the current span as failed."""
        ...
