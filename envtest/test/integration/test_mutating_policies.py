"""MutatingAdmissionPolicies, as clients observe them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient
from test.support.toys import TOYS

GROUP = "/apis/admissionregistration.k8s.io/v1"
CORE = "/api/v1/namespaces/default"
VERSION = "admissionregistration.k8s.io/v1"


@pytest.fixture
async def api() -> AsyncIterator[APIClient]:
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as requests:
        yield requests


def rule(*resources: str, group: str = "") -> dict[str, Any]:
    operations = ["CREATE", "UPDATE"]
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": operations,
        "resources": list(resources),
    }


def apply_configuration(expression: str) -> dict[str, Any]:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def json_patch(expression: str) -> dict[str, Any]:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def policy(
    name: str,
    *mutations: dict[str, Any],
    rules: tuple[Any, ...] = (rule("configmaps"),),
    **spec: Any,
) -> Any:
    spec = {"reinvocationPolicy": "Never", "mutations": list(mutations), **spec}
    spec["matchConstraints"] = {"resourceRules": list(rules)}
    return {
        "apiVersion": VERSION,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }


async def bind(api: APIClient, body: dict[str, Any], **binding: Any) -> None:
    """Create a policy and a binding with the same name."""
    name = body["metadata"]["name"]
    assert (await api.post(f"{GROUP}/mutatingadmissionpolicies", body)).code == 201
    kind, metadata = "MutatingAdmissionPolicyBinding", {"name": name}
    spec = {"policyName": name, **binding}
    created = {"apiVersion": VERSION, "kind": kind, "metadata": metadata, "spec": spec}
    assert (await api.post(f"{GROUP}/mutatingadmissionpolicybindings", created)).code == 201


async def unbind(api: APIClient, name: str) -> None:
    assert (await api.delete(f"{GROUP}/mutatingadmissionpolicybindings/{name}")).code == 200


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def test_mutations_change_objects_and_own_no_fields(api: APIClient) -> None:
    label = apply_configuration(
        'Object{metadata: Object.metadata{labels: {"by": request.operation}}}'
    )
    change = json_patch(
        "[JSONPatch{op: 'add', path: '/data/n', value: variables.n + object.metadata.labels.by}]"
    )
    await bind(
        api,
        policy(
            "a", label, change, variables=[{"name": "n", "expression": "string(size(object.data))"}]
        ),
    )
    created = (await api.post(f"{CORE}/configmaps", config_map("a", k="v"))).body
    assert (created["metadata"]["labels"], created["data"]) == (
        {"by": "CREATE"},
        {"k": "v", "n": "1CREATE"},
    )
    (owner,) = created["metadata"]["managedFields"]
    assert owner["fieldsV1"] == {"f:data": {".": {}, "f:k": {}}}
    applied = await api.apply(f"{CORE}/configmaps/a", {**config_map("a"), "data": {"x": "y"}}, "me")
    assert applied.body["metadata"]["labels"] == {"by": "UPDATE"}
    owners = {
        each["manager"]: each["fieldsV1"] for each in applied.body["metadata"]["managedFields"]
    }
    assert owners["me"] == {"f:data": {"f:x": {}}}
    await unbind(api, "a")
    assert (
        "labels"
        not in (await api.post(f"{CORE}/configmaps", config_map("b", k="v"))).body["metadata"]
    )


async def test_mutated_objects_are_defaulted_and_validated(api: APIClient) -> None:
    sidecar = 'Object{spec: Object.spec{containers: [Object.spec.containers{name: "s", image: object.metadata.name}]}}'
    await bind(api, policy("pods", apply_configuration(sidecar), rules=(rule("pods"),)))
    spec = {"containers": [{"name": "c", "image": "i"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    created = (await api.post(f"{CORE}/pods", pod)).body
    assert [each["name"] for each in created["spec"]["containers"]] == ["c", "s"]
    assert created["spec"]["containers"][1]["imagePullPolicy"] == "Always"
    await unbind(api, "pods")
    await bind(
        api,
        policy(
            "bad", json_patch("[JSONPatch{op: 'add', path: '/metadata/labels', value: {'-': '?'}}]")
        ),
    )
    answer = await api.post(f"{CORE}/configmaps", config_map("a"))
    assert (answer.code, answer.body["details"]["causes"][0]["field"]) == (422, "metadata.labels")
    await unbind(api, "bad")
    await bind(
        api, policy("unknown", json_patch("[JSONPatch{op: 'add', path: '/nope', value: 1}]"))
    )
    answer = await api.post(f"{CORE}/configmaps", config_map("a"))
    assert (answer.code, answer.body["message"]) == (
        500,
        'Internal error occurred: strict decoding error: unknown field "nope"',
    )


async def test_custom_resources_and_subresources_are_mutated(api: APIClient) -> None:
    assert (
        await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", TOYS)
    ).code == 201
    label = apply_configuration(
        'Object{metadata: Object.metadata{labels: {"sub": string(has(request.subResource))}}}'
    )
    await bind(api, policy("toys", label, rules=(rule("toys", group="example.com"),)))
    toys = "/apis/example.com/v1/namespaces/default/toys"
    await api.until(toys, 200)
    created = await api.post(
        toys, {"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": "t"}}
    )
    assert created.body["metadata"]["labels"] == {"sub": "false"}
    scale = apply_configuration("Object{spec: Object.spec{replicas: 7}}")
    await bind(api, policy("scales", scale, rules=(rule("deployments/scale", group="apps"),)))
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": spec,
    }
    apps = "/apis/apps/v1/namespaces/default/deployments"
    assert (await api.post(apps, deployment)).code == 201
    assert (await api.merge(f"{apps}/d/scale", {"spec": {"replicas": 2}})).body["spec"] == {
        "replicas": 7
    }


async def test_denials_name_the_policy_and_its_binding(api: APIClient) -> None:
    expression = "Object{metadata: Object.metadata{labels: {'v': object.data.nope}}}"
    await bind(api, policy("fails", apply_configuration(expression)))
    answer = await api.post(f"{CORE}/configmaps", config_map("a"))
    denied = "policy 'fails' with binding 'fails' denied request: "
    error = f"{denied}expression '{expression}' resulted in error: no such key: data"
    assert (answer.code, answer.body["reason"], answer.body["message"]) == (403, "Invalid", error)
    await api.merge(
        f"{GROUP}/mutatingadmissionpolicies/fails", {"spec": {"failurePolicy": "Ignore"}}
    )
    assert (await api.post(f"{CORE}/configmaps", config_map("a"))).code == 201
    parameters = {"paramKind": {"apiVersion": "v1", "kind": "Secret"}}
    label = apply_configuration(
        "Object{metadata: Object.metadata{labels: {'v': string(params.metadata.name)}}}"
    )
    reference = {"selector": {}, "parameterNotFoundAction": "Deny"}
    await bind(api, policy("params", label, **parameters), paramRef=reference)
    answer = await api.post(f"{CORE}/configmaps", config_map("b"))
    denied = "policy 'params' with binding 'params' denied request: failed to configure binding: no params found"
    assert (answer.code, answer.body["reason"]) == (403, "Forbidden")
    assert answer.body["message"].startswith(denied)
    await api.post(
        f"{CORE}/secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    )
    assert (await api.post(f"{CORE}/configmaps", config_map("b"))).body["metadata"]["labels"] == {
        "v": "s"
    }


@pytest.mark.parametrize(("again", "seen"), [("IfNeeded", "yes"), ("Never", "no")])
async def test_policy_is_invoked_again_after_a_later_change(
    api: APIClient, again: str, seen: str
) -> None:
    expression = "Object{metadata: Object.metadata{annotations: {'seen': 'late' in object.data ? 'yes' : 'no'}}}"
    await bind(api, policy("z", apply_configuration(expression), reinvocationPolicy=again))
    await bind(api, policy("a", apply_configuration("Object{data: {'late': '1'}}")))
    created = await api.post(f"{CORE}/configmaps", config_map("a", k="v"))
    assert created.body["metadata"]["annotations"] == {"seen": seen}


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"mutations": []}, "Required value: mutations must contain at least one item"),
        ({"reinvocationPolicy": None}, "Required value"),
        (
            {"mutations": [apply_configuration("'a'")]},
            "Invalid value: \"'a'\": must evaluate to Object but got string",
        ),
        (
            {"mutations": [json_patch("Object{}")]},
            'Invalid value: "Object{}": must evaluate to list(JSONPatch) but got Object',
        ),
        (
            {
                "mutations": [
                    {
                        **json_patch("[JSONPatch{}]"),
                        "applyConfiguration": {"expression": "Object{}"},
                    }
                ]
            },
            'Invalid value: "{applyConfiguration}": must not be specified when patchType is JSONPatch',
        ),
        (
            {"mutations": [{"patchType": "ApplyConfiguration"}]},
            "Required value: must be specified when patchType is ApplyConfiguration",
        ),
        (
            {"variables": [{"name": "a-b", "expression": "1"}]},
            'Invalid value: "a-b": must be a valid CEL identifier',
        ),
    ],
)
async def test_creation_is_validated(api: APIClient, change: dict[str, Any], cause: str) -> None:
    body = policy("p", apply_configuration("Object{}"))
    body["spec"] |= change
    answer = await api.post(f"{GROUP}/mutatingadmissionpolicies", body, {"dryRun": "All"})
    assert (answer.code, [each["message"] for each in answer.body["details"]["causes"]]) == (
        422,
        [cause],
    )


@pytest.mark.parametrize(
    ("path", "value", "code", "message"),
    [
        (
            "/kind",
            "Secret",
            500,
            "failed to convert object: converting (v1.Secret) to (core.ConfigMap): unknown conversion",
        ),
        ("/apiVersion", "v2", 500, 'no kind "ConfigMap" is registered for version "v2"'),
        ("/metadata/namespace", "other", 400, "does not match the namespace sent on the request"),
    ],
)
async def test_identity_of_an_object_cannot_change(
    api: APIClient, path: str, value: str, code: int, message: str
) -> None:
    change = json_patch(f'[JSONPatch{{op: "add", path: "{path}", value: "{value}"}}]')
    await bind(api, policy("identity", change))
    maps = "/api/v1/namespaces/default/configmaps"
    response = await api.post(maps, config_map("a"))
    assert response.code == code, response
    assert message in response.body["message"]
    assert (await api.get(f"{maps}/a")).code == 404
