"""Webhooks on a control plane: responses, certificates and their rotation without failed calls, URLs."""

from __future__ import annotations

import asyncio
import json
import threading
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import anyio
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from cfo.runtime.client.client import PatchType
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.errors import Forbidden, InternalError, Invalid
from cfo.runtime.client.transport import Transport
from cfo.runtime.controller import set_finalizer
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.kinds import (
    CONFIG_MAP,
    LEASE,
    MUTATING_WEBHOOK_CONFIGURATION,
    SECRET,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from cfo.runtime.objects.rbac import policy_rules
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object, uid_of
from cfo.runtime.pki import rotation
from cfo.runtime.pki.private_keys import PrivateKey, create_key
from cfo.runtime.pki.rotation import (
    CertificateSet,
    StoredCertificates,
    ensure_certificates,
    parse_secret,
)
from cfo.runtime.webhook import server, setup
from cfo.runtime.webhook.admission import AdmissionRequest
from cfo.runtime.webhook.certificates.ca_injector import CAInjector
from cfo.runtime.webhook.certificates.client_configs import ORIGINAL_ANNOTATION
from cfo.runtime.webhook.options import CertificateFiles, WebhookOptions, WebhookURL
from cfo.runtime.webhook.ownership import mark_of
from cfo.runtime.webhook.setup import webhook_rules
from envtest import ControlPlane
from envtest.api_client import APIClient
from test.support.clocks import FakeClock
from test.support.config_map_webhooks import (
    CERTIFICATE_POLICY,
    CONFIGURATION_NAME,
    OPTIONS,
    SECRET_KEY,
    WEBHOOK_LABELS,
    ColorWebhook,
    Load,
    Replica,
    User,
    connect_user,
    free_url,
    register_webhooks,
    run_replica,
    short_overlap,
    wait_until,
)


@pytest.fixture
async def user(plane: ControlPlane) -> AsyncIterator[User]:
    async with connect_user(plane) as user:
        yield user


def local_options(url: WebhookURL | None = None, **changes: object) -> WebhookOptions:
    """Return options with a URL that a control plane on this machine can reach."""
    return replace(OPTIONS, url=url or free_url(), **changes)  # type: ignore[arg-type]


def is_unchanged(before: list[Object], after: list[Object]) -> bool:
    """Return whether the webhooks in ``before`` and ``after`` are equal, apart from caBundle."""

    def without_bundles(objects: list[Object]) -> list[Object]:
        hooks = [hook for configuration in objects for hook in configuration["webhooks"]]
        return [
            {
                **hook,
                "clientConfig": {
                    key: value for key, value in hook["clientConfig"].items() if key != "caBundle"
                },
            }
            for hook in hooks
        ]

    return without_bundles(before) == without_bundles(after)


async def test_keys_are_generated_in_a_thread(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An RSA key takes a tenth of a second or more, in which nothing else would run."""
    threads: list[threading.Thread] = []

    def recorded_key(algorithm: Literal["ecdsa", "rsa"]) -> PrivateKey:
        threads.append(threading.current_thread())
        return create_key(algorithm)

    monkeypatch.setattr(rotation, "create_key", recorded_key)
    async with run_replica(plane, local_options()) as running:
        await running.ready()
    assert len(threads) == 3, "the CA, the certificate of the Service, and that of the URL"
    assert threading.main_thread() not in threads


# Responses to users


async def test_objects_are_defaulted_and_denied_with_messages_of_the_webhooks(
    plane: ControlPlane, api: APIClient, user: User
) -> None:
    async with run_replica(plane, local_options()) as running:
        await running.ready()
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "a", "labels": WEBHOOK_LABELS},
        }
        created = await api.post("/api/v1/namespaces/default/configmaps", body)
        assert created.code == 201
        assert created.body["data"] == {"color": "blue"}
        warnings = created.headers.getall("Warning")  # type: ignore[attr-defined]
        assert warnings == ['299 - "color defaulted to blue"', '299 - "color accepted"']

        with pytest.raises(Forbidden) as denied:
            await user.create("b", color="")
        assert denied.value.message == (
            'admission webhook "vconfigmap.kb.io" denied the request: '
            "[data[color]: Required value: must not be empty, data: Invalid value: 1: second error]"
        )
        assert [cause["field"] for cause in denied.value.causes] == ["data[color]", "data"]
        with pytest.raises(
            Invalid, match=r'ConfigMap "b" is invalid: data\[color\]: Invalid value: "mauve"'
        ):
            await user.create("b", color="mauve")
        with pytest.raises(Forbidden, match="color is immutable"):
            await user.client.patch(
                CONFIG_MAP, NamespacedName("default", "a"), {"data": {"color": "red"}}
            )
        frozen = await user.create("d", color="ice")
        with pytest.raises(Invalid, match="denied the request: ice is frozen"):
            await set_finalizer(user.client, frozen, "example.com/x", present=True)
        await user.create("c", color="gold")
        with pytest.raises(Forbidden, match="gold cannot be deleted"):
            await user.client.delete(CONFIG_MAP, NamespacedName("default", "c"))
        assert await user.client.delete(CONFIG_MAP, NamespacedName("default", "a"))
        assert await user.client.get(CONFIG_MAP, NamespacedName("default", "b")) is None


async def test_exception_in_handler_fails_only_one_request(plane: ControlPlane, user: User) -> None:
    async with run_replica(plane, local_options()) as running:
        await running.ready()
        with pytest.raises(
            InternalError, match=r"denied the request: the webhook failed: IndexError: list index"
        ):
            await user.create("a", color="bug")
        await user.create("a")
        value = running.manager.metrics.registry.get_sample_value
        assert value("controller_runtime_webhook_panics_total") == 1


# Certificates and configurations


async def test_burst_of_writes_is_reviewed_in_turns_and_none_is_refused(
    plane: ControlPlane, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server sends a review that found no room again, as its response asks for."""
    refused = asyncio.Event()
    too_many_requests = server._too_many_requests

    def recorded(limit: str, *, closes: bool = True) -> web.Response:
        refused.set()
        return too_many_requests(limit, closes=closes)

    async def validate_create(
        webhook: ColorWebhook, obj: Object, request: AdmissionRequest
    ) -> None:
        await refused.wait()

    monkeypatch.setattr(server, "_too_many_requests", recorded)
    monkeypatch.setattr(server, "MAX_REVIEWS_OF_WEBHOOK", 1)
    monkeypatch.setattr(ColorWebhook, "validate_create", validate_create)
    async with run_replica(plane, local_options()) as running:
        await running.ready()
        await asyncio.gather(user.create("first"), user.create("second"))


async def test_first_start_writes_each_object_once_and_restart_writes_nothing(
    plane: ControlPlane, user: User
) -> None:
    await user.create_configurations()
    async with run_replica(plane) as running:
        await running.ready()
        assert sorted(running.writes()) == [
            ("create", "secrets", "201"),
            ("patch", "mutatingwebhookconfigurations", "200"),
            ("patch", "validatingwebhookconfigurations", "200"),
        ]
        secret = await user.client.get(SECRET, SECRET_KEY)
        assert secret is not None
        assert set(secret["data"]) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
        stored = parse_secret(secret["data"])
        assert stored.problems == ()
        assert stored.ca is not None
        assert await user.ca_certificates() == [stored.ca.certificate]
        assert {b64encode(bundle).decode() for bundle in await user.ca_bundles()} == {
            secret["data"]["ca.crt"]
        }
        assert stored.pair is not None
        assert await running.serial() == stored.pair.leaf.serial_number
    async with run_replica(plane) as restarted:
        await restarted.ready()
        assert restarted.writes() == []
        assert stored.pair is not None
        assert await restarted.serial() == stored.pair.leaf.serial_number


async def test_readiness_reports_missing_configurations(plane: ControlPlane, user: User) -> None:
    async with run_replica(plane) as running:
        await wait_until(
            lambda: _has_problem(
                running, f"MutatingWebhookConfiguration {CONFIGURATION_NAME} does not exist"
            ),
            "the missing configuration",
        )
        assert (
            f"ValidatingWebhookConfiguration {CONFIGURATION_NAME} does not exist"
            in await running.webhooks_problem()
        )
        await user.create_configurations()
        await running.ready()
        await user.client.delete(
            VALIDATING_WEBHOOK_CONFIGURATION, NamespacedName("", CONFIGURATION_NAME)
        )
        await wait_until(
            lambda: _has_problem(
                running, f"ValidatingWebhookConfiguration {CONFIGURATION_NAME} does not exist"
            ),
            "the deletion",
        )


async def _has_problem(running: Replica, problem: str) -> bool:
    return problem in await running.webhooks_problem()


@pytest.mark.parametrize("broken", [("not base64", "missing"), ("of another CA", "not base64")])
async def test_broken_ca_bundle_is_repaired(
    plane: ControlPlane, user: User, broken: tuple[str, str]
) -> None:
    """One of each configuration is broken."""
    path = "/webhooks/0/clientConfig/caBundle"
    other_bundle = b64encode(_new_certificates().bundle).decode()
    operations = {
        "not base64": {"op": "replace", "path": path, "value": "bm8="},
        "missing": {"op": "remove", "path": path},
        "of another CA": {"op": "replace", "path": path, "value": other_bundle},
    }
    async with run_replica(plane, local_options()) as running:
        await running.ready()
        (good,) = await user.ca_bundles()

        async def repaired() -> bool:
            return await user.ca_bundles() == {good}

        kinds = (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION)
        for kind, problem in zip(kinds, broken, strict=True):
            await user.client.patch(
                kind, NamespacedName("", CONFIGURATION_NAME), [operations[problem]], PatchType.JSON
            )
        await wait_until(repaired, "the bundles")
        await user.create("created-")


def _new_certificates() -> CertificateSet:
    return ensure_certificates(
        StoredCertificates(), CERTIFICATE_POLICY, ("127.0.0.1",), now=datetime.now(UTC)
    )[0]


@pytest.mark.parametrize(
    "broken", [{"tls.crt": "bm8=", "ca.crt": None}, {"tls.key": None, "ca.key": "bm8="}]
)
async def test_broken_secret_is_repaired_without_failed_call(
    plane: ControlPlane, user: User, broken: dict[str, str | None]
) -> None:
    """First a part of the serving certificate is broken, then one of the CA."""
    async with run_replica(plane, local_options()) as running:
        await running.ready()

        async def repaired() -> bool:
            secret = await user.client.get(SECRET, SECRET_KEY)
            return secret is not None and parse_secret(secret["data"]).problems == ()

        async with Load(user) as load:
            for name, value in broken.items():
                before = await running.serial()

                async def is_certificate_replaced(former: int = before) -> bool:
                    return await running.serial() != former

                await user.client.patch(SECRET, SECRET_KEY, {"data": {name: value}})
                await wait_until(repaired, "the repaired Secret")
                if name in ("ca.crt", "ca.key"):
                    await wait_until(is_certificate_replaced, "a certificate of the new CA")
                await load.create_more(5)
        assert load.errors == []
        await running.ready()


async def test_deleted_secret_leads_to_new_ca_without_failed_call(
    plane: ControlPlane, user: User
) -> None:
    async with run_replica(plane, local_options(certificates=short_overlap())) as running:
        await running.ready()
        (first,) = await user.ca_certificates()
        before = await running.serial()
        async with Load(user) as load:
            await user.client.delete(SECRET, SECRET_KEY)

            async def are_both_cas_trusted() -> bool:
                ca_certificates = await user.ca_certificates()
                return len(ca_certificates) == 2 and ca_certificates[1] == first

            await wait_until(are_both_cas_trusted, "trust in both CAs")

            async def is_certificate_replaced() -> bool:
                return await running.serial() != before

            await wait_until(is_certificate_replaced, "the new certificate")

            async def is_old_ca_removed() -> bool:
                return len(await user.ca_certificates()) == 1

            await wait_until(is_old_ca_removed, "the removal of the old CA")
            await load.create_more(20)
        assert load.errors == []
        assert first not in await user.ca_certificates()
        await running.ready()


async def test_certificates_are_renewed_before_expiry_without_failed_call(
    plane: ControlPlane, user: User
) -> None:
    """The fake clock stays within the validity that TLS clients accept today."""
    clock = FakeClock(datetime.now(UTC) - timedelta(days=21))
    policy = replace(
        CERTIFICATE_POLICY,
        ca_lifetime=timedelta(days=30),
        lifetime=timedelta(days=30),
        propagation=10.0,
    )
    async with run_replica(plane, local_options(certificates=policy), clock=clock) as running:
        await running.ready()
        (first,) = await user.ca_certificates()
        await user.create("before")

        life = first.not_valid_after_utc - first.not_valid_before_utc
        due = first.not_valid_before_utc + life * 2 / 3
        clock.advance((due - clock.now()).total_seconds() - 1)
        await running.ready()
        assert await user.ca_certificates() == [first]
        before = await running.serial()
        clock.advance(2)

        async def are_both_cas_trusted() -> bool:
            return len(await user.ca_certificates()) == 2

        await wait_until(are_both_cas_trusted, "trust in both CAs")
        assert await running.serial() == before, (
            "the old certificate is served until API servers trust the new CA"
        )
        await user.create("between")

        async def is_certificate_replaced() -> bool:
            clock.advance(1.0)
            return await running.serial() != before

        await wait_until(is_certificate_replaced, "the new certificate")
        await user.create("after")

        async def is_old_ca_removed() -> bool:
            clock.advance(60.0)
            return len(await user.ca_certificates()) == 1

        await wait_until(is_old_ca_removed, "the removal of the old CA")
        assert await user.ca_certificates() != [first]
        await user.create("at-the-end")


async def test_racing_replicas_agree_on_one_secret(plane: ControlPlane, user: User) -> None:
    await user.create_configurations()
    async with run_replica(plane) as first, run_replica(plane) as second:
        await asyncio.gather(first.ready(), second.ready())
        assert await first.serial() == await second.serial()
        writes = first.writes() + second.writes()
        assert writes.count(("create", "secrets", "201")) == 1
        secret = await user.client.get(SECRET, SECRET_KEY)
        assert secret is not None
        for _ in range(2):
            await user.client.delete(SECRET, SECRET_KEY)

            async def is_new_secret_served(old_uid: str = uid_of(secret)) -> bool:
                found = await user.client.get(SECRET, SECRET_KEY)
                assert found is not None
                pair = parse_secret(found["data"]).pair
                assert pair is not None
                return (
                    uid_of(found) != old_uid
                    and await first.serial() == await second.serial() == pair.leaf.serial_number
                )

            await wait_until(
                is_new_secret_served, "the certificate of the new Secret on both replicas"
            )
            secret = await user.client.get(SECRET, SECRET_KEY)
            assert secret is not None
        await asyncio.gather(first.ready(), second.ready())


async def test_replicas_racing_at_start_serve_same_certificate(
    plane: ControlPlane, user: User
) -> None:
    await user.create_configurations()

    async def start(barrier: asyncio.Barrier) -> int:
        async with run_replica(plane) as running:
            await running.ready()
            serial = await running.serial()
            await barrier.wait()
            return serial

    barrier = asyncio.Barrier(3)
    async with asyncio.timeout(120):
        serials = await asyncio.gather(*(start(barrier) for _ in range(3)))
    assert len(set(serials)) == 1


async def test_certificate_files_are_replaced_without_failed_call(
    plane: ControlPlane, user: User, tmp_path: Path
) -> None:
    def write(certificates: CertificateSet) -> None:
        for name, content in (
            ("ca.crt", certificates.bundle),
            ("tls.crt", certificates.pair.certificate),
            ("tls.key", certificates.pair.key),
        ):
            (tmp_path / name).write_bytes(content)

    first = _new_certificates()
    stored = StoredCertificates(first.ca, (), None)
    second, _ = ensure_certificates(
        stored, CERTIFICATE_POLICY, ("127.0.0.1", "localhost"), now=datetime.now(UTC)
    )
    async with run_replica(
        plane, local_options(certificates=CertificateFiles(directory=tmp_path))
    ) as running:
        await wait_until(
            lambda: _has_problem(running, "no serving certificate yet: No such file"),
            "the missing files",
        )
        write(first)
        await running.ready()
        assert running.writes().count(("create", "secrets", "201")) == 0
        async with Load(user) as load:
            write(second)

            async def is_certificate_replaced() -> bool:
                return await running.serial() == second.pair.leaf.serial_number

            await wait_until(is_certificate_replaced, "the new certificate")
            await load.create_more(20)
        assert load.errors == []
        (tmp_path / "tls.crt").write_bytes(_new_certificates().pair.certificate)
        await assert_load_succeeds(user)


async def assert_load_succeeds(user: User) -> None:
    async with Load(user) as load:
        await load.create_more(5)
    assert load.errors == []


async def test_external_certificate_files_are_checked_against_external_ca_bundle(
    plane: ControlPlane, user: User, tmp_path: Path
) -> None:
    certificates = _new_certificates()
    (tmp_path / "tls.crt").write_bytes(certificates.pair.certificate)
    (tmp_path / "tls.key").write_bytes(certificates.pair.key)
    await user.create_configurations()
    options = replace(OPTIONS, certificates=CertificateFiles(directory=tmp_path))
    async with run_replica(plane, options) as running:
        await wait_until(
            lambda: _has_problem(
                running, "the caBundle of webhook mconfigmap.kb.io does not contain the CA"
            ),
            "the problem",
        )
        bundle = b64encode(certificates.bundle).decode()
        for kind in (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION):
            operation = {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle}
            await user.client.patch(
                kind, NamespacedName("", CONFIGURATION_NAME), [operation], PatchType.JSON
            )
        await running.ready()
        assert running.writes() == []


async def test_declared_rbac_rules_are_sufficient(plane: ControlPlane, user: User) -> None:
    await user.create_configurations()
    account = {"kind": "ServiceAccount", "namespace": "default", "name": "hooks"}
    await user.client.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**_metadata("hooks")}}
    )
    for scope, namespaced in (("ClusterRole", False), ("Role", True)):
        needed = [rule for rule in webhook_rules(OPTIONS) if bool(rule.namespace) == namespaced]
        group = "rbac.authorization.k8s.io"
        await user.client.create(
            {
                "apiVersion": f"{group}/v1",
                "kind": scope,
                "metadata": _metadata("hooks", namespaced=namespaced),
                "rules": policy_rules(needed),
            }
        )
        await user.client.create(
            {
                "apiVersion": f"{group}/v1",
                "kind": f"{scope}Binding",
                "metadata": _metadata("hooks", namespaced=namespaced),
                "roleRef": {"apiGroup": group, "kind": scope, "name": "hooks"},
                "subjects": [account],
            }
        )
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    key = NamespacedName("default", "hooks")
    response = await user.client.create_subresource(
        GVK("", "v1", "ServiceAccount"), key, "token", request
    )
    token = response["status"]["token"]
    async with run_replica(
        plane, config=ClientConfig.for_control_plane(plane, token=token)
    ) as running:
        await running.ready()
        assert len(running.writes()) == 3
        await user.client.delete(SECRET, SECRET_KEY)
        before = await running.serial()

        async def is_certificate_replaced() -> bool:
            return await running.serial() != before

        await wait_until(is_certificate_replaced, "the new certificate")
        await running.ready()


def _metadata(name: str, *, namespaced: bool = True) -> Object:
    return {"name": name, **({"namespace": "default"} if namespaced else {})}


async def test_metrics_equal_those_of_the_go_operator(plane: ControlPlane, shared: Path) -> None:
    recorded = json.loads((shared / "golden" / "metrics-go.json").read_text())["metrics"]
    expected = {
        metric["name"]: (metric["type"], sorted(metric["labels"]))
        for metric in recorded
        if "webhook" in metric["name"] or metric["name"].startswith("certwatcher")
    }
    assert len(expected) == 7
    async with run_replica(plane, local_options()) as running:
        await running.ready()
        found = {}
        for metric in running.manager.metrics.registry.collect():
            name = f"{metric.name}_total" if metric.type == "counter" else metric.name
            if name in expected:
                labels = {label for sample in metric.samples for label in sample.labels} - {"le"}
                found[name] = (metric.type, sorted(labels))
        assert found == expected


# Webhooks outside the cluster


async def test_url_replaces_service_and_is_removed_on_exit(plane: ControlPlane, user: User) -> None:
    await user.create_configurations()
    before = await user.configurations()
    url = free_url()
    async with run_replica(plane, local_options(url)) as running:
        await running.ready()
        assert await user.urls() == [f"{url}/mutate--v1-configmap", f"{url}/validate--v1-configmap"]
        await user.create("a")
        assert all(
            ORIGINAL_ANNOTATION in configuration["metadata"]["annotations"]
            for configuration in await user.configurations()
        )
    after = await user.configurations()
    assert is_unchanged(before, after)
    assert all(
        ORIGINAL_ANNOTATION not in (configuration["metadata"].get("annotations") or {})
        for configuration in after
    )


async def test_heartbeat_names_the_url_and_is_released_on_exit(
    plane: ControlPlane, user: User
) -> None:
    key = NamespacedName("default", "hooks-lock")
    options = local_options(lease=key)

    async def holder() -> str:
        lease = await user.client.get(LEASE, key, live=True)
        return str(lease["spec"]["holderIdentity"]) if lease is not None else ""

    with capture_logs() as logs:
        async with run_replica(plane, options) as running:
            await running.ready()
            assert str(await wait_until(holder, "the heartbeat")).endswith(f"_{options.url}")
            for configuration in await user.configurations():
                mark = mark_of(configuration)
                assert mark is not None
                assert (mark.address, mark.lease) == (str(options.url), key)
    assert await holder() == ""
    (attempt,) = [log["event"] for log in logs if "Attempting to acquire" in log["event"]]
    assert "by which other operators see that this one is alive" in attempt


async def test_missing_configurations_are_created_for_url_and_deleted_on_exit(
    plane: ControlPlane, user: User
) -> None:
    async with run_replica(plane, local_options()) as running:
        await running.ready()
        await user.create("a")
        assert len(await user.configurations()) == 2
        await user.client.delete(
            MUTATING_WEBHOOK_CONFIGURATION, NamespacedName("", CONFIGURATION_NAME)
        )

        async def is_recreated() -> bool:
            return len(await user.configurations()) == 2

        await wait_until(is_recreated, "the recreated configuration")
    assert await user.configurations() == []


@pytest.mark.parametrize("existing", [True, False])
async def test_leftovers_of_killed_run_are_removed_by_next_start(
    plane: ControlPlane, user: User, *, existing: bool
) -> None:
    if existing:
        await user.create_configurations()
    before = await user.configurations()
    async with run_replica(plane, local_options()) as running:
        await running.ready()
        running.manager._webhook_service.server._before_drain = None  # type: ignore[union-attr]  # as if the process were killed
    assert all(url != "service" for url in await user.urls())
    assert len(await user.configurations()) == 2

    async with run_replica(plane, local_options()) as second_run:
        await second_run.ready()
        await user.create("a")
        second_run.manager._webhook_service.server._before_drain = None  # type: ignore[union-attr]
    async with run_replica(plane) as restarted:
        if existing:
            await restarted.ready()
        else:
            await wait_until(
                lambda: _has_problem(restarted, "does not exist"),
                "the deletion of the killed run's configurations",
            )
    assert is_unchanged(before, await user.configurations())


@pytest.mark.parametrize(("limit", "waits"), [(120.0, True), (0.0, False)])
async def test_controllers_start_when_the_url_is_registered_or_after_a_limit(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, limit: float, *, waits: bool
) -> None:
    """Until then the configurations can have the URL of a process that was killed, and every write would fail."""
    reached, released, begun = anyio.Event(), anyio.Event(), anyio.Event()
    inject = CAInjector.inject

    async def held(injector: CAInjector, bundle: bytes | None) -> float:
        reached.set()
        await released.wait()
        return await inject(injector, bundle)

    async def begin() -> None:
        begun.set()

    monkeypatch.setattr(CAInjector, "inject", held)
    monkeypatch.setattr(setup, "_MAX_REGISTRATION", limit)
    async with Transport(ClientConfig.for_control_plane(plane)) as transport:
        options = ManagerOptions(field_manager="hooks", webhook=local_options())
        manager = Manager(transport, options)
        register_webhooks(manager.webhooks)
        manager.add(begin)
        async with manager:
            await reached.wait()
            if waits:

                async def is_waiting() -> bool:
                    waiting = manager._lifecycle.not_started
                    return any("webhook-registration" in name for name in waiting)

                await wait_until(is_waiting, "the wait for the registration")
                assert not begun.is_set()
            else:
                await begun.wait()
            released.set()
            await manager.started()
            assert begun.is_set()


async def test_shared_url_is_removed_when_last_replica_stops(
    plane: ControlPlane, user: User
) -> None:
    await user.create_configurations()
    options = local_options(reuse_port=True, drain=1.0)
    async with run_replica(plane, options) as last:
        async with run_replica(plane, options) as first:
            await asyncio.gather(first.ready(), last.ready())
        assert all(url.startswith(str(options.url)) for url in await user.urls())
        await assert_load_succeeds(user)
    assert set(await user.urls()) == {"service"}


async def test_url_is_restored_after_manifest_is_applied(plane: ControlPlane, user: User) -> None:
    await user.create_configurations()
    before = await user.configurations()
    options = local_options()
    async with run_replica(plane, options) as running:
        await running.ready()
        for kind in (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION):
            obj = await user.client.get(kind, NamespacedName("", CONFIGURATION_NAME))
            assert obj is not None
            (original,) = (
                configuration for configuration in before if configuration["kind"] == kind.kind
            )
            await user.client.update({**obj, "webhooks": original["webhooks"]})

        async def is_url_restored() -> bool:
            return all(url.startswith(str(options.url)) for url in await user.urls())

        await wait_until(is_url_restored, "the URL")
        await running.ready()
        await user.create("a")
    assert is_unchanged(before, await user.configurations())


async def test_registration_without_webhook_options_is_an_error(plane: ControlPlane) -> None:
    from cfo.runtime.manager.manager import Manager

    manager = Manager(ClientConfig.for_control_plane(plane))
    with pytest.raises(RuntimeError, match="ManagerOptions"):
        register_webhooks(manager.webhooks)
    assert manager.webhook_port == 0
