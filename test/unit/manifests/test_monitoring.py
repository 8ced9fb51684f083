"""The alerts and the dashboard only use metrics and labels that the operator exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.flux.names import FLUX_SETUP
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.config.document import ParsedConfiguration
from cfo.config.model import OperatorConfiguration
from cfo.config.watch import ConfigurationWatch
from cfo.controllers.appwrapper.metrics import PhaseMetrics
from cfo.controllers.flux.metrics import FluxSetupMetrics
from cfo.controllers.inferencestack.metrics import ClaimMetrics, StackMetrics
from cfo.controllers.raycluster.metrics import RayClusterMetrics
from cfo.manifests.monitoring import ABSENCE_ALERT, objects
from cfo.operator import METRICS_SERVICE, new_manager, webhook_options
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.objects.kinds import SECRET
from cfo.runtime.objects.unstructured import NamespacedName
from hack.generate.grafana import dashboard
from hack.generate.olm.stack_operator import StackOperator
from test.support.manifests import alerts

ROOT = Path(__file__).parents[3]
PROMETHEUS_METRICS = {"up", "process_resident_memory_bytes"}
"""Metrics of Prometheus itself and, only on Linux, of its client library."""

_METRIC = re.compile(r"\b([a-z_][a-z0-9_]*)\{")
_BY_LABELS = re.compile(r"\bby \(([^)]*)\)")


@pytest.fixture(scope="module")
def operator_metrics() -> dict[str, set[str]]:
    """Return the names of all samples with their labels, with every feature enabled."""
    all_enabled = OperatorConfiguration.from_document({"appwrapper": {"enabled": True}})
    options = webhook_options(all_enabled.webhook, "ns")
    manager = new_manager(ClientConfig(server="https://localhost"), all_enabled, "ns", options)
    PhaseMetrics(
        manager.metrics.registry, manager.cache.informer(APPWRAPPER).reader
    )  # registered when the AppWrapper API is served
    setups = manager.cache.informer(FLUX_SETUP)
    FluxSetupMetrics(
        manager.metrics.registry, setups.reader
    )  # registered when the Flux API is served
    clusters = manager.cache.informer(RAY_CLUSTER)
    secrets = manager.cache.informer(SECRET, metadata_only=True)
    RayClusterMetrics(
        manager.metrics.registry, all_enabled.kuberay, clusters.reader, secrets.reader
    )
    ConfigurationWatch(manager, NamespacedName("ns", "config"), ParsedConfiguration(all_enabled))
    StackMetrics(manager.metrics.registry)
    ClaimMetrics(manager.metrics.registry)
    found: dict[str, set[str]] = {}
    for family in manager.metrics.registry.collect():
        names = {family.name, *(sample.name for sample in family.samples)}
        if family.type == "counter":
            names.add(f"{family.name}_total")
        if family.type == "histogram":
            names |= {f"{family.name}_{part}" for part in ("bucket", "sum", "count")}
        for name in names:
            found.setdefault(name, set()).update(
                label for sample in family.samples for label in sample.labels
            )
    return found


def expressions() -> Iterator[tuple[str, str]]:
    for alert in alerts():
        yield alert["alert"], alert["expr"]
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


@pytest.mark.parametrize(("title", "expression"), list(expressions()))
def test_used_metric_exists_with_its_labels(
    operator_metrics: dict[str, set[str]], title: str, expression: str
) -> None:
    used = set(_METRIC.findall(expression))
    assert used, f"{title}: no metric in {expression}"
    assert used - PROMETHEUS_METRICS <= operator_metrics.keys(), title
    for labels in _BY_LABELS.findall(expression):
        for name in used - PROMETHEUS_METRICS:
            known = operator_metrics[name]
            labels_in_query = {label.strip() for label in labels.split(",")}
            # Prometheus adds the operator's namespace to metrics without this label
            known_in_query = known | {"le", "namespace"}
            assert not known or labels_in_query <= known_in_query, f"{title}: {name} has {known}"


def test_dashboard_contains_documented_metrics() -> None:
    panels: list[dict[str, Any]] = dashboard()["panels"]
    text = json.dumps(panels)
    for metric in (
        "controller_runtime_reconcile_errors_total",
        "workqueue_depth",
        "controller_runtime_webhook_latency_seconds_bucket",
        "cfo_webhook_certificate_expiration_timestamp_seconds",
        "appwrapper_status_phase",
        "inferencestack_status_ready",
        "inferencestack_unclaimed",
        "flux_setup_used_pods",
    ):
        assert metric in text
    positions = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(positions)) == len(panels)
    assert json.loads((ROOT / "config/grafana/codeflare-operator.json").read_text()) == dashboard()


@pytest.mark.parametrize(
    "service", ["codeflare-operator-manager-metrics", "inference-stack-operator-v2-metrics"]
)
def test_stack_metrics_are_selected_from_all_operators(service: str) -> None:
    selectors = [
        re.fullmatch(r'.*inferencestack_\w+\{job=~"([^"]+)".*', expression)
        for _, expression in expressions()
    ]
    assert all(re.fullmatch(selector[1], service) for selector in selectors if selector)
    assert sum(map(bool, selectors)) == 5
    names = {METRICS_SERVICE, StackOperator("v2").metrics_service()["metadata"]["name"]}
    assert service in names


def test_each_alert_has_a_runbook_section() -> None:
    text = (ROOT / "docs/operations.md").read_text()
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", line.lstrip("#").strip().lower()).replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("#")
    }
    for alert in alerts():
        assert alert["annotations"]["runbook_url"].partition("#")[2] in anchors, alert["alert"]
        assert alert["labels"]["severity"] in ("warning", "critical")


def test_alert_of_an_absent_operator_has_its_namespace() -> None:
    _, rules = objects("codeflare-b")
    expressions_by_name = {
        rule["alert"]: rule["expr"] for rule in rules["spec"]["groups"][0]["rules"]
    }
    assert 'namespace="codeflare-b"' in expressions_by_name.pop(ABSENCE_ALERT)
    assert "absent" not in str(expressions_by_name)


def test_labels_of_metrics_are_those_of_the_objects() -> None:
    monitor, _ = objects("ns")
    # otherwise Prometheus renames the label namespace of AppWrappers to exported_namespace
    assert all(endpoint["honorLabels"] for endpoint in monitor["spec"]["endpoints"])
