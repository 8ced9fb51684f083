"""Tests of the mTLS controller: the Secret with the CA of a RayCluster."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from cfo.api.raycluster.certificates import RENEWAL_ANNOTATION
from cfo.api.raycluster.names import CLUSTER_LABEL, FIELD_MANAGER, names_of
from cfo.controllers.raycluster import ca
from cfo.controllers.raycluster.mtls import ROTATE_ANNOTATION
from cfo.runtime.objects.kinds import SECRET
from cfo.runtime.objects.unstructured import (
    Object,
    annotations_of,
    labels_of,
    owner_reference,
    set_controller_owner,
)
from cfo.runtime.process.clock import rfc3339
from test.support.go_certificates import go_certificate_authority
from test.support.raycluster_environment import (
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    Environment,
    eventually,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
    wait_until_deleted,
)
from test.support.secrets import data_of

SECRET_NAME = names_of(ray_cluster()).ca_secret


def load_ca(secret: Object) -> ca.CertificateAuthority:
    """Return the CA in a Secret; fail if it is not valid."""
    data = data_of(secret)
    return ca.load(data["ca.crt"], data["ca.key"])


def ca_secret(data: dict[str, bytes], **metadata: Any) -> Object:
    """Return a Secret under the name of the CA's Secret; ``metadata`` adds to its metadata."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET_NAME, "namespace": "ns", **metadata},
        "data": {key: b64encode(value).decode() for key, value in data.items()},
    }


OWN = {"labels": {CLUSTER_LABEL: "rc"}}
"""Metadata by which the operator recognizes its own Secret."""


async def wait_for_secret(env: Environment, is_new: Callable[[Object], bool]) -> Object:
    """Wait until the CA's Secret satisfies ``is_new``, and return it."""

    async def new_secret() -> Object | None:
        secret = await env.get(SECRET, SECRET_NAME)
        return secret if is_new(secret) else None

    found: Object = await eventually(new_secret, "the Secret is updated")
    return found


@pytest.mark.parametrize(
    ("settings", "kind"),
    [({}, ec.EllipticCurvePrivateKey), ({"ca": {"keyAlgorithm": "rsa"}}, rsa.RSAPrivateKey)],
)
async def test_cluster_gets_a_ca_and_keeps_it(settings: dict[str, Any], kind: type) -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS, **settings)):
            cluster = await env.create(ray_cluster())
            await env.wait_until_idle()
            created = await env.get(SECRET, SECRET_NAME)
            assert set(created["data"]) == {"ca.key", "ca.crt"}
            assert created["metadata"]["ownerReferences"] == [owner_reference(cluster)]
            assert labels_of(created) == {CLUSTER_LABEL: "rc"}
            loaded = load_ca(created)
            assert isinstance(loaded.key, kind)
            lifetime = loaded.certificate.not_valid_after_utc - datetime.now(UTC)
            assert timedelta(days=3649) < lifetime < timedelta(days=3651)
        other = {"ca": {"keyAlgorithm": "ecdsa"}}
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS, **other)):
            assert await env.get(SECRET, SECRET_NAME) == created
            assert not [request for request in env.requests() if "secrets" in request[1]]


async def test_ca_of_go_operator_is_adopted_unchanged() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        cluster = await env.create(ray_cluster())
        go_client = env.client.with_field_manager(FIELD_MANAGER)
        secret = ca_secret(go_certificate_authority(begin=datetime.now(UTC)).data(), **OWN)
        created = await go_client.apply(set_controller_owner(secret, cluster))
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            assert await env.get(SECRET, SECRET_NAME) == created


@pytest.mark.parametrize("remaining", [timedelta(days=30), timedelta(days=-3)])
async def test_expiring_or_expired_ca_is_renewed_with_same_key(remaining: timedelta) -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        cluster = await env.create(ray_cluster())
        old = go_certificate_authority(begin=datetime.now(UTC) - timedelta(days=365) + remaining)
        go_client = env.client.with_field_manager(FIELD_MANAGER)
        await go_client.apply(set_controller_owner(ca_secret(old.data(), **OWN), cluster))
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            secret = await env.get(SECRET, SECRET_NAME)
            new = load_ca(secret)
            assert data_of(secret)["ca.key"] == old.data()["ca.key"]
            assert new.certificate.subject == old.certificate.subject
            assert new.certificate.not_valid_after_utc > datetime.now(UTC) + timedelta(days=3640)
            assert set(secret["data"]) == {"ca.key", "ca.crt"}
            assert not [
                event for event in await env.events() if event[1] == "CertificateAuthorityReplaced"
            ]
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            assert await env.get(SECRET, SECRET_NAME) == secret


@pytest.mark.parametrize(
    "invalid",
    [
        {},
        {"ca.key": b"", "ca.crt": b"not a certificate"},
        {"ca.crt": ca.create("ecdsa").data()["ca.crt"]},
        {
            "ca.key": ca.create("ecdsa").data()["ca.key"],
            "ca.crt": ca.create("ecdsa").data()["ca.crt"],
        },
    ],
    ids=["empty", "garbage", "no-key", "key-of-another-ca"],
)
async def test_invalid_ca_is_replaced_and_reported(invalid: dict[str, bytes]) -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        cluster = await env.create(ray_cluster())
        await env.create(ca_secret(invalid, ownerReferences=[owner_reference(cluster)]))
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            load_ca(await env.get(SECRET, SECRET_NAME))
            await env.wait_for_event("CertificateAuthorityReplaced", "ray.io/cluster=rc")


async def test_foreign_secret_is_kept_and_reported() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        foreign = await env.create(ca_secret({"ca.crt": b"not a certificate", "other": b"x"}))
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster())
            await env.wait_for_event("NameTaken", f"Secret {SECRET_NAME}")
            await env.wait_until_idle()
            assert await env.get(SECRET, SECRET_NAME) == foreign
            await env.delete(foreign)
            await env.patch(ray_cluster(), {"metadata": {"labels": {"touch": "1"}}})
            await env.wait_until_idle()
            load_ca(await env.get(SECRET, SECRET_NAME))


async def test_secret_with_owner_reference_is_adopted_without_label() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        cluster = await env.create(ray_cluster())
        existing = ca.create("ecdsa")
        await env.create(ca_secret(existing.data(), ownerReferences=[owner_reference(cluster)]))
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            secret = await env.get(SECRET, SECRET_NAME)
            assert data_of(secret) == existing.data()
            assert labels_of(secret) == {CLUSTER_LABEL: "rc"}


async def test_requested_rotation_creates_one_new_key() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            cluster = await env.create(ray_cluster())
            await env.wait_until_idle()
            first = await env.get(SECRET, SECRET_NAME)
            await env.patch(cluster, {"metadata": {"annotations": {ROTATE_ANNOTATION: "2026-03"}}})
            second = await wait_for_secret(env, lambda secret: secret["data"] != first["data"])
            assert second["data"]["ca.key"] != first["data"]["ca.key"]
            assert annotations_of(second)[ROTATE_ANNOTATION] == "2026-03"
            assert set(second["data"]) == {"ca.key", "ca.crt"}
            await env.wait_for_event("CertificateAuthorityReplaced", "ray.io/cluster=rc")
            await env.patch(cluster, {"metadata": {"labels": {"touch": "1"}}})
            await env.wait_until_idle()
            assert await env.get(SECRET, SECRET_NAME) == second
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            assert await env.get(SECRET, SECRET_NAME) == second


async def test_rotation_requested_at_creation_is_satisfied_by_first_key() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            cluster = ray_cluster()
            cluster["metadata"]["annotations"][ROTATE_ANNOTATION] = "x"
            await env.create(cluster)
            await env.wait_until_idle()
            assert annotations_of(await env.get(SECRET, SECRET_NAME))[ROTATE_ANNOTATION] == "x"
            assert not [
                event for event in await env.events() if event[1] == "CertificateAuthorityReplaced"
            ]


async def test_disabling_mtls_deletes_only_own_ca() -> None:
    for is_own in (True, False):
        async with start_environment(*VANILLA_CRDS) as env:
            await env.create_namespace()
            if not is_own:
                await env.create(ca_secret({"a": b"b"}))
            async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
                await env.create(ray_cluster())
                await env.wait_until_idle()
            async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS, mTLSEnabled=False)):
                found = await env.find(SECRET, SECRET_NAME)
                assert (found is None) is is_own


async def test_kuberay_tls_options_replace_ca_only_if_configured() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            cluster = await env.create(ray_cluster())
            await env.wait_until_idle()
            first = await env.get(SECRET, SECRET_NAME)
            await env.patch(cluster, {"spec": {"tlsOptions": {"enabled": True}}})
            await env.wait_for_event("KubeRayFeatureUnconfirmed", "tlsOptions")
            await env.wait_until_idle()
            assert await env.get(SECRET, SECRET_NAME) == first
            await env.patch(cluster, {"spec": {"tlsOptions": {"enabled": False}}})
            await env.wait_until_idle()
        async with run_controllers(
            env, kuberay_config(**PLAIN_SETTINGS, kubeRayFeatures=["tlsOptions"])
        ):
            await env.patch(cluster, {"spec": {"tlsOptions": {"enabled": True}}})
            await env.wait_for_event("MTLSByKubeRay", "tlsOptions")
            await wait_until_deleted(env, [(SECRET, SECRET_NAME)])
            await env.patch(cluster, {"spec": {"tlsOptions": {"enabled": False}}})
            await env.wait_until_idle()
            load_ca(await env.get(SECRET, SECRET_NAME))


def secret_requests(env: Environment) -> list[str]:
    """Return the verbs of the operator's requests for single Secrets."""
    return [verb for verb, resource in env.requests() if resource == "secrets"]


async def test_content_is_read_only_after_a_change_or_when_its_validity_is_unknown() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            cluster = await env.create(ray_cluster())
            await env.wait_until_idle()
            stored = await env.get(SECRET, SECRET_NAME)
            due = load_ca(stored).renewal_due.replace(microsecond=0)
            assert datetime.fromisoformat(annotations_of(stored)[RENEWAL_ANNOTATION]) == due
            await env.patch(cluster, {"metadata": {"labels": {"touch": "1"}}})
            await env.wait_until_idle()
            assert secret_requests(env) == ["create"]
            await env.patch(stored, {"metadata": {"labels": {"touch": "1"}}})
            await env.wait_until_idle()
            assert secret_requests(env) == ["create", "get"]
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            assert secret_requests(env) == []
        await env.patch(stored, {"metadata": {"annotations": {RENEWAL_ANNOTATION: None}}})
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.patch(cluster, {"metadata": {"labels": {"touch": "2"}}})
            await env.wait_until_idle()
            assert secret_requests(env) == ["get"]


@pytest.mark.parametrize("change", [{"ca.key": "eA=="}, {"ca.crt": None}])
async def test_content_that_changed_while_the_operator_was_not_running_is_replaced(
    change: dict[str, Any],
) -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster())
            await env.wait_until_idle()
        await env.patch(ca_secret({}), {"data": change})
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            load_ca(await env.get(SECRET, SECRET_NAME))
            await env.wait_for_event("CertificateAuthorityReplaced", "ca.")


@pytest.mark.parametrize("recorded_time", ["", "9999-01-01T00:00:00Z", "never"])
async def test_ca_is_renewed_when_the_recorded_time_is_reached_or_not_plausible(
    recorded_time: str,
) -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        cluster = await env.create(ray_cluster())
        old = go_certificate_authority(begin=datetime.now(UTC) - timedelta(days=300))
        recorded = {RENEWAL_ANNOTATION: recorded_time or rfc3339(old.renewal_due)}
        writer = env.client.with_field_manager(FIELD_MANAGER)
        await writer.apply(
            set_controller_owner(ca_secret(old.data(), **OWN, annotations=recorded), cluster)
        )
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            renewed = await env.get(SECRET, SECRET_NAME)
            assert load_ca(renewed).renewal_due > datetime.now(UTC)
            assert annotations_of(renewed)[RENEWAL_ANNOTATION] == rfc3339(
                load_ca(renewed).renewal_due
            )
            assert data_of(renewed)["ca.key"] == old.data()["ca.key"]
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            assert secret_requests(env) == []


async def test_deleted_ca_of_a_running_cluster_is_reported_after_a_restart() -> None:
    cluster = ray_cluster()
    pod = cluster["spec"]["headGroupSpec"]["template"]["spec"]
    pod["initContainers"] = [{"name": "create-cert", "image": "ubi"}]
    pod["containers"][0]["env"] = [{"name": "RAY_USE_TLS", "value": "1"}]
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        created = await env.create(cluster)
        await env.patch(created, {"status": {"head": {"podIP": "10.0.0.1"}}}, subresource="status")
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.wait_for_event(
                "CertificateAuthorityReplaced", f"the Secret {SECRET_NAME} was deleted"
            )


async def test_deleted_ca_is_recreated_and_reported_except_for_deleted_cluster() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        held = ray_cluster()
        held["metadata"]["finalizers"] = ["example.com/hold"]
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(held)
            await env.wait_until_idle()
            first = await env.get(SECRET, SECRET_NAME)
            await env.delete(first)
            await env.wait_until_idle()
            assert (await env.get(SECRET, SECRET_NAME))["metadata"]["uid"] != first["metadata"][
                "uid"
            ]
            await env.wait_for_event(
                "CertificateAuthorityReplaced", f"the Secret {SECRET_NAME} was deleted"
            )
            await env.delete(held)
            await env.delete(first)
            await env.wait_until_idle()
            assert await env.find(SECRET, SECRET_NAME) is None


async def test_suspended_cluster_has_a_ca() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster(suspend=True))
            await env.wait_until_idle()
            load_ca(await env.get(SECRET, SECRET_NAME))
