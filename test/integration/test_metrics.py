"""What a manager at work exposes, to whom, and whether Prometheus can read it."""

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

from cfo.runtime.builder import Builder
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.clock import SystemClock
from cfo.runtime.kinds import CONFIG_MAP, SECRET
from cfo.runtime.leaderelection import LeaderElectionOptions
from cfo.runtime.manager import Manager, ManagerOptions
from cfo.runtime.metrics_server import MetricsTLS
from cfo.runtime.objects import GVK, NamespacedName
from cfo.runtime.reconcile import Request, Result
from cfo.runtime.webhook.certificates.certificate_authority import StoredCertificates, ensure_certificates
from cfo.runtime.webhook.certificates.serving_certificate import KeyPair
from cfo.runtime.webhook.options import RotatedCertificates
from envtest import ControlPlane
from test.support.raycluster_environment import eventually


class Nothing:
    """Reconciles nothing; of an object called ``bad`` it says that it cannot."""

    async def reconcile(self, request: Request) -> Result:
        if request.name == "bad":
            raise RuntimeError("cannot")
        return Result()


def working(plane: ControlPlane, **options: Any) -> Manager:
    """A manager with a controller."""
    manager = Manager(
        ClientConfig.for_control_plane(plane),
        ManagerOptions(field_manager="test", metrics_bind_address="127.0.0.1:0", **options),
    )
    Builder(manager, "nothing").for_(CONFIG_MAP).complete(Nothing())
    manager.cache.informer(SECRET, label_selector="ours", metadata_only=True)
    return manager


async def scrape(manager: Manager, scheme: str = "http", **options: Any) -> tuple[int, str]:
    """The status and the text of ``/metrics``."""
    url = f"{scheme}://localhost:{manager.metrics_port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url, **options) as answer:
        return answer.status, await answer.text()


def families(text: str) -> dict[str, Metric]:
    """By the name that they have in the text (a counter's ends in ``_total``)."""
    found: Iterable[Metric] = text_string_to_metric_families(text)
    return {metric.name + ("_total" if metric.type == "counter" else ""): metric for metric in found}


def value(found: dict[str, Metric], sample_name: str, **labels: str) -> float | None:
    """The value of the first sample that has these labels."""
    for metric in found.values():
        for sample in metric.samples:
            if sample.name == sample_name and labels.items() <= sample.labels.items():
                return float(sample.value)
    return None


async def test_a_manager_exposes_what_the_go_operator_does_and_what_is_in_its_caches(plane: ControlPlane) -> None:
    election = LeaderElectionOptions(name="lock", namespace="default")
    manager = working(plane, leader_election=election)
    async with manager:
        await manager.started()
        for name in ("good", "bad"):
            await manager.api_reader.create(
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}
            )

        async def settled() -> dict[str, Metric] | None:
            status, text = await scrape(manager)
            assert status == 200
            found = families(text)
            errors = value(found, "controller_runtime_reconcile_errors_total", controller="nothing") or 0
            done = value(found, "controller_runtime_reconcile_total", controller="nothing", result="success") or 0
            return found if errors and done else None

        found = await eventually(settled)
    assert (value(found, "cfo_informer_objects", kind="ConfigMap") or 0) >= 2
    assert (value(found, "cfo_informer_bytes", kind="ConfigMap") or 0) > 100
    assert value(found, "cfo_informer_synced", kind="Secret", selector="ours", metadata_only="true") is not None
    assert value(found, "leader_election_master_status", name="lock") == 1
    for name in ("request_size_bytes", "response_size_bytes", "request_duration_seconds"):
        assert (value(found, f"rest_client_{name}_count", verb="POST") or 0) >= 2
    for wrong in lint(found.values()):
        raise AssertionError(wrong)
    recorded = Path(__file__).parents[2].parent / "shared" / "golden" / "metrics-go.json"
    if not recorded.exists():
        pytest.skip("the recorded metrics of the Go operator are not there")
    go = {metric["name"]: metric for metric in json.loads(recorded.read_text())["metrics"]}
    elsewhere = re.compile(r"go_|certwatcher_|.*webhook")
    missing = {name for name in go if name not in found and not elsewhere.match(name)}
    assert missing == set()
    assert {name: found[name].type for name in go if name in found} == {
        name: metric["type"] for name, metric in go.items() if name in found
    }


def lint(metrics: Iterable[Metric]) -> Iterable[str]:
    """What promtool would say of names and help texts. (Go's own slips are Go's names, which dashboards know.)"""
    for metric in metrics:
        if not re.fullmatch(r"[a-z_][a-z0-9_]*", metric.name):
            yield f"{metric.name}: names are snake_case"
        if not metric.documentation:
            yield f"{metric.name}: no help text"
        if metric.type in ("gauge", "histogram") and re.search(r"_(total|count|sum|bucket)$", metric.name):
            yield f"{metric.name}: a {metric.type} must not have the suffix of another type"
        if re.search(r"_(milliseconds|ms|minutes|kilobytes|megabytes)(_|$)", metric.name):
            yield f"{metric.name}: base units are seconds and bytes"


async def test_secure_metrics_are_for_those_who_may_read_them(plane: ControlPlane) -> None:
    manager = working(plane, metrics_tls=MetricsTLS())
    async with manager:
        await manager.started()
        client = manager.api_reader
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await scrape(manager)
        assert (await scrape(manager, "https", ssl=False))[0] == 401
        assert (await scrape(manager, "https", ssl=False, headers={"Authorization": "Bearer wrong"}))[0] == 401
        token = await service_account_token(manager, "scraper")
        headers = {"Authorization": f"Bearer {token}"}
        status, text = await scrape(manager, "https", ssl=False, headers=headers)
        assert (status, text) == (403, "Authorization denied for user system:serviceaccount:default:scraper\n")
        rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "reader"}}
        await client.create(
            {**rbac, "kind": "ClusterRole", "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]}
        )
        await client.create(
            {
                **rbac,
                "kind": "ClusterRoleBinding",
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
                "subjects": [{"kind": "ServiceAccount", "name": "other", "namespace": "default"}],
            }
        )
        other = await service_account_token(manager, "other")
        status, text = await scrape(manager, "https", ssl=False, headers={"Authorization": f"Bearer {other}"})
        assert status == 200
        assert "controller_runtime_reconcile_total" in families(text)
        asked = manager.metrics.registry.get_sample_value
        host = manager.transport.host
        before = asked("rest_client_requests_total", {"code": "201", "method": "POST", "host": host})
        await scrape(manager, "https", ssl=False, headers={"Authorization": f"Bearer {other}"})
        assert asked("rest_client_requests_total", {"code": "201", "method": "POST", "host": host}) == before


async def service_account_token(manager: Manager, name: str) -> str:
    """A token of a new service account."""
    client = manager.api_reader
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}
    await client.create(account)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    key = NamespacedName("default", name)
    answer = await client.create(request, subresource="token", key=key, gvk=GVK("", "v1", "ServiceAccount"))
    return str(answer["status"]["token"])


def made_up() -> tuple[KeyPair, bytes]:
    policy = RotatedCertificates(secret=NamespacedName("", ""))
    material, _ = ensure_certificates(StoredCertificates(), policy, ("localhost",), now=SystemClock().now())
    return material.pair, material.bundle


async def test_secure_metrics_show_the_certificate_of_the_folder_and_its_successor(
    plane: ControlPlane, tmp_path: Path
) -> None:
    bundles = []
    manager = working(plane, metrics_tls=MetricsTLS(cert_dir=tmp_path))
    async with manager:
        await manager.started()
        headers = {"Authorization": f"Bearer {plane.token}"}
        for _ in range(2):
            pair, bundle = made_up()
            bundles.append(bundle)
            (tmp_path / "tls.crt").write_bytes(pair.certificate)
            (tmp_path / "tls.key").write_bytes(pair.key)
            trust = ssl.create_default_context(cadata=bundle.decode())

            async def read(trust: ssl.SSLContext = trust) -> bool:
                try:
                    return (await scrape(manager, "https", ssl=trust, headers=headers))[0] == 200
                except aiohttp.ClientError:
                    return False

            await eventually(read, "the certificate is served")
    assert bundles[0] != bundles[1]
