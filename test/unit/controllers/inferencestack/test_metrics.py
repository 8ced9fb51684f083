"""The metrics of InferenceStacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import orjson
from prometheus_client import CollectorRegistry

from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.controllers.inferencestack.metrics import StackMetrics
from cfo.runtime.cache.entry import Entry, EntryDecoder
from cfo.runtime.cache.informer import Reader


class Stacks:
    """A reader of stacks with these statuses."""

    def __init__(self, *statuses: Any) -> None:
        self._statuses = statuses

    def entries(self) -> Iterator[Entry]:
        for number, status in enumerate(self._statuses):
            metadata = {"name": f"s{number}", "namespace": "ns", "uid": "u", "resourceVersion": "5"}
            yield EntryDecoder(INFERENCE_STACKS[0]).decode(
                orjson.dumps({"metadata": metadata, "status": status})
            )


def test_status_with_other_types_does_not_hide_the_other_stacks() -> None:
    registry = CollectorRegistry()
    ready = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "applications": [{"state": "Ready"}],
    }
    metrics = StackMetrics(registry)
    metrics.readers.append(
        cast("Reader", Stacks("x", {"conditions": [1]}, {"applications": [{"state": 1}]}, ready))
    )
    labels = {"namespace": "ns"}
    assert (
        registry.get_sample_value("inferencestack_status_ready", {**labels, "ready": "True"}) == 1
    )
    assert (
        registry.get_sample_value("inferencestack_status_ready", {**labels, "ready": "Unknown"})
        == 3
    )
    assert (
        registry.get_sample_value(
            "inferencestack_status_applications", {**labels, "state": "Ready"}
        )
        == 1
    )
