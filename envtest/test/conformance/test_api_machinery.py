"""Watches, pages, tables, the version and admission policies."""

from __future__ import annotations

import asyncio
from typing import Any

from envtest import ControlPlane
from test.conformance.client import SpecClient
from test.conformance.specs import plays

POLICIES = "/apis/admissionregistration.k8s.io/v1"


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def deployment(name: str, replicas: int) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


@plays("Watchers should observe add, update, and delete watch notifications on configmaps")
async def test_watches_with_label_selectors(client: SpecClient, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    label = "watch-this-configmap"
    async with (
        client.watching(path, labelSelector=f"{label}=A") as first,
        client.watching(path, labelSelector=f"{label}=B") as second,
        client.watching(path, labelSelector=f"{label} in (A,B)") as both,
    ):
        for name, watch in (("A", first), ("B", second)):
            one = f"{path}/{name.lower()}"
            await client.create(path, config_map(name.lower(), {label: name}))
            await client.update(one, lambda obj: obj.update(data={"mutation": "1"}))
            assert (await client.delete(one)).code == 200
            for seen in (watch, both):
                events = [await seen.event() for _ in range(3)]
                assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
                assert events[2]["object"]["data"] == {"mutation": "1"}


@plays(
    "Watchers should be able to start watching from a specific resource version",
    "Watchers should be able to restart watching from the last resource version observed by the previous watch",
)
async def test_watches_start_at_a_version(client: SpecClient, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    one = f"{path}/e2e-watch-test"
    await client.create(path, config_map("e2e-watch-test", mutation="0"))
    first = await client.update(one, lambda obj: obj.update(data={"mutation": "1"}))
    await client.update(one, lambda obj: obj.update(data={"mutation": "2"}))
    assert (await client.delete(one)).code == 200
    version = first["metadata"]["resourceVersion"]
    async with client.watching(path, resourceVersion=version) as watch:
        events = [await watch.event() for _ in range(2)]
    assert [(event["type"], event["object"]["data"]["mutation"]) for event in events] == [
        ("MODIFIED", "2"),
        ("DELETED", "2"),
    ]
    async with client.watching(
        path, resourceVersion=events[0]["object"]["metadata"]["resourceVersion"]
    ) as watch:
        assert (await watch.event())["type"] == "DELETED"


@plays(
    "Watchers should observe an object deletion if it stops meeting the requirements of the selector"
)
async def test_object_that_leaves_the_selector_is_deleted_for_the_watch(
    client: SpecClient, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    one = f"{path}/e2e-watch-test"
    async with client.watching(path, labelSelector="watch=yes") as watch:
        await client.create(path, config_map("e2e-watch-test", {"watch": "yes"}))
        for data, label in (("1", "yes"), ("2", "no"), ("3", "no"), ("3", "yes"), ("4", "yes")):

            def change(obj: dict[str, Any], data: str = data, label: str = label) -> None:
                obj["data"], obj["metadata"]["labels"] = {"mutation": data}, {"watch": label}

            await client.update(one, change)
        assert (await client.delete(one)).code == 200
        events = [await watch.event() for _ in range(6)]
    assert [event["type"] for event in events] == [
        "ADDED",
        "MODIFIED",
        "DELETED",
        "ADDED",
        "MODIFIED",
        "DELETED",
    ]
    assert [event["object"].get("data", {}).get("mutation") for event in events] == [
        None,
        "1",
        "1",
        "3",
        "4",
        "4",
    ]


@plays("Watchers should receive events on concurrent watches in same order")
async def test_concurrent_watches_have_the_same_order(client: SpecClient, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    start = (await client.read(path))["metadata"]["resourceVersion"]

    async def write() -> None:
        for number in range(30):
            await client.create(path, config_map(f"m{number % 3}-{number}"))
            await client.delete(f"{path}/m{number % 3}-{number}")

    async def versions(since: str, count: int) -> list[str]:
        async with client.watching(path, resourceVersion=since) as watch:
            return [
                (await watch.event(30))["object"]["metadata"]["resourceVersion"]
                for _ in range(count)
            ]

    writer = asyncio.create_task(write())
    all_versions = await versions(start, 60)
    await writer
    later = await asyncio.gather(
        *(versions(all_versions[index], 59 - index) for index in range(0, 58, 7))
    )
    assert [
        each
        for index, each in zip(range(0, 58, 7), later, strict=True)
        if each != all_versions[index + 1 :]
    ] == []


@plays("Servers with support for API chunking should return chunks of results for list calls")
async def test_lists_in_chunks(client: SpecClient, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/podtemplates"
    template = {"template": {"spec": {"containers": [{"name": "test", "image": "test2"}]}}}
    total = 100
    for number in range(total):
        metadata = {"name": f"template-{number:04}"}
        await client.create(
            path, {"apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata, **template}
        )
    for limit in (7, 10, 33):
        query, names, version = {"limit": str(limit)}, [], None
        while True:
            page = await client.read(path, **query)
            metadata = page["metadata"]
            version = version or metadata["resourceVersion"]
            assert (metadata["resourceVersion"], len(page["items"]) <= limit) == (version, True)
            names += [item["metadata"]["name"] for item in page["items"]]
            if not metadata.get("continue"):
                assert "remainingItemCount" not in metadata
                break
            assert metadata["remainingItemCount"] == total - len(names)
            query["continue"] = metadata["continue"]
        assert names == [f"template-{number:04}" for number in range(total)]
    assert len((await client.read(path, limit=str(total + 1)))["items"]) == total


@plays(
    "Servers with support for API chunking should support continue listing from the last key if the original version"
    " has been compacted away, though the list is inconsistent"
)
async def test_expired_list_continues_at_a_newer_version(
    cluster: ControlPlane, client: SpecClient, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/podtemplates"
    template = {"template": {"spec": {"containers": [{"name": "test", "image": "test2"}]}}}
    names = [f"template-{number:04}" for number in range(40)]
    for name in names:
        await client.create(
            path,
            {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name}, **template},
        )
    first = (await client.read(path, limit="4"))["metadata"]
    assert first["remainingItemCount"] == 36
    query = {"limit": "4", "continue": first["continue"]}
    assert (await client.get(path, query)).code == 200
    await cluster.advance(301)
    expired = await client.get(path, query)
    assert (expired.code, expired.body["reason"]) == (410, "Expired")
    query["continue"] = expired.body["metadata"]["continue"]
    found, versions = names[:4], set()
    while query["continue"]:
        page = await client.read(path, **query)
        versions.add(page["metadata"]["resourceVersion"])
        found += [item["metadata"]["name"] for item in page["items"]]
        assert page["metadata"].get("remainingItemCount", 0) == len(names) - len(found)
        query["continue"] = page["metadata"].get("continue")
    assert found == names
    assert len(versions - {first["resourceVersion"]}) == 1


async def test_list_continues_after_its_version_has_expired(
    cluster: ControlPlane, client: SpecClient, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for number in range(6):
        await client.create(path, config_map(f"c{number}"))
    first = (await client.read(path, limit="2"))["metadata"]
    await client.create(path, config_map("c9"))
    assert (
        len((await client.read(path, **{"limit": "9", "continue": first["continue"]}))["items"])
        == 5
    )
    await cluster.advance(301)
    expired = await client.get(path, {"limit": "2", "continue": first["continue"]})
    assert (expired.code, expired.body["reason"]) == (410, "Expired")
    token = expired.body["metadata"]["continue"]
    assert token != first["continue"]
    page = await client.read(path, **{"limit": "9", "continue": token})
    assert page["metadata"]["resourceVersion"] != first["resourceVersion"]
    assert [item["metadata"]["name"] for item in page["items"]] == [
        "c2",
        "c3",
        "c4",
        "c5",
        "c9",
        "kube-root-ca.crt",
    ]
    # A new list at the same version can be continued.
    again = (await client.read(path, limit="2"))["metadata"]
    assert (
        len((await client.read(path, **{"limit": "9", "continue": again["continue"]}))["items"])
        == 6
    )


@plays(
    "Servers with support for Table transformation should return a 406 for a backend which does not implement metadata"
)
async def test_reviews_have_no_table(client: SpecClient) -> None:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}},
    }
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    response = await client.post(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review, headers=accept
    )
    assert (response.code, response.body["reason"]) == (406, "NotAcceptable")


@plays("server version should find the server version")
async def test_version(client: SpecClient) -> None:
    version = await client.read("/version")
    assert (version["major"].isdigit(), version["minor"].isdigit()) == (True, True)


def binding(kind: str, name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    selector = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    spec = {"policyName": name, "matchResources": selector, **spec}
    version = "admissionregistration.k8s.io/v1"
    return {
        "apiVersion": version,
        "kind": f"{kind}Binding",
        "metadata": {"name": name},
        "spec": spec,
    }


RULES = {
    "resourceRules": [
        {
            "apiGroups": ["apps"],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["deployments"],
        }
    ]
}


@plays(
    "ValidatingAdmissionPolicy should validate against a Deployment",
    "ValidatingAdmissionPolicy should allow expressions to refer variables.",
)
async def test_validating_policy(client: SpecClient, namespace: str) -> None:
    kind = "ValidatingAdmissionPolicy"
    validations = [
        {
            "expression": "variables.replicas > 1",
            "messageExpression": "'wants replicas > 1, got ' + string(object.spec.replicas)",
        },
        {"expression": "variables.replicas % 2 == variables.oddReplicas", "reason": "Invalid"},
    ]
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "policy.example.com"},
        "spec": {
            "matchConstraints": {
                **RULES,
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            },
            "variables": [
                {"name": "replicas", "expression": "object.spec.replicas"},
                {"name": "oddReplicas", "expression": "1"},
            ],
            "validations": validations,
        },
    }
    one = f"{POLICIES}/validatingadmissionpolicies/policy.example.com"
    await client.create(f"{POLICIES}/validatingadmissionpolicies", policy)
    await client.eventually(
        one,
        lambda body: (
            (body.get("status") or {}).get("observedGeneration") == body["metadata"]["generation"]
        ),
    )
    assert "warnings" not in (await client.read(one))["status"].get("typeChecking", {})
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    bindings = f"{POLICIES}/validatingadmissionpolicybindings"
    await client.create(
        bindings, binding(kind, "policy.example.com", namespace, validationActions=["Deny"])
    )
    refused = await client.post(path, deployment("marker-deployment", 1))
    assert refused.code == 422, refused.body
    assert "wants replicas > 1, got 1" in refused.body["message"]
    assert (await client.post(path, deployment("replicated", 2))).code == 422
    await client.create(path, deployment("replicated", 3))


@plays(
    "MutatingAdmissionPolicy should mutate a Deployment",
    "MutatingAdmissionPolicy should mutate a Deployment with annotations",
)
async def test_mutating_policy(client: SpecClient, namespace: str) -> None:
    kind = "MutatingAdmissionPolicy"
    mutations = [
        {
            "patchType": "ApplyConfiguration",
            "applyConfiguration": {
                "expression": 'Object{metadata: Object.metadata{annotations: {"my-annotation": "my-value"}}}'
            },
        },
        {
            "patchType": "JSONPatch",
            "jsonPatch": {
                "expression": '[JSONPatch{op: "replace", path: "/spec/replicas", value: variables.wanted}]'
            },
        },
    ]
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "policy.example.com"},
        "spec": {
            "matchConstraints": RULES,
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "variables": [{"name": "wanted", "expression": "object.spec.replicas + 1"}],
            "mutations": mutations,
        },
    }
    await client.create(f"{POLICIES}/mutatingadmissionpolicies", policy)
    bindings = f"{POLICIES}/mutatingadmissionpolicybindings"
    await client.create(bindings, binding(kind, "policy.example.com", namespace))
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    created = await client.create(path, deployment("replicated", 2))
    assert created["metadata"]["annotations"]["my-annotation"] == "my-value"
    assert created["spec"]["replicas"] == 3
