"""The pytest plugin, as another project uses it: synchronous and asynchronous tests, CRDs, the marker."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

TOYS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "toys.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "toys", "singular": "toy", "kind": "Toy", "listKind": "ToyList"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
}

USE = """
import json
import ssl
import urllib.request
from pathlib import Path

import pytest
import yaml

from envtest.objects import GVK, NamespacedName

CRD = __CRD__

def test_synchronous(control_plane, kubeconfig, namespace):
    document = yaml.safe_load(Path(kubeconfig).read_text())
    assert document["clusters"][0]["cluster"]["server"] == control_plane.url
    context = ssl.create_default_context(cadata=control_plane.ca_pem.decode())
    request = urllib.request.Request(
        control_plane.url + "/api/v1/namespaces/" + namespace,
        headers={"Authorization": "Bearer " + control_plane.token},
    )
    with urllib.request.urlopen(request, context=context) as answer:
        assert json.load(answer)["metadata"]["name"] == namespace

async def test_asynchronous(kube_client, namespace, install_crds):
    assert install_crds(CRD) == ["toys.example.com"]
    toy = {"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": "bear", "namespace": namespace}}
    await kube_client.create(toy)
    found = await kube_client.get(GVK("example.com", "v1", "Toy"), NamespacedName(namespace, "bear"))
    assert found["metadata"]["name"] == "bear"

HOOKS = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "hooks"},
    "webhooks": [
        {
            "name": "hooks.example.com",
            "clientConfig": {"service": {"namespace": "acme", "name": "hooks", "path": "/judge"}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
    ],
}
HOOKS_GVK = GVK("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration")

async def test_webhooks(kube_client, install_webhooks):
    webhooks = install_webhooks(HOOKS)
    assert install_webhooks(HOOKS) == webhooks
    found = await kube_client.get(HOOKS_GVK, NamespacedName("", "hooks"))
    assert found["webhooks"][0]["clientConfig"]["url"] == f"https://127.0.0.1:{webhooks.port}/judge"
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(webhooks.certificate, webhooks.key)

async def test_webhooks_of_another_test_are_gone(kube_client):
    assert await kube_client.get(HOOKS_GVK, NamespacedName("", "hooks")) is None

@pytest.mark.real_control_plane
def test_only_on_the_real_one(control_plane):
    raise AssertionError("must not run")
"""


def test_the_plugin_in_another_project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    pytester.makepyfile(USE.replace("__CRD__", repr(TOYS)))
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    result = pytester.runpytest_subprocess("-p", "envtest.pytest_plugin", "--strict-markers", timeout=60)
    result.assert_outcomes(passed=4, skipped=1)
