"""Events: one write for the first occurrence, few writes for repetitions, and no write blocks the caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from cfo.runtime.client.errors import Forbidden, NotFound, ServiceUnavailable, TransportError
from cfo.runtime.manager.events import EventBroadcaster
from cfo.runtime.objects.kinds import CORE_EVENT, EVENT
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object
from test.support.clocks import FakeClock
from test.support.scheduling import run_until_idle

CLUSTER: Object = {
    "apiVersion": "ray.io/v1",
    "kind": "RayCluster",
    "metadata": {"namespace": "team", "name": "training", "uid": "u-1", "resourceVersion": "5"},
}


class FakeClient:
    """Records created and patched events; requests wait for ``gate`` and first raise ``errors``."""

    def __init__(self) -> None:
        self.created: list[Object] = []
        self.patched: list[tuple[NamespacedName, Any]] = []
        self.errors: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def _fail(self) -> None:
        await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)

    async def create(self, obj: Object) -> Object:
        await self._fail()
        self.created.append(obj)
        return obj

    async def patch(self, gvk: GVK, key: NamespacedName, body: Any) -> Object:
        assert gvk in (EVENT, CORE_EVENT)
        await self._fail()
        self.patched.append((key, body))
        return {}


class Harness:
    """An EventBroadcaster with a fake clock and a fake client."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.client = FakeClient()
        self.broadcaster = EventBroadcaster(self.client, clock=self.clock, instance="pod-1")  # type: ignore[arg-type]
        self.recorder = self.broadcaster.recorder("raycluster-ingress")

    def warn(
        self,
        message: str = "Ingress team/x: conflict",
        obj: Object = CLUSTER,
        *,
        reason: str = "ApplyFailed",
    ) -> None:
        self.recorder.event(obj, "Warning", reason, message)


@asynccontextmanager
async def running() -> AsyncIterator[Harness]:
    harness = Harness()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(harness.broadcaster.run)
        yield harness
        harness.broadcaster.stop()


async def test_event_has_all_fields_of_the_api() -> None:
    async with running() as harness:
        harness.recorder.event(
            CLUSTER,
            "Normal",
            "Created",
            "Created Ingress x",
            related={"kind": "Ingress", "metadata": {"name": "x"}},
        )
        await run_until_idle()
        (event,) = harness.client.created
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "team", "name": f"training.{int(1767225600e9):x}"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "raycluster-ingress",
        "reportingInstance": "raycluster-ingress-pod-1",
        "regarding": {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "namespace": "team",
            "name": "training",
            "uid": "u-1",
        },
        "related": {"kind": "Ingress", "name": "x"},
        "type": "Normal",
        "reason": "Created",
        "action": "Reconcile",
        "note": "Created Ingress x",
    }


async def test_events_of_cluster_scoped_objects_are_in_namespace_default() -> None:
    async with running() as harness:
        harness.warn(
            obj={"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "u"}}
        )
        await run_until_idle()
    assert harness.client.created[0]["metadata"]["namespace"] == "default"
    assert "namespace" not in harness.client.created[0]["regarding"]


async def test_repetitions_become_a_series_written_when_its_count_doubles() -> None:
    async with running() as harness:
        for _ in range(20):
            harness.warn()
            harness.clock.advance(1)
            await run_until_idle()
        (event,) = harness.client.created
        assert "series" not in event
        assert [body["series"]["count"] for _, body in harness.client.patched] == [2, 4, 8, 16]
        key, body = harness.client.patched[0]
        assert key == NamespacedName("team", event["metadata"]["name"])
        assert body["series"]["lastObservedTime"] == "2026-01-01T00:00:01.000000Z"


async def test_repetitions_before_the_first_write_are_included_in_it() -> None:
    async with running() as harness:
        harness.client.gate.clear()
        harness.warn("first")
        await run_until_idle()
        for _ in range(5):
            harness.warn("second")
        harness.client.gate.set()
        await run_until_idle()
        assert [event.get("series", {}).get("count") for event in harness.client.created] == [
            None,
            5,
        ]
        assert harness.client.patched == []


async def test_different_messages_are_different_events() -> None:
    async with running() as harness:
        harness.warn("Ingress a: conflict")
        harness.warn("Ingress b: conflict")
        await run_until_idle()
        assert [event["note"] for event in harness.client.created] == [
            "Ingress a: conflict",
            "Ingress b: conflict",
        ]
        names = {event["metadata"]["name"] for event in harness.client.created}
        assert len(names) == 2


async def test_series_starts_again_after_six_minutes_without_repetition() -> None:
    async with running() as harness:
        harness.warn()
        await run_until_idle()
        harness.clock.advance(361)
        harness.warn()
        await run_until_idle()
        assert len(harness.client.created) == 2
        assert harness.client.patched == []


async def test_series_is_recreated_after_its_event_expired() -> None:
    async with running() as harness:
        harness.warn()
        await run_until_idle()
        harness.client.errors = [NotFound(404)]
        harness.warn()
        await run_until_idle()
        assert harness.client.created[1]["series"]["count"] == 2


async def test_events_are_rate_limited_per_object() -> None:
    async with running() as harness:
        for number in range(40):
            harness.warn(reason=f"Problem{number}")
        harness.warn(
            obj={**CLUSTER, "metadata": {**CLUSTER["metadata"], "name": "other", "uid": "u-2"}}
        )
        await run_until_idle()
        assert len(harness.client.created) == 26
        assert harness.broadcaster.dropped == 15
        harness.clock.advance(300)
        harness.warn(reason="OneMore")
        harness.warn(reason="AndOneTooMany")
        await run_until_idle()
        assert len(harness.client.created) == 27


async def test_full_queue_drops_events_and_never_blocks() -> None:
    harness = Harness()
    for number in range(1200):
        harness.warn(
            obj={
                **CLUSTER,
                "metadata": {"namespace": "team", "name": f"c-{number}", "uid": f"u-{number}"},
            }
        )
    assert harness.broadcaster.dropped == 200


async def test_namespace_with_many_events_neither_drops_nor_delays_those_of_another() -> None:
    def warn(harness: Harness, namespace: str, number: int) -> None:
        metadata = {"namespace": namespace, "name": f"c-{number}", "uid": f"{namespace}-{number}"}
        harness.warn(obj={**CLUSTER, "metadata": metadata})

    async with running() as harness:
        harness.client.gate.clear()
        for number in range(1500):
            warn(harness, "attacker", number)
        for number in range(3):
            warn(harness, "victim", number)
        assert harness.broadcaster.dropped == 503
        harness.client.gate.set()
        await run_until_idle()
    namespaces = [event["metadata"]["namespace"] for event in harness.client.created]
    assert [index for index, namespace in enumerate(namespaces) if namespace == "victim"][-1] < 8
    assert (namespaces.count("victim"), len(namespaces)) == (3, 1000)


async def test_events_of_more_namespaces_than_the_queue_holds_are_dropped() -> None:
    async with running() as harness:
        harness.client.gate.clear()
        for number in range(1200):
            harness.warn(
                obj={
                    **CLUSTER,
                    "metadata": {"namespace": f"n-{number}", "name": "c", "uid": f"u-{number}"},
                }
            )
        assert harness.broadcaster.dropped == 200
        harness.client.gate.set()
        await run_until_idle()
    assert len(harness.client.created) == 1000


async def test_transient_errors_are_retried_in_order() -> None:
    async with running() as harness:
        harness.client.errors = [
            TransportError("refused", outcome_unknown=False),
            ServiceUnavailable(503),
        ]
        harness.warn("first")
        harness.warn("second")
        await run_until_idle()
        assert harness.client.created == []
        harness.clock.advance(1)
        await run_until_idle()
        harness.clock.advance(2)
        await run_until_idle()
        assert [event["note"] for event in harness.client.created] == ["first", "second"]
        assert harness.clock.timers == 0


async def test_forbidden_event_is_dropped_and_logged() -> None:
    with capture_logs() as lines:
        async with running() as harness:
            harness.client.errors = [
                Forbidden(403, {"message": "events is forbidden"}),
                Forbidden(403),
            ]
            harness.warn("first")
            harness.warn("second")
            await run_until_idle()
            assert [event["note"] for event in harness.client.created] == ["second"]
            assert harness.broadcaster.dropped == 1
    (line,) = [line for line in lines if line["log_level"] == "warning"]
    assert "events is forbidden" in line["error"]


async def test_event_of_a_namespace_that_is_being_deleted_is_dropped_without_a_warning() -> None:
    with capture_logs() as lines:
        async with running() as harness:
            causes = [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]
            refused = Forbidden(403, {"message": "forbidden", "details": {"causes": causes}})
            harness.client.errors = [refused, refused]
            harness.warn("first")
            await run_until_idle()
            assert harness.client.created == []
            assert harness.broadcaster.dropped == 1
    assert [line for line in lines if line["log_level"] == "warning"] == []


async def test_many_similar_messages_are_combined_into_one_series() -> None:
    async with running() as harness:
        for number in range(40):
            harness.warn(f"attempt {number} failed")
            await run_until_idle()
        harness.warn("attempt 3 failed")
        await run_until_idle()
        notes = [event["note"] for event in harness.client.created]
        assert notes == [
            *(f"attempt {number} failed" for number in range(10)),
            "(combined from similar events): attempt 10 failed",
        ]
        assert [body["series"]["count"] for _, body in harness.client.patched] == [2, 4, 8, 16, 2]
        harness.clock.advance(601)
        harness.warn("attempt 41 failed")
        await run_until_idle()
        assert harness.client.created[-1]["note"] == "attempt 41 failed"


async def test_core_events_are_written_if_the_events_api_is_forbidden() -> None:
    async with running() as harness:
        harness.client.errors = [Forbidden(403, {"message": "events.events.k8s.io is forbidden"})]
        harness.recorder.event(
            CLUSTER, "Normal", "Created", "Created it", related={"kind": "Ingress", "metadata": {}}
        )
        await run_until_idle()
        harness.clock.advance(60)
        harness.recorder.event(CLUSTER, "Normal", "Created", "Created it")
        harness.warn()
        await run_until_idle()
        created, warning = harness.client.created
    assert created == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "team", "name": f"training.{int(1767225600e9) + 1:x}"},
        "involvedObject": {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "namespace": "team",
            "name": "training",
            "uid": "u-1",
        },
        "related": {"kind": "Ingress"},
        "reason": "Created",
        "message": "Created it",
        "type": "Normal",
        "action": "Reconcile",
        "source": {"component": "raycluster-ingress", "host": "pod-1"},
        "reportingComponent": "raycluster-ingress",
        "reportingInstance": "raycluster-ingress-pod-1",
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
    }
    assert warning["apiVersion"] == "v1"
    ((_, update),) = harness.client.patched
    assert update == {"count": 2, "lastTimestamp": "2026-01-01T00:01:00Z"}


async def test_stop_writes_queued_events_without_retrying() -> None:
    harness = Harness()
    harness.client.errors = [TransportError("refused", outcome_unknown=False)]
    harness.warn("first")
    harness.warn("second")
    harness.broadcaster.stop()
    await harness.broadcaster.run()
    assert [event["note"] for event in harness.client.created] == ["second"]


async def test_stop_ends_the_wait_for_a_retry() -> None:
    harness = Harness()
    harness.client.errors = [TransportError("refused", outcome_unknown=False)] * 2
    harness.warn()
    run = asyncio.create_task(harness.broadcaster.run())
    await run_until_idle()
    harness.broadcaster.stop()
    await run
    assert harness.broadcaster.dropped == 1


async def test_long_message_is_truncated_at_a_character() -> None:
    async with running() as harness:
        harness.warn("ä" * 600)
        harness.warn("x" * 1024)
        await run_until_idle()
    notes = [event["note"] for event in harness.client.created]
    assert len(notes[0].encode()) <= 1024
    assert notes[0].endswith("ä...")
    assert notes[1] == "x" * 1024


async def test_long_object_name_is_truncated_in_the_event_name() -> None:
    async with running() as harness:
        harness.warn(
            obj={**CLUSTER, "metadata": {"namespace": "team", "name": "n" * 253, "uid": "u"}}
        )
        await run_until_idle()
    assert len(harness.client.created[0]["metadata"]["name"]) == 253


@pytest.mark.parametrize(
    ("kind", "reason"), [("Error", "Reason"), ("Normal", ""), ("Normal", "R" * 129)]
)
def test_invalid_type_or_reason_is_rejected(kind: Any, reason: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        Harness().recorder.event(CLUSTER, kind, reason, "message")
