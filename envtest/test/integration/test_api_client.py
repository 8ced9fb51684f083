"""What the client of tests says when a condition is not met in time."""

from __future__ import annotations

from typing import Any

import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
DEPLOYMENT: dict[str, Any] = {
    "metadata": {"name": "web"},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "web"}]},
        },
    },
}


async def timeout_of(controllers: list[str], code: int = 200, condition: Any = None) -> str:
    """Return the message of a wait for a Deployment that is not met, but has seen a response."""
    async with ControlPlane.embedded(controllers=controllers) as plane, APIClient(plane) as client:
        created = await client.post(DEPLOYMENTS, DEPLOYMENT)
        assert created.code == 201, created
        for timeout in (0.05, 0.5, 5.0, 50.0):
            with pytest.raises(TimeoutError) as failed:
                await client.until(f"{DEPLOYMENTS}/web", code, condition=condition, timeout=timeout)
            if "there was no response" not in str(failed.value):
                break
    return str(failed.value)


@pytest.mark.parametrize(
    ("controllers", "missing"),
    [
        (["gc"], "deployment, pods"),
        (["deployment"], "pods"),
        (["deployment", "pods"], ""),
    ],
)
async def test_timeout_names_the_controllers_that_do_not_run(
    controllers: list[str], missing: str
) -> None:
    message = await timeout_of(controllers, condition=lambda body: False)
    hint = "; the control plane runs without the controllers that write this status: "
    if missing:
        assert message.endswith(hint + missing)
    else:
        assert hint not in message


def test_client_of_a_url_is_refused() -> None:
    message = "plane: 'http://x': must be a control plane, or an object with url, ca_pem, token"
    with pytest.raises(TypeError, match=message):
        APIClient("http://x")  # type: ignore[arg-type]


async def test_timeout_of_a_deletion_names_no_controllers() -> None:
    assert "controllers" not in await timeout_of(["gc"], 404)


NAMESPACE = "/api/v1/namespaces/default"
EXAMPLES = "/apis/example.com/v1/namespaces/default/examples/a"
CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
                "subresources": {"status": {}},
            }
        ],
    },
}


@pytest.mark.parametrize(
    ("crds", "hint"),
    [
        ([], "example.com/v1 is not served: install the CRD of examples"),
        ([CRD], "example.com/v1 serves no examples, only widgets"),
    ],
)
async def test_resource_that_is_not_served_is_named(crds: list[Any], hint: str) -> None:
    async with ControlPlane.auto(crds=crds) as plane, APIClient(plane) as client:
        with pytest.raises(TimeoutError, match=f"404 page not found.*; {hint}$"):
            await client.until(EXAMPLES, timeout=3)
        with pytest.raises(AssertionError, match=f"404 page not found.*; {hint}$"):
            async with client.watch(EXAMPLES.removesuffix("/a")):
                pass
        if crds:
            widgets = EXAMPLES.replace("examples", "widgets")
            with pytest.raises(TimeoutError, match=r"widgets.* not found'$"):
                await client.until(widgets, timeout=3)
            hint = "widgets have a namespace: /apis/example.com/v1/namespaces/NAMESPACE/widgets/a"
            with pytest.raises(TimeoutError, match=f"{hint}$"):
                await client.until("/apis/example.com/v1/widgets/a", timeout=3)
            hint = "example.com/v2 is not served, only v1: use that, or serve it in the CRD"
            with pytest.raises(TimeoutError, match=f"{hint}$"):
                await client.until(widgets.replace("example.com/v1", "example.com/v2"), timeout=3)
            hint = "typo.com/v1 is not served; widgets are in example.com/v1"
            with pytest.raises(TimeoutError, match=f"{hint}$"):
                await client.until(widgets.replace("example.com", "typo.com"), timeout=3)


async def test_field_that_is_missing_does_not_fulfil_a_condition() -> None:
    async with ControlPlane.auto() as plane, APIClient(plane) as client:
        created = await client.post(
            "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "a"}}
        )
        assert created.code == 201
        path = "/api/v1/namespaces/default/configmaps/a"

        def has_color(body: Any) -> bool:
            return bool(body["data"]["color"] == "blue")

        with pytest.raises(TimeoutError, match=r"ConfigMapList with 1 item: a$"):
            await client.until(path.removesuffix("/a"), condition=lambda _: False, timeout=0.5)
        error = "ConfigMap 'a' .*; the condition raised KeyError: 'data'"
        with pytest.raises(TimeoutError, match=error) as failed:
            await client.until(path, condition=has_color, timeout=3)
        assert isinstance(failed.value.__cause__, KeyError)
        await client.merge(path, {"data": {"color": "blue"}})
        assert (await client.until(path, condition=has_color)).body["data"] == {"color": "blue"}


@pytest.mark.parametrize(
    ("method", "arguments", "error", "message"),
    [
        ("until", {"timeout": "5"}, TypeError, "timeout: '5': must be a number of seconds"),
        ("get", {"query": {"watch": False}}, TypeError, "query: watch: False: .* 'false'"),
        ("get", {"query": {"limit": None}}, TypeError, "query: limit: None: must be a string or"),
        ("get", {"query": "limit=1"}, TypeError, "query: 'limit=1': must be a mapping"),
        ("get", {"headers": {"a": 1}}, TypeError, "headers: 'a': .* must be strings"),
        ("get", {"path": None}, TypeError, "path: None: must be a string"),
        ("get", {"path": "//example.com/api"}, ValueError, "path: .*: must begin with one slash"),
        (
            "get",
            {"path": "/api/v1/namespaces", "query": {"watch": "1", "timeoutSeconds": 1}},
            ValueError,
            "/api/v1/namespaces: the response is not one JSON document; for a watch, use",
        ),
        ("apply", {"body": "a: b", "manager": "m"}, TypeError, "body: must be an object, or bytes"),
        (
            "merge",
            {"body": {}, "path": "api"},
            ValueError,
            "path: 'api': must begin with one slash",
        ),
    ],
)
async def test_wrong_argument_is_reported_by_its_name(
    method: str, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as client:
        with pytest.raises(error, match=message):
            await getattr(client, method)(**{"path": NAMESPACE, **arguments})


async def test_condition_in_the_place_of_the_code_is_refused() -> None:
    async with ControlPlane.auto() as plane, APIClient(plane) as client:
        with pytest.raises(TypeError, match=r"code: .*: must be a status code"):
            await client.until(NAMESPACE, lambda body: True)  # type: ignore[arg-type]
