"""Controllers, tested with requests from a channel and a fake clock."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import anyio
import orjson
import pytest
import structlog
from structlog.testing import capture_logs

from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.cache.unavailable_namespaces import UnavailableNamespaces
from cfo.runtime.client.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    InternalError,
    NotFound,
    OwnerDeleted,
    TooManyRequests,
    TransportError,
    missing_rule,
)
from cfo.runtime.controller.controller import Controller, ControllerOptions, reconcile_id
from cfo.runtime.controller.loops import LIMIT, ReconcileLoops
from cfo.runtime.controller.metrics import Metrics
from cfo.runtime.controller.reconcile import Request, Result
from cfo.runtime.controller.source import Channel
from cfo.runtime.controller.workqueue import LOW_PRIORITY
from cfo.runtime.objects.conditions import Conditions
from cfo.runtime.objects.errors import ReconcileError, TerminalError
from cfo.runtime.objects.kinds import CONFIG_MAP
from cfo.runtime.objects.unstructured import GVK, new_object, set_controller_owner
from cfo.runtime.process import function_errors
from cfo.runtime.process.large_objects import MANY_VALUES, MAX_PAUSE
from test.support.clocks import FakeClock
from test.support.scheduling import run_until_idle

A, B = Request("ns", "a"), Request("ns", "b")
MIRRORED = new_object(CONFIG_MAP, "a", "ns")


class ScriptedReconciler:
    """A reconciler that runs the script of the test and records its requests."""

    def __init__(self, script: Callable[[Request], Awaitable[Result]]) -> None:
        self.script = script
        self.requests: list[Request] = []

    async def reconcile(self, request: Request) -> Result:
        self.requests.append(request)
        return await self.script(request)


class Harness:
    """A controller with its reconciler, channel, fake clock and metrics."""

    def __init__(self, script: Callable[[Request], Awaitable[Result]], **options: Any) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.reconciler = ScriptedReconciler(script)
        self.channel = Channel()
        self.controller = Controller(
            "mirror",
            self.reconciler,
            kind=GVK("example.com", "v1", "Mirror"),
            options=ControllerOptions(**options),
            metrics=self.metrics,
            clock=self.clock,
        )
        self.controller.watch(self.channel)

    def count(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            f"controller_runtime_{name}", {"controller": "mirror", **labels}
        )


@asynccontextmanager
async def running(harness: Harness) -> AsyncIterator[Harness]:
    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda *, task_status: harness.controller.run(task_status=task_status))
        yield harness
        harness.controller.stop()


async def succeed(_: Request) -> Result:
    return Result()


def failing_with(*errors: Exception) -> Callable[[Request], Awaitable[Result]]:
    """Return a script that raises the errors one after the other, and then succeeds."""
    remaining = list(errors)

    async def script(_: Request) -> Result:
        if remaining:
            raise remaining.pop(0)
        return Result()

    return script


def capture_context_logs() -> Any:
    return capture_logs(processors=[structlog.contextvars.merge_contextvars])


def error_lines(lines: list[Any]) -> list[Any]:
    return [line for line in lines if line["log_level"] in ("warning", "error", "critical")]


async def test_requests_outside_the_namespaces_are_dropped() -> None:
    harness = Harness(succeed)
    elsewhere, of_cluster = Request("other", "a"), Request("", "a")
    controller = Controller(
        "limited", harness.reconciler, namespaces=["ns"], clock=harness.clock, metrics=Metrics()
    )
    controller.watch(harness.channel)
    harness.controller = controller
    async with running(harness):
        harness.channel.enqueue([elsewhere, A, of_cluster])
        await run_until_idle()
        assert set(harness.reconciler.requests) == {A, of_cluster}
        assert len(controller.queue) == 0
        assert controller.queue.processing == 0


async def test_requests_of_a_namespace_that_is_left_out_wait_until_it_is_available() -> None:
    """Also those that failed before the informers noticed; their back-off can be many minutes."""
    harness = Harness(failing_with(InternalError("no")))
    unavailable = UnavailableNamespaces()
    controller = Controller(
        "limited", harness.reconciler, clock=harness.clock, unavailable=unavailable
    )
    controller.watch(harness.channel)
    harness.controller = controller
    elsewhere = Request("other", "a")
    async with running(harness):
        harness.channel.enqueue([A])
        await run_until_idle()
        assert harness.reconciler.requests == [A]
        assert controller.queue.waiting == 1

        unavailable.replace("pods", {"ns": "rule"})
        unavailable.replace("secrets", {"ns": "rule"})
        harness.channel.enqueue([B, elsewhere, B], priority=3)
        await run_until_idle()
        assert harness.reconciler.requests == [A, elsewhere]
        assert controller.queue.processing == 0

        unavailable.replace("pods", {})
        await run_until_idle()
        assert harness.reconciler.requests == [A, elsewhere]

        unavailable.replace("secrets", {})
        await run_until_idle()
        assert harness.reconciler.requests == [A, elsewhere, B, A]
        assert controller.queue.waiting == 0


class CollectedErrors:
    """Errors that a reconciler collects and raises together; it refers to them, as their tracebacks do to it."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []


async def test_failed_reconcile_keeps_no_objects() -> None:
    """Otherwise the large objects of reconciles that are repeated fill the memory until garbage is collected."""
    kept: list[weakref.ref[CollectedErrors]] = []

    async def script(_: Request) -> Result:
        collected = CollectedErrors()
        kept.append(weakref.ref(collected))
        collected.errors.append(ReconcileError("expected"))
        raise collected.errors[0]

    gc.disable()
    try:
        async with running(Harness(script)) as harness:
            harness.channel.enqueue([A])
            await run_until_idle()
            assert [reference() for reference in kept] == [None]
    finally:
        gc.enable()


async def test_one_large_object_is_reconciled_at_a_time() -> None:
    ends = {request: anyio.Event() for request in (A, B, Request("ns", "usual"))}
    active: list[str] = []
    store = {
        request: EntryDecoder(CONFIG_MAP).decode(
            orjson.dumps({"metadata": {"name": request.name}, "data": [{}] * number})
        )
        for request, number in zip(ends, (MANY_VALUES, MANY_VALUES, 10), strict=True)
    }

    async def script(request: Request) -> Result:
        store[request].object()
        active.append(request.name)
        await ends[request].wait()
        active.remove(request.name)
        return Result()

    async with running(Harness(script)) as harness:
        harness.channel.enqueue(list(ends))
        await run_until_idle()
        assert sorted(active) == ["a", "usual"]
        ends[A].set()
        await run_until_idle()
        assert sorted(active) == ["b", "usual"]
        for end in ends.values():
            end.set()
        await run_until_idle()
        assert active == []


async def test_namespace_that_is_left_out_keeps_no_room_for_large_objects() -> None:
    """Those who can delete the operator's RoleBinding in their namespace could stop the large objects of all others."""
    requests = [Request("running", "a"), Request("left-out", "a"), Request("other", "a")]
    running_ends = anyio.Event()
    large = EntryDecoder(CONFIG_MAP).decode(
        orjson.dumps({"metadata": {"name": "a"}, "data": [{}] * MANY_VALUES})
    )
    reconciled: list[str] = []

    async def script(request: Request) -> Result:
        large.object()
        if request.namespace == "running":
            await running_ends.wait()
        reconciled.append(request.namespace)
        return Result()

    harness = Harness(script)
    unavailable = UnavailableNamespaces()
    harness.controller = Controller(
        "large", harness.reconciler, clock=harness.clock, unavailable=unavailable
    )
    harness.controller.watch(harness.channel)
    async with running(harness):
        for request in requests:
            harness.channel.enqueue([request])
            await run_until_idle()
        unavailable.replace("pods", {"left-out": "rule"})
        running_ends.set()
        await run_until_idle()
        harness.clock.advance(MAX_PAUSE)
        await run_until_idle()
        assert reconciled == ["running", "other"]
        unavailable.replace("pods", {})
        harness.clock.advance(MAX_PAUSE)
        await run_until_idle()
        assert reconciled == ["running", "other", "left-out"]


async def test_object_that_is_reconciled_continually_is_reported_once() -> None:
    async with running(Harness(succeed)) as harness:
        with capture_context_logs() as lines:
            for _ in range(2 * LIMIT):
                harness.channel.enqueue([A])
                await run_until_idle()
        (line,) = error_lines(lines)
        assert line["event"].startswith("Object is reconciled continually")
        assert (line["name"], line["reconciles"]) == ("a", LIMIT)


def test_reconciles_of_different_windows_are_not_added() -> None:
    loops = ReconcileLoops()
    assert not any(loops.record(A, float(second)) for second in range(2 * LIMIT))


def test_number_of_objects_that_are_counted_is_bounded() -> None:
    loops = ReconcileLoops()
    for number in range(5_000):
        assert not loops.record(Request("ns", str(number)), 0.0)
    assert len(loops._counts) == 1024


async def test_requests_are_reconciled_and_counted() -> None:
    async with running(Harness(succeed)) as harness:
        harness.channel.enqueue([A, B, A])
        await run_until_idle()
        assert harness.reconciler.requests == [A, B]
        assert harness.count("reconcile_total", result="success") == 2
        assert harness.count("reconcile_time_seconds_count") == 2
        assert harness.count("active_workers") == 0


async def test_all_metrics_exist_before_the_first_reconcile() -> None:
    harness = Harness(succeed)
    for result in ("success", "error", "requeue", "requeue_after"):
        assert harness.count("reconcile_total", result=result) == 0
    for name in (
        "reconcile_errors",
        "terminal_reconcile_errors",
        "reconcile_panics",
        "reconcile_timeouts",
    ):
        assert harness.count(f"{name}_total") == 0
    assert harness.count("max_concurrent_reconciles") == 8


async def test_requeue_after_requeues_after_that_many_seconds() -> None:
    async def script(_: Request) -> Result:
        return Result(requeue_after=30)

    async with running(Harness(script)) as harness:
        harness.channel.enqueue([A])
        await run_until_idle()
        harness.clock.advance(29)
        await run_until_idle()
        assert harness.reconciler.requests == [A]
        harness.clock.advance(1)
        await run_until_idle()
        assert harness.reconciler.requests == [A, A]
        assert harness.count("reconcile_total", result="requeue_after") == 2


async def test_requeued_requests_keep_their_priority() -> None:
    async def script(_: Request) -> Result:
        return Result(requeue_after=1)

    async with running(Harness(script, max_concurrent_reconciles=1)) as harness:
        harness.channel.enqueue([A], priority=LOW_PRIORITY)
        await run_until_idle()
        harness.channel.enqueue([B])
        await run_until_idle()
        harness.reconciler.script = succeed
        harness.clock.advance(1)
        await run_until_idle()
        assert harness.reconciler.requests == [A, B, B, A]


async def test_result_determines_the_priority_of_the_next_reconcile() -> None:
    async def script(_: Request) -> Result:
        return Result(requeue_after=2, priority=LOW_PRIORITY)

    async with running(Harness(script, max_concurrent_reconciles=1)) as harness:
        harness.channel.enqueue([A])
        await run_until_idle()
        harness.channel.enqueue([A], after=1, priority=LOW_PRIORITY)
        harness.channel.enqueue([B], after=1)
        harness.reconciler.script = succeed
        harness.clock.advance(1)
        await run_until_idle()
        assert harness.reconciler.requests == [A, B, A]


async def test_error_is_retried_with_backoff_that_success_resets() -> None:
    async with running(
        Harness(
            failing_with(TransportError("connection reset", outcome_unknown=False), NotFound(404))
        )
    ) as harness:
        harness.channel.enqueue([A])
        await run_until_idle()
        assert harness.reconciler.requests == [A]
        harness.clock.advance(0.005)
        await run_until_idle()
        assert harness.reconciler.requests == [A, A]
        assert harness.controller.queue.num_requeues(A) == 2
        harness.clock.advance(0.01)
        await run_until_idle()
        assert harness.reconciler.requests == [A, A, A]
        assert harness.controller.queue.num_requeues(A) == 0
        assert harness.count("reconcile_errors_total") == 2
        assert harness.count("reconcile_total", result="error") == 2
        assert harness.count("reconcile_panics_total") == 0


async def test_error_is_logged_once_with_controller_object_and_reconcile_id() -> None:
    with capture_context_logs() as lines:
        async with running(Harness(failing_with(ValueError("boom")))) as harness:
            harness.channel.enqueue([A])
            await run_until_idle()
    (line,) = error_lines(lines)
    assert line["controller"] == "mirror"
    assert (line["controllerGroup"], line["controllerKind"]) == ("example.com", "Mirror")
    assert (line["namespace"], line["name"]) == ("ns", "a")
    assert len(line["reconcileID"]) == 36
    assert line["error"] == "ValueError: boom"
    assert line["failures"] == 1
    assert isinstance(line["exc_info"], ValueError)


async def test_stack_trace_is_logged_once_for_an_error_that_is_retried() -> None:
    actions = ["fail", "fail", "fail elsewhere", "fail elsewhere", "succeed", "fail elsewhere"]

    async def script(_: Request) -> Result:
        action = actions.pop(0)
        if action == "fail":
            raise ValueError(f"{len(actions)} left")
        if action == "fail elsewhere":
            raise ValueError(f"{len(actions)} left")
        return Result()

    with capture_context_logs() as lines:
        async with running(Harness(script)) as harness:
            harness.channel.enqueue([A])
            await run_until_idle()
            while actions:
                if not harness.controller.queue.num_requeues(A):
                    harness.channel.enqueue([A])
                harness.clock.advance(1)
                await run_until_idle()
    logged = [(line["error"], line["exc_info"] is not None) for line in error_lines(lines)]
    assert logged == [
        ("ValueError: 5 left", True),
        ("ValueError: 4 left", False),
        ("ValueError: 3 left", True),
        ("ValueError: 2 left", False),
        ("ValueError: 0 left", True),
    ]


async def test_log_lines_of_a_reconciler_contain_only_its_request() -> None:
    log = structlog.get_logger("test")
    reconcile_ids: dict[Request, str] = {}

    async def script(request: Request) -> Result:
        reconcile_ids[request] = reconcile_id()
        log.info("Reconciling")
        return Result()

    with capture_context_logs() as lines:
        async with running(Harness(script, max_concurrent_reconciles=1)) as harness:
            harness.channel.enqueue([A, B])
            await run_until_idle()
    own_lines = [line for line in lines if line["event"] == "Reconciling"]
    assert [(line["name"], line["reconcileID"]) for line in own_lines] == [
        ("a", reconcile_ids[A]),
        ("b", reconcile_ids[B]),
    ]
    assert reconcile_ids[A] != reconcile_ids[B]
    assert reconcile_id() == ""
    assert "reconcileID" not in structlog.contextvars.get_contextvars()


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (Conflict(409, {"reason": "Conflict"}), "debug"),
        (ExceptionGroup("two", [Conflict(409), Conflict(409)]), "debug"),
        (OwnerDeleted("not recreated"), "debug"),
        (AlreadyExists(409, {"reason": "AlreadyExists"}), "error"),
        (
            Conflict(
                409, {"details": {"causes": [{"reason": "FieldManagerConflict", "field": ".spec"}]}}
            ),
            "error",
        ),
        (ExceptionGroup("two", [Conflict(409), KeyError("x")]), "error"),
    ],
)
async def test_only_update_conflicts_are_logged_at_debug_level(
    error: Exception, level: str
) -> None:
    with capture_context_logs() as lines:
        async with running(Harness(failing_with(error))) as harness:
            harness.channel.enqueue([A])
            await run_until_idle()
            harness.clock.advance(0.005)
            await run_until_idle()
            assert harness.reconciler.requests == [A, A]
    (line,) = [line for line in lines if "retry_in" in line]
    assert line["log_level"] == level


def missing(name: str, group: str) -> NotFound:
    """Return the response of an API server that does not find an object."""
    return NotFound(404, {"details": {"name": name, "group": group, "kind": "things"}})


@pytest.mark.parametrize(
    ("error", "levels"),
    [
        (missing("a", "example.com"), ["debug", "error"]),
        (missing("b", "example.com"), ["error", "error"]),
        (missing("a", "other.example.com"), ["error", "error"]),
        (NotFound(404), ["error", "error"]),
    ],
)
async def test_first_failure_to_find_the_reconciled_object_is_logged_at_debug_level(
    error: Exception, levels: list[str]
) -> None:
    with capture_context_logs() as lines:
        async with running(Harness(failing_with(error, error))) as harness:
            harness.channel.enqueue([A])
            await run_until_idle()
            harness.clock.advance(0.005)
            await run_until_idle()
    assert [line["log_level"] for line in lines if "retry_in" in line] == levels


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (Conflict(409, {"reason": "Conflict"}), "each write returns the new object"),
        (OwnerDeleted("not recreated"), "create nothing for an owner that is being deleted"),
    ],
)
async def test_conflicts_that_do_not_end_are_logged_with_a_hint(
    error: Exception, hint: str
) -> None:
    with capture_context_logs() as lines:
        async with running(Harness(failing_with(*[error] * 9))) as harness:
            harness.channel.enqueue([A])
            for _ in range(9):
                await run_until_idle()
                harness.clock.advance(2)
            await run_until_idle()
            assert len(harness.reconciler.requests) == 10
    retries = [line for line in lines if "retry_in" in line]
    assert [line["log_level"] for line in retries] == ["debug"] * 7 + ["warning"] * 2
    assert [line["failures"] for line in retries[7:]] == [8, 9]
    assert all(line["hint"].startswith(hint) for line in retries[7:])


async def test_apply_that_does_not_fit_the_schema_is_logged_with_a_hint() -> None:
    message = (
        "failed to create typed patch object (default/a; apps/v1, Kind=Deployment): "
        ".spec.replica: field not declared in schema"
    )
    error = InternalError(500, {"message": message, "reason": "InternalError"})
    with capture_context_logs() as lines:
        async with running(Harness(failing_with(error, InternalError(500)))) as harness:
            harness.channel.enqueue([A])
            await run_until_idle()
            harness.clock.advance(0.005)
            await run_until_idle()
    retries = [line for line in lines if "retry_in" in line]
    assert [line.get("hint", "") for line in retries] == [
        "the applied object has a field that the schema lacks, or a value of another type",
        "",
    ]


class NoSuchThing(ReconcileError):
    """An expected failure of a reconciler."""


@pytest.mark.parametrize(
    "error", [NotFound(404, {"message": "no such thing"}), NoSuchThing("no such thing")]
)
async def test_expected_errors_are_logged_without_stack_trace(error: Exception) -> None:
    with capture_context_logs() as lines:
        async with running(Harness(failing_with(error))) as harness:
            harness.channel.enqueue([A])
            await run_until_idle()
    (line,) = error_lines(lines)
    assert "exc_info" not in line
    assert line["error"] == f"{type(error).__name__}: no such thing"
    assert line["retry_in"] > 0


def wrong_delay() -> object:
    return Result(requeue_after=-1)


def unknown_status() -> object:
    conditions = Conditions(MIRRORED, now=datetime(2026, 1, 1, tzinfo=UTC))
    return conditions.set("Ready", "true", "Served")  # type: ignore[arg-type]


def owner_that_was_never_stored() -> object:
    return set_controller_owner(MIRRORED, MIRRORED)


@pytest.mark.parametrize("mistake", [wrong_delay, unknown_status, owner_that_was_never_stored])
async def test_wrong_argument_of_the_library_is_a_bug(mistake: Callable[[], object]) -> None:
    async def reconcile(request: Request) -> Result:
        mistake()
        return Result()

    with function_errors.collected() as found:
        async with running(Harness(reconcile)) as harness:
            harness.channel.enqueue([A])
            await run_until_idle()
            assert harness.count("reconcile_panics_total") == 1
    assert [(each.is_bug, isinstance(each.error, ValueError)) for each in found.errors] == [
        (True, True)
    ]


async def test_denied_request_is_logged_with_the_missing_rule() -> None:
    message = (
        'services "a" is forbidden: User "operator" cannot patch resource "services/status" in API group "" '
        'in the namespace "default"'
    )
    with capture_logs() as lines:
        async with running(Harness(failing_with(Forbidden(403, message=message)))) as harness:
            harness.channel.enqueue([A])
            await run_until_idle()
    (line,) = [line for line in lines if line["event"] == "Reconcile failed, will retry"]
    assert line["missing_rule"] == (
        '{apiGroups: [""], resources: ["services/status"], verbs: ["patch"]}'
    )


def test_other_denials_name_no_missing_rule() -> None:
    quota = 'pods "a" is forbidden: exceeded quota: compute, requested: pods=1'
    assert missing_rule(Forbidden(403, message=quota)) == ""
    assert missing_rule(NotFound(404, message=' cannot get resource "a" in API group ""')) == ""


async def test_programming_error_counts_as_panic_and_worker_continues() -> None:
    async with running(
        Harness(failing_with(KeyError("x")), max_concurrent_reconciles=1)
    ) as harness:
        harness.channel.enqueue([A, B])
        await run_until_idle()
        assert harness.reconciler.requests == [A, B]
        assert harness.count("reconcile_panics_total") == 1


async def test_error_without_a_readable_text_ends_no_worker() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise ValueError

    async with running(Harness(failing_with(Broken()), max_concurrent_reconciles=1)) as harness:
        harness.channel.enqueue([A, B])
        await run_until_idle()
        assert harness.reconciler.requests == [A, B]


async def test_terminal_error_is_not_retried_before_the_next_event() -> None:
    with capture_context_logs() as lines:
        async with running(
            Harness(failing_with(TerminalError("spec.x: must be a number")))
        ) as harness:
            harness.channel.enqueue([A])
            await run_until_idle()
            harness.clock.advance(3600)
            await run_until_idle()
            assert harness.reconciler.requests == [A]
            assert harness.count("terminal_reconcile_errors_total") == 1
            harness.channel.enqueue([A])
            await run_until_idle()
            assert harness.reconciler.requests == [A, A]
    assert len(error_lines(lines)) == 1


async def test_retry_waits_for_retry_after_of_the_server() -> None:
    async with running(Harness(failing_with(TooManyRequests(429, retry_after=7.0)))) as harness:
        harness.channel.enqueue([A])
        await run_until_idle()
        harness.clock.advance(6.9)
        await run_until_idle()
        assert harness.reconciler.requests == [A]
        harness.clock.advance(0.1)
        await run_until_idle()
        assert harness.reconciler.requests == [A, A]


async def test_exit_of_the_process_inside_reconcile_is_an_ordinary_error() -> None:
    with capture_logs() as lines:
        async with running(Harness(failing_with(SystemExit(3)))) as harness:
            harness.channel.enqueue([A])
            await run_until_idle()
    (line,) = error_lines(lines)
    assert line["error"].endswith(
        "the reconcile called sys.exit(3): it must raise another exception"
    )


async def test_reconcile_over_its_timeout_is_cancelled_and_retried() -> None:
    cleaned: list[Request] = []

    async def script(request: Request) -> Result:
        if cleaned:
            return Result()
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append(request)
        return Result()

    with capture_context_logs() as lines:
        async with running(Harness(script, reconcile_timeout=10)) as harness:
            harness.channel.enqueue([A])
            await run_until_idle()
            harness.clock.advance(10)
            await run_until_idle()
            assert cleaned == [A]
            assert harness.count("reconcile_timeouts_total") == 1
            harness.clock.advance(0.005)
            await run_until_idle()
            assert harness.reconciler.requests == [A, A]
            assert harness.clock.timers == 0
    (line,) = error_lines(lines)
    assert "exceeded its timeout of 10 s" in line["error"]


async def test_cancellation_raised_inside_reconcile_is_an_ordinary_error() -> None:
    async def script(request: Request) -> Result:
        if request == B:
            return Result()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future
        return Result()

    async with running(Harness(script, max_concurrent_reconciles=1)) as harness:
        harness.channel.enqueue([A, B])
        await run_until_idle()
        assert harness.reconciler.requests == [A, B]
        assert harness.count("reconcile_errors_total") == 1


def test_class_of_a_reconciler_is_refused() -> None:
    class Website:
        async def reconcile(self, request: Request) -> Result:
            return Result()

    reconciler: Any = Website
    with pytest.raises(TypeError, match="Website: must be an instance, not the class"):
        Controller("x", reconciler)


def test_reconciler_with_a_sync_reconcile_is_refused() -> None:
    class Blocking:
        def reconcile(self, request: Request) -> Result:
            return Result()

    with pytest.raises(TypeError, match=r"Blocking\.reconcile: must be a coroutine function"):
        Controller("blocking", Blocking())  # type: ignore[arg-type]


RESULT = "a Result, such as Result(requeue_after=60)"


@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        (None, "None"),
        (5, "a value of type int"),
        ({"kind": "Secret", "data": {"password": "c2VjcmV0"}}, "a value of type dict"),
    ],
)
async def test_reconcile_must_return_a_result(returned: Any, shown: str) -> None:
    async def script(_: Request) -> Result:
        result: Result = returned
        return result

    with capture_context_logs() as lines:
        async with running(Harness(script)) as harness:
            harness.channel.enqueue([A])
            await run_until_idle()
    (line,) = error_lines(lines)
    assert (
        line["error"]
        == f"TypeError: ScriptedReconciler.reconcile: returned {shown}: must return {RESULT}"
    )


async def test_requests_run_concurrently_up_to_the_limit_and_equal_ones_in_sequence() -> None:
    gate = asyncio.Event()
    active: list[Request] = []
    max_active = 0

    async def script(request: Request) -> Result:
        nonlocal max_active
        assert request not in active
        active.append(request)
        max_active = max(max_active, len(active))
        await gate.wait()
        active.remove(request)
        return Result()

    requests = [Request("ns", str(number)) for number in range(10)]
    async with running(Harness(script, max_concurrent_reconciles=3)) as harness:
        harness.channel.enqueue(requests)
        await run_until_idle()
        assert harness.count("active_workers") == 3
        harness.channel.enqueue(active)
        await run_until_idle()
        gate.set()
        await run_until_idle()
        assert max_active == 3
        assert len(harness.reconciler.requests) == 13


async def test_namespace_that_floods_does_not_delay_others() -> None:
    """An attacker's slow reconciles occupy all workers; the next ones that are free serve the other namespaces."""
    release = asyncio.Semaphore(0)

    async def script(request: Request) -> Result:
        if request.namespace == "attacker":
            await release.acquire()
        return Result()

    async with running(Harness(script, max_concurrent_reconciles=4)) as harness:
        harness.channel.enqueue(Request("attacker", str(number)) for number in range(1000))
        await run_until_idle()
        assert len(harness.reconciler.requests) == 4
        harness.channel.enqueue(Request(f"victim-{number}", "a") for number in range(10))
        release.release()
        await run_until_idle()
        served = [request.namespace for request in harness.reconciler.requests[4:]]
        assert sorted(served[:10]) == sorted(f"victim-{number}" for number in range(10))
        release.release()
        for _ in range(1000):
            release.release()
        await run_until_idle()
        assert len(harness.reconciler.requests) == 1010


async def test_reconciles_that_never_await_do_not_starve_other_tasks() -> None:
    turns = 0

    async def script(_: Request) -> Result:
        return Result()

    async def other() -> None:
        nonlocal turns
        while len(harness.reconciler.requests) < 1000:
            turns += 1
            await asyncio.sleep(0)

    async with running(Harness(script, max_concurrent_reconciles=1)) as harness:
        harness.channel.enqueue(Request("ns", str(number)) for number in range(1000))
        await other()
    assert turns > 100


async def test_stop_lets_running_reconciles_finish_and_starts_no_new_ones() -> None:
    gate = asyncio.Event()
    finished: list[Request] = []

    async def script(request: Request) -> Result:
        await gate.wait()
        finished.append(request)
        return Result()

    harness = Harness(script, max_concurrent_reconciles=1)
    run = asyncio.create_task(harness.controller.run())
    harness.channel.enqueue([A, B])
    await run_until_idle()
    harness.controller.stop()
    await run_until_idle()
    assert not run.done()
    gate.set()
    await run
    assert finished == [A]


async def test_controller_fails_if_a_reconcile_cancels_its_own_task() -> None:
    async def script(_: Request) -> Result:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return Result()

    harness = Harness(script)
    harness.channel.enqueue([A])
    with anyio.fail_after(120), pytest.raises(ExceptionGroup) as failure:
        await harness.controller.run()
    assert failure.group_contains(RuntimeError, match="a reconcile cancelled its own task", depth=1)


async def test_cancellation_cancels_running_reconciles() -> None:
    cancelled: list[Request] = []

    async def script(request: Request) -> Result:
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            cancelled.append(request)
            raise
        return Result()

    harness = Harness(script)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(harness.controller.run)
        harness.channel.enqueue([A])
        await run_until_idle()
        tasks.cancel_scope.cancel()
    assert cancelled == [A]
    assert harness.controller.queue.processing == 0


class SlowSource(Channel):
    """A source that has synced once the test sets ``synced``."""

    def __init__(self) -> None:
        super().__init__()
        self.synced = asyncio.Event()
        self.stopped = False

    async def wait_for_sync(self) -> None:
        await self.synced.wait()

    def stop(self) -> None:
        super().stop()
        self.stopped = True


async def test_reconciles_start_only_after_all_sources_have_synced() -> None:
    harness = Harness(succeed)
    slow = SlowSource()
    harness.controller.watch(slow)
    harness.channel.enqueue([A])
    run = asyncio.create_task(harness.controller.run())
    await run_until_idle()
    assert harness.reconciler.requests == []
    slow.synced.set()
    await run_until_idle()
    assert harness.reconciler.requests == [A]
    harness.controller.stop()
    await run
    assert slow.stopped


async def test_stop_does_not_wait_for_a_source_that_never_syncs() -> None:
    harness = Harness(succeed)
    harness.controller.watch(SlowSource())
    run = asyncio.create_task(harness.controller.run())
    await run_until_idle()
    harness.controller.stop()
    await run
    assert harness.reconciler.requests == []


async def test_source_can_be_added_to_a_running_controller() -> None:
    async with running(Harness(succeed)) as harness:
        late = Channel()
        late.enqueue([B])
        harness.controller.watch(late)
        await run_until_idle()
        assert harness.reconciler.requests == [B]


@pytest.mark.parametrize("options", [{"max_concurrent_reconciles": 0}, {"reconcile_timeout": 0}])
def test_invalid_options_are_rejected_by_name(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=f"{name}: 0: must be"):
        ControllerOptions(**options)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_requeue_after_without_an_end_is_rejected(seconds: float) -> None:
    with pytest.raises(ValueError, match=f"requeue_after: {seconds}"):
        Result(requeue_after=seconds)


def test_requeue_after_of_a_string_is_rejected() -> None:
    seconds: Any = "60"
    with pytest.raises(TypeError, match="requeue_after: '60': must be a number of seconds"):
        Result(requeue_after=seconds)


def test_priority_of_a_string_is_rejected() -> None:
    priority: Any = "low"
    with pytest.raises(TypeError, match="priority: 'low': must be an integer or None"):
        Result(priority=priority)


async def test_causes_are_in_the_context_and_in_log_lines() -> None:
    seen: list[str] = []

    async def script(request: Request) -> Result:
        seen.append(str(structlog.contextvars.get_contextvars()["causes"]))
        structlog.get_logger().info("reconciling")
        if len(seen) == 1:
            raise TransportError("connection refused", outcome_unknown=False)
        return Result(requeue_after=30 if len(seen) == 2 else 0)

    with capture_context_logs() as lines:
        async with running(Harness(script)) as harness:
            harness.channel.enqueue([A], reason="timer")
            for seconds in (0, 1, 30):
                harness.clock.advance(seconds)
                await run_until_idle()
    assert seen == ["generic: timer", "retry: TransportError", "requeue after: 30 s"]
    assert [str(line["causes"]) for line in lines if line["event"] == "reconciling"] == seen
    assert not structlog.contextvars.get_contextvars()
