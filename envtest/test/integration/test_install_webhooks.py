"""Installation of a project's webhook manifests, with the control plane calling a webhook server of the test."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from envtest import ControlPlane, InstallError, RealControlPlane
from envtest.api_client import APIClient
from envtest.planes.local_webhooks import LocalWebhooks
from test.support.config_maps import CONFIG_MAPS, config_map

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["configmaps"],
}


def configuration(path: str, name: str = "paint") -> dict[str, Any]:
    service = {"namespace": "acme-system", "name": "webhook-service", "path": path}
    hook = {
        "name": "paint.acme.io",
        "clientConfig": {"service": service},
        "rules": [RULE],
        "sideEffects": "None",
    }
    hook |= {"admissionReviewVersions": ["v1"], "objectSelector": {"matchLabels": {"paint": "yes"}}}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [hook],
    }


def crd() -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    service = {"namespace": "acme-system", "name": "webhook-service", "path": "/convert"}
    webhook = {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "toys.acme.io"},
        "spec": {
            "group": "acme.io",
            "scope": "Cluster",
            "names": {"plural": "toys", "singular": "toy", "kind": "Toy", "listKind": "ToyList"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": schema},
                {"name": "v2", "served": True, "storage": False, "schema": schema},
            ],
            "conversion": {"strategy": "Webhook", "webhook": webhook},
        },
    }


def paint(request: dict[str, Any]) -> dict[str, Any]:
    patch = [{"op": "add", "path": "/data", "value": {"color": "red"}}]
    encoded = base64.b64encode(json.dumps(patch).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


def convert(request: dict[str, Any]) -> dict[str, Any]:
    desired_version = request["desiredAPIVersion"]
    objects = [
        {**obj, "apiVersion": desired_version, "converted": desired_version}
        for obj in request["objects"]
    ]
    return {"convertedObjects": objects, "result": {"status": "Success"}}


@asynccontextmanager
async def serve_webhooks(
    webhooks: LocalWebhooks, **handlers: Callable[[dict[str, Any]], dict[str, Any]]
) -> AsyncIterator[None]:
    async def handle(request: web.Request) -> web.Response:
        review = await request.json()
        response = {
            "uid": review["request"]["uid"],
            **handlers[request.path.strip("/")](review["request"]),
        }
        return web.json_response(
            {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
        )

    app = web.Application()
    app.router.add_post("/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(webhooks.certificate, webhooks.key)
    await web.TCPSite(runner, webhooks.host, webhooks.port, ssl_context=context).start()
    try:
        yield
    finally:
        await runner.cleanup()


async def is_changed_by_webhook(api: APIClient, name: str) -> bool:
    """Create a labeled ConfigMap; return whether the webhook changed it.

    A real server picks up new configurations with a delay.
    """
    body = config_map(name, labels={"paint": "yes"})
    await api.delete(f"{CONFIG_MAPS}/{name}")
    response = await api.post(CONFIG_MAPS, body)
    assert response.code == 201, response.body
    return (response.body.get("data") or {}) == {"color": "red"}


async def test_folder_of_controller_gen_is_installed_and_removed(
    plane: ControlPlane, api: APIClient, tmp_path: Path
) -> None:
    folder = tmp_path / "config" / "webhook"
    folder.mkdir(parents=True)
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "webhook-service"},
        "spec": {},
    }
    (folder / "manifests.yaml").write_text(yaml.safe_dump_all([configuration("/paint"), service]))
    (folder / "kustomization.yaml").write_text("resources:\n- manifests.yaml\n")
    webhooks = await plane.install_webhooks(folder, server=tmp_path / "certificates")
    assert webhooks.directory == tmp_path / "certificates"
    installed = (await api.get(f"{CONFIGURATIONS}/paint")).body["webhooks"][0]["clientConfig"]
    assert installed == {
        "url": f"{webhooks.url}/paint",
        "caBundle": base64.b64encode((webhooks.directory / "ca.crt").read_bytes()).decode(),
    }
    async with serve_webhooks(webhooks, paint=paint):
        await wait_for_webhook(api)
        assert (await api.post(CONFIG_MAPS, config_map("plain"))).body.get("data") is None
        await plane.install_webhooks(configuration("/paint", name="more"), server=webhooks)
        more = (await api.get(f"{CONFIGURATIONS}/more")).body["webhooks"][0]["clientConfig"]
        assert more == installed
        await plane.remove_webhooks(
            folder, configuration("/paint", name="more"), configuration("/", name="absent")
        )
    assert (await api.get(CONFIGURATIONS)).body["items"] == []


async def wait_for_webhook(api: APIClient) -> None:
    for attempt in range(100):
        if await is_changed_by_webhook(api, f"wall-{attempt}"):
            return
    raise AssertionError("the webhook was never called")


async def test_installing_again_replaces_the_configuration(
    plane: ControlPlane, api: APIClient, tmp_path: Path
) -> None:
    webhooks = await plane.install_webhooks(configuration("/old"), server=tmp_path)
    await plane.install_webhooks(configuration("/new"), server=webhooks)
    installed = (await api.get(f"{CONFIGURATIONS}/paint")).body["webhooks"]
    assert [hook["clientConfig"]["url"] for hook in installed] == [f"{webhooks.url}/new"]


def crd_without_webhook() -> dict[str, Any]:
    found = {**crd(), "metadata": {"name": "cars.acme.io"}}
    found["spec"] = {key: value for key, value in found["spec"].items() if key != "conversion"}
    return found


async def test_conversion_webhook_of_a_crd_is_installed(
    plane: ControlPlane, api: APIClient, tmp_path: Path
) -> None:
    crds = tmp_path / "crds.yaml"
    crds.write_text(yaml.safe_dump_all([crd(), crd_without_webhook()]))
    webhooks = await plane.install_webhooks(crds, server=tmp_path)
    assert (
        await api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/cars.acme.io")
    ).code == 404
    async with serve_webhooks(webhooks, convert=convert):
        toy = {"apiVersion": "acme.io/v1", "kind": "Toy", "metadata": {"name": "bear"}}
        await api.until("/apis/acme.io/v1/toys", 200)
        assert (await api.post("/apis/acme.io/v1/toys", toy)).code == 201
        assert (await api.get("/apis/acme.io/v2/toys/bear")).body["converted"] == "acme.io/v2"


@pytest.fixture
async def real_plane(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[RealControlPlane]:
    """Yield a RealControlPlane that uses the API of the running control plane, to test installation over HTTPS."""
    real = RealControlPlane(crds=[], assets=tmp_path)
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=plane.ca_pem.decode()))
    headers = {"Authorization": f"Bearer {plane.token}"}
    async with aiohttp.ClientSession(plane.url, connector=connector, headers=headers) as session:
        real._session = session
        real._admin = plane.admin
        yield real


async def test_installation_through_the_api(
    real_plane: RealControlPlane, api: APIClient, tmp_path: Path
) -> None:
    webhooks = await real_plane.install_webhooks(configuration("/old"), crd(), server=tmp_path)
    await real_plane.install_webhooks(configuration("/new"), server=webhooks)
    installed = (await api.get(f"{CONFIGURATIONS}/paint")).body
    assert [hook["clientConfig"]["url"] for hook in installed["webhooks"]] == [
        f"{webhooks.url}/new"
    ]
    assert (await api.get("/apis/acme.io/v1/toys")).code == 200
    await real_plane.remove_webhooks(configuration("/new"), configuration("/", name="absent"))
    assert (await api.get(CONFIGURATIONS)).body["items"] == []
    broken = configuration("/x")
    broken["webhooks"][0]["sideEffects"] = "Maybe"
    with pytest.raises(InstallError, match=r"paint.*sideEffects"):
        await real_plane.install_webhooks(broken, server=tmp_path)


async def test_source_without_a_webhook_is_an_error(plane: ControlPlane, tmp_path: Path) -> None:
    folder = tmp_path / "webhook"
    folder.mkdir()
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "webhook-service"}}
    (folder / "service.yaml").write_text(yaml.safe_dump(service))
    message = "no .*ValidatingWebhookConfiguration or .* with a conversion webhook in"
    for source, place in (
        (folder, str(folder)),
        (crd_without_webhook(), "an object of kind CustomResourceDefinition"),
    ):
        with pytest.raises(ValueError, match=f"{message} {place}"):
            await plane.install_webhooks(source, server=tmp_path / "certificates")


async def test_webhook_without_an_address_is_an_error(plane: ControlPlane, tmp_path: Path) -> None:
    empty = {**configuration("/x"), "webhooks": []}
    without_config = configuration("/x")
    del without_config["webhooks"][0]["clientConfig"]
    without_service = configuration("/x")
    without_service["webhooks"][0]["clientConfig"] = {"service": "webhook-service"}
    without_conversion_service = crd()
    without_conversion_service["spec"]["conversion"]["webhook"] = {}
    for source, message in (
        (empty, "MutatingWebhookConfiguration paint: webhooks: must be a list with at least one"),
        (without_config, r"paint: webhooks\[0\].clientConfig.service: must be a mapping with"),
        (without_service, r"paint: webhooks\[0\].clientConfig.service: must be a mapping with"),
        (
            without_conversion_service,
            "toys.acme.io: spec.conversion.webhook.clientConfig.service: must be a mapping with",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            await plane.install_webhooks(source, server=tmp_path)


async def test_install_error_names_the_object(plane: ControlPlane, tmp_path: Path) -> None:
    broken = configuration("/x")
    broken["webhooks"][0]["sideEffects"] = "Maybe"
    with pytest.raises(InstallError, match=r"paint.*sideEffects"):
        await plane.install_webhooks(broken, server=tmp_path)
    nameless = {**configuration("/x"), "metadata": {}}
    with pytest.raises(ValueError, match=r"MutatingWebhookConfiguration: metadata.name is missing"):
        await plane.install_webhooks(nameless, server=tmp_path)
    no_crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "a.b"},
    }
    with pytest.raises(InstallError, match=r"a\.b"):
        await plane.install_crds(no_crd)


async def test_installation_needs_a_source(tmp_path: Path) -> None:
    async with ControlPlane.embedded(controllers=()) as plane:
        with pytest.raises(TypeError, match=r"^no source: must be the path of a file or folder"):
            await plane.install_crds()
        with pytest.raises(TypeError, match=r"^no source: "):
            await plane.install_webhooks(server=tmp_path)


async def test_unknown_fields_of_installed_objects_are_errors(
    plane: ControlPlane, tmp_path: Path
) -> None:
    definition = crd()
    definition["spec"]["versions"][0]["subresource"] = {"status": {}}
    del definition["spec"]["conversion"]
    with pytest.raises(InstallError, match=r"spec\.versions\[0\]\.subresource"):
        await plane.install_crds(definition)
    hooks = configuration("/mutate")
    hooks["webhooks"][0]["failurepolicy"] = "Ignore"
    with pytest.raises(InstallError, match=r"webhooks.*\.failurepolicy"):
        await plane.install_webhooks(hooks, server=tmp_path)
