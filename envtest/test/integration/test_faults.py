"""Fault injection: the effect of each kind of fault on clients."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from envtest import ControlPlane, EmbeddedControlPlane
from envtest.api_client import APIClient
from envtest.faults import Fault, FaultError
from test.support.config_maps import CONFIG_MAPS, config_map


@pytest.fixture
async def plane() -> AsyncIterator[EmbeddedControlPlane]:
    async with ControlPlane.embedded(controllers=()) as running:
        yield running


async def test_error_response_is_limited_by_verb_resource_and_count(
    plane: EmbeddedControlPlane, api: APIClient
) -> None:
    fault = plane.faults.add(
        Fault(verbs=("list",), resources=("configmaps",), count=2, code=429, retry_after=3)
    )
    for _ in range(2):
        response = await api.get(CONFIG_MAPS)
        assert (response.code, response.headers["Retry-After"]) == (429, "3")
        assert response.body["details"]["retryAfterSeconds"] == 3
    assert (await api.get(CONFIG_MAPS)).code == 200
    assert (await api.get("/api/v1/secrets")).code == 200
    assert fault.injected == 2


async def test_fault_expires_after_its_duration(
    plane: EmbeddedControlPlane, api: APIClient
) -> None:
    plane.faults.add(Fault(seconds=5.0, code=503))
    await plane.advance(6)
    assert (await api.get(CONFIG_MAPS)).code == 200


async def test_connection_reset(plane: EmbeddedControlPlane, api: APIClient) -> None:
    plane.faults.add(Fault(verbs=("create",), reset=True, count=1))
    with pytest.raises(aiohttp.ClientError):
        await api.post(CONFIG_MAPS, config_map("a"))
    assert (await api.get(f"{CONFIG_MAPS}/a")).code == 404


@pytest.mark.parametrize("torn", [False, True])
async def test_watch_is_cut_after_some_lines(
    plane: EmbeddedControlPlane, api: APIClient, torn: bool
) -> None:
    for name in "abc":
        await api.post(CONFIG_MAPS, config_map(name))
    plane.faults.add(Fault(verbs=("watch",), cut_after=2, torn=torn))
    async with api.watch(CONFIG_MAPS) as watch:
        with pytest.raises((aiohttp.ClientError, AssertionError, ValueError)):
            await watch.summary(3)
    plane.faults.clear()
    async with api.watch(CONFIG_MAPS) as watch:
        assert len(await watch.summary(3)) == 3


async def test_expired_resource_version(plane: EmbeddedControlPlane, api: APIClient) -> None:
    plane.faults.add(Fault(verbs=("watch", "list"), expired=True))
    assert (await api.get(CONFIG_MAPS)).body["reason"] == "Expired"
    async with api.watch(CONFIG_MAPS, {"resourceVersion": "5"}) as watch:
        event = await watch.event()
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        assert await watch.ended()


async def test_stale_watch_cache(plane: EmbeddedControlPlane, api: APIClient) -> None:
    created = await api.post(CONFIG_MAPS, config_map("a", {"k": "old"}))
    plane.faults.stale_revision = int(created.body["metadata"]["resourceVersion"])
    await api.merge(f"{CONFIG_MAPS}/a", {"data": {"k": "new"}})
    cached = await api.get(f"{CONFIG_MAPS}/a", {"resourceVersion": "0"})
    assert cached.body["data"] == {"k": "old"}
    assert (await api.get(CONFIG_MAPS, {"resourceVersion": "0"})).body["items"][0]["data"] == {
        "k": "old"
    }
    assert (await api.get(f"{CONFIG_MAPS}/a")).body["data"] == {"k": "new"}
    plane.faults.clear()
    assert (await api.get(f"{CONFIG_MAPS}/a", {"resourceVersion": "0"})).body["data"] == {
        "k": "new"
    }


async def test_paused_server_responds_after_resume(
    plane: EmbeddedControlPlane, api: APIClient
) -> None:
    plane.faults.pause()
    request = asyncio.create_task(api.get(CONFIG_MAPS))
    done, _ = await asyncio.wait([request], timeout=0.05)
    assert not done
    plane.faults.resume()
    assert (await request).code == 200


async def test_faults_are_managed_over_http(plane: EmbeddedControlPlane, api: APIClient) -> None:
    added = await api.post("/envtest/faults", {"verbs": ["get"], "code": 500, "count": 1})
    assert added.body["faults"][0]["verbs"] == ["get"]
    assert "since" not in added.body["faults"][0]
    assert (await api.get(f"{CONFIG_MAPS}/a")).code == 500
    assert (await api.get(f"{CONFIG_MAPS}/a")).code == 404
    wrong = await api.post("/envtest/faults", {"verb": "get"})
    assert wrong.code == 400
    assert wrong.body["message"].startswith("unknown field 'verb': must be one of ")
    assert (await api.delete("/envtest/faults")).body == {"faults": []}
    assert (await api.get("/envtest/faults", headers={"Authorization": ""})).code == 403


async def test_rule_for_all_requests_is_removed_over_http(
    plane: EmbeddedControlPlane, api: APIClient
) -> None:
    added = await api.post("/envtest/faults", {"code": 503})
    assert added.code == 200
    assert (await api.get(CONFIG_MAPS)).code == 503
    assert (await api.get("/envtest/faults")).body["faults"][0]["injected"] == 1
    assert (await api.delete("/envtest/faults")).body == {"faults": []}
    assert (await api.get(CONFIG_MAPS)).code == 200


INVALID_RULES: list[tuple[dict[str, Any], str]] = [
    ({"verbs": "create"}, "verbs: 'create': must be a list of strings"),
    ({"verbs": ["creat"]}, "verbs: 'creat': must be one of create, delete, "),
    ({"verbs": [1]}, "verbs: 1: must be a string"),
    ({"resources": ["ConfigMap"]}, "resources: 'ConfigMap': must be a plural in lower case"),
    ({"resources": ["deployments.apps"]}, "without its group"),
    ({"namespaces": ["a/b"]}, "namespaces: 'a/b': must be the name of a namespace"),
    ({"count": "x"}, "count: 'x': must be an integer, 0 or more"),
    ({"count": -1}, "count: -1: must be an integer, 0 or more"),
    ({"cut_after": True}, "cut_after: True: must be an integer, 0 or more"),
    ({"retry_after": 1.5}, "retry_after: 1.5: must be an integer, 0 or more"),
    ({"seconds": -1}, "seconds: -1: must be a number of seconds, 0 or more"),
    ({"latency": "1s"}, "latency: '1s': must be a number of seconds, 0 or more"),
    ({"code": 42}, "code: 42: must be the code of an HTTP error, 400 to 599, or 0 for none"),
    ({"code": "409"}, "code: '409': must be the code of an HTTP error"),
    ({"reset": "yes"}, "reset: 'yes': must be true or false"),
    ({"message": None}, "message: None: must be a string"),
    ({"reason": "x" * 200, "torn": 2}, "torn: 2: must be true or false"),
    ({"reason": "Conflict"}, "reason: 'Conflict': must be used with code"),
    ({"message": "no", "reset": True}, "message: 'no': must be used with code or expired"),
    ({"retry_after": 0, "latency": 1}, "retry_after: 0: must be used with code"),
    ({"torn": True}, "torn: True: must be used with cut_after"),
    ({"after": True}, "after: True: must be used with latency or reset or code or expired"),
]


async def test_invalid_rules_are_refused(plane: EmbeddedControlPlane, api: APIClient) -> None:
    for fields, message in INVALID_RULES:
        with pytest.raises(FaultError, match=re.escape(message)):
            Fault(**fields)
        response = await api.post("/envtest/faults", fields)
        assert response.code == 400
        assert message in response.body["message"]
    assert plane.faults.rules == []


@pytest.mark.parametrize(
    ("name", "plural"),
    [("configmap", "configmaps"), ("cm", "configmaps"), ("pod/status", "pods/status")],
)
async def test_other_names_of_a_resource_than_its_plural_are_refused(
    plane: EmbeddedControlPlane, name: str, plural: str
) -> None:
    message = f"resources: {name!r}: must be the plural {plural}"
    with pytest.raises(FaultError, match=message):
        plane.faults.add(Fault(resources=(name,)))
    with pytest.raises(FaultError, match=message):
        plane.faults.hold_watches(name)
    with pytest.raises(FaultError, match=r"resources: \['pods'\]: must be a string"):
        plane.faults.hold_watches(["pods"])  # type: ignore[arg-type]
    for unknown in ("Pod", "deployments.apps"):
        with pytest.raises(
            FaultError, match=f"resources: '{unknown}': must be a plural in lower case"
        ):
            plane.faults.hold_watches(unknown)
    with pytest.raises(FaultError, match="stale_revision: 'x': must be an integer, 0 or more"):
        plane.faults.stale_revision = "x"  # type: ignore[assignment]
    plane.faults.add(Fault(resources=(plural, "toys")))  # the CRD of toys may be installed later


async def test_rule_must_be_a_fault(plane: EmbeddedControlPlane) -> None:
    rule: Any = {"code": 500}
    with pytest.raises(
        TypeError, match=r"^fault: {'code': 500}: must be an envtest\.faults\.Fault$"
    ):
        plane.faults.add(rule)


async def test_watcher_that_does_not_read_is_disconnected_without_blocking_writers(
    plane: EmbeddedControlPlane, api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envtest.storage.store.WATCHER_LIMIT", 50)
    value = "x" * 500_000
    cut = asyncio.Event()
    monkeypatch.setattr("envtest.handlers.watch._Stream.abort", lambda stream: cut.set())
    async with api.watch(CONFIG_MAPS, {"resourceVersion": "0"}):
        for number in range(300):
            response = await api.post(CONFIG_MAPS, config_map(f"c-{number}", {"k": value}))
            assert response.code == 201
            if cut.is_set():
                break
    assert cut.is_set()


async def test_fault_after_the_write_took_effect(
    plane: EmbeddedControlPlane, api: APIClient
) -> None:
    plane.faults.add(Fault(verbs=("create",), code=504, reason="Timeout", after=True, count=1))
    assert (await api.post(CONFIG_MAPS, config_map("a"))).code == 504
    assert (await api.get(f"{CONFIG_MAPS}/a")).code == 200
    plane.faults.add(Fault(verbs=("create",), reset=True, after=True, count=1))
    assert (await api.post(CONFIG_MAPS, config_map("a"))).code == 409  # it did not succeed
    with pytest.raises(aiohttp.ClientError):
        await api.post(CONFIG_MAPS, config_map("b"))
    assert (await api.get(f"{CONFIG_MAPS}/b")).code == 200


async def test_watches_of_one_resource_are_held_back(
    plane: EmbeddedControlPlane, api: APIClient
) -> None:
    secrets = "/api/v1/namespaces/default/secrets"
    async with api.watch(CONFIG_MAPS) as held, api.watch(secrets) as free:
        plane.faults.hold_watches("configmaps")
        await api.post(CONFIG_MAPS, config_map("a"))
        await api.post(secrets, {"metadata": {"name": "b"}})
        assert await free.summary(1) == [("ADDED", "b")]
        waiting = asyncio.create_task(held.summary(1))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        plane.faults.release_watches()
        assert await waiting == [("ADDED", "a")]


async def test_faults_that_a_function_chooses(plane: EmbeddedControlPlane, api: APIClient) -> None:
    injected: list[Fault] = []
    plane.faults.choose = lambda attributes: Fault(code=503) if attributes.name == "a" else None
    plane.faults.listeners.append(injected.append)
    assert [(await api.get(f"{CONFIG_MAPS}/{name}")).code for name in "ab"] == [503, 404]
    assert [fault.code for fault in injected] == [503]
    plane.faults.clear()
    assert (await api.get(f"{CONFIG_MAPS}/a")).code == 404
