"""Every metric that alerts and dashboard ask for is one that the operator has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.config import OperatorConfiguration
from cfo.controllers.appwrapper.metrics import PhaseMetrics
from cfo.manifests.dashboard import dashboard
from cfo.manifests.monitoring import alerts
from cfo.operator import new_manager, webhook_options
from cfo.runtime.client.config import ClientConfig

ROOT = Path(__file__).parents[3]
OF_PROMETHEUS = {"up", "process_resident_memory_bytes"}
"""Made by Prometheus itself, and (on Linux alone) by its client library."""

_METRIC = re.compile(r"\b([a-z_][a-z0-9_]*)\{")
_BY = re.compile(r"\bby \(([^)]*)\)")


@pytest.fixture(scope="module")
def metrics() -> dict[str, set[str]]:
    """The operator's metrics with everything on: what samples are called, and the labels that they have."""
    everything = OperatorConfiguration.model_validate({"appwrapper": {"enabled": True}})
    options = webhook_options(everything.webhook, "ns")
    manager = new_manager(ClientConfig(server="https://localhost"), everything, "ns", options)
    PhaseMetrics(manager.metrics.registry, manager.cache.informer(APPWRAPPER).reader)  # made when their API is served
    found: dict[str, set[str]] = {}
    for family in manager.metrics.registry.collect():
        names = {family.name, *(sample.name for sample in family.samples)}
        if family.type == "counter":
            names.add(f"{family.name}_total")
        if family.type == "histogram":
            names |= {f"{family.name}_{part}" for part in ("bucket", "sum", "count")}
        for name in names:
            found.setdefault(name, set()).update(label for sample in family.samples for label in sample.labels)
    return found


def expressions() -> Iterator[tuple[str, str]]:
    for alert in alerts():
        yield alert["alert"], alert["expr"]
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_each_metric_exists(metrics: dict[str, set[str]], where: str, expression: str) -> None:
    used = set(_METRIC.findall(expression))
    assert used, f"{where}: no metric in {expression}"
    assert used - OF_PROMETHEUS <= metrics.keys(), where
    for labels in _BY.findall(expression):
        for name in used - OF_PROMETHEUS:
            known = metrics[name]
            wanted = {label.strip() for label in labels.split(",")}
            assert not known or wanted <= known | {"le"}, f"{where}: {name} has {known}"


def test_the_dashboard_shows_what_is_promised() -> None:
    panels: list[dict[str, Any]] = dashboard()["panels"]
    text = json.dumps(panels)
    for metric in (
        "controller_runtime_reconcile_errors_total",
        "workqueue_depth",
        "controller_runtime_webhook_latency_seconds_bucket",
        "cfo_webhook_certificate_expiration_timestamp_seconds",
        "appwrapper_status_phase",
    ):
        assert metric in text
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(panels)
    assert json.loads((ROOT / "config/grafana/codeflare-operator.json").read_text()) == dashboard()


def test_each_alert_leads_to_its_symptom_in_the_docs() -> None:
    text = (ROOT / "docs/operations.md").read_text()
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", line.lstrip("#").strip().lower()).replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("#")
    }
    for alert in alerts():
        assert alert["annotations"]["runbook_url"].partition("#")[2] in anchors, alert["alert"]
        assert alert["labels"]["severity"] in ("warning", "critical")
