"""Webhooks that change the kind, the version or the metadata of an object, with the answers of kube-apiserver 1.36."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from envtest import ControlPlane
from envtest.api_client import APIClient, Response
from envtest.formats.certificate_authority import CertificateAuthority, server_context
from test.support.toys import toys_crd

GROUP: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
CORE: Final = "/api/v1/namespaces/default"
MAPS: Final = f"{CORE}/configmaps"
TOYS: Final = "/apis/example.com/v1/namespaces/default/toys"
DEPLOYMENT: Final = "/apis/apps/v1/namespaces/default/deployments"
WRONG_NAMESPACE: Final = (
    "the namespace of the provided object does not match the namespace sent on the request"
)
RULES: Final = [
    {
        "apiGroups": ["", "apps", "example.com"],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": [
            "configmaps",
            "deployments/scale",
            "pods/eviction",
            "serviceaccounts/token",
            "toys",
            "toys/status",
        ],
    }
]


def toys() -> dict[str, Any]:
    """Return the CRD of toys with two versions, any spec and the subresource of the status."""
    fields = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": fields, "status": fields}}
    version = {
        "served": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    return toys_crd(
        {**version, "name": "v1", "storage": True}, {**version, "name": "v2", "storage": False}
    )


class Mutator:
    """A webhook that applies ``patch`` to the objects of all requests."""

    def __init__(self, api: APIClient) -> None:
        self.api = api
        self.patch: list[dict[str, Any]] = []

    async def review(self, request: web.Request) -> web.Response:
        review = await request.json()
        response = {"uid": review["request"]["uid"], "allowed": True}
        if self.patch:
            encoded = b64encode(json.dumps(self.patch).encode()).decode()
            response |= {"patchType": "JSONPatch", "patch": encoded}
        return web.json_response(
            {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
        )

    async def until_called(self) -> None:
        """Wait until the API server calls the webhook, which takes the real one a moment."""
        self.replaces("/metadata/labels", {"mutated": "yes"})
        async with asyncio.timeout(60):
            while True:
                body = {"metadata": {"name": "waiting"}}
                response = await self.api.post(MAPS, body, {"dryRun": "All"})
                if "labels" in response.body["metadata"]:
                    return
                await asyncio.sleep(0.05)

    def replaces(self, path: str, value: Any) -> None:
        operation = "add" if path else "replace"
        self.patch = [{"op": operation, "path": path, "value": value}]

    async def create(self, name: str) -> Response:
        return await self.api.post(MAPS, {"metadata": {"name": name}})

    async def create_toy(self, name: str) -> Response:
        toy = {"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": name}}
        return await self.api.post(TOYS, toy)


@pytest.fixture
async def mutator(plane: ControlPlane, api: APIClient, tmp_path: Path) -> AsyncIterator[Mutator]:
    found = Mutator(api)
    authority = CertificateAuthority(name="webhooks")
    application = web.Application()
    application.router.add_post("/", found.review)
    runner = web.AppRunner(application)
    await runner.setup()
    context = server_context(authority.server(["127.0.0.1"]), authority.pem)
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    await plane.install_crds(toys())
    assert (await found.create("existing")).code == 201
    assert (await found.create_toy("existing")).code == 201
    hook = {
        "name": "mutate.example.com",
        "clientConfig": {
            "url": f"https://127.0.0.1:{runner.addresses[0][1]}/",
            "caBundle": b64encode(authority.pem).decode(),
        },
        "rules": RULES,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    body = {"metadata": {"name": "mutate"}, "webhooks": [hook]}
    assert (await api.post(GROUP, body)).code == 201
    await found.until_called()
    yield found
    await runner.cleanup()


def unknown_kind(kind: str, version: str) -> str:
    return f'no kind "{kind}" is registered for version "{version}" in scheme "'


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("/kind", "Secret", "converting (v1.Secret) to (core.ConfigMap): unknown conversion"),
        ("/kind", "Nonsense", unknown_kind("Nonsense", "v1")),
        ("/kind", 5, "cannot unmarshal number into Go struct field .kind of type string"),
        ("/apiVersion", "v2", unknown_kind("ConfigMap", "v2")),
        ("/apiVersion", "a/b/c", "unexpected GroupVersion string: a/b/c"),
        ("", [], "cannot unmarshal array into Go value of type struct"),
        ("/metadata", 5, "cannot unmarshal number into Go struct field ConfigMap.metadata"),
        (
            "/metadata/labels",
            {"a": "b", "c": 5},
            "cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            "/metadata/finalizers",
            "x",
            "cannot unmarshal string into Go struct field ObjectMeta.metadata.finalizers of type []string",
        ),
    ],
)
async def test_builtin_object_of_another_kind_is_not_stored(
    mutator: Mutator, path: str, value: Any, message: str
) -> None:
    api = mutator.api
    mutator.replaces(path, value)
    changed = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}}
    for response in (
        await mutator.create("created"),
        await api.apply(f"{MAPS}/applied", changed, "test"),
    ):
        assert response.code == 500, response
        assert message in response.body["message"]
    listed = await api.get(MAPS)
    names = {item["metadata"]["name"] for item in listed.body["items"]}
    assert names & {"created", "applied"} == set()


async def test_missing_kind_and_version_are_those_of_the_request(mutator: Mutator) -> None:
    mutator.patch = [{"op": "remove", "path": "/kind"}, {"op": "remove", "path": "/apiVersion"}]
    response = await mutator.create("created")
    assert response.code == 201, response
    assert (response.body["apiVersion"], response.body["kind"]) == ("v1", "ConfigMap")
    updated = await mutator.api.merge(f"{MAPS}/existing", {"data": {"a": "d"}})
    assert updated.body["kind"] == "ConfigMap"


@pytest.mark.parametrize(
    ("path", "value", "code", "message"),
    [
        ("/kind", "Secret", 422, 'kind: Invalid value: "Secret": must be Toy'),
        ("/kind", "", 500, "Object 'Kind' is missing in '"),
        ("/apiVersion", "example.com/v9", 500, "from an invalid group/version: example.com/v9"),
        (
            "/apiVersion",
            "v2",
            500,
            '/v2, Kind=Toy is unstructured and is not suitable for converting to "example.com/v1"',
        ),
        ("/metadata", None, 500, "system metadata was not initialized"),
        ("/metadata/namespace", "kube-system", 400, WRONG_NAMESPACE),
    ],
)
async def test_custom_resource_of_another_kind_is_not_stored(
    mutator: Mutator, path: str, value: Any, code: int, message: str
) -> None:
    mutator.replaces(path, value)
    response = await mutator.create_toy("created")
    assert response.code == code, response
    assert message in response.body["message"]
    assert (await mutator.api.get(f"{TOYS}/created")).code == 404


SET_BY_SERVER: Final = {
    "creationTimestamp",
    "generation",
    "name",
    "namespace",
    "resourceVersion",
    "uid",
}
WRONG_METADATA: Final = {
    "labels": {"a": "b", "c": 5},
    "annotations": "x",
    "finalizers": [5],
    "ownerReferences": {},
    "generateName": 5,
    "managedFields": "x",
    "deletionTimestamp": "tomorrow",
    "deletionGracePeriodSeconds": "x",
    "uid": [],
    "namespace": 5,
}


async def test_metadata_of_a_wrong_type_of_a_custom_resource_are_dropped(mutator: Mutator) -> None:
    mutator.patch = [
        {"op": "add", "path": f"/metadata/{field}", "value": value}
        for field, value in WRONG_METADATA.items()
    ]
    created = await mutator.create_toy("created")
    assert created.code == 201, created
    assert created.body["metadata"].keys() - {"managedFields"} == SET_BY_SERVER


async def test_update_loses_only_the_metadata_of_a_wrong_type(mutator: Mutator) -> None:
    api = mutator.api
    mutator.patch = []
    old = {"labels": {"old": "1"}, "annotations": {"old": "1"}, "finalizers": ["example.com/old"]}
    assert (await api.merge(f"{TOYS}/existing", {"metadata": old})).code == 200
    mutator.replaces("/metadata/labels", WRONG_METADATA["labels"])
    updated = await api.merge(f"{TOYS}/existing", {"spec": {"a": 1}})
    assert updated.code == 200, updated
    assert {name: updated.body["metadata"].get(name) for name in old} == {**old, "labels": None}
    for field, message in (
        ("name", "metadata.name: Required value: name or generateName is required"),
        (
            "resourceVersion",
            "metadata.resourceVersion: Invalid value: 0: must be specified for an update",
        ),
    ):
        mutator.replaces(f"/metadata/{field}", 5)
        refused = await api.merge(f"{TOYS}/existing", {"spec": {"a": 2}})
        assert (refused.code, message in refused.body["message"]) == (422, True)


async def test_custom_resource_in_another_version_is_converted(mutator: Mutator) -> None:
    mutator.replaces("/apiVersion", "example.com/v2")
    response = await mutator.create_toy("created")
    assert response.code == 201, response
    assert response.body["apiVersion"] == "example.com/v1"
    status = await mutator.api.merge(f"{TOYS}/existing/status", {"status": {"a": 1}})
    assert (status.code, status.body["apiVersion"]) == (200, "example.com/v1")


async def test_namespace_must_be_that_of_the_request(mutator: Mutator) -> None:
    api = mutator.api
    mutator.replaces("/metadata/namespace", "kube-system")
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "existing"}}
    for response in (
        await mutator.create("created"),
        await api.put(f"{MAPS}/existing", {**applied, "data": {"a": "x"}}),
        await api.merge(f"{MAPS}/existing", {"data": {"a": "y"}}),
        await api.apply(f"{MAPS}/existing", {**applied, "immutable": False}, "test"),
        await api.merge(f"{TOYS}/existing", {"spec": {"a": 1}}),
        await api.merge(f"{TOYS}/existing/status", {"status": {"a": 1}}),
    ):
        assert (response.code, response.body["message"]) == (400, WRONG_NAMESPACE)
    mutator.patch = [{"op": "remove", "path": "/metadata/namespace"}]
    created = await mutator.create("created")
    assert created.body["metadata"]["namespace"] == "default"


async def test_name_and_uid_cannot_change_in_an_update(mutator: Mutator) -> None:
    mutator.patch = [{"op": "remove", "path": "/metadata/name"}]
    response = await mutator.api.merge(f"{MAPS}/existing", {"data": {"a": "y"}})
    assert response.code == 422, response
    assert response.body["message"] == (
        'ConfigMap "" is invalid: [metadata.name: Required value: name or generateName is required, '
        'metadata.name: Invalid value: "": field is immutable]'
    )
    mutator.replaces("/metadata/uid", "abc")
    response = await mutator.api.merge(f"{MAPS}/existing", {"data": {"a": "y"}})
    assert 'metadata.uid: Invalid value: "abc": field is immutable' in response.body["message"]
    created = await mutator.create("created")
    assert created.body["metadata"]["uid"] != "abc"


async def test_server_sets_the_link_of_no_object(mutator: Mutator) -> None:
    mutator.replaces("/metadata/selfLink", "/x")
    assert "selfLink" not in (await mutator.create("created")).body["metadata"]


async def test_bodies_of_subresources_are_checked_after_mutation(mutator: Mutator) -> None:
    api = mutator.api
    mutator.patch = []
    assert (await api.post(f"{CORE}/serviceaccounts", {"metadata": {"name": "robot"}})).code == 201
    container = {"name": "c", "image": "i"}
    spec = {"serviceAccountName": "robot", "containers": [container]}
    assert (await api.post(f"{CORE}/pods", {"metadata": {"name": "p"}, "spec": spec})).code == 201
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    deployment = {
        "metadata": {"name": "d"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    assert (await api.post(DEPLOYMENT, deployment)).code == 201

    async def scale() -> Response:
        return await api.merge(f"{DEPLOYMENT}/d/scale", {"spec": {"replicas": 1}})

    async def evict() -> Response:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "p"},
            "deleteOptions": {"dryRun": ["All"]},
        }
        return await api.post(f"{CORE}/pods/p/eviction", eviction, {"dryRun": "All"})

    async def token() -> Response:
        return await api.post(f"{CORE}/serviceaccounts/robot/token", {"spec": {}})

    mutator.replaces("/kind", "Nonsense")
    for send, version in (
        (scale, "autoscaling/v1"),
        (evict, "policy/v1"),
        (token, "authentication.k8s.io/v1"),
    ):
        response = await send()
        assert response.code == 500, response
        assert unknown_kind("Nonsense", version) in response.body["message"]
    mutator.replaces("/metadata/name", "other")
    evicted = await evict()
    message = "name in URL does not match name in Eviction object"
    assert (evicted.code, evicted.body["message"]) == (400, message)
    mutator.replaces("/metadata/namespace", "other")
    issued = await token()
    assert issued.code == 422, issued
    assert "must match the service account namespace if specified" in issued.body["message"]
    mutator.patch = [{"op": "remove", "path": "/metadata/name"}]
    scaled = await scale()
    assert scaled.code == 422, scaled
    assert "metadata.name: Required value" in scaled.body["message"]
