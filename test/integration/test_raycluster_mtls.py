"""The certificate authority of a RayCluster."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from cfo.api.raycluster.naming import CLUSTER_LABEL, FIELD_MANAGER, names_of
from cfo.controllers.raycluster import ca
from cfo.controllers.raycluster.mtls import ROTATE_ANNOTATION
from cfo.runtime.kinds import SECRET
from cfo.runtime.objects import Object, annotations_of, labels_of, owner_reference
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

NAME = names_of(ray_cluster()).ca_secret


def data_of(secret: Object) -> dict[str, bytes]:
    return {key: b64decode(value) for key, value in (secret.get("data") or {}).items()}


def authority_of(secret: Object) -> ca.CertificateAuthority:
    data = data_of(secret)
    return ca.load(data["ca.crt"], data["ca.key"])


def ca_secret(data: dict[str, bytes], **metadata: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": NAME, "namespace": "ns", **metadata},
        "data": {key: b64encode(value).decode() for key, value in data.items()},
    }


OURS = {"labels": {CLUSTER_LABEL: "rc"}}


async def renewed(here: Environment, is_new: Callable[[Object], bool]) -> Object:
    async def look() -> Object | None:
        secret = await here.get(SECRET, NAME)
        return secret if is_new(secret) else None

    found: Object = await eventually(look, "the Secret brought up to date")
    return found


@pytest.mark.parametrize(
    ("settings", "kind"),
    [({}, ec.EllipticCurvePrivateKey), ({"ca": {"keyAlgorithm": "rsa"}}, rsa.RSAPrivateKey)],
)
async def test_a_cluster_gets_an_authority_and_keeps_it(settings: dict[str, Any], kind: type) -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS, **settings)):
            cluster = await here.create(ray_cluster())
            await here.wait_until_idle()
            made = await here.get(SECRET, NAME)
            assert set(made["data"]) == {"ca.key", "ca.crt"}
            assert made["metadata"]["ownerReferences"] == [owner_reference(cluster)]
            assert labels_of(made) == {CLUSTER_LABEL: "rc"}
            authority = authority_of(made)
            assert isinstance(authority.key, kind)
            left = authority.certificate.not_valid_after_utc - datetime.now(UTC)
            assert timedelta(days=3649) < left < timedelta(days=3651)
        other = {"ca": {"keyAlgorithm": "ecdsa"}}
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS, **other)):
            assert await here.get(SECRET, NAME) == made
            assert not [request for request in here.requests() if "secrets" in request[1]]


async def test_the_go_operators_authority_is_taken_over_as_it_is() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        cluster = await here.create(ray_cluster())
        go = here.client.with_field_manager(FIELD_MANAGER)
        made = await go.apply(
            ca_secret(go_certificate_authority(begin=datetime.now(UTC)).data(), **OURS), owner=cluster
        )
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            assert await here.get(SECRET, NAME) == made


@pytest.mark.parametrize("left", [timedelta(days=30), timedelta(days=-3)])
async def test_an_authority_near_or_past_its_end_is_renewed_with_its_key(left: timedelta) -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        cluster = await here.create(ray_cluster())
        old = go_certificate_authority(begin=datetime.now(UTC) - timedelta(days=365) + left)
        go = here.client.with_field_manager(FIELD_MANAGER)
        await go.apply(ca_secret(old.data(), **OURS), owner=cluster)
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            secret = await here.get(SECRET, NAME)
            new = authority_of(secret)
            assert data_of(secret)["ca.key"] == old.data()["ca.key"]
            assert new.certificate.subject == old.certificate.subject
            assert new.certificate.not_valid_after_utc > datetime.now(UTC) + timedelta(days=3640)
            assert set(secret["data"]) == {"ca.key", "ca.crt"}
            assert not [event for event in await here.events() if event[1] == "CertificateAuthorityReplaced"]
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            assert await here.get(SECRET, NAME) == secret


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"ca.key": b"", "ca.crt": b"not a certificate"},
        {"ca.crt": ca.create("ecdsa").data()["ca.crt"]},
        {"ca.key": ca.create("ecdsa").data()["ca.key"], "ca.crt": ca.create("ecdsa").data()["ca.crt"]},
    ],
    ids=["empty", "garbage", "no key", "another key"],
)
async def test_a_broken_authority_of_ours_is_made_anew_and_told(broken: dict[str, bytes]) -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        await here.create(ray_cluster())
        await here.create(ca_secret(broken, **OURS))
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            authority_of(await here.get(SECRET, NAME))
            await here.wait_for_event("CertificateAuthorityReplaced", "ray.io/cluster=rc")


async def test_somebody_elses_secret_is_left_alone_and_told() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        mine = await here.create(ca_secret({"ca.crt": b"not a certificate", "other": b"x"}))
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.create(ray_cluster())
            await here.wait_for_event("NameTaken", f"Secret {NAME}")
            await here.wait_until_idle()
            assert await here.get(SECRET, NAME) == mine
            await here.delete(mine)
            await here.patch(ray_cluster(), {"metadata": {"labels": {"touch": "1"}}})
            await here.wait_until_idle()
            authority_of(await here.get(SECRET, NAME))


async def test_what_somebody_else_controls_is_not_ours_whatever_its_labels_say() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "boss", "namespace": "ns"}}
        boss = await here.create(config_map)
        theirs = await here.create(ca_secret({}, **OURS, ownerReferences=[owner_reference(boss)]))
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.create(ray_cluster())
            await here.wait_for_event("NameTaken", f"Secret {NAME}")
            await here.wait_until_idle()
            assert await here.get(SECRET, NAME) == theirs


async def test_an_owner_reference_makes_it_ours_without_a_label() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        cluster = await here.create(ray_cluster())
        kept = ca.create("ecdsa")
        await here.create(ca_secret(kept.data(), ownerReferences=[owner_reference(cluster)]))
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            secret = await here.get(SECRET, NAME)
            assert data_of(secret) == kept.data()
            assert labels_of(secret) == {CLUSTER_LABEL: "rc"}


async def test_a_new_key_comes_on_request_once() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            cluster = await here.create(ray_cluster())
            await here.wait_until_idle()
            first = await here.get(SECRET, NAME)
            await here.patch(cluster, {"metadata": {"annotations": {ROTATE_ANNOTATION: "2026-03"}}})
            second = await renewed(here, lambda secret: secret["data"] != first["data"])
            assert second["data"]["ca.key"] != first["data"]["ca.key"]
            assert annotations_of(second) == {ROTATE_ANNOTATION: "2026-03"}
            assert set(second["data"]) == {"ca.key", "ca.crt"}
            await here.wait_for_event("CertificateAuthorityReplaced", "ray.io/cluster=rc")
            await here.patch(cluster, {"metadata": {"labels": {"touch": "1"}}})
            await here.wait_until_idle()
            assert await here.get(SECRET, NAME) == second
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            assert await here.get(SECRET, NAME) == second


async def test_a_request_that_was_there_from_the_start_is_met_by_the_first_key() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            cluster = ray_cluster()
            cluster["metadata"]["annotations"][ROTATE_ANNOTATION] = "x"
            await here.create(cluster)
            await here.wait_until_idle()
            assert annotations_of(await here.get(SECRET, NAME)) == {ROTATE_ANNOTATION: "x"}
            assert not [event for event in await here.events() if event[1] == "CertificateAuthorityReplaced"]


async def test_turning_mtls_off_removes_the_authority_and_nobody_elses() -> None:
    for mine in (True, False):
        async with start_environment(*VANILLA_CRDS) as here:
            await here.create_namespace()
            if not mine:
                await here.create(ca_secret({"a": b"b"}))
            async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
                await here.create(ray_cluster())
                await here.wait_until_idle()
            async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS, mTLSEnabled=False)):
                found = await here.find(SECRET, NAME)
                assert (found is None) is mine


async def test_kuberays_own_tls_makes_ours_step_aside() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            cluster = await here.create(ray_cluster())
            await here.wait_until_idle()
            await here.patch(cluster, {"spec": {"tlsOptions": {"enabled": True}}})
            await here.wait_for_event("MTLSByKubeRay", "tlsOptions")
            await wait_until_deleted(here, [(SECRET, NAME)])
            await here.patch(cluster, {"spec": {"tlsOptions": {"enabled": False}}})
            await here.wait_until_idle()
            authority_of(await here.get(SECRET, NAME))


async def test_a_deleted_authority_comes_back_but_not_for_a_deleted_cluster() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        held = ray_cluster()
        held["metadata"]["finalizers"] = ["example.com/hold"]
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.create(held)
            await here.wait_until_idle()
            first = await here.get(SECRET, NAME)
            await here.delete(first)
            await here.wait_until_idle()
            assert (await here.get(SECRET, NAME))["metadata"]["uid"] != first["metadata"]["uid"]
            await here.delete(held)
            await here.delete(first)
            await here.wait_until_idle()
            assert await here.find(SECRET, NAME) is None


async def test_a_suspended_cluster_has_an_authority() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.create(ray_cluster(suspend=True))
            await here.wait_until_idle()
            authority_of(await here.get(SECRET, NAME))
