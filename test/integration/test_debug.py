"""The debug server of a running manager: what it shows, to whom, and what it never shows."""

from __future__ import annotations

from typing import Any

import aiohttp
import anyio
import pytest

from cfo.runtime.client.config import ClientConfig
from cfo.runtime.controller.reconcile import Request, Result
from cfo.runtime.manager.builder import Builder
from cfo.runtime.manager.debug import METRICS_SERVER, render_table
from cfo.runtime.manager.leaderelection import LeaderElectionOptions
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.errors import ReconcileError
from cfo.runtime.objects.kinds import CONFIG_MAP
from cfo.runtime.objects.unstructured import NamespacedName
from envtest import ControlPlane
from test.support.raycluster_environment import eventually

KEY = NamespacedName("default", "held")


HOSTS = [
    ("localhost:6060", 200),
    ("LOCALHOST", 200),
    ("127.0.0.1", 200),
    ("[::1]:1", 200),
    ("attacker.example", 403),
    ("attacker.example:99999999", 403),
    ("localhost.attacker.example", 403),
    ("127.0.0.1.attacker.example", 403),
    ("localhost:1@attacker.example", 403),
    ("attacker@localhost", 403),
    ("[", 403),
    ("[::1", 403),
    ("0.0.0.0", 403),
]
"""Host headers: a web page can let a name of its own resolve to the loopback address."""


class HoldingReconciler:
    """Does not finish the reconcile of the object ``held`` before it is released."""

    def __init__(self) -> None:
        self.release = anyio.Event()

    async def reconcile(self, request: Request) -> Result:
        if request == KEY:
            await self.release.wait()
        return Result(requeue_after=3600)


async def fetch(manager: Manager, path: str, **headers: str) -> tuple[int, Any]:
    url = f"http://127.0.0.1:{manager.debug_port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
        if response.content_type == "application/json":
            return response.status, await response.json()
        return response.status, await response.text()


async def test_reports_show_names_and_sizes_but_no_content() -> None:
    async with ControlPlane.embedded() as plane:
        options = ManagerOptions(
            field_manager="test",
            debug_bind_address="127.0.0.1:0",
            leader_election=LeaderElectionOptions(name="lock", namespace="default", identity="me"),
        )
        manager = Manager(ClientConfig.for_control_plane(plane), options)
        reconciler = HoldingReconciler()
        Builder(manager, "holder").for_(CONFIG_MAP).complete(reconciler)
        async with manager:
            await manager.started()
            obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": KEY._asdict()}
            await manager.client.create({**obj, "data": {"key": "CONFIDENTIAL" * 1000}})

            async def queue_is_running() -> list[Any] | None:
                (queue,) = (await fetch(manager, "/debug/queue?format=json"))[1]
                return queue["items"] if queue["running"] == 1 else None

            running = (await eventually(queue_is_running, "a running reconcile"))[0]
            assert (running["request"], running["state"]) == ("default/held", "running")
            assert running["causes"][0] | {"changed": []} == {
                "type": "added",
                "kind": "ConfigMap.v1",
                "object": "default/held",
                "changed": [],
                "detail": "",
            }
            await manager.client.apply({**obj, "data": {"key": "CONFIDENTIAL" * 1001}})
            (queue,) = (await fetch(manager, "/debug/queue", Accept="application/json"))[1]
            (ready,) = (item for item in queue["items"] if item["state"] == "ready")
            assert ready["causes"][0]["type"] == "updated"
            assert ready["causes"][0]["changed"] == ["data.key"]
            reports = (await fetch(manager, "/debug?format=json"))[1]
            (informer,) = (row for row in reports["informers"] if row["kind"] == "ConfigMap.v1")
            assert informer["objects"] >= 1
            assert informer["bytes"] > 12_000
            assert 0 <= informer["lag_seconds"] < 60
            (lease,) = reports["leases"]
            assert (lease["lease"], lease["holder"], lease["leader"]) == (
                "default/lock",
                "me",
                True,
            )
            assert 0 < lease["expires_in_seconds"] <= 15
            assert any(
                "HoldingReconciler.reconcile" in line
                for task in reports["tasks"]
                for line in task["stack"]
            )
            assert reports["objects"][0]["object"] == "default/held"
            status, text = await fetch(manager, "/debug")
            assert status == 200
            assert "default/held" in text
            assert "changed=[data.key]" in text
            assert "CONFIDENTIAL" not in text + str(reports)
            assert (await fetch(manager, "/debug/secrets"))[0] == 404
            for host, expected in HOSTS:
                assert (await fetch(manager, "/debug/queue", Host=host))[0] == expected, host
            reconciler.release.set()


class FailingReconciler:
    async def reconcile(self, request: Request) -> Result:
        raise ReconcileError("CONFIDENTIAL")


async def test_queue_shows_the_failures_and_the_class_of_the_last_error() -> None:
    async with ControlPlane.embedded() as plane:
        options = ManagerOptions(field_manager="test", debug_bind_address="127.0.0.1:0")
        manager = Manager(ClientConfig.for_control_plane(plane), options)
        Builder(manager, "failing").for_(CONFIG_MAP).complete(FailingReconciler())
        async with manager:
            await manager.started()
            await manager.client.create(
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": KEY._asdict()}
            )

            async def failed_item() -> Any:
                (queue,) = (await fetch(manager, "/debug/queue?format=json"))[1]
                own = (item for item in queue["items"] if item["request"] == "default/held")
                return next((item for item in own if item["failures"] > 1), None)

            item = await eventually(failed_item, "two failures")
            assert item["last_error"] == "ReconcileError"
            tasks = (await fetch(manager, "/debug/tasks?format=json"))[1]
            workers = [task for task in tasks if any("workqueue" in line for line in task["stack"])]
            assert sum(task["count"] for task in workers) > len(workers)


@pytest.mark.parametrize("address", ["0.0.0.0:0", ":6060", "192.0.2.1:0", "[::]:0"])
def test_debug_server_rejects_addresses_that_other_hosts_can_reach(address: str) -> None:
    with pytest.raises(ValueError, match="loopback"):
        Manager(
            ClientConfig(server="http://127.0.0.1:1"), ManagerOptions(debug_bind_address=address)
        )


def test_debug_reports_need_the_authentication_of_the_metrics_server() -> None:
    with pytest.raises(ValueError, match="metrics_tls"):
        Manager(
            ClientConfig(server="http://127.0.0.1:1"),
            ManagerOptions(debug_bind_address=METRICS_SERVER),
        )


def test_tables_are_aligned_and_lists_follow_their_row() -> None:
    rows = [
        {"a": 1, "bool": True, "empty": "", "items": [{"x": "1", "y": "", "z": ["p"]}]},
        {"a": 22, "bool": False},
    ]
    assert render_table([rows[0], {**rows[1], "empty": None, "items": []}]).splitlines() == [
        "a   bool   empty",
        "1   true   -",
        "    x=1 z=[p]",
        "22  false  -",
    ]
    assert render_table([]) == "none\n"
