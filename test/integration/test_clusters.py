"""Several clusters in one manager: engage, disengage, failures of one cluster, and the requests of all of them."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from cfo.runtime import (
    CONFIG_MAP,
    EVENT,
    SECRET,
    Builder,
    Client,
    ClientConfig,
    ClusterNotFound,
    ClusterOptions,
    ClusterRequest,
    ClusterScope,
    KubeconfigFiles,
    KubeconfigSecrets,
    LeaderElectionOptions,
    Manager,
    ManagerOptions,
    NamespacedName,
    Request,
    RESTMapper,
    Result,
    Transport,
    WriteRejected,
)
from cfo.runtime.client.write_gate import write_gate
from cfo.runtime.manager.debug import DebugReports
from envtest import ControlPlane
from test.support.clusters import (
    NAMESPACE,
    SOURCE,
    Distributor,
    StaticClusters,
    config_map,
    data_of,
    distribute,
    kubeconfig_secret,
    recording,
    replace_kubeconfig,
)
from test.support.planes import new_plane
from test.support.raycluster_environment import eventually

pytestmark = pytest.mark.embedded(reason="a test needs several control planes")


class Fleet:
    """A local control plane, two others, and a client of each."""

    def __init__(self, local: ControlPlane, a: ControlPlane, b: ControlPlane, clients: list[Client]) -> None:
        self.local, self.a, self.b = local, a, b
        self.client, self.client_a, self.client_b = clients

    def manager(self, **options: Any) -> Manager:
        """Return a manager for the local control plane."""
        clusters = ClusterOptions(**options)
        return Manager(
            ClientConfig.for_control_plane(self.local), ManagerOptions(field_manager="fleet", clusters=clusters)
        )


async def open_client(stack: AsyncExitStack, plane: ControlPlane) -> Client:
    transport = await stack.enter_async_context(Transport(ClientConfig.for_control_plane(plane)))
    return Client(transport, RESTMapper(transport), field_manager="test")


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        planes = [await stack.enter_async_context(new_plane((), embedded=True)) for _ in range(3)]
        clients = [await open_client(stack, plane) for plane in planes]
        yield Fleet(*planes, clients)


@asynccontextmanager
async def running(manager: Manager) -> AsyncIterator[Manager]:
    async with manager:
        await manager.started()
        yield manager


async def copied(client: Client, data: dict[str, str]) -> None:
    async def has_copy() -> bool:
        return bool(await data_of(client) == data)

    await eventually(has_copy, "the copy")


async def engaged(manager: Manager, *names: str) -> None:
    async def are_engaged() -> bool:
        return sorted(manager.clusters) == sorted(names)

    await eventually(are_engaged, f"engaged: {names}")


def metrics_of(manager: Manager) -> dict[str, float]:
    """Return the samples whose names begin with ``cfo_cluster``."""
    lines = generate_latest(manager.metrics.registry).decode().splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith("cfo_cluster")}


async def test_config_map_is_copied_to_the_clusters_of_all_secrets(fleet: Fleet) -> None:
    manager = fleet.manager()
    manager.clusters.add_provider(KubeconfigSecrets(NAMESPACE))
    distributor = distribute(manager)
    await fleet.client.create(config_map(data={"sky": "blue"}, distribute="true"))
    await fleet.client.create(kubeconfig_secret("a", fleet.a.kubeconfig()))
    async with running(manager):
        await copied(fleet.client_a, {"sky": "blue"})

        await fleet.client.create(kubeconfig_secret("b", fleet.b.kubeconfig()))
        await copied(fleet.client_b, {"sky": "blue"})
        await fleet.client.patch(CONFIG_MAP, SOURCE, {"data": {"sky": "grey"}})
        await copied(fleet.client_a, {"sky": "grey"})
        await copied(fleet.client_b, {"sky": "grey"})
        await fleet.client_b.delete(CONFIG_MAP, SOURCE)
        await copied(fleet.client_b, {"sky": "grey"})

        await fleet.client.delete(SECRET, NamespacedName(NAMESPACE, "b"))
        await engaged(manager, "a")
        with pytest.raises(ClusterNotFound):
            manager.cluster("b")
        await fleet.client.delete(CONFIG_MAP, SOURCE)

        async def is_deleted() -> bool:
            return await data_of(fleet.client_a) is None

        await eventually(is_deleted)
        assert await data_of(fleet.client_b) == {"sky": "grey"}
    assert {request.cluster for request in distributor.reconciled} == {"a", "b"}


async def test_changed_kubeconfig_engages_the_cluster_again(fleet: Fleet) -> None:
    manager = fleet.manager()
    manager.clusters.add_provider(KubeconfigSecrets(NAMESPACE))
    distribute(manager)
    await fleet.client.create(config_map(data={"sky": "blue"}, distribute="true"))
    await fleet.client.create(kubeconfig_secret("a", fleet.a.kubeconfig()))
    async with running(manager):
        await copied(fleet.client_a, {"sky": "blue"})
        first = manager.cluster("a")
        await fleet.client.patch(
            SECRET, NamespacedName(NAMESPACE, "a"), {"metadata": {"annotations": {"unrelated": "change"}}}
        )
        await replace_kubeconfig(fleet.client, "a", fleet.b.kubeconfig())
        await copied(fleet.client_b, {"sky": "blue"})
        second = manager.cluster("a")
        assert second is not first
        assert second.transport.host != first.transport.host
        assert not any(first.transport.host in line for line in rest_client_lines(manager))
        assert any(second.transport.host in line for line in rest_client_lines(manager))


def rest_client_lines(manager: Manager) -> list[str]:
    lines = generate_latest(manager.metrics.registry).decode().splitlines()
    return [line for line in lines if line.startswith("rest_client_")]


async def test_invalid_kubeconfig_disengages_only_its_cluster_and_is_reported_without_credentials(
    fleet: Fleet,
) -> None:
    manager = fleet.manager()
    manager.clusters.add_provider(KubeconfigSecrets(NAMESPACE))
    for name, plane in (("a", fleet.a), ("b", fleet.b)):
        await fleet.client.create(kubeconfig_secret(name, plane.kubeconfig()))
    with capture_logs() as logs:
        async with running(manager):
            await engaged(manager, "a", "b")
            broken = fleet.a.kubeconfig().replace(
                f"token: {fleet.a.token}", f"token: {fleet.a.token}\n    tokenFile: x"
            )
            assert "tokenFile" in broken
            await replace_kubeconfig(fleet.client, "a", broken)
            await engaged(manager, "b")
            message = "user.tokenFile: is refused, because it reads a file; put the token into the field token"
            assert metrics_of(manager)["cfo_clusters_rejected"] == 1

            async def event() -> Any:
                events = await fleet.client.list(EVENT, namespace=NAMESPACE)
                return [found for found in events if found["reason"] == "ClusterRejected"]

            (found,) = await eventually(event)
            assert found["note"] == f"kubeconfig in the key kubeconfig: {message}"
            assert found["regarding"]["name"] == "a"
            await replace_kubeconfig(fleet.client, "a", fleet.a.kubeconfig())
            await engaged(manager, "a", "b")
            assert metrics_of(manager)["cfo_clusters_rejected"] == 0
    rejected = [entry for entry in logs if entry["event"] == "Cluster rejected"]
    assert [(entry["cluster"], entry["log_level"]) for entry in rejected] == [("a", "warning")]
    assert fleet.a.token not in repr(logs) + repr(found)


async def test_cluster_that_does_not_respond_delays_nothing_and_is_used_once_it_responds(fleet: Fleet) -> None:
    async with AsyncExitStack() as stack:
        template = await stack.enter_async_context(new_plane((), embedded=True))
        down = template.fork()  # type: ignore[attr-defined]
        await down.start()
        kubeconfig, port = down.kubeconfig(), int(down.url.rpartition(":")[2])
        await down.stop()

        manager = fleet.manager()
        manager.clusters.add_provider(KubeconfigSecrets(NAMESPACE))
        distribute(manager)
        await fleet.client.create(config_map(data={"sky": "blue"}, distribute="true"))
        await fleet.client.create(kubeconfig_secret("down", kubeconfig))
        await fleet.client.create(kubeconfig_secret("a", fleet.a.kubeconfig()))
        async with running(manager):
            await copied(fleet.client_a, {"sky": "blue"})
            await engaged(manager, "a", "down")

            async def is_reported() -> bool:
                return bool(manager.cluster("down").problem)

            await eventually(is_reported)
            values = metrics_of(manager)
            assert values['cfo_cluster_up{cluster="a"}'] == 1
            assert values['cfo_cluster_up{cluster="down"}'] == 0
            manager._check_started()  # the readiness does not depend on provided clusters

            up = await stack.enter_async_context(template.fork(port=port))  # type: ignore[attr-defined]
            await copied(await open_client(stack, up), {"sky": "blue"})
            await up.stop()
            await fleet.client.patch(CONFIG_MAP, SOURCE, {"data": {"sky": "grey"}})
            await copied(fleet.client_a, {"sky": "grey"})
            started = time.monotonic()
        assert time.monotonic() - started < 3.0


async def test_objects_of_one_name_in_several_clusters_are_different_requests(fleet: Fleet) -> None:
    seen: dict[str, Any] = {}
    logged: dict[str, Any] = {}
    manager = fleet.manager()

    async def reconcile(request: Request) -> None:
        found = await manager.cluster(request.cluster).client.get(CONFIG_MAP, request)
        seen[request.cluster] = (found or {}).get("data")
        fields = structlog.contextvars.get_contextvars()
        logged[request.cluster] = fields.get("cluster"), str(fields["causes"])

    recording(manager, reconcile, clusters=ClusterScope.ALL)
    manager.clusters.add_provider(StaticClusters(a=fleet.a, b=fleet.b))
    for client, value in ((fleet.client, "local"), (fleet.client_a, "a"), (fleet.client_b, "b")):
        await client.create(config_map("same", data={"in": value}, app="x"))
    async with running(manager):

        async def all_seen() -> bool:
            return seen == {"": {"in": "local"}, "a": {"in": "a"}, "b": {"in": "b"}}

        await eventually(all_seen, "all three")
        assert {cluster: fields[0] for cluster, fields in logged.items()} == {"": None, "a": "a", "b": "b"}
        await fleet.client_a.patch(CONFIG_MAP, NamespacedName(NAMESPACE, "same"), {"data": {"in": "changed"}})

        async def is_seen() -> bool:
            return seen["a"] == {"in": "changed"}

        await eventually(is_seen)
        assert logged["a"][1] == "ConfigMap cluster://a/default/same updated: data.in"
        (controller,) = manager.controllers
        assert not len(controller.queue)


async def test_owned_objects_and_selected_clusters(fleet: Fleet) -> None:
    manager = fleet.manager()
    seen: list[Request] = []

    class Owner:
        async def reconcile(self, request: Request) -> Result:
            seen.append(request)
            client = manager.cluster(request.cluster).client
            owner = await client.get(CONFIG_MAP, request)
            if owner is not None:
                await client.apply(config_map(f"{request.name}-child", child="true"), owner=owner)
            return Result()

    (
        Builder(manager, "owner")
        .for_(CONFIG_MAP, clusters=lambda cluster: cluster.name == "b", label_selector="app")
        .owns(CONFIG_MAP, label_selector="child")
        .complete(Owner())
    )
    manager.clusters.add_provider(StaticClusters(a=fleet.a, b=fleet.b))
    for client in (fleet.client, fleet.client_a, fleet.client_b):
        await client.create(config_map("parent", app="x"))
    child = NamespacedName(NAMESPACE, "parent-child")
    async with running(manager):
        await eventually(lambda: data_of_child(fleet.client_b))
        await fleet.client_b.delete(CONFIG_MAP, child)
        await eventually(lambda: data_of_child(fleet.client_b))
        assert await data_of(fleet.client_a, child) is None
        assert await data_of(fleet.client, child) is None
    assert set(seen) == {ClusterRequest(NAMESPACE, "parent", "b")}


async def data_of_child(client: Client) -> bool:
    return await data_of(client, NamespacedName(NAMESPACE, "parent-child")) is not None


async def test_reconciles_of_a_disengaged_cluster_are_cancelled_and_its_requests_dropped(fleet: Fleet) -> None:
    manager = fleet.manager(disengage_timeout=0.05, max_concurrent_reconciles=1)
    started = asyncio.Event()
    ended: list[str] = []

    async def reconcile(request: Request) -> None:
        started.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(request.cluster)

    recording(manager, reconcile)
    clusters = StaticClusters(a=fleet.a)
    manager.clusters.add_provider(clusters)
    for number in range(3):
        await fleet.client_a.create(config_map(f"map-{number}", app="x"))
    async with running(manager):
        await asyncio.wait_for(started.wait(), 10)
        cluster = manager.cluster("a")
        clusters.disengage("a")
        (controller,) = manager.controllers
        assert len(controller.queue) == 0
        assert list(manager.clusters) == []

        async def is_over() -> bool:
            return ended == ["a"] and not cluster.transport.is_open and controller.queue.processing == 0

        await eventually(is_over)
        assert controller.queue.waiting == 0
        assert ended == ["a"]


async def test_stop_does_not_wait_for_reconciles_that_hang(fleet: Fleet) -> None:
    manager = fleet.manager(disengage_timeout=0.05)
    running_reconcile = asyncio.Event()

    async def reconcile(_: Request) -> None:
        running_reconcile.set()
        await asyncio.sleep(3600)

    recording(manager, reconcile)
    manager.clusters.add_provider(StaticClusters(a=fleet.a))
    await fleet.client_a.create(config_map("map", app="x"))
    async with running(manager):
        await asyncio.wait_for(running_reconcile.wait(), 10)
        stopped_at = time.monotonic()
    assert time.monotonic() - stopped_at < 2.0


async def test_slow_cluster_occupies_only_some_workers(fleet: Fleet) -> None:
    manager = fleet.manager(disengage_timeout=0.05)
    release = asyncio.Event()
    seen: list[Request] = []
    slow = 0
    most = 0

    async def reconcile(request: Request) -> None:
        nonlocal slow, most
        if request.cluster == "a":
            slow += 1
            most = max(most, slow)
            await release.wait()
            slow -= 1
        seen.append(request)

    recording(manager, reconcile)
    manager.clusters.add_provider(StaticClusters(a=fleet.a, b=fleet.b))
    names = [f"map-{number:02}" for number in range(12)]
    for name in names:
        await fleet.client_a.create(config_map(name, app="x"))
    async with running(manager):

        async def a_is_slow() -> bool:
            return slow == 2

        await eventually(a_is_slow)
        await fleet.client_b.create(config_map("fast", app="x"))

        async def b_is_reconciled() -> bool:
            return ClusterRequest(NAMESPACE, "fast", "b") in seen

        await eventually(b_is_reconciled)
        assert most == 2  # a quarter of 8 workers
        release.set()

        async def all_reconciled() -> bool:
            return {request.name for request in seen if request.cluster == "a"} == set(names)

        await eventually(all_reconciled)
        assert most == 2


async def test_repeated_engagement_leaves_nothing_behind(fleet: Fleet) -> None:
    manager = fleet.manager()
    distributor = distribute(manager)
    clusters = StaticClusters()
    manager.clusters.add_provider(clusters)
    await fleet.client.create(config_map(data={"sky": "blue"}, distribute="true"))
    async with running(manager):
        (controller,) = manager.controllers

        async def cycle() -> weakref.ref[Any]:
            distributor.reconciled.clear()
            clusters.engage("a", fleet.a)

            async def is_reconciled() -> bool:
                return bool(distributor.reconciled) and bool(manager.cluster("a").cache.informers)

            await eventually(is_reconciled)
            cluster = manager.cluster("a")
            clusters.disengage("a")

            async def is_over() -> bool:
                return not cluster.transport.is_open and not controller.queue.processing

            await eventually(is_over)
            return weakref.ref(cluster)

        host = fleet.a.url.removeprefix("https://")

        def state() -> tuple[int, ...]:
            metrics = generate_latest(manager.metrics.registry).decode().splitlines()
            return (
                len(asyncio.all_tasks()),
                len(controller.sources),
                len([line for line in metrics if host in line or 'cluster="a"' in line]),
                len(controller.queue) + controller.queue.waiting,
            )

        await cycle()
        before = state()
        assert before[2:] == (0, 0)
        references = [await cycle() for _ in range(8)]

        async def same_state() -> bool:
            return state() == before

        await eventually(same_state, f"{state()} {before}")
        gc.collect()
        assert not any(reference() for reference in references[:-1])


async def test_more_than_max_clusters_are_refused_until_there_is_room(fleet: Fleet) -> None:
    manager = fleet.manager(max_clusters=1)
    manager.clusters.add_provider(KubeconfigSecrets(NAMESPACE))
    await fleet.client.create(kubeconfig_secret("a", fleet.a.kubeconfig()))
    async with running(manager):
        await engaged(manager, "a")
        await fleet.client.create(kubeconfig_secret("b", fleet.b.kubeconfig()))

        async def is_refused() -> bool:
            return metrics_of(manager)["cfo_clusters_rejected"] == 1

        await eventually(is_refused)
        reports = DebugReports(controllers=list, informers=list, electors=list, clusters=manager.clusters.reports)
        rows = await reports.report("clusters")
        assert [(row["cluster"], row["state"]) for row in rows] == [("a", "engaged"), ("b", "rejected")]
        assert fleet.b.token not in repr(rows)
        await fleet.client.delete(SECRET, NamespacedName(NAMESPACE, "a"))
        await engaged(manager, "b")


async def test_setup_runs_before_requests_and_is_retried(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cfo.runtime.clusters.engagement.Backoff.delay", lambda _: 0.01)
    manager = fleet.manager()
    journal: list[str] = []

    async def setup(cluster: Any) -> None:
        journal.append(f"setup {cluster.name}")
        if len(journal) == 1:
            raise ValueError("the first attempt fails")
        await cluster.cache.informer(CONFIG_MAP).wait_for_sync()

    async def reconcile(request: Request) -> None:
        journal.append(f"reconcile {request}")

    manager.clusters.add_setup(setup)
    recording(manager, reconcile)
    manager.clusters.add_provider(StaticClusters(a=fleet.a))
    await fleet.client_a.create(config_map("map", app="x"))
    async with running(manager):

        async def is_reconciled() -> bool:
            return len(journal) >= 3

        await eventually(is_reconciled)
    assert journal[:3] == ["setup a", "setup a", "reconcile cluster://a/default/map"]


async def test_lease_of_the_local_cluster_fences_writes_to_other_clusters(fleet: Fleet) -> None:
    class Closed:
        def check(self) -> None:
            raise WriteRejected("not the leader")

    manager = fleet.manager()
    manager.clusters.add_provider(StaticClusters(a=fleet.a))
    async with running(manager):
        await engaged(manager, "a")
        token = write_gate.set(Closed())
        try:
            with pytest.raises(WriteRejected):
                await manager.cluster("a").client.create(config_map("map"))
        finally:
            write_gate.reset(token)
        assert await data_of(fleet.client_a, NamespacedName(NAMESPACE, "map")) is None


async def test_standby_replica_serves_the_clusters_after_it_became_the_leader(fleet: Fleet) -> None:
    def replica(identity: str) -> tuple[Manager, Distributor, StaticClusters]:
        election = LeaderElectionOptions(name="fleet", namespace=NAMESPACE, identity=identity, retry_period=0.05)
        options = ManagerOptions(field_manager="fleet", leader_election=election)
        manager = Manager(ClientConfig.for_control_plane(fleet.local), options)
        clusters = StaticClusters(a=fleet.a)
        manager.clusters.add_provider(clusters)
        return manager, distribute(manager), clusters

    await fleet.client.create(config_map(data={"sky": "blue"}, distribute="true"))
    leader, _, _ = replica("leader")
    standby, distributor, clusters = replica("standby")
    leading = asyncio.create_task(leader.run())
    await copied(fleet.client_a, {"sky": "blue"})
    async with standby:
        await engaged(standby, "a")
        clusters.engage("b", fleet.b)
        await engaged(standby, "a", "b")
        clusters.disengage("a")
        assert distributor.reconciled == []
        leader.stop()
        await leading
        await copied(fleet.client_b, {"sky": "blue"})
    assert {request.cluster for request in distributor.reconciled} == {"b"}


async def test_cluster_with_too_large_responses_is_reported(fleet: Fleet) -> None:
    manager = fleet.manager(max_response_bytes=100)
    distribute(manager)
    manager.clusters.add_provider(StaticClusters(a=fleet.a))
    async with running(manager):

        async def is_reported() -> bool:
            return "a" in manager.clusters and "more than 100 bytes" in manager.cluster("a").problem

        await eventually(is_reported)
        assert metrics_of(manager)['cfo_cluster_up{cluster="a"}'] == 0


async def test_kubeconfig_files_are_followed(fleet: Fleet, tmp_path: Path) -> None:
    directory = tmp_path / "clusters"
    manager = fleet.manager()
    manager.clusters.add_provider(KubeconfigFiles(directory))
    async with running(manager):
        directory.mkdir()
        (directory / "notes.txt").write_text("not a kubeconfig")
        (directory / "a.kubeconfig").write_text(fleet.a.kubeconfig())
        await engaged(manager, "a")
        first = manager.cluster("a")
        (directory / "b.yaml").write_text(fleet.b.kubeconfig())
        await engaged(manager, "a", "b")
        (directory / "a.kubeconfig").write_text(fleet.b.kubeconfig())

        async def is_replaced() -> bool:
            return "a" in manager.clusters and manager.cluster("a") is not first

        await eventually(is_replaced)
        (directory / "a.kubeconfig").write_text("kind: [")
        (directory / "b.yaml").unlink()
        await engaged(manager)
        assert metrics_of(manager)["cfo_clusters_rejected"] == 1


async def test_trusted_kubeconfig_files_may_refer_to_other_files(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(fleet.a.token)
    file = tmp_path / "a.kubeconfig"
    file.write_text(fleet.a.kubeconfig().replace(f"token: {fleet.a.token}", "tokenFile: token"))
    manager = fleet.manager()
    manager.clusters.add_provider(KubeconfigFiles(file, trusted=True))
    seen: list[Request] = []

    async def reconcile(request: Request) -> None:
        seen.append(request)

    recording(manager, reconcile)
    await fleet.client_a.create(config_map("map", app="x"))
    async with running(manager):

        async def is_reconciled() -> bool:
            return seen == [ClusterRequest(NAMESPACE, "map", "a")]

        await eventually(is_reconciled)


async def test_removed_controller_leaves_the_clusters(fleet: Fleet) -> None:
    manager = fleet.manager()
    seen: list[Request] = []

    async def reconcile(request: Request) -> None:
        seen.append(request)

    recording(manager, reconcile)
    manager.clusters.add_provider(StaticClusters(a=fleet.a))
    await fleet.client_a.create(config_map("first", app="x"))
    async with running(manager):

        async def is_reconciled() -> bool:
            return len(seen) == 1

        await eventually(is_reconciled)
        (controller,) = manager.controllers
        await manager.remove_controller(controller)
        assert manager.cluster("a").cache.informers == []
        recording(manager, reconcile)

        async def is_reconciled_again() -> bool:
            return len(seen) == 2

        await eventually(is_reconciled_again)
