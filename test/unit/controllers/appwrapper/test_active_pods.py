"""Pods that may descend from deleted AppWrappers are found for each of these by uids, labels and times."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from cfo.controllers.appwrapper.active_pods import ActivePods
from cfo.controllers.appwrapper.namespace_pods import MAX_OWNERS, NamespacePods
from cfo.controllers.appwrapper.owners import OwnerReads
from cfo.runtime import Client, Reader
from test.support.clocks import FakeClock


def at(minute: int) -> datetime:
    return datetime(2026, 1, 1, 0, minute, tzinfo=UTC)


def pod(name: str, minute: int, owner: str = "", label: str = "") -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": name,
        "uid": name,
        "creationTimestamp": f"2026-01-01T00:{minute:02}:00Z",
    }
    if owner:
        kind = {"apiVersion": "batch/v1", "kind": "Job", "name": owner}
        metadata["ownerReferences"] = [{**kind, "uid": owner, "controller": True}]
    if label:
        metadata["labels"] = {"workload.codeflare.dev/appwrapper": label}
    return {"metadata": metadata}


async def read(*pods: dict[str, Any], without_node: str = "") -> ActivePods:
    """Return the active pods of a namespace in which no owner exists; all but ``without_node`` have a node."""

    async def request(asked: Any) -> Any:
        items = pods
        if "spec.nodeName!=" in asked.params["fieldSelector"]:
            items = tuple(each for each in pods if each["metadata"]["name"] != without_node)
        return SimpleNamespace(body=orjson.dumps({"metadata": {}, "items": items}))

    async def get_metadata(*_: Any) -> None:
        return None

    server = SimpleNamespace(
        transport=SimpleNamespace(request=request),
        cached=lambda *_: None,
        get_metadata=get_metadata,
    )
    client = cast("Client", server)
    cached = cast("Reader", SimpleNamespace(is_complete=lambda _: True))
    clock = FakeClock()
    namespaces = NamespacePods(client, clock, cached, OwnerReads(client, clock, ()))
    namespaces.add_workload("ns")
    found = await namespaces.read("ns", namespaces.ask("ns"))
    assert found is not None
    return found


def names_of_own(pods: ActivePods, *uids: str) -> list[str]:
    """Return the names of an AppWrapper's pods, if these uids are known."""
    return [each.pod.name for each in pods.own_pods(dict.fromkeys(uids, "wrapper"))]


@pytest.mark.parametrize(
    ("earliest", "latest", "expected"),
    [
        (at(0), at(1), ""),
        (at(0), at(10), "old"),
        (at(5), at(10), "old"),
        (at(6), at(19), ""),
        (at(6), at(30), "new"),
        (at(21), at(30), ""),
        (None, at(10), "old"),
    ],
)
async def test_pod_with_a_lost_owner_is_a_candidate_for_appwrappers_of_its_time(
    earliest: datetime | None, latest: datetime, expected: str
) -> None:
    pods = await read(pod("new", 20, "job-b"), pod("old", 5, "job-a"))
    assert pods.candidate("w", earliest, latest) == expected


async def test_label_makes_a_candidate_only_for_its_appwrapper() -> None:
    pods = await read(pod("p", 5, label="w"))
    assert pods.candidate("w", at(0), at(10)) == "p"
    assert pods.candidate("v", at(0), at(10)) == ""


async def test_descendants_are_found_only_by_uid() -> None:
    pods = await read(pod("a", 5, "job"), pod("b", 5, "job"), pod("c", 5), pod("d", 5, label="w"))
    assert names_of_own(pods, "wrapper", "job", "a", "c") == ["a", "b", "c"]
    assert names_of_own(pods, "wrapper") == []


async def test_pod_with_unresolved_owners_is_a_candidate_for_each_appwrapper() -> None:
    pods = await read(*(pod(f"p{n}", 5, f"job-{n}") for n in range(MAX_OWNERS + 1)))
    assert pods.candidate("w", at(6), at(10)) == f"p{MAX_OWNERS}"


async def test_pod_that_is_being_deleted_without_a_node_is_left_out() -> None:
    pods = [pod("waiting", 5, "job"), pod("decoy", 5, "job"), pod("held", 5, "job")]
    for each in pods[1:]:
        each["metadata"]["deletionTimestamp"] = "2026-01-01T00:06:00Z"
        each["metadata"]["deletionGracePeriodSeconds"] = 0
    found = await read(*pods, without_node="decoy")
    assert names_of_own(found, "job") == ["waiting", "held"]
    found = await read(pods[0], without_node="waiting")
    assert names_of_own(found, "job") == ["waiting"]
