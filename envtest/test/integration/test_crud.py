"""Create, read, update, patch and delete on any API server, and the errors of these requests."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.api_client import APIClient
from envtest.registry import object_metadata
from test.support.config_maps import CONFIG_MAPS, config_map


async def test_object_lifecycle(api: APIClient) -> None:
    created = await api.post(CONFIG_MAPS, config_map("a", {"k": "v"}))
    assert created.code == 201
    metadata = created.body["metadata"]
    assert metadata["namespace"] == "default"
    assert metadata["uid"]
    assert metadata["creationTimestamp"].endswith("Z")
    assert (await api.get(f"{CONFIG_MAPS}/a")).body == created.body
    replaced = await api.put(f"{CONFIG_MAPS}/a", {**created.body, "data": {"k": "w"}})
    assert replaced.code == 200
    assert int(replaced.body["metadata"]["resourceVersion"]) > int(metadata["resourceVersion"])
    deleted = await api.delete(f"{CONFIG_MAPS}/a")
    assert deleted.body["status"] == "Success"
    assert deleted.body["details"] == {"name": "a", "kind": "configmaps", "uid": metadata["uid"]}
    assert (await api.get(f"{CONFIG_MAPS}/a")).body["message"] == 'configmaps "a" not found'


async def test_update_without_changes_keeps_the_resource_version(api: APIClient) -> None:
    created = (await api.post(CONFIG_MAPS, config_map("a", {"k": "v"}))).body
    for response in (
        await api.put(f"{CONFIG_MAPS}/a", created),
        await api.put(f"{CONFIG_MAPS}/a", config_map("a", {"k": "v"})),
        await api.merge(f"{CONFIG_MAPS}/a", {"data": {"k": "v"}}),
    ):
        assert response.body == created


async def test_update_with_stale_resource_version_is_a_conflict(api: APIClient) -> None:
    created = (await api.post(CONFIG_MAPS, config_map("a", {"k": "v"}))).body
    await api.merge(f"{CONFIG_MAPS}/a", {"data": {"k": "w"}})
    response = await api.put(f"{CONFIG_MAPS}/a", created)
    assert (response.code, response.body["reason"]) == (409, "Conflict")
    assert response.body["message"] == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


async def test_name_is_generated_from_generate_name(api: APIClient) -> None:
    response = await api.post(CONFIG_MAPS, {"metadata": {"generateName": "some-"}})
    assert response.code == 201
    assert response.body["metadata"]["name"].startswith("some-")
    assert len(response.body["metadata"]["name"]) == len("some-") + 5


async def test_generated_name_of_an_existing_object_is_replaced(
    api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_metadata, "_RANDOM", "b")
    await api.post(CONFIG_MAPS, {"metadata": {"generateName": "some-"}})
    response = await api.post(CONFIG_MAPS, {"metadata": {"generateName": "some-"}})
    assert (response.code, response.body["reason"]) == (
        409,
        "AlreadyExists",
    )  # all names of eight attempts exist
    monkeypatch.setattr(object_metadata, "_RANDOM", "bc")
    names = [await api.post(CONFIG_MAPS, {"metadata": {"generateName": "some-"}}) for _ in range(3)]
    assert {response.code for response in names} == {201}


async def test_second_object_of_the_same_name_is_rejected(api: APIClient) -> None:
    await api.post(CONFIG_MAPS, config_map("a"))
    response = await api.post(CONFIG_MAPS, config_map("a"))
    assert (response.code, response.body["reason"]) == (409, "AlreadyExists")
    assert response.body["message"] == 'configmaps "a" already exists'


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (
            b"{",
            400,
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind",
        ),
        (
            {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}},
            400,
            'Secret in version "v1" cannot be',
        ),
        (
            config_map("a", namespace="other"),
            400,
            "the namespace of the provided object does not match",
        ),
        (
            config_map("A"),
            422,
            'ConfigMap "A" is invalid: metadata.name: Invalid value: "A": a lowercase RFC 1123',
        ),
        (
            config_map(""),
            422,
            'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is',
        ),
        (
            config_map("a", labels={"a b": "c"}),
            422,
            'ConfigMap "a" is invalid: metadata.labels: Invalid value: "a b"',
        ),
        (
            config_map("a", resourceVersion="5"),
            500,
            "resourceVersion should not be set on objects to be created",
        ),
        (b"x" * (3 * 1024 * 1024 + 1), 413, "Request entity too large: limit is 3145728"),
    ],
    ids=["syntax", "kind", "namespace", "name", "no-name", "label", "version", "too-large"],
)
async def test_invalid_request_is_rejected(
    api: APIClient, body: Any, code: int, message: str
) -> None:
    response = await api.post(CONFIG_MAPS, body)
    assert response.code == code
    assert response.body["kind"] == "Status"
    assert response.body["message"].startswith(message)


async def test_media_types_are_negotiated(api: APIClient) -> None:
    refused = await api.request("POST", CONFIG_MAPS, b"{}", content_type="text/plain")
    assert refused.code == 415
    await api.post(CONFIG_MAPS, config_map("a"))
    assert (await api.get(f"{CONFIG_MAPS}/a", headers={"Accept": "text/html"})).code == 406
    as_yaml = await api.get(f"{CONFIG_MAPS}/a", headers={"Accept": "application/yaml"})
    assert as_yaml.body.startswith("apiVersion: v1\nkind: ConfigMap\n")
    patched = await api.request("PATCH", f"{CONFIG_MAPS}/a", b"{}", content_type="application/json")
    assert (patched.code, patched.body["message"]) == (415, "415: Unsupported Media Type")


async def test_unserved_paths_methods_and_resources(api: APIClient) -> None:
    assert (await api.get("/no/such/path")).body == "404 page not found\n"
    assert (await api.get("/apis/nosuch.example.com/v1/things")).body == "404 page not found\n"
    unknown = await api.get("/apis/apps/v1/namespaces/default/nosuchthings")
    assert unknown.body["message"] == "the server could not find the requested resource"
    assert (await api.post(f"{CONFIG_MAPS}/a", config_map("a"))).code == 405


async def test_dry_run_changes_nothing(api: APIClient) -> None:
    response = await api.post(CONFIG_MAPS, config_map("a", {"k": "v"}), {"dryRun": "All"})
    assert response.code == 201
    assert "resourceVersion" not in response.body["metadata"]
    assert (await api.get(f"{CONFIG_MAPS}/a")).code == 404
    await api.post(CONFIG_MAPS, config_map("a", {"k": "v"}))
    assert (await api.merge(f"{CONFIG_MAPS}/a", {"data": {"k": "w"}}, {"dryRun": "All"})).body[
        "data"
    ] == {"k": "w"}
    assert (await api.delete(f"{CONFIG_MAPS}/a", query={"dryRun": "All"})).code == 200
    assert (await api.get(f"{CONFIG_MAPS}/a")).body["data"] == {"k": "v"}


async def test_finalizer_delays_deletion(api: APIClient) -> None:
    await api.post(CONFIG_MAPS, config_map("a", finalizers=["example.com/hold"]))
    marked = await api.delete(f"{CONFIG_MAPS}/a")
    assert marked.body["metadata"]["deletionTimestamp"]
    assert marked.body["metadata"]["deletionGracePeriodSeconds"] == 0
    second = await api.post(CONFIG_MAPS, config_map("a"))
    assert second.body["message"] == 'object is being deleted: configmaps "a" already exists'
    more = await api.merge(
        f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
    )
    assert more.code == 422
    released = await api.merge(f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": None}})
    assert released.code == 200
    assert (await api.get(f"{CONFIG_MAPS}/a")).code == 404


async def test_deletion_checks_preconditions(api: APIClient) -> None:
    created = (await api.post(CONFIG_MAPS, config_map("a"))).body["metadata"]
    wrong = await api.delete(f"{CONFIG_MAPS}/a", {"preconditions": {"uid": "other"}})
    assert wrong.code == 409
    assert wrong.body["message"].startswith(
        'Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition'
    )
    stale = await api.delete(f"{CONFIG_MAPS}/a", {"preconditions": {"resourceVersion": "1"}})
    assert stale.code == 409
    preconditions = {
        "preconditions": {"uid": created["uid"], "resourceVersion": created["resourceVersion"]}
    }
    assert (await api.delete(f"{CONFIG_MAPS}/a", preconditions)).code == 200


async def test_delete_collection_deletes_only_selected_objects(api: APIClient) -> None:
    for name, color in (("a", "red"), ("b", "blue"), ("c", "red")):
        await api.post(CONFIG_MAPS, config_map(name, labels={"color": color}))
    response = await api.delete(CONFIG_MAPS, query={"labelSelector": "color=red"})
    assert [item["metadata"]["name"] for item in response.body["items"]] == ["a", "c"]
    remaining = await api.get(CONFIG_MAPS, {"labelSelector": "color"})
    assert [item["metadata"]["name"] for item in remaining.body["items"]] == ["b"]


async def test_anonymous_requests_and_unknown_tokens(api: APIClient) -> None:
    anonymous = await api.get(CONFIG_MAPS, headers={"Authorization": ""})
    assert anonymous.code == 403
    assert anonymous.body["message"] == (
        'configmaps is forbidden: User "system:anonymous" cannot list resource "configmaps" '
        'in API group "" in the namespace "default"'
    )
    assert (await api.get(CONFIG_MAPS, headers={"Authorization": "Bearer nonsense"})).code == 401


PODS = "/api/v1/namespaces/default/pods"
POD = {
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


@pytest.mark.parametrize("path", [f"{PODS}/p/binding", "/api/v1/namespaces/default/bindings"])
async def test_pod_is_bound_once(api: APIClient, path: str) -> None:
    await api.post(
        "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}}
    )  # may exist
    assert (await api.post(PODS, POD)).code == 201
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    assert (await api.post(path, binding)).code == 201
    assert (await api.get(f"{PODS}/p")).body["spec"]["nodeName"] == "n"
    second = await api.post(path, binding)
    assert (second.code, second.body["reason"]) == (409, "Conflict")


async def test_pod_is_deleted_gracefully(api: APIClient) -> None:
    await api.post(
        "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}}
    )  # may exist
    await api.post(PODS, {**POD, "spec": {**POD["spec"], "nodeName": "n"}})  # type: ignore[dict-item]
    marked = (await api.delete(f"{PODS}/p")).body
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    shorter = (await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 5})).body
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    deleted = await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert deleted.body["kind"] == "Pod"
    assert (await api.get(f"{PODS}/p")).code == 404


async def test_job_deletion_orphans_pods_with_a_warning(api: APIClient) -> None:
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    await api.post(
        jobs, {"metadata": {"name": "j", "finalizers": ["a.b/c"]}, "spec": {"template": template}}
    )
    response = await api.delete(f"{jobs}/j")
    assert response.headers["Warning"].startswith(
        '299 - "child pods are preserved by default when jobs are deleted;'
    )
    assert "orphan" in response.body["metadata"]["finalizers"]


async def test_scale_subresource_changes_replicas(api: APIClient) -> None:
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    labels = {"app": "web"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    await api.post(deployments, {"metadata": {"name": "d"}, "spec": spec})
    scale = (await api.get(f"{deployments}/d/scale")).body
    assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == (
        "Scale",
        {"replicas": 2},
        "app=web",
    )
    scaled = await api.put(f"{deployments}/d/scale", {**scale, "spec": {"replicas": 3}})
    assert scaled.body["spec"] == {"replicas": 3}
    assert (await api.get(f"{deployments}/d")).body["spec"]["replicas"] == 3
    refused = await api.merge(f"{deployments}/d/scale", {"spec": {"replicas": -1}})
    assert refused.body["message"].startswith(
        'Scale.autoscaling "d" is invalid: spec.replicas: Invalid value: -1'
    )


async def test_dry_run_accepts_a_resource_version_on_creation(api: APIClient) -> None:
    body = {"metadata": {"name": "a", "resourceVersion": "5"}}
    response = await api.post(f"{CONFIG_MAPS}?dryRun=All", body)
    assert (response.code, response.body["metadata"]["resourceVersion"]) == (201, "5")
    assert (await api.post(CONFIG_MAPS, body)).code == 500
