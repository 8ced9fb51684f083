"""Tests for the objects that wait for the host of another one."""

from __future__ import annotations

import orjson

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.controllers.host_claims import MAX_WAITING, Holder, Waiting, WaitingHosts
from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.objects.kinds import INGRESS
from cfo.runtime.objects.unstructured import NamespacedName


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
