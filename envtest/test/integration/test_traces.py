"""Traces: requests with the changes that they caused, and assertions about them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient
from envtest.planes.trace import TracedChange
from envtest.threaded import ThreadedControlPlane
from test.support.config_maps import CONFIG_MAPS, config_map

SECRETS = "/api/v1/namespaces/default/secrets"


async def test_requests_with_their_changes() -> None:
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as api:
        with plane.trace() as trace:
            await api.post(CONFIG_MAPS, config_map("a", {"k": "v"}))
            await asyncio.gather(
                api.merge(f"{CONFIG_MAPS}/a", {"data": {"k": "w"}}),
                api.post(
                    SECRETS, {"metadata": {"name": "s"}, "stringData": {"password": "hunter2"}}
                ),
            )
            await api.merge(f"{CONFIG_MAPS}/a", {"data": {"k": "w"}})
            await api.post(CONFIG_MAPS, config_map("a"))
            await api.get(CONFIG_MAPS)
            await api.delete(f"{CONFIG_MAPS}/a")
        await api.post(CONFIG_MAPS, config_map("after"))
    created = trace.requests[0]
    assert (created.verb, created.resource, created.namespace, created.code) == (
        "create",
        "configmaps",
        "default",
        201,
    )
    (change,) = created.changes
    assert (change.type, change.before) == ("ADDED", None)
    assert change.after is not None
    assert change.after["data"] == {"k": "v"}
    report = trace.report()
    assert "201 create configmaps default/a by admin\n    ADDED configmaps default/a\n" in report
    assert '    MODIFIED configmaps default/a\n      ~ data.k: "v" -> "w"' in report
    assert "200 patch configmaps default/a by admin, unchanged" in report
    assert "409 create configmaps default/a by admin" in report
    assert "DELETED configmaps default/a" in report
    assert "200 list configmaps" not in report
    assert "200 list configmaps default by admin" in trace.report(reads=True)
    assert "after" not in report
    assert "(hidden)" in report
    assert "hunter2" not in report


async def test_assert_requests() -> None:
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as api:
        with plane.trace() as trace:
            await api.post(CONFIG_MAPS, config_map("a"))
            await api.get(CONFIG_MAPS)
            trace.assert_requests({"create configmaps": 1})
            trace.assert_requests(
                {"create configmaps": 1, "list configmaps": 1, "update configmaps": 0}
            )
            trace.assert_requests({}, others=True)
            trace.assert_requests({}, user="alice")
            trace.assert_requests({}, namespace="other")
            with pytest.raises(
                AssertionError,
                match=r"create configmaps: expected 2, found 1(.|\n)*201 create configmaps",
            ):
                trace.assert_requests({"create configmaps": 2})
            with pytest.raises(AssertionError, match="create configmaps: expected 0, found 1"):
                trace.assert_requests({"list configmaps": 1}, user="admin")
            trace.clear()
            trace.assert_requests({})


@pytest.mark.parametrize(
    ("expected", "error", "message"),
    [
        ("create pods", TypeError, "expected: 'create pods': must be a mapping, such as"),
        ({"create pods": "1"}, ValueError, "expected: create pods: '1': must be an integer"),
        (
            {"create": 0},
            ValueError,
            "expected: 'create': must be VERB RESOURCE, .* create, delete,",
        ),
        ({"make pods": 0}, ValueError, "expected: 'make pods': must be VERB RESOURCE"),
        ({"create pod": 0}, ValueError, "'create pod': the resource must be the plural pods"),
        ({"create Pod": 0}, ValueError, "'create Pod': the resource must be the plural pods"),
        ({"create cm": 0}, ValueError, "'create cm': the resource must be the plural configmaps"),
        ({"create toys": 0}, ValueError, "'create toys': the resource must be one of .*, pods, "),
        ({"update pods/state": 0}, ValueError, "'update pods/state': pods have attach, .*, status"),
        ({"update secrets/status": 0}, ValueError, "secrets have no subresource"),
    ],
)
async def test_expectation_that_no_request_can_meet_is_an_error(
    expected: Any, error: type[Exception], message: str
) -> None:
    async with ControlPlane.embedded(controllers=()) as plane:
        with plane.trace() as trace, pytest.raises(error, match=message):
            trace.assert_requests(expected)


async def test_idle() -> None:
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as api:
        with plane.trace() as trace:
            await api.post(CONFIG_MAPS, config_map("a"))
            await trace.wait_idle(0.05)

            async def write_until(count: int) -> None:
                for number in range(count):
                    await api.merge(f"{CONFIG_MAPS}/a", {"data": {"n": str(number)}})
                    await asyncio.sleep(0.02)

            async with asyncio.TaskGroup() as group:
                group.create_task(write_until(5))
                await trace.wait_idle(0.1, within=5)
            async with asyncio.TaskGroup() as group:
                writer = group.create_task(write_until(100))
                with pytest.raises(
                    AssertionError, match=r"writes continued(.|\n)*patch configmaps"
                ):
                    await trace.wait_idle(0.2)
                with pytest.raises(AssertionError, match=r"allowed are 0\.1"):
                    await trace.wait_idle(0.2, within=0.1)
                await trace.wait_idle(0.05, ignore=("configmaps",))
                writer.cancel()


async def test_changes_of_controllers_are_entries_of_their_own() -> None:
    async with (
        ControlPlane.embedded(controllers=("serviceaccount",)) as plane,
        APIClient(plane) as api,
    ):
        await plane.advance(0)
        with plane.trace() as trace:
            await api.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
            await plane.advance(0)
        trace.assert_requests({"create namespaces": 1})
        (change,) = [entry for entry in trace.entries if isinstance(entry, TracedChange)]
        assert change.lines()[0] == "ADDED serviceaccounts team/default"
        assert "controller: ADDED serviceaccounts team/default" in trace.report()


def test_trace_of_a_control_plane_on_a_thread() -> None:
    with ThreadedControlPlane(ControlPlane.embedded()) as thread, thread.trace() as trace:
        trace.assert_idle(0.01)
        with pytest.raises(TypeError, match="seconds: '1': must be a number of seconds, 0 or more"):
            trace.assert_idle("1")  # type: ignore[arg-type]
        trace.assert_requests({})
