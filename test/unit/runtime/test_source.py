"""From an informer's events to requests: handlers, the source of a kind, channels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
import structlog
from structlog.testing import capture_logs

from cfo.runtime.cache.entry import Entry, EntryDecoder
from cfo.runtime.cache.informer import Handler
from cfo.runtime.cache.store import Event, EventType
from cfo.runtime.client.errors import TransportError, UnknownKind
from cfo.runtime.clock import FakeClock
from cfo.runtime.discovery import Resource
from cfo.runtime.handler import EnqueueRequestForObject, EnqueueRequestForOwner, EnqueueRequestsFromMapFunc
from cfo.runtime.kinds import CONFIG_MAP
from cfo.runtime.objects import GVK, NamespacedName
from cfo.runtime.ratelimit import ExponentialRateLimiter
from cfo.runtime.reconcile import Request
from cfo.runtime.source import Channel, InformerSync, Kind
from cfo.runtime.workqueue import LOW_PRIORITY, WorkQueue

MIRROR = GVK("example.com", "v1", "Mirror")
KEY = NamespacedName("ns", "a")


class Mapper:
    """A RESTMapper that knows what it is told; ``down`` times it cannot say."""

    def __init__(self, *served: GVK, namespaced: bool = True, down: int = 0) -> None:
        self.served = set(served)
        self.namespaced = namespaced
        self.down = down

    def cached(self, gvk: GVK) -> Resource | None:
        return Resource(gvk=gvk, plural="x", namespaced=self.namespaced) if gvk in self.served else None

    async def resource(self, gvk: GVK) -> Resource:
        if self.down:
            self.down -= 1
            raise TransportError("connection refused", outcome_unknown=False)
        found = self.cached(gvk)
        if found is None:
            raise UnknownKind(str(gvk))
        return found


class Informer:
    """An informer whose events the test sends."""

    def __init__(self, gvk: GVK = CONFIG_MAP) -> None:
        self.gvk = gvk
        self.handlers: list[Handler] = []
        self.waited = 0
        self.waited_whatever = False

    def add_handler(self, handler: Handler) -> None:
        self.handlers.append(handler)

    def remove_handler(self, handler: Handler) -> None:
        self.handlers.remove(handler)

    async def wait_for_sync(self, *, unless_forbidden: bool = False) -> None:
        self.waited += 1
        self.waited_whatever = not unless_forbidden

    def send(self, event: Event) -> None:
        for handler in self.handlers:
            handler(event)


def entry(*owners: dict[str, Any], labels: dict[str, str] | None = None) -> Entry:
    metadata = {"name": "a", "namespace": "ns", "uid": "u", "ownerReferences": list(owners), "labels": labels or {}}
    return EntryDecoder(CONFIG_MAP).decode(
        orjson.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    )


def owner(name: str, *, kind: str = "Mirror", api_version: str = "example.com/v1", controller: bool = True) -> Any:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": name, "controller": controller}


def added(new: Entry, *, initial: bool = False) -> Event:
    return Event(EventType.ADDED, KEY, None, new, initial=initial)


def updated(old: Entry, new: Entry) -> Event:
    return Event(EventType.UPDATED, KEY, old, new)


def queue() -> WorkQueue[Request]:
    return WorkQueue(clock=FakeClock(), rate_limiter=ExponentialRateLimiter())


async def taken(work: WorkQueue[Request]) -> list[tuple[Request, int]]:
    return [await work.get() for _ in range(len(work))]


def of_owner(event: Event, *, only_controller: bool = True, mapper: Mapper | None = None) -> list[Request]:
    handler = EnqueueRequestForOwner(MIRROR, only_controller=only_controller)
    handler._mapper = mapper  # type: ignore[assignment]
    return list(handler.requests(event))


def test_an_object_is_its_own_request() -> None:
    assert list(EnqueueRequestForObject().requests(added(entry()))) == [KEY]


def test_only_the_managing_owner_of_the_right_group_and_kind_is_requested() -> None:
    event = added(
        entry(
            owner("m"),
            owner("other-version", api_version="example.com/v2"),
            owner("other-group", api_version="example.org/v1"),
            owner("other-kind", kind="Lens"),
            owner("not-managing", controller=False),
        )
    )
    assert of_owner(event) == [Request("ns", "m"), Request("ns", "other-version")]
    assert Request("ns", "not-managing") in of_owner(event, only_controller=False)


def test_an_owner_that_was_lost_is_requested_once_more() -> None:
    event = updated(entry(owner("before")), entry(owner("after")))
    assert of_owner(event) == [Request("ns", "before"), Request("ns", "after")]


def test_a_cluster_scoped_owner_has_no_namespace() -> None:
    event = added(entry(owner("m")))
    assert of_owner(event, mapper=Mapper(MIRROR, namespaced=False)) == [Request("", "m")]
    assert of_owner(event, mapper=Mapper()) == [Request("ns", "m")]


def test_a_map_function_is_asked_about_both_states() -> None:
    def by_label(state: Entry) -> Iterable[Request]:
        return [Request("ns", state.meta.labels["of"])]

    handler = EnqueueRequestsFromMapFunc(by_label)
    event = updated(entry(labels={"of": "x"}), entry(labels={"of": "y"}))
    assert list(handler.requests(event)) == [Request("ns", "x"), Request("ns", "y")]
    assert list(handler.requests(updated(entry(labels={"of": "x"}), entry(labels={"of": "x"})))) == [Request("ns", "x")]


async def test_what_an_informer_lists_first_comes_after_changes() -> None:
    informer, work = Informer(), queue()
    source = Kind(informer, EnqueueRequestForObject(), mapper=Mapper())  # type: ignore[arg-type]
    await source.start("mirror", work)
    await source.wait_for_sync()
    assert informer.waited == 1
    informer.send(added(entry(), initial=True))
    assert await taken(work) == [(KEY, LOW_PRIORITY)]
    work.done(KEY)
    informer.send(added(entry()))
    assert await taken(work) == [(KEY, 0)]


async def test_an_event_must_pass_all_predicates() -> None:
    informer, work = Informer(), queue()
    answers = {"first": True, "second": False}
    source = Kind(
        informer,  # type: ignore[arg-type]
        EnqueueRequestForObject(),
        lambda _: answers["first"],
        lambda _: answers["second"],
        mapper=Mapper(),  # type: ignore[arg-type]
    )
    await source.start("mirror", work)
    informer.send(added(entry()))
    assert len(work) == 0
    answers["second"] = True
    informer.send(added(entry()))
    assert len(work) == 1


async def test_an_error_in_a_handler_loses_one_event_and_says_which() -> None:
    def fragile(state: Entry) -> Iterable[Request]:
        return [Request("ns", state.meta.labels["of"])]

    informer, work = Informer(), queue()
    source = Kind(informer, EnqueueRequestsFromMapFunc(fragile), mapper=Mapper())  # type: ignore[arg-type]
    await source.start("mirror", work)
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        informer.send(added(entry()))
    informer.send(added(entry(labels={"of": "x"})))
    assert await taken(work) == [(Request("ns", "x"), 0)]
    (line,) = lines
    assert (line["log_level"], line["controller"], line["kind"]) == ("error", "mirror", "ConfigMap.v1")
    assert (line["namespace"], line["name"]) == ("ns", "a")


async def test_a_stopped_source_feeds_nothing() -> None:
    informer, work = Informer(), queue()
    source = Kind(informer, EnqueueRequestForObject(), mapper=Mapper())  # type: ignore[arg-type]
    source.stop()
    await source.start("mirror", work)
    source.stop()
    source.stop()
    assert informer.handlers == []


async def test_an_optional_kind_is_waited_for_only_where_it_is_served() -> None:
    for mapper, waits in ((Mapper(), 0), (Mapper(CONFIG_MAP), 1)):
        informer = Informer()
        source = Kind(informer, EnqueueRequestForObject(), mapper=mapper, optional=True)  # type: ignore[arg-type]
        await source.wait_for_sync()
        assert informer.waited == waits
        assert not informer.waited_whatever  # nor for one that may not be listed


async def test_requests_of_a_channel_from_before_the_start_are_kept() -> None:
    work = queue()
    channel = Channel()
    channel.enqueue([KEY], priority=LOW_PRIORITY)
    channel.enqueue([KEY], priority=3)
    await channel.start("mirror", work)
    assert await taken(work) == [(KEY, 3)]
    work.done(KEY)
    channel.enqueue([KEY])
    assert await taken(work) == [(KEY, 0)]


async def test_what_is_only_read_is_waited_for() -> None:
    informer, work = Informer(), queue()
    condition = InformerSync(informer)  # type: ignore[arg-type]
    await condition.start("mirror", work)
    await condition.wait_for_sync()
    condition.stop()
    assert informer.waited == 1
    assert informer.handlers == []
