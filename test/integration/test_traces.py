"""OpenTelemetry spans of reconciles, requests and webhooks, and that nothing is imported without them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import aiohttp
import pytest
import structlog
from structlog.testing import capture_logs

from cfo.runtime.client.config import ClientConfig
from cfo.runtime.controller.reconcile import Request, Result
from cfo.runtime.manager.builder import Builder
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.errors import TerminalError
from cfo.runtime.objects.kinds import CONFIG_MAP
from envtest import ControlPlane
from test.support.config_map_webhooks import OPTIONS, register_webhooks
from test.support.raycluster_environment import eventually

sdk: Any = pytest.importorskip("opentelemetry.sdk.trace")
export: Any = pytest.importorskip("opentelemetry.sdk.trace.export")
memory: Any = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

log = structlog.get_logger(__name__)
METADATA = {"namespace": "default", "name": "traced"}
OBJECT: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": METADATA}
PARENT_TRACE, PARENT_SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Annotator:
    """Writes an annotation, then fails."""

    def __init__(self, manager: Manager) -> None:
        self.client = manager.client

    async def reconcile(self, request: Request) -> Result:
        if request.name == "traced":
            log.error("annotating")  # other tests configure which levels are logged
            await self.client.apply({**OBJECT, "metadata": {**METADATA, "annotations": {"a": "b"}}})
            raise TerminalError("cannot be copied")
        return Result()


async def test_spans_of_a_reconcile_its_requests_and_webhooks_are_linked() -> None:
    from cfo.runtime.manager.otel import OpenTelemetryTracing

    exporter = memory.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    sent: list[str] = []

    class RecordingTracing(OpenTelemetryTracing):
        def request(self, verb: str, resource: str, headers: Any) -> Any:
            sent.append(verb)
            return super().request(verb, resource, headers)

    tracing = RecordingTracing(provider)
    async with ControlPlane.embedded() as plane:
        options = ManagerOptions(field_manager="test", tracing=tracing, webhook=OPTIONS)
        manager = Manager(ClientConfig.for_control_plane(plane), options)
        register_webhooks(manager.webhooks)
        Builder(manager, "annotator").for_(CONFIG_MAP).complete(Annotator(manager))
        processors = [structlog.contextvars.merge_contextvars]
        with capture_logs(processors=processors) as lines:
            async with manager:
                await manager.started()
                await manager.api_reader.create(OBJECT)

                async def failed_span() -> Any:
                    spans = exporter.get_finished_spans()
                    return next((s for s in spans if s.name == "reconcile annotator" and s.events), None)

                reconcile = await eventually(failed_span, "the span of the reconcile")
                (request,) = (s for s in exporter.get_finished_spans() if s.name == "apply configmaps")
                assert request.parent.span_id == reconcile.context.span_id
                assert request.context.trace_id == reconcile.context.trace_id
                assert reconcile.attributes["reconcile.causes"] == "ConfigMap default/traced added"
                assert reconcile.attributes["k8s.object.kind"] == "ConfigMap"
                assert reconcile.status.description == "TerminalError: cannot be copied"
                assert "list" in sent  # the lists of informers are not traced
                roots = [s.name for s in exporter.get_finished_spans() if s.parent is None]
                assert all(name.startswith("reconcile ") for name in roots)
                port = manager.webhook_port
                await eventually(lambda: _listens(port), "the webhook server")
                headers = {"traceparent": f"00-{PARENT_TRACE}-{PARENT_SPAN}-01", "baggage": "user=x"}
                review = {
                    "apiVersion": "admission.k8s.io/v1",
                    "kind": "AdmissionReview",
                    "request": {"uid": "u", "operation": "CREATE", "name": "a", "object": {"data": {"color": "bug"}}},
                }
                async with aiohttp.ClientSession() as session:
                    path = next(webhook.path for webhook in manager.webhooks if "validate" in webhook.path)
                    url = f"https://127.0.0.1:{port}{path}"
                    async with session.post(url, json=review, headers=headers, ssl=False) as response:
                        assert json.loads(await response.read())["response"]["allowed"] is False
    (webhook,) = (s for s in exporter.get_finished_spans() if s.name == f"webhook {path}")
    assert (f"{webhook.context.trace_id:032x}", f"{webhook.parent.span_id:016x}") == (PARENT_TRACE, PARENT_SPAN)
    trace_id = f"{reconcile.context.trace_id:032x}"
    assert trace_id in {line["traceID"] for line in lines if line["event"] == "annotating"}
    assert {line["traceID"] for line in lines if line["event"] == "Webhook failed"} == {PARENT_TRACE}
    assert all("traceID" in line for line in lines if "Terminal reconcile error" in line["event"])


async def _listens(port: int) -> bool:
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://127.0.0.1:{port}/", ssl=False) as response,
        ):
            return response.status == 404
    except aiohttp.ClientError:
        return False


def test_traceparent_is_sent_within_a_span_only() -> None:
    from cfo.runtime.manager.otel import OpenTelemetryTracing

    provider = sdk.TracerProvider()
    tracing = OpenTelemetryTracing(provider)
    headers: dict[str, str] = {}
    with tracing.request("get", "pods", headers):
        assert headers == {}
    with provider.get_tracer("test").start_as_current_span("caller") as caller, tracing.request("get", "pods", headers):
        assert headers["traceparent"].startswith(f"00-{caller.get_span_context().trace_id:032x}-")
    with tracing.webhook("/x", {"traceparent": "00-invalid"}) as fields:
        assert fields["traceID"] != PARENT_TRACE


def test_opentelemetry_is_not_imported_when_it_is_not_used() -> None:
    program = (
        "import sys\n"
        "from cfo.runtime import ClientConfig, Manager, ManagerOptions\n"
        "from cfo.runtime.webhook import server\n"
        "Manager(ClientConfig(server='http://127.0.0.1:1'), ManagerOptions())\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
