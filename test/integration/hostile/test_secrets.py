"""Tests of what a tenant achieves with Secrets that have the name and the labels of a RayCluster's."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from cfo.api.raycluster.names import CLUSTER_LABEL, COOKIE_KEY, names_of
from cfo.controllers.raycluster import ca
from cfo.runtime.objects.kinds import SECRET
from cfo.runtime.objects.rbac import Rule
from cfo.runtime.objects.unstructured import NamespacedName, Object, owner_reference
from test.support.composite_keys import composite_rsa_key
from test.support.raycluster_environment import (
    OAUTH_SETTINGS,
    OPENSHIFT_CRDS,
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
)
from test.support.secrets import data_of
from test.support.tenant_clients import start_tenant_client

CA_SECRET = names_of(ray_cluster()).ca_secret
COOKIE_SECRET = names_of(ray_cluster()).cookie_secret
CREATE_SECRETS = Rule("", "secrets", "create")
RAY_CLUSTER_EDITOR = Rule("ray.io", "rayclusters", ("create", "get", "patch"))


def planted_secret(name: str, data: dict[str, bytes], **fields: Any) -> Object:
    """Return a Secret with the label of the RayCluster ``rc``."""
    encoded = {key: b64encode(value).decode() for key, value in data.items()}
    metadata = {"name": name, "namespace": "ns", "labels": {CLUSTER_LABEL: "rc"}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded, **fields}


@pytest.mark.parametrize("fields", [{}, {"immutable": True}], ids=["mutable", "immutable"])
async def test_planted_ca_does_not_become_the_ca_of_a_new_cluster(fields: dict[str, Any]) -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        planted = {**ca.create("ecdsa").data(), "server.key": b"known to the tenant"}
        async with (
            run_controllers(env, kuberay_config(**PLAIN_SETTINGS)),
            start_tenant_client(env, CREATE_SECRETS) as tenant,
        ):
            await tenant.create(planted_secret(CA_SECRET, planted, **fields))
            await env.wait_until_idle()
            cluster = await env.create(ray_cluster())
            await env.wait_until_idle()
            stored = await env.get(SECRET, CA_SECRET)
            data = data_of(stored)
            assert set(data) == {"ca.crt", "ca.key"}
            assert data["ca.key"] != planted["ca.key"]
            ca.load(data["ca.crt"], data["ca.key"])
            assert stored["metadata"]["ownerReferences"] == [owner_reference(cluster)]
            await env.wait_for_event("UntrustedContentReplaced", f"Secret {CA_SECRET}")
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            assert await env.get(SECRET, CA_SECRET) == stored


async def test_planted_ca_with_finalizer_is_reported_and_not_used() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with (
            run_controllers(env, kuberay_config(**PLAIN_SETTINGS)),
            start_tenant_client(env, CREATE_SECRETS) as tenant,
        ):
            planted = planted_secret(CA_SECRET, ca.create("ecdsa").data())
            planted["metadata"]["finalizers"] = ["example.com/hold"]
            await tenant.create(planted)
            await env.wait_until_idle()
            await env.create(ray_cluster())
            await env.wait_for_event("NameTaken", f"Secret {CA_SECRET}")
            await env.wait_until_idle()
            held = await env.get(SECRET, CA_SECRET)
            assert "ownerReferences" not in held["metadata"]
            await env.patch(held, {"metadata": {"finalizers": None}})
            await env.patch(ray_cluster(), {"metadata": {"labels": {"touch": "1"}}})
            await env.wait_until_idle()
            assert (await env.get(SECRET, CA_SECRET))["metadata"]["uid"] != held["metadata"]["uid"]


async def test_planted_cookie_key_does_not_become_that_of_a_new_cluster() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        async with (
            run_controllers(env, kuberay_config(**OAUTH_SETTINGS)),
            start_tenant_client(env, CREATE_SECRETS) as tenant,
        ):
            await tenant.create(planted_secret(COOKIE_SECRET, {COOKIE_KEY: b"known to the tenant"}))
            await env.wait_until_idle()
            await env.create(ray_cluster())
            await env.wait_until_idle()
            assert (
                data_of(await env.get(SECRET, COOKIE_SECRET))[COOKIE_KEY] != b"known to the tenant"
            )
            await env.wait_for_event("UntrustedContentReplaced", f"Secret {COOKIE_SECRET}")


async def test_key_of_unusual_size_is_replaced_and_never_used() -> None:
    key = composite_rsa_key(16384)  # 2 seconds for a signature, 65536 bits two minutes
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with (
            run_controllers(env, kuberay_config(**PLAIN_SETTINGS)),
            start_tenant_client(
                env, Rule("", "secrets", ("create", "patch")), RAY_CLUSTER_EDITOR
            ) as tenant,
        ):
            await tenant.create(ray_cluster())
            await env.wait_until_idle()
            patch = {
                "data": {"ca.key": b64encode(key).decode(), "ca.crt": b64encode(b"x").decode()}
            }
            await tenant.patch(SECRET, NamespacedName("ns", CA_SECRET), patch)
            note = await env.wait_for_event("CertificateAuthorityReplaced", "ca.key")
            assert f"has {len(key)} bytes, at most 8192 are allowed" in note
            await env.wait_until_idle()
            data = data_of(await env.get(SECRET, CA_SECRET))
            assert data["ca.key"] != key
            ca.load(data["ca.crt"], data["ca.key"])


async def test_content_of_labelled_secrets_is_not_cached() -> None:
    """430 Secrets with 1 MB each would otherwise exceed the operator's memory limit."""
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with (
            run_controllers(env, kuberay_config(**PLAIN_SETTINGS)) as manager,
            start_tenant_client(env, CREATE_SECRETS) as tenant,
        ):
            for number in range(3):
                await tenant.create(planted_secret(f"large-{number}", {"content": b"x" * 700_000}))
            await env.wait_until_idle()
            (informer,) = [
                informer for informer in manager.cache.informers if informer.gvk == SECRET
            ]
            assert len(informer.reader) == 3
            assert informer.reader.size < 3_000
            assert not [verb for verb, resource in env.requests() if resource == "secrets"]
