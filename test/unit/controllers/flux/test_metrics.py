"""The metrics of FluxSetups."""

from types import SimpleNamespace
from typing import Any, cast

import orjson
from prometheus_client import CollectorRegistry

from cfo.controllers.flux.metrics import FluxSetupMetrics
from cfo.runtime import NamespacedName, Reader


def entry(name: str, **obj: Any) -> SimpleNamespace:
    return SimpleNamespace(key=NamespacedName("team", name), raw=orjson.dumps(obj))


def test_quota_and_jobs_of_each_fluxsetup_are_exported() -> None:
    status = {
        "usedResources": 6,
        "pendingWorkloads": 2,
        "admittedWorkloads": 3,
        "conditions": [{"type": "Active", "status": "False", "reason": "InvalidSelector"}],
    }
    entries = [
        entry("new", spec={"max-size": 20, "mini-cluster": {}}),
        entry("old", spec={"max-size": 4}, status=status),
    ]
    registry = CollectorRegistry()
    FluxSetupMetrics(registry, cast("Reader", SimpleNamespace(entries=lambda: entries)))

    def value(name: str, setup: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {"namespace": "team", "fluxsetup": setup, **labels})

    assert value("flux_setup_max_pods", "new") == 20
    assert value("flux_setup_used_pods", "new") == 0
    assert value("flux_setup_max_pods", "old") == 4
    assert value("flux_setup_used_pods", "old") == 6
    assert value("flux_setup_pending_jobs", "old") == 2
    assert value("flux_setup_admitted_jobs", "old") == 3
    assert value("flux_setup_active", "old", reason="InvalidSelector") == 0
