"""The metrics of a running manager: names and types, format, authentication and TLS."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from cfo.runtime.client.config import ClientConfig
from cfo.runtime.controller.reconcile import Request, Result
from cfo.runtime.manager.builder import Builder
from cfo.runtime.manager.leaderelection import LeaderElectionOptions
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.manager.metrics_server import MetricsTLS
from cfo.runtime.objects.kinds import CONFIG_MAP, SECRET
from cfo.runtime.objects.unstructured import NamespacedName
from cfo.runtime.pki.certificates import KeyPair
from cfo.runtime.pki.rotation import StoredCertificates, ensure_certificates
from cfo.runtime.process.clock import SystemClock
from cfo.runtime.webhook.options import RotatedCertificates
from envtest import ControlPlane
from test.support.raycluster_environment import eventually
from test.support.tenant_clients import new_account_token


class FailingReconciler:
    """Does nothing, but raises for an object named ``bad``."""

    async def reconcile(self, request: Request) -> Result:
        if request.name == "bad":
            raise RuntimeError("reconcile failed")
        return Result()


def new_manager(plane: ControlPlane, **options: Any) -> Manager:
    """Return a manager with a controller, an informer and a metrics server."""
    manager = Manager(
        ClientConfig.for_control_plane(plane),
        ManagerOptions(field_manager="test", metrics_bind_address="127.0.0.1:0", **options),
    )
    Builder(manager, "nothing").for_(CONFIG_MAP).complete(FailingReconciler())
    manager.cache.informer(SECRET, label_selector="ours", metadata_only=True)
    return manager


async def scrape(manager: Manager, scheme: str = "http", **options: Any) -> tuple[int, str]:
    """Return the status and the body of ``/metrics``."""
    url = f"{scheme}://localhost:{manager.metrics_port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url, **options) as response:
        return response.status, await response.text()


def families(body: str) -> dict[str, Metric]:
    """Return the metrics by the name that they have in the text (the name of a counter ends in ``_total``)."""
    families_by_name: Iterable[Metric] = text_string_to_metric_families(body)
    return {
        metric.name + ("_total" if metric.type == "counter" else ""): metric
        for metric in families_by_name
    }


def sample_value(
    families_by_name: dict[str, Metric], sample_name: str, **labels: str
) -> float | None:
    """Return the value of the first sample with these labels."""
    for metric in families_by_name.values():
        for sample in metric.samples:
            if sample.name == sample_name and labels.items() <= sample.labels.items():
                return float(sample.value)
    return None


async def test_metrics_include_those_of_the_go_operator_and_of_caches(plane: ControlPlane) -> None:
    election = LeaderElectionOptions(name="lock", namespace="default")
    manager = new_manager(plane, leader_election=election)
    async with manager:
        await manager.started()
        for name in ("good", "bad"):
            await manager.api_reader.create(
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": name, "namespace": "default"},
                }
            )

        async def reconciled_families() -> dict[str, Metric] | None:
            status, body = await scrape(manager)
            assert status == 200
            families_by_name = families(body)
            errors = (
                sample_value(
                    families_by_name,
                    "controller_runtime_reconcile_errors_total",
                    controller="nothing",
                )
                or 0
            )
            done = (
                sample_value(
                    families_by_name,
                    "controller_runtime_reconcile_total",
                    controller="nothing",
                    result="success",
                )
                or 0
            )
            return families_by_name if errors and done else None

        families_by_name = await eventually(reconciled_families)
    assert (sample_value(families_by_name, "cfo_informer_objects", kind="ConfigMap") or 0) >= 2
    assert (sample_value(families_by_name, "cfo_informer_bytes", kind="ConfigMap") or 0) > 100
    assert sample_value(families_by_name, "cfo_event_loop_lag_seconds_count") is not None
    assert (
        sample_value(
            families_by_name,
            "cfo_informer_synced",
            kind="Secret",
            selector="ours",
            metadata_only="true",
        )
        is not None
    )
    assert sample_value(families_by_name, "leader_election_master_status", name="lock") == 1
    for name in ("request_size_bytes", "response_size_bytes", "request_duration_seconds"):
        assert (sample_value(families_by_name, f"rest_client_{name}_count", verb="POST") or 0) >= 2
    for problem in metric_problems(families_by_name.values()):
        raise AssertionError(problem)
    recording = Path(__file__).parents[2].parent / "shared" / "golden" / "metrics-go.json"
    if not recording.exists():
        pytest.skip("no recorded metrics of the Go operator")
    go = {metric["name"]: metric for metric in json.loads(recording.read_text())["metrics"]}
    served_elsewhere = re.compile(r"go_|certwatcher_|.*webhook")
    missing = {
        name for name in go if name not in families_by_name and not served_elsewhere.match(name)
    }
    assert missing == set()
    assert {name: families_by_name[name].type for name in go if name in families_by_name} == {
        name: metric["type"] for name, metric in go.items() if name in families_by_name
    }


def metric_problems(metrics: Iterable[Metric]) -> Iterable[str]:
    """Yield the name and help problems that ``promtool check metrics`` reports, except for the Go operator's names."""
    for metric in metrics:
        if not re.fullmatch(r"[a-z_][a-z0-9_]*", metric.name):
            yield f"{metric.name}: names are snake_case"
        if not metric.documentation:
            yield f"{metric.name}: no help text"
        if metric.type in ("gauge", "histogram") and re.search(
            r"_(total|count|sum|bucket)$", metric.name
        ):
            yield f"{metric.name}: a {metric.type} must not have the suffix of another type"
        if re.search(r"_(milliseconds|ms|minutes|kilobytes|megabytes)(_|$)", metric.name):
            yield f"{metric.name}: base units are seconds and bytes"


async def test_secure_metrics_require_authorization(plane: ControlPlane) -> None:
    manager = new_manager(plane, metrics_tls=MetricsTLS(), debug_bind_address="metrics")
    async with manager:
        await manager.started()
        client = manager.api_reader
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await scrape(manager)
        assert (await scrape(manager, "https", ssl=False))[0] == 401
        assert (
            await scrape(manager, "https", ssl=False, headers={"Authorization": "Bearer wrong"})
        )[0] == 401
        token = await new_account_token(manager.api_reader, NamespacedName("default", "scraper"))
        headers = {"Authorization": f"Bearer {token}"}
        status, body = await scrape(manager, "https", ssl=False, headers=headers)
        assert status == 403
        assert body == (
            "Authorization denied for user system:serviceaccount:default:scraper: "
            "needs a ClusterRole with the verb get for nonResourceURLs /metrics\n"
        )
        rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "reader"}}
        await client.create(
            {
                **rbac,
                "kind": "ClusterRole",
                "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
            }
        )
        await client.create(
            {
                **rbac,
                "kind": "ClusterRoleBinding",
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "reader",
                },
                "subjects": [{"kind": "ServiceAccount", "name": "other", "namespace": "default"}],
            }
        )
        other = await new_account_token(manager.api_reader, NamespacedName("default", "other"))
        status, body = await scrape(
            manager, "https", ssl=False, headers={"Authorization": f"Bearer {other}"}
        )
        assert status == 200
        assert "controller_runtime_reconcile_total" in families(body)
        debug = f"https://localhost:{manager.metrics_port}/debug/queue"
        async with aiohttp.ClientSession() as session:
            for bearer, expected in ((other, 403), (plane.token, 200), ("", 401)):
                async with session.get(
                    debug, ssl=False, headers={"Authorization": f"Bearer {bearer}"}
                ) as response:
                    assert response.status == expected
        get_sample_value = manager.metrics.registry.get_sample_value
        host = manager.transport.host
        before = get_sample_value(
            "rest_client_requests_total", {"code": "201", "method": "POST", "host": host}
        )
        await scrape(manager, "https", ssl=False, headers={"Authorization": f"Bearer {other}"})
        assert (
            get_sample_value(
                "rest_client_requests_total", {"code": "201", "method": "POST", "host": host}
            )
            == before
        )


def new_certificate() -> tuple[KeyPair, bytes]:
    """Return a serving certificate for localhost and the bundle of its CA."""
    policy = RotatedCertificates(secret=NamespacedName("", ""))
    material, _ = ensure_certificates(
        StoredCertificates(), policy, ("localhost",), now=SystemClock().now()
    )
    return material.pair, material.bundle


async def test_secure_metrics_serve_certificate_files_and_their_renewal(
    plane: ControlPlane, tmp_path: Path
) -> None:
    bundles = []
    manager = new_manager(plane, metrics_tls=MetricsTLS(cert_dir=tmp_path))
    async with manager:
        await manager.started()
        failures = await manager.health.failures()
        assert failures == {
            "metrics-certificate": f"no certificate for metrics: No such file or directory: {tmp_path}/tls.crt"
        }
        headers = {"Authorization": f"Bearer {plane.token}"}
        for _ in range(2):
            pair, bundle = new_certificate()
            bundles.append(bundle)
            (tmp_path / "tls.crt").write_bytes(pair.certificate)
            (tmp_path / "tls.key").write_bytes(pair.key)
            trust = ssl.create_default_context(cadata=bundle.decode())

            async def is_certificate_served(trust: ssl.SSLContext = trust) -> bool:
                try:
                    return (await scrape(manager, "https", ssl=trust, headers=headers))[0] == 200
                except aiohttp.ClientError:
                    return False

            await eventually(is_certificate_served, "the served certificate")
        assert await manager.health.failures() == {}
    assert bundles[0] != bundles[1]
