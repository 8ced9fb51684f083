"""Events: one write for the first, few for its repetitions, none that anybody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from cfo.runtime.client.errors import Forbidden, NotFound, ServiceUnavailable, TransportError
from cfo.runtime.clock import FakeClock
from cfo.runtime.events import EventBroadcaster
from cfo.runtime.kinds import CORE_EVENT, EVENT
from cfo.runtime.objects import GVK, NamespacedName, Object
from test.support.scheduling import settled

CLUSTER: Object = {
    "apiVersion": "ray.io/v1",
    "kind": "RayCluster",
    "metadata": {"namespace": "team", "name": "training", "uid": "u-1", "resourceVersion": "5"},
}


class Client:
    """Takes events in; ``errors`` are raised first."""

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


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.client = Client()
        self.broadcaster = EventBroadcaster(self.client, clock=self.clock, instance="pod-1")  # type: ignore[arg-type]
        self.recorder = self.broadcaster.recorder("raycluster-ingress")

    def warn(
        self, message: str = "Ingress team/x: taken", obj: Object = CLUSTER, *, reason: str = "ApplyFailed"
    ) -> None:
        self.recorder.event(obj, "Warning", reason, message)


@asynccontextmanager
async def running() -> AsyncIterator[Bench]:
    bench = Bench()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.broadcaster.run)
        yield bench
        bench.broadcaster.stop()


async def test_an_event_says_all_that_the_api_wants() -> None:
    async with running() as bench:
        bench.recorder.event(
            CLUSTER, "Normal", "Created", "made Ingress x", related={"kind": "Ingress", "metadata": {"name": "x"}}
        )
        await settled()
        (event,) = bench.client.created
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
        "note": "made Ingress x",
    }


async def test_events_of_cluster_scoped_objects_live_in_default() -> None:
    async with running() as bench:
        bench.warn(obj={"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "u"}})
        await settled()
    assert bench.client.created[0]["metadata"]["namespace"] == "default"
    assert "namespace" not in bench.client.created[0]["regarding"]


async def test_repetitions_become_a_series_that_is_written_when_it_doubles() -> None:
    async with running() as bench:
        for _ in range(20):
            bench.warn()
            bench.clock.advance(1)
            await settled()
        (event,) = bench.client.created
        assert "series" not in event
        assert [body["series"]["count"] for _, body in bench.client.patched] == [2, 4, 8, 16]
        key, body = bench.client.patched[0]
        assert key == NamespacedName("team", event["metadata"]["name"])
        assert body["series"]["lastObservedTime"] == "2026-01-01T00:00:01.000000Z"


async def test_repetitions_before_the_first_write_cost_no_write_of_their_own() -> None:
    async with running() as bench:
        bench.client.gate.clear()
        bench.warn("first")
        await settled()
        for _ in range(5):
            bench.warn("second")
        bench.client.gate.set()
        await settled()
        assert [event.get("series", {}).get("count") for event in bench.client.created] == [None, 5]
        assert bench.client.patched == []


async def test_different_messages_are_different_events() -> None:
    async with running() as bench:
        bench.warn("Ingress a: taken")
        bench.warn("Ingress b: taken")
        await settled()
        assert [event["note"] for event in bench.client.created] == ["Ingress a: taken", "Ingress b: taken"]
        names = {event["metadata"]["name"] for event in bench.client.created}
        assert len(names) == 2


async def test_a_series_that_was_quiet_for_long_begins_anew() -> None:
    async with running() as bench:
        bench.warn()
        await settled()
        bench.clock.advance(361)
        bench.warn()
        await settled()
        assert len(bench.client.created) == 2
        assert bench.client.patched == []


async def test_a_series_whose_event_has_expired_is_written_anew() -> None:
    async with running() as bench:
        bench.warn()
        await settled()
        bench.client.errors = [NotFound(404)]
        bench.warn()
        await settled()
        assert bench.client.created[1]["series"]["count"] == 2


async def test_one_object_has_a_budget_that_others_do_not_share() -> None:
    async with running() as bench:
        for number in range(40):
            bench.warn(reason=f"Problem{number}")
        bench.warn(obj={**CLUSTER, "metadata": {**CLUSTER["metadata"], "name": "other", "uid": "u-2"}})
        await settled()
        assert len(bench.client.created) == 26
        assert bench.broadcaster.dropped == 15
        bench.clock.advance(300)
        bench.warn(reason="OneMore")
        bench.warn(reason="AndOneTooMany")
        await settled()
        assert len(bench.client.created) == 27


async def test_a_full_queue_drops_and_never_blocks() -> None:
    bench = Bench()
    for number in range(1200):
        bench.warn(obj={**CLUSTER, "metadata": {"namespace": "team", "name": f"c-{number}", "uid": f"u-{number}"}})
    assert bench.broadcaster.dropped == 200


async def test_what_may_pass_is_retried_in_order() -> None:
    async with running() as bench:
        bench.client.errors = [TransportError("refused", outcome_unknown=False), ServiceUnavailable(503)]
        bench.warn("first")
        bench.warn("second")
        await settled()
        assert bench.client.created == []
        bench.clock.advance(1)
        await settled()
        bench.clock.advance(2)
        await settled()
        assert [event["note"] for event in bench.client.created] == ["first", "second"]
        assert bench.clock.timers == 0


async def test_what_is_refused_is_dropped_with_a_line_in_the_log() -> None:
    with capture_logs() as lines:
        async with running() as bench:
            bench.client.errors = [Forbidden(403, {"message": "events is forbidden"}), Forbidden(403)]
            bench.warn("first")
            bench.warn("second")
            await settled()
            assert [event["note"] for event in bench.client.created] == ["second"]
            assert bench.broadcaster.dropped == 1
    (line,) = [line for line in lines if line["log_level"] == "warning"]
    assert "events is forbidden" in line["error"]


async def test_many_texts_of_one_kind_become_one_series() -> None:
    async with running() as bench:
        for number in range(40):
            bench.warn(f"attempt {number} failed")
            await settled()
        bench.warn("attempt 3 failed")
        await settled()
        notes = [event["note"] for event in bench.client.created]
        assert notes == [
            *(f"attempt {number} failed" for number in range(10)),
            "(combined from similar events): attempt 10 failed",
        ]
        assert [body["series"]["count"] for _, body in bench.client.patched] == [2, 4, 8, 16, 2]
        bench.clock.advance(601)
        bench.warn("attempt 41 failed")
        await settled()
        assert bench.client.created[-1]["note"] == "attempt 41 failed"


async def test_where_the_events_api_is_forbidden_the_core_one_is_used() -> None:
    async with running() as bench:
        bench.client.errors = [Forbidden(403, {"message": "events.events.k8s.io is forbidden"})]
        bench.recorder.event(CLUSTER, "Normal", "Created", "made it", related={"kind": "Ingress", "metadata": {}})
        await settled()
        bench.clock.advance(60)
        bench.recorder.event(CLUSTER, "Normal", "Created", "made it")
        bench.warn()
        await settled()
        made, other = bench.client.created
    assert made == {
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
        "message": "made it",
        "type": "Normal",
        "action": "Reconcile",
        "source": {"component": "raycluster-ingress", "host": "pod-1"},
        "reportingComponent": "raycluster-ingress",
        "reportingInstance": "raycluster-ingress-pod-1",
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
    }
    assert other["apiVersion"] == "v1"
    ((_, repeated),) = bench.client.patched
    assert repeated == {"count": 2, "lastTimestamp": "2026-01-01T00:01:00Z"}


async def test_stopping_writes_what_is_queued_and_does_not_retry() -> None:
    bench = Bench()
    bench.client.errors = [TransportError("refused", outcome_unknown=False)]
    bench.warn("first")
    bench.warn("second")
    bench.broadcaster.stop()
    await bench.broadcaster.run()
    assert [event["note"] for event in bench.client.created] == ["second"]


async def test_stopping_ends_the_wait_for_a_retry() -> None:
    bench = Bench()
    bench.client.errors = [TransportError("refused", outcome_unknown=False)] * 2
    bench.warn()
    run = asyncio.create_task(bench.broadcaster.run())
    await settled()
    bench.broadcaster.stop()
    await run
    assert bench.broadcaster.dropped == 1


async def test_a_long_message_is_cut_at_a_character() -> None:
    async with running() as bench:
        bench.warn("ä" * 600)
        bench.warn("x" * 1024)
        await settled()
    notes = [event["note"] for event in bench.client.created]
    assert len(notes[0].encode()) <= 1024
    assert notes[0].endswith("ä...")
    assert notes[1] == "x" * 1024


async def test_a_long_name_leaves_room_for_the_time() -> None:
    async with running() as bench:
        bench.warn(obj={**CLUSTER, "metadata": {"namespace": "team", "name": "n" * 253, "uid": "u"}})
        await settled()
    assert len(bench.client.created[0]["metadata"]["name"]) == 253


@pytest.mark.parametrize(("kind", "reason"), [("Error", "Reason"), ("Normal", ""), ("Normal", "R" * 129)])
def test_what_the_api_would_refuse_is_refused_here(kind: Any, reason: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        Bench().recorder.event(CLUSTER, kind, reason, "message")
