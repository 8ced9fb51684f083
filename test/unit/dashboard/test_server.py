"""The server on the loopback interface: who gets data, what a page receives, and what it costs if no page is open."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import anyio
import pytest

from cfo.api.flux.names import FLUX_JOB
from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.dashboard import in_cluster, site
from cfo.dashboard.feed import LINGER, MAX_STREAMS
from cfo.dashboard.site import Site
from cfo.runtime import SECRET, ClientConfig, Manager, ManagerOptions
from cfo.summaries.summary import Level, Problem, SummaryCondition, WarningEvent
from test.support.clocks import FakeClock
from test.support.dashboard_server import Dashboard, running_dashboard
from test.support.dashboards import FakeInformer, FakeOverview, summary
from test.support.summaries import VIEWS

HOSTILE = '</script><img src=x onerror=alert(1)>\r\n\r\nevent: snapshot\ndata: {"rows":[]}\n\n'


@pytest.fixture
async def overview() -> FakeOverview:
    return FakeOverview([summary(name="one"), summary(name="two")])


@pytest.fixture
async def dashboard(overview: FakeOverview) -> AsyncIterator[Dashboard]:
    async with running_dashboard(overview) as running:
        yield running


async def eventually(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(120):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.005)


async def test_page_and_its_files_are_served_with_security_headers(dashboard: Dashboard) -> None:
    for path, kind in (
        ("/", "text/html"),
        ("/app.js", "text/javascript"),
        ("/style.css", "text/css"),
        ("/icon.svg", "image/svg+xml"),
    ):
        async with dashboard.request(path, headers={}) as response:
            assert (response.status, response.content_type) == (200, kind)
            policy = response.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
            assert "frame-ancestors 'none'" in policy
            assert "require-trusted-types-for 'script'" in policy
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Cache-Control"] == "no-store"
            assert not [name for name in response.headers if name.startswith("Access-Control")]


async def test_page_refers_only_to_its_own_files(dashboard: Dashboard) -> None:
    paths = Site(dashboard.feed).public_paths
    for path in paths:
        async with dashboard.request(path, headers={}) as response:
            text = (await response.text()).replace("http://www.w3.org/2000/svg", "")
            assert "://" not in text.replace("https?://", "").replace(":\\/\\/", "").replace(
                "^https?:", ""
            ), path


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost.evil.example:{port}",
        "",
    ],
)
async def test_other_hosts_are_refused(dashboard: Dashboard, host: str) -> None:
    port = dashboard.address.rpartition(":")[2]
    headers = {"Authorization": f"Bearer {dashboard.token}", "Host": host.format(port=port)}
    for path in ("/", "/stream", "/object?id=x"):
        async with dashboard.request(path, headers=headers) as response:
            assert response.status == 421


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
async def test_names_of_the_loopback_interface_are_accepted(
    dashboard: Dashboard, host: str
) -> None:
    async with dashboard.request(
        "/", headers={"Host": f"{host}:{dashboard.address.rpartition(':')[2]}"}
    ) as response:
        assert response.status == 200


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer wrong", "Basic {token}", "{token}", "Bearer {token}x", "Bearer ü"],
)
async def test_data_requires_the_token(
    dashboard: Dashboard, overview: FakeOverview, authorization: str | None
) -> None:
    headers = (
        {}
        if authorization is None
        else {"Authorization": authorization.format(token=dashboard.token)}
    )
    for path in ("/stream", "/object?id=RayCluster-default-one", "/unknown"):
        async with dashboard.request(path, headers=headers) as response:
            assert response.status == 401
            assert "one" not in (await response.text()).split()
    assert not overview.is_running


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_requests_of_other_sites_are_refused(dashboard: Dashboard, site: str) -> None:
    headers = {
        "Authorization": f"Bearer {dashboard.token}",
        "Sec-Fetch-Site": site,
        "Origin": "http://evil.example",
    }
    for path in ("/stream", "/object?id=RayCluster-default-one"):
        async with dashboard.request(path, headers=headers) as response:
            assert response.status == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
async def test_only_get_and_head_are_allowed(dashboard: Dashboard, method: str) -> None:
    for path in ("/", "/stream", "/object"):
        async with dashboard.request(path, method) as response:
            assert response.status == 405
            assert response.headers["X-Content-Type-Options"] == "nosniff"


async def test_stream_begins_with_a_snapshot_and_continues_with_changes(
    dashboard: Dashboard, overview: FakeOverview
) -> None:
    async with dashboard.stream() as stream:
        name, data = await stream.next()
        assert (name, data["scope"]["server"]) == ("snapshot", "api.example.test:6443")
        assert [row["name"] for row in data["rows"]] == ["one", "two"]
        overview.put(summary(name="two", state="failed", level=Level.FAILED), summary(name="three"))
        name, data = await stream.next()
        assert name == "changes"
        assert [(row["name"], row["state"]) for row in data["rows"]] == [
            ("two", "failed"),
            ("three", "ready"),
        ]
        overview.remove("RayCluster-default-one")
        assert (await stream.next())[1]["removed"] == ["RayCluster-default-one"]


async def test_change_that_a_page_does_not_show_is_not_sent(
    dashboard: Dashboard, overview: FakeOverview
) -> None:
    async with dashboard.stream() as stream:
        await stream.next()
        overview.put(summary(name="one", conditions=(SummaryCondition("A", "True", "", "", ""),)))
        overview.put(summary(name="two", state="suspended"))
        _, data = await stream.next()
        assert [row["name"] for row in data["rows"]] == ["two"]


async def test_hostile_strings_stay_inside_one_event(
    dashboard: Dashboard, overview: FakeOverview
) -> None:
    overview.put(summary(name="one", state=HOSTILE, problems=(Problem(HOSTILE, HOSTILE),)))
    async with dashboard.stream() as stream:
        _, data = await stream.next()
        assert data["rows"][0]["state"] == HOSTILE
        overview.put(summary(name="two", state=HOSTILE))
        assert (await stream.next())[1]["rows"][0]["state"] == HOSTILE


async def test_details_contain_conditions_and_warnings(
    dashboard: Dashboard, overview: FakeOverview
) -> None:
    overview.put(
        summary(
            name="one",
            conditions=(SummaryCondition("Ready", "False", "Why", "Because", ""),),
            warnings=(WarningEvent("BackOff", "restarting", "2026-01-01T00:00:00Z", 3),),
        )
    )
    async with dashboard.stream() as stream:
        _, data = await stream.next()
        assert [(event["reason"], event["count"]) for event in data["events"]] == [("BackOff", 3)]
        async with dashboard.request(
            "/object", params={"id": "RayCluster-default-one"}
        ) as response:
            assert response.content_type == "application/json"
            assert await response.json() == {
                "Problems that its owner has as well": [],
                "Pods": [],
                "Children": [],
                "Commands": [
                    ["Pods", "kubectl get pods --namespace default --selector ray.io/cluster=one"],
                    [
                        "Logs",
                        (
                            "kubectl logs --namespace default --selector ray.io/cluster=one "
                            "--all-containers --prefix --tail 100"
                        ),
                    ],
                ],
                "Conditions": [["Ready: False", "Why: Because"]],
                "Warning Events": [["BackOff (x3)", "restarting"]],
            }
        for identity in ("unknown", "", "x" * 10_000):
            async with dashboard.request("/object", params={"id": identity}) as response:
                assert response.status in (400, 404)


async def test_nothing_is_watched_while_no_page_is_open() -> None:
    overview, clock = FakeOverview([summary()]), FakeClock()

    def closed() -> bool:
        # a closed connection is noticed when something is written to it
        overview.put(summary(state=f"changed {anyio.current_time()}"))
        return clock.timers > 0

    async with running_dashboard(overview, clock=clock) as dashboard:
        async with dashboard.request("/", headers={}) as response:
            assert response.status == 200
        assert (overview.starts, clock.timers) == (0, 0)
        async with dashboard.stream() as first, dashboard.stream() as second:
            await first.next()
            await second.next()
            assert (overview.starts, overview.is_running) == (1, True)
        await eventually(closed)
        clock.advance(LINGER / 2)
        async with dashboard.stream() as stream:
            await stream.next()
        clock.advance(LINGER)
        assert overview.starts == 1
        await eventually(closed)
        clock.advance(LINGER)
        await eventually(lambda: not overview.is_running)
        assert clock.timers == 0
        assert dashboard.feed.details("RayCluster-default-sample") is None


async def test_number_of_streams_is_limited(dashboard: Dashboard) -> None:
    async with anyio.create_task_group() as tasks:

        async def hold(*, task_status: Any) -> None:
            async with dashboard.stream() as stream:
                await stream.next()
                task_status.started()
                await anyio.sleep_forever()

        for _ in range(MAX_STREAMS):
            await tasks.start(hold)
        async with dashboard.request("/stream") as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "30")
        tasks.cancel_scope.cancel()
    # the streams of closed pages make room
    async with dashboard.stream() as stream:
        assert (await stream.next())[0] == "snapshot"


async def test_slow_reader_is_disconnected(dashboard: Dashboard) -> None:
    async with dashboard.stream() as slow, dashboard.stream() as other:
        await slow.next()
        await other.next()
        for stream in dashboard.feed.streams:
            for _ in range(200 if stream is next(iter(dashboard.feed.streams)) else 1):
                stream.send(b'event: changes\ndata: {"rows":[]}\n\n')
        with pytest.raises((EOFError, aiohttp.ClientError)):
            await slow.read_to_end()
        assert (await other.next())[0] == "changes"


async def test_stream_ends_after_its_lifetime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "LIFETIME", 0.05)
    overview = FakeOverview([summary()])
    async with running_dashboard(overview) as dashboard, dashboard.stream() as stream:
        await stream.next()
        with pytest.raises(EOFError):
            await stream.next()


async def test_failure_to_watch_is_retried(overview: FakeOverview) -> None:
    clock = FakeClock()
    working = overview.snapshot
    overview.snapshot = None  # type: ignore[method-assign, assignment]
    async with running_dashboard(overview, clock=clock) as dashboard:
        async with dashboard.request("/stream") as response:
            assert response.status == 503
        overview.snapshot = working  # type: ignore[method-assign]
        clock.advance(5)
        async with dashboard.stream() as stream:
            assert (await stream.next())[0] == "snapshot"


async def test_kinds_without_permission_are_named() -> None:
    informers = [
        FakeInformer(RAY_CLUSTER, "forbidden", is_forbidden=True),
        FakeInformer(SECRET, "forbidden", is_forbidden=True),
        FakeInformer(FLUX_JOB, "not served", is_not_served=True),
    ]
    overview = FakeOverview(informers=informers)
    async with running_dashboard(overview) as dashboard, dashboard.stream() as stream:
        _, data = await stream.next()
        missing = "permission to list and watch is missing"
        assert data["kinds"] == [
            {"title": "RayCluster", "kind": "RayCluster", "problem": missing, "level": "warning"},
            {"title": "Secret", "kind": "Secret", "problem": missing, "level": "idle"},
        ]
        informers[0].set_problem("")
        assert [kind["title"] for kind in (await stream.next())[1]["kinds"]] == ["Secret"]


async def test_unreadable_kind_of_several_groups_is_named_with_its_group() -> None:
    first, second = INFERENCE_STACKS
    for is_installed, title in ((True, f"InferenceStack.{first.group}"), (False, "InferenceStack")):
        informers = [
            FakeInformer(first, "forbidden", is_forbidden=True),
            FakeInformer(second, is_not_served=not is_installed),
        ]
        overview = FakeOverview(informers=informers)
        async with running_dashboard(overview) as dashboard, dashboard.stream() as stream:
            (kind,) = (await stream.next())[1]["kinds"]
            assert (kind["title"], kind["kind"]) == (title, "InferenceStack")
            assert kind["level"] == "warning"


async def test_kinds_with_objects_that_are_left_out_are_named() -> None:
    overview = FakeOverview(informers=[FakeInformer(RAY_CLUSTER)])
    async with running_dashboard(overview) as dashboard, dashboard.stream() as stream:
        assert (await stream.next())[1]["kinds"] == []
        overview.incomplete = {RAY_CLUSTER: "2 in namespace ns"}
        for handler in overview.left_out_handlers:
            handler()
        (kind,) = (await stream.next())[1]["kinds"]
        assert (kind["title"], kind["level"]) == ("RayCluster", "warning")
        assert kind["problem"] == "2 in namespace ns"


async def test_lost_connection_of_the_server_is_named_until_it_returns() -> None:
    informer = FakeInformer(RAY_CLUSTER, synced=True)
    async with (
        running_dashboard(FakeOverview(informers=[informer])) as dashboard,
        dashboard.stream() as stream,
    ):
        assert (await stream.next())[1]["kinds"] == []
        informer.set_problem("watch rayclusters: refused")
        (kind,) = (await stream.next())[1]["kinds"]
        assert (kind["title"], kind["level"]) == ("Cluster", "warning")
        assert kind["problem"].endswith("the last known state: watch rayclusters: refused")
        informer.set_problem("")
        assert (await stream.next())[1]["kinds"] == []


async def test_reconciles_follow_changes() -> None:
    overview, clock = FakeOverview([summary()]), FakeClock()
    numbers = [{"name": "raycluster", "total": 1}]
    running = running_dashboard(overview, clock=clock, controllers=lambda: list(numbers))
    async with running as dashboard, dashboard.stream() as stream:
        _, data = await stream.next()
        if "controllers" not in data:
            _, data = await stream.next()
        assert data["controllers"] == numbers
        numbers[:] = [{"name": "raycluster", "total": 2}]
        overview.put(summary(state="failed"))
        assert "controllers" not in (await stream.next())[1]
        await eventually(lambda: clock.timers > 0)
        clock.advance(2)
        assert (await stream.next())[1]["controllers"] == numbers


async def test_dashboard_of_an_operator_requires_authorized_metrics() -> None:
    manager = Manager(
        ClientConfig(server="https://localhost"), ManagerOptions(metrics_bind_address="127.0.0.1:0")
    )
    with pytest.raises(RuntimeError, match="does not authorize clients"):
        in_cluster.setup(manager, [VIEWS[RAY_CLUSTER]])
