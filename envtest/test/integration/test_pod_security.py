"""PodSecurity, as clients observe it: rejected pods, warnings, and labels of namespaces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient, Response

CORE = "/api/v1/namespaces/default"


@pytest.fixture
async def api() -> AsyncIterator[APIClient]:
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as requests:
        yield requests


def warnings_of(answer: Response) -> list[str]:
    """Return the texts of the Warning headers, without code and agent."""
    values = [value for name, value in answer.headers.items() if name == "Warning"]
    return [value.removeprefix('299 - "').removesuffix('"').replace('\\"', '"') for value in values]


async def select(api: APIClient, **levels: str | None) -> Response:
    """Set the labels of the namespace ``default``."""
    labels = {
        f"pod-security.kubernetes.io/{name.replace('_', '-')}": level
        for name, level in levels.items()
    }
    return await api.merge(CORE, {"metadata": {"labels": labels}})


def pod(name: str, **spec: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "i"}], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def test_violating_pods_are_rejected_and_others_may_still_be_updated(api: APIClient) -> None:
    assert (await api.post(f"{CORE}/pods", pod("old", hostNetwork=True))).code == 201
    await select(api, enforce="baseline")
    answer = await api.post(f"{CORE}/pods", pod("new", hostNetwork=True))
    assert answer.code == 403
    assert answer.body["message"] == (
        'pods "new" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)'
    )
    labels = {"metadata": {"labels": {"a": "b"}}}
    assert (await api.merge(f"{CORE}/pods/old", labels)).code == 200
    image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "j"}]
    updated = await api.request(
        "PATCH", f"{CORE}/pods/old", image, content_type="application/json-patch+json"
    )
    assert updated.code == 403, "a new image is checked"


async def test_workloads_and_pods_cause_warnings(api: APIClient) -> None:
    await select(api, warn="baseline", warn_version="v1.30")
    text = 'would violate PodSecurity "baseline:v1.30": host namespaces (hostPID=true)'
    assert warnings_of(await api.post(f"{CORE}/pods", pod("p", hostPID=True))) == [text]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("", hostPID=True)["spec"]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    answer = await api.post("/apis/apps/v1/namespaces/default/deployments", deployment)
    assert (answer.code, warnings_of(answer)) == (201, [text])

    await select(api, enforce="baseline", enforce_version="v1.29", warn=None, warn_version=None)
    deployment["metadata"] = {"name": "e"}
    answer = await api.post("/apis/apps/v1/namespaces/default/deployments", deployment)
    assert warnings_of(answer) == [text.replace("v1.30", "v1.29")], "as with enforce"


async def test_stricter_level_reports_existing_pods(api: APIClient) -> None:
    for name, spec in (("a", {"hostPID": True}), ("b", {"hostPID": True}), ("c", {})):
        assert (await api.post(f"{CORE}/pods", pod(name, **spec))).code == 201
    answer = await select(api, enforce="baseline")
    assert warnings_of(answer) == [
        'existing pods in namespace "default" violate the new PodSecurity enforce level "baseline:latest"',
        "a (and 1 other pod): host namespaces",
    ]
    assert warnings_of(await select(api, enforce="privileged")) == []


async def test_invalid_levels_are_refused_with_their_path(api: APIClient) -> None:
    answer = await select(api, enforce="strict", warn_version="1.30")
    assert answer.code == 422
    assert {cause["field"] for cause in answer.body["details"]["causes"]} == {
        "metadata.labels[pod-security.kubernetes.io/enforce]",
        "metadata.labels[pod-security.kubernetes.io/warn-version]",
    }


async def test_app_armor_annotation_becomes_the_field_and_is_immutable(api: APIClient) -> None:
    name = "container.apparmor.security.beta.kubernetes.io/c"
    body = pod("p")
    body["metadata"]["annotations"] = {name: "localhost/x"}
    answer = await api.post(f"{CORE}/pods", body)
    assert answer.body["spec"]["containers"][0]["securityContext"] == {
        "appArmorProfile": {"type": "Localhost", "localhostProfile": "x"}
    }
    change = {"metadata": {"annotations": {name: None}}}
    answer = await api.merge(f"{CORE}/pods/p", change)
    assert (
        answer.body["details"]["causes"][0]["message"]
        == "Forbidden: may not remove or update AppArmor annotations"
    )
