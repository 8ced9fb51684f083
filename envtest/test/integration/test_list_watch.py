"""Lists as snapshots; watches from history, from now and with initial events; expired versions."""

from __future__ import annotations

import pytest

from envtest import ControlPlane, EmbeddedControlPlane
from envtest.api_client import APIClient
from test.support.config_maps import CONFIG_MAPS, config_map
from test.support.toys import TOYS


def names(response: object) -> list[str]:
    return [item["metadata"]["name"] for item in response.body["items"]]  # type: ignore[attr-defined]


async def create_config_maps(api: APIClient, *config_map_names: str, **labels: str) -> str:
    """Create ConfigMaps; return the resourceVersion of the last one."""
    version = ""
    for name in config_map_names:
        version = (await api.post(CONFIG_MAPS, config_map(name, {"n": name}, labels=labels))).body[
            "metadata"
        ]["resourceVersion"]
    return version


SELECTOR = {"labelSelector": "mine"}


async def test_paginated_list_is_one_snapshot(api: APIClient) -> None:
    namespace = "/api/v1/namespaces/chunks/configmaps"
    await api.post("/api/v1/namespaces", {"metadata": {"name": "chunks"}})
    for name in "abcde":
        await api.post(namespace, config_map(name))
    first = await api.get(
        namespace, {"limit": "2", "fieldSelector": "metadata.name!=kube-root-ca.crt"}
    )
    assert names(first) == ["a", "b"]
    await api.post(namespace, config_map("bb"))
    await api.delete(f"{namespace}/c")
    seen = names(first)
    token = first.body["metadata"]["continue"]
    while token:
        page = await api.get(
            namespace,
            {"limit": "2", "continue": token, "fieldSelector": "metadata.name!=kube-root-ca.crt"},
        )
        assert page.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]
        seen += names(page)
        token = page.body["metadata"].get("continue")
    assert seen == ["a", "b", "c", "d", "e"]


async def test_list_at_exact_resource_version(api: APIClient) -> None:
    version = await create_config_maps(api, "a", mine="")
    await api.merge(f"{CONFIG_MAPS}/a", {"data": {"n": "changed"}})
    exact = await api.get(
        CONFIG_MAPS, {**SELECTOR, "resourceVersion": version, "resourceVersionMatch": "Exact"}
    )
    assert exact.body["items"][0]["data"] == {"n": "a"}
    newer = await api.get(
        CONFIG_MAPS,
        {**SELECTOR, "resourceVersion": version, "resourceVersionMatch": "NotOlderThan"},
    )
    assert newer.body["items"][0]["data"] == {"n": "changed"}


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        (
            {"labelSelector": "a b"},
            400,
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt",
        ),
        (
            {"fieldSelector": "data.k=v"},
            400,
            '"data.k" is not a known field selector: only "metadata.name"',
        ),
        ({"limit": "x"}, 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        (
            {"continue": "rubbish", "limit": "1"},
            400,
            "invalid continue token: continue key is not valid",
        ),
        (
            {"resourceVersion": "999999999999"},
            504,
            "Timeout: Too large resource version: 999999999999, current: ",
        ),
        (
            {"resourceVersionMatch": "Exact"},
            422,
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forb',
        ),
        (
            {"sendInitialEvents": "true"},
            422,
            'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden',
        ),
    ],
)
async def test_invalid_list_options_are_rejected(
    api: APIClient, query: dict[str, str], code: int, message: str
) -> None:
    response = await api.get(CONFIG_MAPS, query)
    assert response.code == code
    assert response.body["message"].startswith(message)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "continue": "x"},
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided",
        ),
        (
            {"continue": "x"},
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided",
        ),
        (
            {"sendInitialEvents": "true"},
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            {"resourceVersionMatch": "NotOlderThan"},
            (
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless "
                "sendInitialEvents is provided"
            ),
        ),
    ],
)
async def test_invalid_watch_options_are_rejected(
    api: APIClient, query: dict[str, str], message: str
) -> None:
    response = await api.get(CONFIG_MAPS, {"watch": "1", **query})
    assert response.code == 422
    assert response.body["message"] == f'ListOptions.meta.k8s.io "" is invalid: {message}'


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("app=x", "a"),
        ("app!=x,mine", "bc"),
        ("app in (x, y)", "ab"),
        ("app notin (x),mine", "bc"),
        ("!app,mine", "c"),
        ("tier>1", "b"),
        ("tier<2", "a"),
    ],
)
async def test_label_selector_selects_objects(api: APIClient, selector: str, selected: str) -> None:
    await create_config_maps(api, "a", mine="", app="x", tier="1")
    await create_config_maps(api, "b", mine="", app="y", tier="2")
    await create_config_maps(api, "c", mine="")
    assert names(await api.get(CONFIG_MAPS, {"labelSelector": selector})) == list(selected)


async def test_watch_from_a_resource_version_misses_no_event(api: APIClient) -> None:
    version = await create_config_maps(api, "a", mine="")
    await api.merge(f"{CONFIG_MAPS}/a", {"data": {"n": "changed"}})
    async with api.watch(CONFIG_MAPS, {**SELECTOR, "resourceVersion": version}) as watch:
        await api.delete(f"{CONFIG_MAPS}/a")
        assert await watch.summary(2) == [("MODIFIED", "a"), ("DELETED", "a")]


async def test_watch_without_resource_version_starts_with_existing_objects(api: APIClient) -> None:
    await create_config_maps(api, "a", "b", mine="")
    async with api.watch(CONFIG_MAPS, SELECTOR) as watch:
        assert await watch.summary(2) == [("ADDED", "a"), ("ADDED", "b")]
        await create_config_maps(api, "c", mine="")
        assert await watch.summary(1) == [("ADDED", "c")]


async def test_streaming_list_ends_with_a_bookmark(api: APIClient) -> None:
    await create_config_maps(api, "a", mine="")
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with api.watch(CONFIG_MAPS, {**SELECTOR, **query}) as watch:
        assert await watch.summary(1) == [("ADDED", "a")]
        bookmark = await watch.event()
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(bookmark["object"]["metadata"]["resourceVersion"]) > 0


async def test_watch_reports_objects_that_start_and_stop_matching(api: APIClient) -> None:
    version = await create_config_maps(api, "a")
    async with api.watch(
        CONFIG_MAPS, {"labelSelector": "on=yes", "resourceVersion": version}
    ) as watch:
        await api.merge(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"on": "yes"}}})
        await api.merge(f"{CONFIG_MAPS}/a", {"data": {"n": "seen"}})
        relabeled = await api.merge(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"on": "no"}}})
        assert await watch.summary(2) == [("ADDED", "a"), ("MODIFIED", "a")]
        deleted = await watch.event()
    assert deleted["type"] == "DELETED"
    assert deleted["object"]["metadata"]["labels"] == {"on": "yes"}
    assert (
        deleted["object"]["metadata"]["resourceVersion"]
        == relabeled.body["metadata"]["resourceVersion"]
    )


async def test_watch_ends_after_its_timeout(api: APIClient) -> None:
    async with api.watch(CONFIG_MAPS, {"labelSelector": "nothing", "timeoutSeconds": "1"}) as watch:
        assert await watch.ended()


async def test_partial_object_metadata_is_returned(api: APIClient) -> None:
    await create_config_maps(api, "a", mine="")
    as_list = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
    response = await api.get(CONFIG_MAPS, SELECTOR, headers=as_list)
    assert response.body["kind"] == "PartialObjectMetadataList"
    assert set(response.body["items"][0]) == {"kind", "apiVersion", "metadata"}
    as_object = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
    async with api.watch(CONFIG_MAPS, SELECTOR, headers=as_object) as watch:
        event = await watch.event()
    assert event["object"]["kind"] == "PartialObjectMetadata"
    assert "data" not in event["object"]


async def test_watches_of_custom_resources_begin_when_their_crd_changed(
    plane: ControlPlane, api: APIClient
) -> None:
    toys = "/apis/example.com/v1/namespaces/default/toys"
    crd = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{TOYS['metadata']['name']}"
    await plane.install_crds(TOYS)
    body = {"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": "bear"}}
    assert (await api.post(toys, body)).code == 201

    async def first_event(revision: str) -> tuple[str, str]:
        async with api.watch(toys, {"resourceVersion": revision}) as watch:
            event = await watch.event()
            return event["type"], event["object"].get("reason", "")

    assert await first_event("1") == ("ERROR", "Expired")
    listed = (await api.get(toys)).body["metadata"]["resourceVersion"]
    await api.merge(f"{toys}/bear", {"metadata": {"labels": {"a": "b"}}})
    await api.merge(crd, {"metadata": {"labels": {"a": "b"}}})
    assert await first_event(listed) == ("MODIFIED", "")
    names = {"spec": {"names": {"categories": ["all"]}}}
    async with api.watch(toys, {"resourceVersion": listed}) as watch:
        assert (await watch.event())["type"] == "MODIFIED"
        assert (await api.merge(crd, names)).code == 200
        assert await watch.ended()
    await api.until(f"{toys}?resourceVersion={listed}&resourceVersionMatch=Exact")
    assert await first_event(listed) == ("ERROR", "Expired")


async def test_compacted_resource_version_is_expired(plane: ControlPlane, api: APIClient) -> None:
    if not isinstance(plane, EmbeddedControlPlane):
        pytest.skip("history is forgotten on demand only by the embedded control plane")
    version = await create_config_maps(api, "a", "b", mine="")
    page = await api.get(CONFIG_MAPS, {**SELECTOR, "limit": "1"})
    await create_config_maps(api, "c", mine="")
    plane.store.compact()
    async with api.watch(CONFIG_MAPS, {"resourceVersion": version}) as watch:
        event = await watch.event()
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == (
        "ERROR",
        410,
        "Expired",
    )
    assert event["object"]["message"].startswith(f"too old resource version: {version} (")
    expired = await api.get(
        CONFIG_MAPS, {**SELECTOR, "limit": "1", "continue": page.body["metadata"]["continue"]}
    )
    assert (expired.code, expired.body["reason"]) == (410, "Expired")
    rest = await api.get(
        CONFIG_MAPS, {**SELECTOR, "continue": expired.body["metadata"]["continue"]}
    )
    assert names(rest) == ["b", "c"]


async def test_deletion_of_an_unscheduled_pod_is_two_events(api: APIClient) -> None:
    pods = "/api/v1/namespaces/default/pods"
    await api.post(
        pods, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    )
    async with api.watch(pods, {"resourceVersion": "0"}) as watch:
        await watch.event()
        assert (await api.delete(f"{pods}/p")).code == 200
        assert [(await watch.event())["type"] for _ in range(2)] == ["MODIFIED", "DELETED"]
