"""OpenTelemetry traces; needs the extra ``otel``, and an exporter that the program configures.

One span for each reconcile and each webhook call, and one for each request to the API server within them. The header
``traceparent`` (W3C Trace Context) links them: an API server with tracing enabled passes it on to its own spans and to
webhooks. Baggage is not propagated, because webhooks receive requests from clients that are not trusted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from cfo.runtime.client.tracing import Tracing
from cfo.runtime.objects.unstructured import GVK, NamespacedName

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

_TRACE_HEADERS: Final = ("traceparent", "tracestate")


class OpenTelemetryTracing(Tracing):
    """Reports spans to ``provider`` (default: the global tracer provider)."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        # Imported lazily: help() and completion import all public names, also without the extra.
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._trace = trace
        self._tracer = trace.get_tracer("cfo.runtime", tracer_provider=provider)
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def reconcile(
        self, controller: str, gvk: GVK | None, key: NamespacedName, identity: str, causes: object
    ) -> Iterator[Mapping[str, str]]:
        """Start the root span ``reconcile CONTROLLER``."""
        attributes = {"controller": controller, "k8s.object.name": key.name, "reconcile.id": identity}
        if key.namespace:
            attributes["k8s.namespace.name"] = key.namespace
        if gvk is not None:
            attributes |= {"k8s.object.api_version": gvk.api_version, "k8s.object.kind": gvk.kind}
        with self._tracer.start_as_current_span(f"reconcile {controller}", attributes=attributes) as span:
            if span.is_recording():
                span.set_attribute("reconcile.causes", str(causes))
            yield self._log_fields(span)

    @contextmanager
    def webhook(self, path: str, headers: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
        """Start the span ``webhook PATH``."""
        context = self._propagator.extract({name: headers[name] for name in _TRACE_HEADERS if name in headers})
        attributes: dict[str, Any] = {"url.path": path}
        with self._tracer.start_as_current_span(
            f"webhook {path}", context=context, kind=self._trace.SpanKind.SERVER, attributes=attributes
        ) as span:
            yield self._log_fields(span)

    @contextmanager
    def request(self, verb: str, resource: str, headers: MutableMapping[str, str]) -> Iterator[object]:
        """Start the span ``VERB RESOURCE`` if there is a current span."""
        if not self._trace.get_current_span().get_span_context().is_valid:
            yield None
            return
        with self._tracer.start_as_current_span(f"{verb} {resource}", kind=self._trace.SpanKind.CLIENT) as span:
            self._propagator.inject(headers)
            yield span

    def record_failure(self, error: BaseException) -> None:
        """Record ``error`` in the current span."""
        span = self._trace.get_current_span()
        span.record_exception(error)
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, f"{type(error).__name__}: {error}"))

    def _log_fields(self, span: Span) -> Mapping[str, str]:
        context = span.get_span_context()
        if not context.is_valid:
            return {}
        trace = self._trace
        return {"traceID": trace.format_trace_id(context.trace_id), "spanID": trace.format_span_id(context.span_id)}
