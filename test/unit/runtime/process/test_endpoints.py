"""The health and metrics endpoints, which the kubelet and Prometheus read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from cfo.runtime.controller.metrics import Metrics
from cfo.runtime.process.endpoint import Endpoint, parse_bind_address
from cfo.runtime.process.health import Health, ping

SHARED = Path(__file__).parents[5] / "shared"


@asynccontextmanager
async def serve(endpoint: Endpoint) -> AsyncIterator[aiohttp.ClientSession]:
    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda *, task_status: endpoint.run(task_status=task_status))
        async with aiohttp.ClientSession(f"http://127.0.0.1:{endpoint.port}") as session:
            yield session
        tasks.cancel_scope.cancel()


async def get(session: aiohttp.ClientSession, path: str) -> tuple[int, str]:
    async with session.get(path) as response:
        return response.status, await response.text()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", (None, 8080)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:8443", ("::1", 8443)),
        ("localhost:65535", ("localhost", 65535)),
        ("0", None),
        ("", None),
    ],
)
def test_bind_addresses_in_go_notation_are_parsed(
    text: str, address: tuple[str | None, int] | None
) -> None:
    assert parse_bind_address(text) == address


@pytest.mark.parametrize("text", ["8080", "host", ":http", ":70000", "::1:8080", ":-1"])
def test_invalid_bind_address_is_rejected_with_the_allowed_format(text: str) -> None:
    with pytest.raises(
        ValueError, match=r": (must be HOST:PORT|IPv6 addresses must be in brackets)"
    ):
        parse_bind_address(text)


async def test_port_in_use_is_an_error() -> None:
    async with serve(Endpoint("one", "127.0.0.1:0", [])) as session:
        port = session._base_url.port  # type: ignore[union-attr]
        with pytest.raises(OSError, match="in use"):
            await Endpoint("two", f"127.0.0.1:{port}", []).run()


async def test_responses_do_not_name_the_server_software() -> None:
    async with serve(Health().endpoint("127.0.0.1:0")) as session:
        for path in ("/", "/healthz", "/nowhere"):
            async with session.get(path) as response:
                assert "Server" not in response.headers


async def test_index_links_to_all_paths() -> None:
    async with serve(Metrics().endpoint("127.0.0.1:0")) as session:
        status, page = await get(session, "/")
        assert (status, '<a href="/metrics">/metrics</a>' in page) == (200, True)


async def test_disabled_endpoint_starts_and_ends() -> None:
    await Endpoint("off", "0", []).run()


async def test_process_without_checks_is_healthy() -> None:
    async with serve(Health().endpoint("127.0.0.1:0")) as session:
        for path in ("/healthz", "/readyz", "/healthz/", "/healthz/ping"):
            assert await get(session, path) == (200, "ok")
        assert await get(session, "/readyz?verbose") == (200, "[+]ping ok\nhealthz check passed\n")


async def test_readiness_reports_each_failing_check_with_its_reason() -> None:
    ready = asyncio.Event()

    def certificates() -> None:
        if not ready.is_set():
            raise RuntimeError("no serving certificate yet")

    async def slow() -> None:
        await asyncio.sleep(0)

    health = Health()
    health.add_health_check("live", ping)
    health.add_ready_check("slow", slow)
    health.add_ready_check("certificates", certificates)
    async with serve(health.endpoint("127.0.0.1:0")) as session:
        report = (
            "[+]slow ok\n[-]certificates failed: no serving certificate yet\nhealthz check failed\n"
        )
        assert await get(session, "/readyz") == (500, report)
        assert await health.failures() == {"certificates": "no serving certificate yet"}
        assert await get(session, "/readyz/certificates") == (
            500,
            "internal server error: no serving certificate yet\n",
        )
        assert await get(session, "/readyz/slow") == (200, "ok")
        assert await get(session, "/readyz?exclude=certificates") == (200, "ok")
        assert await get(session, "/healthz") == (200, "ok")
        assert (await get(session, "/readyz/other"))[0] == 404
        ready.set()
        assert await get(session, "/readyz") == (200, "ok")
        assert (await get(session, "/readyz?verbose&exclude=slow&exclude=none"))[1] == (
            "[+]slow excluded: ok\n[+]certificates ok\n"
            "warn: some health checks cannot be excluded: no matches for 'none'\nhealthz check passed\n"
        )


def test_check_names_must_be_unique_path_segments() -> None:
    health = Health()
    health.add_ready_check("a", ping)
    health.add_health_check("a", ping)
    with pytest.raises(ValueError, match="already"):
        health.add_ready_check("a", ping)
    for name in ("", "a/b"):
        with pytest.raises(ValueError, match="must be a non-empty path segment"):
            health.add_ready_check(name, ping)


async def test_metrics_are_served_in_prometheus_and_openmetrics_formats() -> None:
    metrics = Metrics()
    metrics.controller("mirror", 8).success.inc()
    async with serve(metrics.endpoint("127.0.0.1:0")) as session:
        async with session.get("/metrics") as response:
            assert response.headers["Content-Type"].startswith("text/plain")
            text = await response.text()
        async with session.get(
            "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"}
        ) as response:
            assert response.headers["Content-Type"].startswith("application/openmetrics-text")
        assert (await get(session, "/other"))[0] == 404
    samples = {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["controller_runtime_reconcile_total", ("mirror", "success")] == 1
    assert samples["process_resident_memory_bytes", ()] > 0
    assert samples["process_network_receive_bytes_total", ()] >= 0
    assert not any(name.endswith("_created") for name, _ in samples)


def test_metrics_instances_are_independent() -> None:
    one, other = Metrics(), Metrics()
    one.controller("mirror", 8).success.inc()
    assert (
        other.registry.get_sample_value(
            "controller_runtime_reconcile_total", {"controller": "mirror"}
        )
        is None
    )


def recorded_metrics() -> dict[str, dict[str, Any]]:
    path = SHARED / "golden" / "metrics-go.json"
    if not path.exists():
        pytest.skip("no recordings of the Go operator's metrics")
    metrics: dict[str, dict[str, Any]] = {
        metric["name"]: metric for metric in json.loads(path.read_text())["metrics"]
    }
    return metrics


def test_metric_names_types_and_labels_match_the_go_operator() -> None:
    """Metrics of the Go runtime, webhooks and certificates are excluded: this registry has none of them."""
    go = {
        name: (metric["type"], set(metric["labels"]))
        for name, metric in recorded_metrics().items()
        if name.startswith(("controller_runtime_", "workqueue_", "rest_client_", "process_"))
        and "webhook" not in name
    }
    metrics = Metrics()
    families = {
        metric.name + ("_total" if metric.type == "counter" else ""): metric
        for metric in metrics.registry.collect()
    }
    assert {name: families[name].type for name in go if name in families} == {
        name: kind for name, (kind, _) in go.items()
    }
    labels = {
        f"{collector._name}{'_total' if collector._type == 'counter' else ''}": set(
            collector._labelnames
        )
        for collector in vars(metrics).values()
        if isinstance(collector, MetricWrapperBase)
    }
    assert {name: labels[name] for name in go if name in labels} == {
        name: expected for name, (_, expected) in go.items() if name in labels
    }
    assert labels.keys() >= {name for name in go if not name.startswith("process_")}
