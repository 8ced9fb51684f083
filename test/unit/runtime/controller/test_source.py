"""Event handlers and sources: how events of informers and channels become requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
import pytest
import structlog
from structlog.testing import capture_logs

from cfo.runtime.cache.entry import Entry, EntryDecoder
from cfo.runtime.cache.informer import Handler
from cfo.runtime.cache.store import Event, EventType
from cfo.runtime.client.discovery import Resource
from cfo.runtime.client.errors import TransportError, UnknownKind
from cfo.runtime.client.ratelimit import ExponentialRateLimiter
from cfo.runtime.controller.handler import (
    EnqueueRequestForObject,
    EnqueueRequestForOwner,
    EnqueueRequestsFromMapFunc,
)
from cfo.runtime.controller.reconcile import Request
from cfo.runtime.controller.source import Channel, InformerSync, Kind
from cfo.runtime.controller.workqueue import LOW_PRIORITY, WorkQueue
from cfo.runtime.objects.kinds import CONFIG_MAP
from cfo.runtime.objects.unstructured import GVK, NamespacedName
from test.support.clocks import FakeClock

MIRROR = GVK("example.com", "v1", "Mirror")
KEY = NamespacedName("ns", "a")


class Mapper:
    """A RESTMapper that serves the given kinds; its first ``failures`` lookups fail."""

    def __init__(self, *served: GVK, namespaced: bool = True, failures: int = 0) -> None:
        self.served = set(served)
        self.namespaced = namespaced
        self.failures = failures

    def cached(self, gvk: GVK) -> Resource | None:
        return (
            Resource(gvk=gvk, plural="x", namespaced=self.namespaced)
            if gvk in self.served
            else None
        )

    async def resource(self, gvk: GVK, *, since: object = None) -> Resource:
        if self.failures:
            self.failures -= 1
            raise TransportError("connection refused", outcome_unknown=False)
        found = self.cached(gvk)
        if found is None:
            raise UnknownKind(str(gvk))
        return found


class FakeInformer:
    """An informer whose events the test sends."""

    def __init__(self, gvk: GVK = CONFIG_MAP) -> None:
        self.gvk = gvk
        self.handlers: list[Handler] = []
        self.sync_waits = 0
        self.waits_if_forbidden = False
        self.errors = 0

    def count_error(self) -> None:
        self.errors += 1

    def add_handler(self, handler: Handler, *, left_out: bool = False) -> None:
        assert left_out, "a controller starts later than its informers"
        self.handlers.append(handler)

    def remove_handler(self, handler: Handler) -> None:
        self.handlers.remove(handler)

    async def wait_for_sync(self, *, unless_forbidden: bool = False) -> None:
        self.sync_waits += 1
        self.waits_if_forbidden = not unless_forbidden

    def send(self, event: Event) -> None:
        for handler in self.handlers:
            handler(event)


def entry(*owners: dict[str, Any], labels: dict[str, str] | None = None) -> Entry:
    metadata = {
        "name": "a",
        "namespace": "ns",
        "uid": "u",
        "ownerReferences": list(owners),
        "labels": labels or {},
    }
    return EntryDecoder(CONFIG_MAP).decode(
        orjson.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    )


def owner(
    name: str, *, kind: str = "Mirror", api_version: str = "example.com/v1", controller: bool = True
) -> Any:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": name,
        "controller": controller,
    }


def added(new: Entry, *, initial: bool = False) -> Event:
    return Event(EventType.ADDED, KEY, None, new, initial=initial)


def updated(old: Entry, new: Entry) -> Event:
    return Event(EventType.UPDATED, KEY, old, new)


def left_out(old: Entry, current: Entry) -> Event:
    """Return the event of an object whose state ``current`` does not fit into the cache."""
    return Event(EventType.DELETED, KEY, old, None, left_out=current)


def create_queue() -> WorkQueue[Request]:
    return WorkQueue(clock=FakeClock(), rate_limiter=ExponentialRateLimiter())


async def take_all(queue: WorkQueue[Request]) -> list[tuple[Request, int]]:
    return [await queue.get() for _ in range(len(queue))]


def owner_requests(event: Event, *, mapper: Mapper | None = None) -> list[Request]:
    handler = EnqueueRequestForOwner(MIRROR)
    handler._mapper = mapper  # type: ignore[assignment]
    return list(handler.requests(event))


def test_event_of_an_object_enqueues_the_object_itself() -> None:
    assert list(EnqueueRequestForObject().requests(added(entry()))) == [KEY]


def test_only_controlling_owner_of_matching_group_and_kind_is_enqueued() -> None:
    event = added(
        entry(
            owner("m"),
            owner("other-version", api_version="example.com/v2"),
            owner("other-group", api_version="example.org/v1"),
            owner("other-kind", kind="Lens"),
            owner("not-controller", controller=False),
        )
    )
    assert owner_requests(event) == [Request("ns", "m"), Request("ns", "other-version")]


def test_former_owner_is_enqueued_when_the_owner_changes() -> None:
    event = updated(entry(owner("before")), entry(owner("after")))
    assert owner_requests(event) == [Request("ns", "before"), Request("ns", "after")]


def test_owner_in_a_state_that_is_left_out_is_enqueued() -> None:
    event = left_out(entry(owner("before")), entry(owner("after")))
    assert owner_requests(event) == [Request("ns", "before"), Request("ns", "after")]


def test_request_for_cluster_scoped_owner_has_no_namespace() -> None:
    event = added(entry(owner("m")))
    assert owner_requests(event, mapper=Mapper(MIRROR, namespaced=False)) == [Request("", "m")]
    assert owner_requests(event, mapper=Mapper()) == [Request("ns", "m")]


def test_map_function_is_called_with_old_and_new_state() -> None:
    def by_label(state: Entry) -> Iterable[Request]:
        return [Request("ns", state.meta.labels["of"])]

    handler = EnqueueRequestsFromMapFunc(by_label)
    event = updated(entry(labels={"of": "x"}), entry(labels={"of": "y"}))
    assert list(handler.requests(event)) == [Request("ns", "x"), Request("ns", "y")]
    assert list(
        handler.requests(updated(entry(labels={"of": "x"}), entry(labels={"of": "x"})))
    ) == [Request("ns", "x")]


def test_map_function_is_called_once_with_each_state_of_an_object_that_is_left_out() -> None:
    calls: list[str] = []

    def by_label(state: Entry) -> Iterable[Request]:
        label = state.meta.labels["of"]
        calls.append(label)
        return [Request("ns", label)]

    handler = EnqueueRequestsFromMapFunc(by_label)
    before = entry(labels={"of": "x"})
    after = entry(labels={"of": "y"})
    assert list(handler.requests(left_out(before, after))) == [
        Request("ns", "x"),
        Request("ns", "y"),
    ]
    assert list(handler.requests(left_out(after, after))) == [Request("ns", "y")]
    handler.requests(updated(before, after))
    assert calls == ["x", "y", "y", "x", "y"]


@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        (None, "None"),
        (1, "a value of type int"),
        ("x", "a value of type str"),
        (["x"], "a value of type str in a list"),
        (Request("ns", "x"), "a value of type NamespacedName"),
        ({"namespace": "ns"}, "a value of type dict"),
        ((Request("ns", 1),), "a value of type NamespacedName in a tuple"),  # type: ignore[arg-type]
    ],
)
def test_map_function_that_returns_no_requests_is_an_error_with_its_name(
    returned: Any, shown: str
) -> None:
    def mistaken(state: Entry) -> Any:
        return returned

    handler = EnqueueRequestsFromMapFunc(mistaken)
    with pytest.raises(TypeError, match=f"mistaken: returned {shown}: must return requests"):
        list(handler.requests(added(entry())))


def test_channel_accepts_requests_only() -> None:
    names: Any = ["x"]
    with pytest.raises(TypeError, match=r"Channel.enqueue: 'x': must be a Request"):
        Channel().enqueue(names)
    one: Any = Request("ns", "x")
    with pytest.raises(TypeError, match=r"Channel.enqueue: .*name='x'.*: must be a list"):
        Channel().enqueue(one)


async def test_objects_of_initial_list_are_enqueued_with_low_priority() -> None:
    informer, queue = FakeInformer(), create_queue()
    source = Kind(informer, EnqueueRequestForObject(), mapper=Mapper())  # type: ignore[arg-type]
    await source.start("mirror", queue)
    await source.wait_for_sync()
    assert informer.sync_waits == 1
    informer.send(added(entry(), initial=True))
    assert await take_all(queue) == [(KEY, LOW_PRIORITY)]
    queue.done(KEY)
    informer.send(added(entry()))
    assert await take_all(queue) == [(KEY, 0)]


async def test_event_must_pass_all_predicates() -> None:
    informer, queue = FakeInformer(), create_queue()
    results = {"first": True, "second": False}
    source = Kind(
        informer,  # type: ignore[arg-type]
        EnqueueRequestForObject(),
        lambda _: results["first"],
        lambda _: results["second"],
        mapper=Mapper(),  # type: ignore[arg-type]
    )
    await source.start("mirror", queue)
    informer.send(added(entry()))
    assert len(queue) == 0
    results["second"] = True
    informer.send(added(entry()))
    assert len(queue) == 1


async def test_predicate_that_returns_a_coroutine_passes_no_event() -> None:
    async def is_ready(_: Event) -> bool:
        return False

    informer, queue = FakeInformer(), create_queue()
    wrong: Any = lambda event: is_ready(event)  # noqa: E731 - a lambda is what authors write
    source = Kind(informer, EnqueueRequestForObject(), wrong, mapper=Mapper())  # type: ignore[arg-type]
    await source.start("mirror", queue)
    with capture_logs() as lines:
        informer.send(added(entry()))
    assert await take_all(queue) == []
    (line,) = lines
    assert line["log_level"] == "error"
    assert line["event"] == "Predicate or handler failed, event dropped"


async def test_equal_errors_of_the_initial_list_are_logged_once_with_their_number() -> None:
    def broken(_: Entry) -> Iterable[Request]:
        raise KeyError("app")

    informer, queue = FakeInformer(), create_queue()
    source = Kind(informer, EnqueueRequestsFromMapFunc(broken), mapper=Mapper())  # type: ignore[arg-type]
    await source.start("mirror", queue)
    with capture_logs() as lines:
        for _ in range(150):
            informer.send(added(entry(), initial=True))
        await source.wait_for_sync()
        informer.send(added(entry()))
    assert informer.errors == 151
    assert [line.get("events") for line in lines if line["log_level"] == "error"] == [
        None,
        149,
        None,
    ]


async def test_error_in_handler_drops_one_event_and_logs_its_object() -> None:
    def fragile(state: Entry) -> Iterable[Request]:
        return [Request("ns", state.meta.labels["of"])]

    informer, queue = FakeInformer(), create_queue()
    source = Kind(informer, EnqueueRequestsFromMapFunc(fragile), mapper=Mapper())  # type: ignore[arg-type]
    await source.start("mirror", queue)
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        informer.send(added(entry()))
    informer.send(added(entry(labels={"of": "x"})))
    assert await take_all(queue) == [(Request("ns", "x"), 0)]
    assert informer.errors == 1
    (line,) = lines
    assert (line["log_level"], line["controller"], line["kind"]) == (
        "error",
        "mirror",
        "ConfigMap.v1",
    )
    assert (line["namespace"], line["name"]) == ("ns", "a")


async def test_stack_trace_of_a_handler_is_logged_once_for_many_objects() -> None:
    def fragile(state: Entry) -> Iterable[Request]:
        return [Request("ns", state.meta.labels["of"])]

    informer, queue = FakeInformer(), create_queue()
    source = Kind(informer, EnqueueRequestsFromMapFunc(fragile), mapper=Mapper())  # type: ignore[arg-type]
    await source.start("mirror", queue)
    with capture_logs() as lines:
        informer.send(added(entry()))
        informer.send(added(entry(labels={"of": "x"})))
        informer.send(added(entry()))
    first, second = lines
    assert isinstance(first["exc_info"], KeyError)
    assert second["exc_info"] is None
    assert (second["error"], second["name"]) == ("KeyError: 'of'", "a")


async def test_stopped_source_has_no_informer_handler() -> None:
    informer, queue = FakeInformer(), create_queue()
    source = Kind(informer, EnqueueRequestForObject(), mapper=Mapper())  # type: ignore[arg-type]
    source.stop()
    await source.start("mirror", queue)
    source.stop()
    source.stop()
    assert informer.handlers == []


async def test_sync_waits_for_optional_kind_only_if_it_is_served() -> None:
    for mapper, expected in ((Mapper(), 0), (Mapper(CONFIG_MAP), 1)):
        informer = FakeInformer()
        source = Kind(informer, EnqueueRequestForObject(), mapper=mapper, optional=True)  # type: ignore[arg-type]
        await source.wait_for_sync()
        assert informer.sync_waits == expected
        assert (
            not informer.waits_if_forbidden
        )  # and does not wait for a kind that it is not allowed to list


async def test_channel_keeps_requests_enqueued_before_start() -> None:
    queue = create_queue()
    channel = Channel()
    channel.enqueue([KEY], priority=LOW_PRIORITY)
    channel.enqueue([KEY], priority=3)
    await channel.start("mirror", queue)
    assert await take_all(queue) == [(KEY, 3)]
    queue.done(KEY)
    channel.enqueue([KEY])
    assert await take_all(queue) == [(KEY, 0)]


async def test_delayed_request_of_a_channel_is_not_postponed() -> None:
    clock = FakeClock()
    queue: WorkQueue[Request] = WorkQueue(clock=clock, rate_limiter=ExponentialRateLimiter())
    channel = Channel()
    channel.enqueue([KEY], after=5, priority=LOW_PRIORITY)
    channel.enqueue([KEY], after=8)
    await channel.start("mirror", queue)
    for _ in range(4):
        clock.advance(1)
        channel.enqueue([KEY], after=5)
    assert (len(queue), queue.waiting) == (0, 1)
    clock.advance(1)
    assert await take_all(queue) == [(KEY, 0)]
    assert queue.waiting == 0


async def test_queue_has_the_causes_of_events_and_channels() -> None:
    informer, queue, channel = FakeInformer(), create_queue(), Channel()
    source = Kind(informer, EnqueueRequestForObject(), mapper=Mapper())  # type: ignore[arg-type]
    await source.start("mirror", queue)
    await channel.start("mirror", queue)
    informer.send(added(entry(), initial=True))
    informer.send(updated(entry(), entry(labels={"a": "b"})))
    channel.enqueue([KEY], reason="rotation")
    (item,) = queue.items()
    assert [str(cause) for cause in item.causes] == [
        "initial list of ConfigMap",
        "ConfigMap ns/a updated: metadata.labels",
        "generic: rotation",
    ]


async def test_informer_sync_waits_without_adding_a_handler() -> None:
    informer, queue = FakeInformer(), create_queue()
    condition = InformerSync(informer)  # type: ignore[arg-type]
    await condition.start("mirror", queue)
    await condition.wait_for_sync()
    condition.stop()
    assert informer.sync_waits == 1
    assert informer.handlers == []
