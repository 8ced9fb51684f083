"""Tests for the objects that wait for the host of another one."""

from __future__ import annotations

import orjson

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.controllers.host_claims import MAX_WAITING, Holder, Waiting, WaitingHosts, enqueue_foreign
from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.controller import LOW_PRIORITY, Channel, Request
from cfo.runtime.controller.workqueue import WorkQueue
from cfo.runtime.objects.kinds import INGRESS
from cfo.runtime.objects.unstructured import NamespacedName
from test.support.clocks import FakeClock


def holder(name: str) -> Holder:
    metadata = {"name": name, "namespace": "other", "uid": name}
    return Holder("Ingress", EntryDecoder(INGRESS).decode(orjson.dumps({"metadata": metadata})))


def waiting(name: str, namespace: str = "ns", ingress: str = "dashboard") -> Waiting:
    return Waiting(RAY_CLUSTER, NamespacedName(namespace, name), "Ingress", ingress)


def place(name: str) -> NamespacedName:
    return NamespacedName("other", name)


def test_change_of_the_holder_ends_the_waiting_once() -> None:
    hosts = WaitingHosts()
    assert hosts.set(waiting("a"), holder("one"))
    assert hosts.set(waiting("b"), holder("one"))
    assert hosts.take("HTTPRoute", place("one")) == []
    assert hosts.take("Ingress", place("one")) == [waiting("a"), waiting("b")]
    assert hosts.take("Ingress", place("one")) == []


def test_object_waits_for_one_holder_and_no_longer_than_it_has_to() -> None:
    hosts = WaitingHosts()
    hosts.set(waiting("a"), holder("one"))
    hosts.set(waiting("a"), holder("two"))
    assert hosts.take("Ingress", place("one")) == []
    assert not hosts.set(waiting("a"), None)
    assert hosts.take("Ingress", place("two")) == []


def test_deleted_owner_waits_for_nothing() -> None:
    hosts = WaitingHosts()
    hosts.set(waiting("a"), holder("one"))
    hosts.set(waiting("a", ingress="client"), holder("two"))
    hosts.set(waiting("b"), holder("two"))
    hosts.forget(RAY_CLUSTER, NamespacedName("ns", "a"))
    assert hosts.take("Ingress", place("one")) == []
    assert hosts.take("Ingress", place("two")) == [waiting("b")]


def test_number_of_a_namespace_is_limited_and_does_not_concern_others() -> None:
    hosts = WaitingHosts()
    for number in range(MAX_WAITING):
        assert hosts.set(waiting(f"c{number}"), holder("one"))
    assert not hosts.set(waiting("late"), holder("one"))
    assert hosts.set(waiting("late", "others"), holder("one"))
    hosts.set(waiting("c0"), None)
    assert hosts.set(waiting("late"), holder("one"))


async def test_owners_in_other_namespaces_are_enqueued_once_and_one_after_the_other() -> None:
    clock = FakeClock()
    queue: WorkQueue[Request] = WorkQueue(clock=clock)
    channel = Channel()
    await channel.start("test", queue)
    owners = [NamespacedName("ns", f"rc-{number}") for number in range(150)]
    for _ in range(50):
        enqueue_foreign(channel, owners)
        clock.advance(0.1 - 1e-6)
    assert (len(queue), queue.waiting) == (0, 150)
    ready = []
    for _ in range(5):
        clock.advance(1)
        ready.append(len(queue))
    assert ready == [40, 80, 110, 130, 150]
    first, priority = await queue.get()
    assert (first, priority) == (owners[0], LOW_PRIORITY)
