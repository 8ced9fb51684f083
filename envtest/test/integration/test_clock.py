"""The clock of a plane: what depends on it, and its page."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from envtest import ControlPlane, EmbeddedControlPlane
from envtest.api_client import APIClient
from envtest.faults import Fault
from test.support.config_maps import CONFIG_MAPS, config_map

DEFAULT = "/api/v1/namespaces/default"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


@pytest.fixture
async def plane() -> AsyncIterator[EmbeddedControlPlane]:
    async with ControlPlane.embedded(
        controllers=("gc", "namespace", "serviceaccount", "pods", "job")
    ) as running:
        yield running


def job(name: str, phase: str = "Succeeded", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i"}
    template = {
        "metadata": {"annotations": {"envtest.cfo/phase": phase}},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }
    return {"metadata": {"name": name}, "spec": {"template": template, **spec}}


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def test_timestamps_follow_the_clock(plane: EmbeddedControlPlane, api: APIClient) -> None:
    before = (await api.post(CONFIG_MAPS, config_map("before"))).body["metadata"][
        "creationTimestamp"
    ]
    now = await plane.advance(86400)
    metadata = (await api.post(CONFIG_MAPS, config_map("after"))).body["metadata"]
    assert moment(metadata["creationTimestamp"]) - moment(before) >= timedelta(days=1)
    assert plane.audit.events[-1]["stageTimestamp"][:13] == now.isoformat()[:13]
    table = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    rows = (await api.get(CONFIG_MAPS, headers=table)).body["rows"]
    assert {row["cells"][0]: row["cells"][2] for row in rows}["before"] == "24h"


async def test_events_expire_an_hour_after_their_last_write(
    plane: EmbeddedControlPlane, api: APIClient
) -> None:
    for name in ("old", "renewed"):
        event = {
            "metadata": {"name": name},
            "involvedObject": {"namespace": "default"},
            "message": "a",
        }
        assert (await api.post(f"{DEFAULT}/events", event)).code == 201
    await plane.advance(1800)
    await api.merge(f"{DEFAULT}/events/renewed", {"message": "b"})
    async with api.watch(
        f"{DEFAULT}/events", {"resourceVersion": str(plane.store.revision)}
    ) as watch:
        await plane.advance(1801)
        assert (await watch.event())["type"] == "DELETED"
    remaining = (await api.get(f"{DEFAULT}/events")).body["items"]
    assert [item["metadata"]["name"] for item in remaining] == ["renewed"]
    async with plane.fork() as copy, APIClient(copy) as other:
        await copy.advance(1801)
        assert (await other.get(f"{DEFAULT}/events")).body["items"] == []
    assert len((await api.get(f"{DEFAULT}/events")).body["items"]) == 1


async def test_service_account_token_expires(plane: EmbeddedControlPlane, api: APIClient) -> None:
    path = f"{DEFAULT}/serviceaccounts"
    await api.post(path, {"metadata": {"name": "robot"}})
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 600},
    }
    headers = {
        "Authorization": f"Bearer {(await api.post(f'{path}/robot/token', request)).body['status']['token']}"
    }
    await plane.advance(590)
    assert (await api.get("/api/v1/namespaces", headers=headers)).code == 403
    await plane.advance(11)
    assert (await api.get("/api/v1/namespaces", headers=headers)).code == 401


async def test_client_certificate_expires(plane: EmbeddedControlPlane, tmp_path: Path) -> None:
    file = tmp_path / "client.pem"
    file.write_bytes(b"".join(plane.client_certificate("alice", seconds=3600)))
    context = ssl.create_default_context(cadata=plane.ca_pem.decode())
    context.load_cert_chain(file)
    token = {"Authorization": f"Bearer {plane.token}"}
    async with aiohttp.ClientSession(
        plane.url, connector=aiohttp.TCPConnector(ssl=context)
    ) as http:

        async def code(**options: Any) -> int:
            async with http.get("/api/v1/namespaces", **options) as response:
                return response.status

        assert await code() == 403
        await plane.advance(3605)
        assert await code() == 401
        assert await code(headers=token) == 200
        file.write_bytes(b"".join(plane.client_certificate("alice", seconds=3600)))
        context.load_cert_chain(file)
    async with aiohttp.ClientSession(
        plane.url, connector=aiohttp.TCPConnector(ssl=context)
    ) as http:
        assert await code() == 403


async def test_fault_with_a_duration_ends(plane: EmbeddedControlPlane, api: APIClient) -> None:
    plane.faults.add(Fault(verbs=("list",), code=503, seconds=60))
    assert (await api.get(CONFIG_MAPS)).code == 503
    await plane.advance(61)
    assert (await api.get(CONFIG_MAPS)).code == 200


async def test_job_is_deleted_after_its_ttl(plane: EmbeddedControlPlane, api: APIClient) -> None:
    await api.post(JOBS, job("a", ttlSecondsAfterFinished=3600))
    await plane.advance(0)
    conditions = (await api.get(f"{JOBS}/a")).body["status"]["conditions"]
    assert conditions[-1]["type"] == "Complete"
    await plane.advance(3590)
    assert (await api.get(f"{JOBS}/a")).code == 200
    await plane.advance(12)
    assert (await api.get(f"{JOBS}/a")).code == 404


async def test_job_fails_at_its_deadline(plane: EmbeddedControlPlane, api: APIClient) -> None:
    await api.post(JOBS, job("a", "Running", activeDeadlineSeconds=600))
    await plane.advance(590)
    assert (await api.get(f"{JOBS}/a")).body["status"]["active"] == 1
    await plane.advance(60)
    status = (await api.get(f"{JOBS}/a")).body["status"]
    failed = next(each for each in status["conditions"] if each["type"] == "Failed")
    assert failed["reason"] == "DeadlineExceeded"
    elapsed = moment(failed["lastTransitionTime"]) - moment(status["startTime"])
    assert (
        timedelta(seconds=600) <= elapsed < timedelta(seconds=610)
    )  # at the deadline, not at the end of the advance


async def test_pod_takes_its_time_to_start_and_to_stop(
    plane: EmbeddedControlPlane, api: APIClient
) -> None:
    annotations = {"envtest.cfo/start-after": "300", "envtest.cfo/stop-after": "25"}
    spec = {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 30}
    await api.post(
        f"{DEFAULT}/pods", {"metadata": {"name": "slow", "annotations": annotations}, "spec": spec}
    )
    await plane.advance(290)
    assert (await api.get(f"{DEFAULT}/pods/slow")).body["status"]["phase"] == "Pending"
    await plane.advance(12)
    assert (await api.get(f"{DEFAULT}/pods/slow")).body["status"]["phase"] == "Running"
    await api.delete(f"{DEFAULT}/pods/slow")
    await plane.advance(20)
    assert (await api.get(f"{DEFAULT}/pods/slow")).code == 200
    await plane.advance(10)
    assert (await api.get(f"{DEFAULT}/pods/slow")).code == 404


async def test_clock_over_http(plane: EmbeddedControlPlane, api: APIClient) -> None:
    before = (await api.get("/envtest/clock")).body
    assert before["offsetSeconds"] == 0
    after = (await api.post("/envtest/clock", {"advance": 90.5})).body
    assert after["offsetSeconds"] == plane.clock.offset == 90.5
    assert moment(after["now"]) - moment(before["now"]) >= timedelta(seconds=90.5)
    anonymous = {"Authorization": ""}
    assert (await api.get("/envtest/clock", headers=anonymous)).code == 403
    assert (await api.delete("/envtest/clock")).code == 405


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"advance": -1},
        {"advance": "1"},
        {"advance": True},
        {"advance": 1e300},
        {"advance": 1, "x": 1},
    ],
)
async def test_invalid_advance_over_http(
    plane: EmbeddedControlPlane, api: APIClient, body: Any
) -> None:
    assert (await api.post("/envtest/clock", body)).code == 400
    assert plane.clock.offset == 0


async def test_time_continues_after_a_restart_with_a_data_folder(tmp_path: Path) -> None:
    async with ControlPlane.embedded(data_dir=tmp_path, controllers=()) as plane:
        time = await plane.advance(86400)
    async with ControlPlane.embedded(data_dir=tmp_path, controllers=()) as plane:
        assert plane.clock.now() >= time
