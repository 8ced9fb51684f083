"""Tests that what is kept of an object outside the budget of the cache is small, whatever its fields contain."""

from __future__ import annotations

import pickle
import tracemalloc
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import orjson
import pytest

from cfo.api.flux.names import MINICLUSTER, JobState
from cfo.api.gateway import route_problems
from cfo.api.inferencestack.validation.fields import _nearest, _nearest_to_short
from cfo.api.kueue import QUEUE_NAME_LABEL, inadmissible_message
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.controllers.flux import _waiting_queue
from cfo.controllers.inferencestack.operator_leases import OperatorLeases
from cfo.controllers.pod_lists import list_pods
from cfo.controllers.raycluster.concern import Decision
from cfo.controllers.raycluster.pull_secrets import HeadPodReplacer
from cfo.runtime import (
    POD,
    SERVICE_ACCOUNT,
    Client,
    EnqueueRequestForOwner,
    Entry,
    Event,
    NamespacedName,
    Object,
    controller_of,
)
from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.cache.selectors import Selection
from cfo.runtime.cache.store import EventType, Store
from cfo.runtime.objects import LEASE
from test.support.clocks import FakeClock
from test.support.decisions import stored_cluster
from test.support.flux_environment import mini_cluster

_LARGE = 300_000
_SMALL = 2000
_FIELDS = ("apiVersion", "kind", "name", "uid")


def owner(field: str) -> dict[str, Any]:
    """Return an owner reference with a large string."""
    reference = {"apiVersion": "v1", "kind": "Owner", "name": "o", "uid": "u", "controller": True}
    return {**reference, field: "x" * _LARGE}


def pod_entry(*owners: Object) -> Entry:
    """Return the entry of a pod."""
    metadata = {"name": "p", "namespace": "ns", "uid": "p", "ownerReferences": owners}
    return EntryDecoder(POD).decode(orjson.dumps({"metadata": metadata}))


def size_of(record: Any) -> int:
    """Return how many bytes a record takes, about."""
    return len(pickle.dumps(record))


@pytest.mark.parametrize("field", _FIELDS)
def test_controller_is_small_and_remains_a_controller(field: str) -> None:
    entry = pod_entry(owner(field))
    controllers = (entry.meta.controller, controller_of(entry.object()))
    assert None not in controllers
    assert size_of(controllers) < _SMALL


@pytest.mark.parametrize("field", _FIELDS)
def test_controllers_of_deleted_objects_are_small(field: str) -> None:
    store = Store(deliver=Mock(), clock=FakeClock(), selection=Selection())
    store.remember_deleted(pod_entry(owner(field)))
    assert 0 < len(store.controller_of_deleted(NamespacedName("ns", "p"))) < _SMALL


def test_owner_with_a_name_that_is_too_long_is_not_enqueued() -> None:
    entry = pod_entry(owner("name") | {"apiVersion": "ray.io/v1", "kind": "RayCluster"})
    event = Event(EventType.ADDED, entry.key, None, entry)
    assert list(EnqueueRequestForOwner(RAY_CLUSTER).requests(event)) == []


@pytest.mark.anyio
@pytest.mark.parametrize("field", _FIELDS)
async def test_listed_pods_are_small(field: str) -> None:
    others = [{**owner(field), "controller": False}] * 3
    metadata = {"name": "p", "uid": "p", "ownerReferences": [*others, owner(field)]}
    body = orjson.dumps({"metadata": {}, "items": [{"metadata": metadata}]})

    async def request(_: Any) -> Any:
        return SimpleNamespace(body=body)

    client = SimpleNamespace(transport=SimpleNamespace(request=request))
    pods = await list_pods(cast("Client", client), "ns")
    assert pods[0].controller is not None
    assert size_of(pods) < _SMALL


@pytest.mark.anyio
async def test_pods_of_a_page_are_decoded_one_by_one() -> None:
    short = {"apiVersion": "v", "kind": "k", "name": "n", "uid": "u"}
    metadata = {"name": "p", "uid": "p", "ownerReferences": [short] * 5_000}
    body = orjson.dumps({"metadata": {}, "items": [{"metadata": metadata}] * 10})

    async def request(_: Any) -> Any:
        return SimpleNamespace(body=body)

    client = SimpleNamespace(transport=SimpleNamespace(request=request))
    tracemalloc.start()
    try:
        await list_pods(cast("Client", client), "ns")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(body)


@pytest.mark.parametrize("names", [["x" * _LARGE], [f"s{number}" for number in range(20_000)]])
def test_pull_secrets_are_kept_as_a_digest_until_the_cluster_is_deleted(names: list[str]) -> None:
    cluster = stored_cluster()
    replacer = HeadPodReplacer(FakeClock())
    accounts = Mock()
    account = {"metadata": {"name": "a"}, "imagePullSecrets": [{"name": name} for name in names]}
    accounts.entry.return_value = EntryDecoder(SERVICE_ACCOUNT).decode(orjson.dumps(account))
    pods = Mock()
    pods.of.return_value = []
    replacer.decide(Decision(cluster=cluster), RayClusterFacts(cluster), accounts, pods)
    assert len(replacer._seen) == 1
    assert size_of(replacer._seen) < _SMALL
    replacer.forget(NamespacedName("ns", "rc"))
    assert replacer._seen == {}


def test_holder_of_a_lease_is_small() -> None:
    leases = Mock()
    operators = OperatorLeases(leases, Mock(), FakeClock(), "ns")
    (observe,) = leases.add_handler.call_args.args
    metadata = {"name": "inference-stack-operator-v2", "namespace": "tenant"}
    lease = {"metadata": metadata, "spec": {"holderIdentity": "x" * _LARGE}}
    entry = EntryDecoder(LEASE).decode(orjson.dumps(lease))
    observe(Event(EventType.ADDED, entry.key, None, entry))
    assert len(operators._specs) == 1
    assert size_of(operators._specs) < _SMALL


def test_queue_of_a_minicluster_that_is_no_label_is_not_awaited() -> None:
    cluster = mini_cluster(jobLabels={QUEUE_NAME_LABEL: "x" * _LARGE})
    cluster["status"] = {"conditions": [{"type": JobState.WAITING, "status": "True"}]}
    entry = EntryDecoder(MINICLUSTER).decode(orjson.dumps(cluster))
    assert _waiting_queue(entry) == ""


def test_messages_of_other_controllers_are_small() -> None:
    large = {"status": "False", "reason": "Inadmissible", "message": "x" * _LARGE}
    workload = {"status": {"conditions": [{**large, "type": "QuotaReserved"}]}}
    parent = {"parentRef": {"name": "g"}, "conditions": [{**large, "type": "Accepted"}]}
    route = {"spec": {"parentRefs": [{"name": "g"}]}, "status": {"parents": [parent]}}
    assert size_of(inadmissible_message(workload)) < _SMALL
    problems = list(route_problems(route))
    assert len(problems) == 1
    assert size_of(problems) < _SMALL


def test_long_unknown_field_is_not_remembered() -> None:
    _nearest_to_short.cache_clear()
    assert _nearest("x" * _LARGE, "Spec") == ""
    assert _nearest_to_short.cache_info().currsize == 0
