"""Requests of several clusters, and how they are limited; no API server is contacted."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
from prometheus_client import generate_latest

from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.request_target import cache_key
from cfo.runtime.client.transport import Exchange, Transport
from cfo.runtime.client.write_gate import WriteGate
from cfo.runtime.clusters.kubeconfig_secrets import KubeconfigSecrets
from cfo.runtime.clusters.options import ClusterOptions, ClusterRefused
from cfo.runtime.controller.controller import Controller
from cfo.runtime.controller.metrics import Metrics
from cfo.runtime.controller.reconcile import Request, Result
from cfo.runtime.controller.source import Channel
from cfo.runtime.controller.workqueue import WorkQueue
from cfo.runtime.manager.manager import Manager
from cfo.runtime.objects.unstructured import GVK, ClusterRequest, NamespacedName
from cfo.runtime.process.clock import FakeClock

NAME = NamespacedName("team", "colors")
SERVER = ClientConfig(server="https://127.0.0.1:1")


def test_requests_differ_by_cluster() -> None:
    a, b = NAME.in_cluster("a"), NAME.in_cluster("b")
    assert a == ClusterRequest("team", "colors", "a")
    assert len({NAME, a, b, NAME.in_cluster("a")}) == 3
    assert a != b
    assert a != NAME
    assert (str(a), a.cluster, NAME.cluster) == ("cluster://a/team/colors", "a", "")


def test_request_without_a_cluster_equals_the_name() -> None:
    local = NAME.in_cluster("a").in_cluster("")
    assert local == NAME
    assert hash(local) == hash(NAME)
    assert str(local) == "team/colors"


def test_request_is_a_name_that_keeps_its_cluster() -> None:
    request = NAME.in_cluster("a")
    namespace, name = request
    assert (namespace, name) == ("team", "colors")
    assert request._replace(name="shapes") == ClusterRequest("team", "shapes", "a")
    assert pickle.loads(pickle.dumps(request)) == request
    assert copy.copy(request) == request
    assert repr(request) == "ClusterRequest(namespace='team', name='colors', cluster='a')"


def test_clients_ignore_the_cluster_of_a_request() -> None:
    mapper = RESTMapper(Transport(SERVER))
    assert cache_key(mapper, GVK("", "v1", "Pod"), NAME.in_cluster("a")) == NAME


def test_queue_drops_items_of_one_cluster() -> None:
    metrics = Metrics()
    clock = FakeClock()
    queue: WorkQueue[NamespacedName] = WorkQueue(clock=clock, metrics=metrics.queue("test"))
    queue.add(NAME)
    queue.add(NAME.in_cluster("a"), priority=5)
    queue.add_after(ClusterRequest("team", "later", "a"), 60)
    queue.add_after(ClusterRequest("team", "later", "b"), 60)
    assert queue.drop(lambda request: request.cluster == "a") == 2
    assert (len(queue), queue.waiting) == (1, 1)
    assert [item.item for item in queue.items()] == [NAME, ClusterRequest("team", "later", "b")]
    assert (
        'workqueue_depth{controller="test",name="test",priority="5"} 0.0' in generate_latest(metrics.registry).decode()
    )
    queue.add(NAME.in_cluster("a"))
    assert len(queue) == 2


async def test_dropped_item_that_is_processed_is_not_processed_again() -> None:
    queue: WorkQueue[NamespacedName] = WorkQueue(clock=FakeClock())
    queue.add(NAME)
    item, _ = await queue.get()
    queue.add(NAME)
    assert queue.drop(lambda _: True) == 1
    queue.done(item)
    assert len(queue) == queue.processing == 0


def test_series_of_a_host_are_removed() -> None:
    metrics = Metrics()
    for host in ("a:6443", "b:6443"):
        metrics.observe_exchange(Exchange("GET", host, "200", 0.1, "get", "pods", retry_of="500", rate_limit_delay=0.1))
    metrics.forget_host("a:6443")
    metrics.forget_host("a:6443")
    text = generate_latest(metrics.registry).decode()
    assert 'host="a:6443"' not in text
    assert text.count('host="b:6443"') > 6


@pytest.mark.parametrize(
    "options",
    [
        {"max_clusters": 0},
        {"disengage_timeout": -1},
        {"max_concurrent_reconciles": -1},
        {"max_response_bytes": 0},
    ],
)
def test_options_out_of_range_are_rejected(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        ClusterOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "-a", "a\nb", "a" * 254, "ä"])
def test_invalid_cluster_name_is_refused(name: str) -> None:
    clusters = Manager(SERVER).clusters
    with pytest.raises(ClusterRefused, match="name"):
        clusters.engage("provider", name, SERVER)


def test_cluster_of_another_provider_is_not_replaced() -> None:
    clusters = Manager(SERVER).clusters
    clusters.engage("first", "a", SERVER)
    with pytest.raises(ClusterRefused, match="another provider"):
        clusters.engage("second", "a", SERVER)
    clusters.disengage("second", "a")
    clusters.reject("second", "a", "a reason", None)
    assert [row["state"] for row in clusters.reports()] == ["engaged", "rejected"]


async def test_cluster_that_failed_unexpectedly_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = Manager(SERVER).clusters
    clusters.engage("provider", "a", SERVER)
    engagement = clusters._slots["a"]

    async def fail() -> None:
        raise KeyError("a value")

    monkeypatch.setattr(engagement, "run", fail)
    await clusters._run_engagement(engagement, None)
    (row,) = clusters.reports()
    assert (row["state"], row["problem"]) == ("rejected", "failed with an unexpected error, which is in the log")
    clusters.engage("provider", "a", SERVER)
    assert [row["state"] for row in clusters.reports()] == ["engaged"]


def test_secrets_need_a_namespace_and_a_selector() -> None:
    for arguments in ({"namespace": ""}, {"namespace": "team", "label_selector": ""}):
        with pytest.raises(ValueError, match="must not be empty"):
            KubeconfigSecrets(**arguments)
    (rule,) = KubeconfigSecrets("team").rules
    assert (rule.resources, rule.namespace) == (("secrets",), "team")


def test_manager_without_providers_has_no_clusters() -> None:
    manager = Manager(SERVER)
    assert manager.cluster("").client is manager.client
    assert manager._clusters is None
    assert len(manager.clusters) == 0


class Shards:
    """Admits all requests, and records which are begun and ended."""

    is_cached = True

    def __init__(self) -> None:
        self.journal: list[str] = []

    def accepts(self, request: Request) -> bool:
        return True

    def cancellable(self, request: Request) -> AbstractContextManager[None]:
        return nullcontext()

    def begin(self, request: Request) -> WriteGate | None:
        self.journal.append(f"begin {request}")
        return OPEN_GATE

    def end(self, request: Request) -> None:
        self.journal.append(f"end {request}")


class OpenGate:
    def check(self) -> None:
        """Allow every write."""


OPEN_GATE = OpenGate()


class OneCluster:
    """Admits the requests of cluster ``a`` only."""

    def admit(self, request: Request, priority: int) -> bool:
        return request.cluster == "a"

    async def run(self, request: Request, reconcile: Callable[[Request], Awaitable[Result]]) -> Result:
        return await reconcile(request)


async def test_shard_is_not_occupied_by_requests_that_are_set_aside() -> None:
    class Recorder:
        async def reconcile(self, request: Request) -> Result:
            controller.stop()
            return Result()

    controller = Controller("test", Recorder())
    shards, channel = Shards(), Channel()
    controller.admit(shards)
    controller.cluster_reconciles = OneCluster()
    controller.watch(channel)
    channel.enqueue([NAME.in_cluster("b"), NAME.in_cluster("a")])
    await asyncio.wait_for(controller.run(), 10)
    assert shards.journal == ["begin cluster://a/team/colors", "end cluster://a/team/colors"]
