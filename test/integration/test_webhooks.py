"""Webhooks on a control plane: what users are told, who is believed, and that no call fails while that changes."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cfo.runtime.client.client import PatchType
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.errors import APIError, Forbidden, InternalError, Invalid
from cfo.runtime.clock import FakeClock
from cfo.runtime.kinds import CONFIG_MAP, MUTATING_WEBHOOK_CONFIGURATION, SECRET, VALIDATING_WEBHOOK_CONFIGURATION
from cfo.runtime.objects import GVK, NamespacedName, Object, uid_of
from cfo.runtime.reconcile import policy_rules
from cfo.runtime.webhook.admission import AdmissionRequest
from cfo.runtime.webhook.certificates.announcement import ORIGINAL
from cfo.runtime.webhook.certificates.certificate_authority import Material, Stored, advance, read
from cfo.runtime.webhook.options import CertificateFiles, WebhookOptions, WebhookURL
from cfo.runtime.webhook.setup import webhook_rules
from envtest import ControlPlane
from envtest.api_client import APIClient
from test.support.config_map_webhooks import (
    CERTIFICATE_POLICY,
    CONFIGURATION_NAME,
    OPTIONS,
    SECRET_KEY,
    WEBHOOK_LABELS,
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
    async with connect_user(plane) as one:
        yield one


def local(url: WebhookURL | None = None, **more: object) -> WebhookOptions:
    """Served where a control plane on this machine can reach it."""
    return replace(OPTIONS, url=url or free_url(), **more)  # type: ignore[arg-type]


def configured(before: list[Object], after: list[Object]) -> bool:
    """Whether what configurations say, bundles apart, is the same."""

    def said(objects: list[Object]) -> list[Object]:
        hooks = [hook for each in objects for hook in each["webhooks"]]
        return [
            {**hook, "clientConfig": {key: value for key, value in hook["clientConfig"].items() if key != "caBundle"}}
            for hook in hooks
        ]

    return said(before) == said(after)


# What users are told.


async def test_objects_are_defaulted_and_refused_in_the_words_of_the_webhooks(
    plane: ControlPlane, api: APIClient, user: User
) -> None:
    async with run_replica(plane, local()) as running:
        await running.ready()
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": WEBHOOK_LABELS}}
        created = await api.post("/api/v1/namespaces/default/configmaps", body)
        assert created.code == 201
        assert created.body["data"] == {"color": "blue"}
        warnings = created.headers.getall("Warning")  # type: ignore[attr-defined]
        assert warnings == ['299 - "it is blue now"', '299 - "a nice color"']

        with pytest.raises(Forbidden) as refused:
            await user.create("b", color="")
        assert refused.value.message == (
            'admission webhook "vconfigmap.kb.io" denied the request: '
            "[data[color]: Required value: every color has a name, data: Invalid value: 1: twice wrong]"
        )
        assert [cause["field"] for cause in refused.value.causes] == ["data[color]", "data"]
        with pytest.raises(Invalid, match=r'ConfigMap "b" is invalid: data\[color\]: Invalid value: "mauve"'):
            await user.create("b", color="mauve")
        with pytest.raises(Forbidden, match="colors do not change"):
            await user.client.patch(CONFIG_MAP, NamespacedName("default", "a"), {"data": {"color": "red"}})
        await user.create("c", color="gold")
        with pytest.raises(Forbidden, match="gold is kept"):
            await user.client.delete(CONFIG_MAP, NamespacedName("default", "c"))
        assert await user.client.delete(CONFIG_MAP, NamespacedName("default", "a"))
        assert await user.client.get(CONFIG_MAP, NamespacedName("default", "b")) is None


async def test_a_handler_that_raises_harms_one_request(plane: ControlPlane, user: User) -> None:
    async with run_replica(plane, local()) as running:
        await running.ready()
        with pytest.raises(InternalError, match=r"denied the request: the webhook failed: IndexError: list index"):
            await user.create("a", color="bug")
        await user.create("a")
        value = running.manager.metrics.registry.get_sample_value
        assert value("controller_runtime_webhook_panics_total") == 1


# Certificates and configurations.


async def test_the_first_start_makes_one_write_for_each_object_and_the_next_none(
    plane: ControlPlane, user: User
) -> None:
    await user.configure()
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
        stored = read(secret["data"])
        assert stored.problems == ()
        assert stored.authority is not None
        assert await user.authorities() == [stored.authority.certificate]
        assert {b64encode(bundle).decode() for bundle in await user.bundles()} == {secret["data"]["ca.crt"]}
        assert stored.pair is not None
        assert await running.serial() == stored.pair.leaf.serial_number
    async with run_replica(plane) as again:
        await again.ready()
        assert again.writes() == []
        assert stored.pair is not None
        assert await again.serial() == stored.pair.leaf.serial_number


async def test_readiness_names_what_is_missing(plane: ControlPlane, user: User) -> None:
    async with run_replica(plane) as running:
        await wait_until(
            lambda: _says(running, f"MutatingWebhookConfiguration {CONFIGURATION_NAME} does not exist"),
            "the missing configuration",
        )
        assert f"ValidatingWebhookConfiguration {CONFIGURATION_NAME} does not exist" in await running.problem()
        await user.configure()
        await running.ready()
        await user.client.delete(VALIDATING_WEBHOOK_CONFIGURATION, NamespacedName("", CONFIGURATION_NAME))
        await wait_until(
            lambda: _says(running, f"ValidatingWebhookConfiguration {CONFIGURATION_NAME} does not exist"),
            "the deletion",
        )


async def _says(running: Replica, text: str) -> bool:
    return text in await running.problem()


async def test_a_broken_bundle_is_repaired(plane: ControlPlane, user: User) -> None:
    async with run_replica(plane, local()) as running:
        await running.ready()
        (good,) = await user.bundles()
        for broken in ("bm8=", None, b64encode(_other().bundle).decode()):
            operation = {"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": broken}
            if broken is None:
                operation = {"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}
            for kind in (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION):
                await user.client.patch(kind, NamespacedName("", CONFIGURATION_NAME), [operation], PatchType.JSON)

            async def repaired() -> bool:
                return await user.bundles() == {good}

            await wait_until(repaired, "the bundle")
            await user.create("made-")


def _other() -> Material:
    return advance(Stored(), CERTIFICATE_POLICY, ("127.0.0.1",), now=datetime.now(UTC))[0]


@pytest.mark.parametrize("broken", [{"tls.crt": "bm8="}, {"tls.key": None}, {"ca.key": "bm8="}, {"ca.crt": None}])
async def test_a_broken_secret_is_repaired_and_no_call_fails(
    plane: ControlPlane, user: User, broken: dict[str, str | None]
) -> None:
    async with run_replica(plane, local()) as running:
        await running.ready()
        before = await running.serial()
        async with Load(user) as load:
            await user.client.patch(SECRET, SECRET_KEY, {"data": broken})

            async def repaired() -> bool:
                secret = await user.client.get(SECRET, SECRET_KEY)
                return secret is not None and read(secret["data"]).problems == ()

            await wait_until(repaired, "a good Secret")

            async def swapped() -> bool:
                return await running.serial() != before

            if broken.keys() & {"ca.crt", "ca.key"}:
                await wait_until(swapped, "a certificate of the new authority")
            await load.more(10)
        assert load.errors == []
        await running.ready()


async def test_a_deleted_secret_means_another_authority_and_no_failed_call(plane: ControlPlane, user: User) -> None:
    async with run_replica(plane, local(certificates=short_overlap())) as running:
        await running.ready()
        (first,) = await user.authorities()
        before = await running.serial()
        async with Load(user) as load:
            await user.client.delete(SECRET, SECRET_KEY)

            async def overlapping() -> bool:
                authorities = await user.authorities()
                return len(authorities) == 2 and authorities[1] == first

            await wait_until(overlapping, "both authorities trusted")

            async def swapped() -> bool:
                return await running.serial() != before

            await wait_until(swapped, "the new certificate")

            async def alone() -> bool:
                return len(await user.authorities()) == 1

            await wait_until(alone, "the old authority forgotten")
            await load.more(20)
        assert load.errors == []
        assert first not in await user.authorities()
        await running.ready()


async def test_certificates_are_renewed_in_time_in_the_order_that_lets_no_call_fail(
    plane: ControlPlane, user: User
) -> None:
    """On a clock of its own, which stays within what today's TLS accepts."""
    clock = FakeClock(datetime.now(UTC) - timedelta(days=21))
    policy = replace(
        CERTIFICATE_POLICY, authority_lifetime=timedelta(days=30), lifetime=timedelta(days=30), propagation=10.0
    )
    async with run_replica(plane, local(certificates=policy), clock=clock) as running:
        await running.ready()
        (first,) = await user.authorities()
        await user.create("before")

        life = first.not_valid_after_utc - first.not_valid_before_utc
        due = first.not_valid_before_utc + life * 2 / 3
        clock.advance((due - clock.now()).total_seconds() - 1)
        await running.ready()
        assert await user.authorities() == [first]
        before = await running.serial()
        clock.advance(2)

        async def overlapping() -> bool:
            return len(await user.authorities()) == 2

        await wait_until(overlapping, "both authorities trusted")
        assert await running.serial() == before, "the old certificate is served until API servers know better"
        await user.create("between")

        async def swapped() -> bool:
            clock.advance(1.0)
            return await running.serial() != before

        await wait_until(swapped, "the new certificate")
        await user.create("after")

        async def alone() -> bool:
            clock.advance(60.0)
            return len(await user.authorities()) == 1

        await wait_until(alone, "the old authority forgotten")
        assert await user.authorities() != [first]
        await user.create("at-the-end")


async def test_replicas_that_race_agree_on_one_secret(plane: ControlPlane, user: User) -> None:
    await user.configure()
    async with run_replica(plane) as one, run_replica(plane) as other:
        await asyncio.gather(one.ready(), other.ready())
        assert await one.serial() == await other.serial()
        writes = one.writes() + other.writes()
        assert writes.count(("create", "secrets", "201")) == 1
        secret = await user.client.get(SECRET, SECRET_KEY)
        assert secret is not None
        for _ in range(3):
            await user.client.delete(SECRET, SECRET_KEY)

            async def same_again(gone: str = uid_of(secret)) -> bool:
                found = await user.client.get(SECRET, SECRET_KEY)
                assert found is not None
                pair = read(found["data"]).pair
                assert pair is not None
                return uid_of(found) != gone and await one.serial() == await other.serial() == pair.leaf.serial_number

            await wait_until(same_again, "both serve what is in the new Secret")
            secret = await user.client.get(SECRET, SECRET_KEY)
            assert secret is not None
        await asyncio.gather(one.ready(), other.ready())


async def test_replicas_that_race_at_the_start(plane: ControlPlane, user: User) -> None:
    await user.configure()

    async def start(goal: asyncio.Barrier) -> int:
        async with run_replica(plane) as running:
            await running.ready()
            serial = await running.serial()
            await goal.wait()
            return serial

    goal = asyncio.Barrier(4)
    async with asyncio.timeout(60):
        serials = await asyncio.gather(*(start(goal) for _ in range(4)))
    assert len(set(serials)) == 1


async def test_files_are_served_and_swapped_without_a_failed_call(
    plane: ControlPlane, user: User, tmp_path: Path
) -> None:
    def write(one: Material) -> None:
        for name, content in (("ca.crt", one.bundle), ("tls.crt", one.pair.certificate), ("tls.key", one.pair.key)):
            (tmp_path / name).write_bytes(content)

    first = _other()
    stored = Stored(first.authority, (), None)
    second, _ = advance(stored, CERTIFICATE_POLICY, ("127.0.0.1", "localhost"), now=datetime.now(UTC))
    async with run_replica(plane, local(certificates=CertificateFiles(directory=tmp_path))) as running:
        await wait_until(lambda: _says(running, "no serving certificate yet: No such file"), "the missing files")
        write(first)
        await running.ready()
        assert running.writes().count(("create", "secrets", "201")) == 0
        async with Load(user) as load:
            write(second)

            async def swapped() -> bool:
                return await running.serial() == second.pair.leaf.serial_number

            await wait_until(swapped, "the new certificate")
            await load.more(20)
        assert load.errors == []
        (tmp_path / "tls.crt").write_bytes(_other().pair.certificate)
        await load_is_fine(user)


async def load_is_fine(user: User) -> None:
    async with Load(user) as load:
        await load.more(5)
    assert load.errors == []


async def test_files_of_others_are_checked_against_the_bundle_of_others(
    plane: ControlPlane, user: User, tmp_path: Path
) -> None:
    one = _other()
    (tmp_path / "tls.crt").write_bytes(one.pair.certificate)
    (tmp_path / "tls.key").write_bytes(one.pair.key)
    await user.configure()
    options = replace(OPTIONS, certificates=CertificateFiles(directory=tmp_path))
    async with run_replica(plane, options) as running:
        await wait_until(
            lambda: _says(running, "the caBundle of webhook mconfigmap.kb.io does not vouch"), "the problem"
        )
        bundle = b64encode(one.bundle).decode()
        for kind in (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION):
            operation = {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle}
            await user.client.patch(kind, NamespacedName("", CONFIGURATION_NAME), [operation], PatchType.JSON)
        await running.ready()
        assert running.writes() == []


async def test_the_declared_rights_suffice(plane: ControlPlane, user: User) -> None:
    await user.configure()
    account = {"kind": "ServiceAccount", "namespace": "default", "name": "hooks"}
    await user.client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**_named("hooks")}})
    for scope, namespaced in (("ClusterRole", False), ("Role", True)):
        needed = [rule for rule in webhook_rules(OPTIONS) if bool(rule.namespace) == namespaced]
        group = "rbac.authorization.k8s.io"
        await user.client.create(
            {
                "apiVersion": f"{group}/v1",
                "kind": scope,
                "metadata": _named("hooks", namespaced=namespaced),
                "rules": policy_rules(needed),
            }
        )
        await user.client.create(
            {
                "apiVersion": f"{group}/v1",
                "kind": f"{scope}Binding",
                "metadata": _named("hooks", namespaced=namespaced),
                "roleRef": {"apiGroup": group, "kind": scope, "name": "hooks"},
                "subjects": [account],
            }
        )
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    key = NamespacedName("default", "hooks")
    answer = await user.client.create(request, subresource="token", key=key, gvk=GVK("", "v1", "ServiceAccount"))
    token = answer["status"]["token"]
    async with run_replica(plane, config=ClientConfig.for_control_plane(plane, token=token)) as running:
        await running.ready()
        assert len(running.writes()) == 3
        await user.client.delete(SECRET, SECRET_KEY)
        before = await running.serial()

        async def swapped() -> bool:
            return await running.serial() != before

        await wait_until(swapped, "the new certificate")
        await running.ready()


def _named(name: str, *, namespaced: bool = True) -> Object:
    return {"name": name, **({"namespace": "default"} if namespaced else {})}


async def test_the_metrics_are_those_of_the_go_operator(plane: ControlPlane, shared: Path) -> None:
    recorded = json.loads((shared / "golden" / "metrics-go.json").read_text())["metrics"]
    wanted = {
        metric["name"]: (metric["type"], sorted(metric["labels"]))
        for metric in recorded
        if "webhook" in metric["name"] or metric["name"].startswith("certwatcher")
    }
    assert len(wanted) == 7
    async with run_replica(plane, local()) as running:
        await running.ready()
        found = {}
        for metric in running.manager.metrics.registry.collect():
            name = f"{metric.name}_total" if metric.type == "counter" else metric.name
            if name in wanted:
                labels = {label for sample in metric.samples for label in sample.labels} - {"le"}
                found[name] = (metric.type, sorted(labels))
        assert found == wanted


# Webhooks outside of the cluster.


async def test_a_url_replaces_the_service_and_is_taken_back_on_exit(plane: ControlPlane, user: User) -> None:
    await user.configure()
    before = await user.configurations()
    url = free_url()
    async with run_replica(plane, local(url)) as running:
        await running.ready()
        assert await user.urls() == [f"{url}/mutate--v1-configmap", f"{url}/validate--v1-configmap"]
        await user.create("a")
        assert all(ORIGINAL in each["metadata"]["annotations"] for each in await user.configurations())
    after = await user.configurations()
    assert configured(before, after)
    assert all(ORIGINAL not in (each["metadata"].get("annotations") or {}) for each in after)


async def test_missing_configurations_are_made_for_a_url_and_deleted_on_exit(plane: ControlPlane, user: User) -> None:
    async with run_replica(plane, local()) as running:
        await running.ready()
        await user.create("a")
        assert len(await user.configurations()) == 2
        await user.client.delete(MUTATING_WEBHOOK_CONFIGURATION, NamespacedName("", CONFIGURATION_NAME))

        async def again() -> bool:
            return len(await user.configurations()) == 2

        await wait_until(again, "the configuration is made again")
    assert await user.configurations() == []


@pytest.mark.parametrize("existing", [True, False])
async def test_what_a_killed_run_left_behind_is_put_right_by_the_next_start(
    plane: ControlPlane, user: User, *, existing: bool
) -> None:
    if existing:
        await user.configure()
    before = await user.configurations()
    async with run_replica(plane, local()) as running:
        await running.ready()
        running.manager._webhook_service.server._before_drain = None  # type: ignore[union-attr]  # as good as killed
    assert all(url != "service" for url in await user.urls())
    assert len(await user.configurations()) == 2

    async with run_replica(plane, local()) as moved:
        await moved.ready()
        await user.create("a")
        moved.manager._webhook_service.server._before_drain = None  # type: ignore[union-attr]
    async with run_replica(plane) as normal:
        if existing:
            await normal.ready()
        else:
            await wait_until(lambda: _says(normal, "does not exist"), "what the killed run had made is deleted")
    assert configured(before, await user.configurations())


async def test_replicas_under_one_url_take_it_back_when_the_last_one_leaves(plane: ControlPlane, user: User) -> None:
    await user.configure()
    options = local(reuse_port=True, drain=1.0)
    async with run_replica(plane, options) as last:
        async with run_replica(plane, options) as first:
            await asyncio.gather(first.ready(), last.ready())
        assert all(url.startswith(str(options.url)) for url in await user.urls())
        await load_is_fine(user)
    assert set(await user.urls()) == {"service"}


async def test_somebody_who_applies_the_manifest_does_not_cut_off_the_url(plane: ControlPlane, user: User) -> None:
    await user.configure()
    before = await user.configurations()
    options = local()
    async with run_replica(plane, options) as running:
        await running.ready()
        for kind in (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION):
            obj = await user.client.get(kind, NamespacedName("", CONFIGURATION_NAME))
            assert obj is not None
            (original,) = (each for each in before if each["kind"] == kind.kind)
            await user.client.update({**obj, "webhooks": original["webhooks"]})

        async def back() -> bool:
            return all(url.startswith(str(options.url)) for url in await user.urls())

        await wait_until(back, "the url")
        await running.ready()
        await user.create("a")
    assert configured(before, await user.configurations())


# Conversion.

OLD, NEW = GVK("acme.io", "v1", "Widget"), GVK("acme.io", "v2", "Widget")


class Widgets:
    """In v2 the size is a text."""

    async def convert(self, obj: Object, api_version: str) -> Object:
        turn = str if api_version.endswith("v2") else int
        return {**obj, "apiVersion": api_version, "spec": {"size": turn(obj["spec"]["size"])}}

    def default(self, obj: Object, request: AdmissionRequest) -> None: ...


def widgets() -> Object:
    def version(name: str, kind: str, *, storage: bool) -> Object:
        spec = {"type": "object", "properties": {"size": {"type": kind}}}
        schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
        return {"name": name, "served": True, "storage": storage, "schema": schema}

    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.acme.io"},
        "spec": {
            "group": "acme.io",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [version("v1", "integer", storage=True), version("v2", "string", storage=False)],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {
                    "conversionReviewVersions": ["v1"],
                    "clientConfig": {"service": {"namespace": "default", "name": "hooks", "path": "/convert"}},
                },
            },
        },
    }


async def test_objects_are_converted_by_a_webhook_whose_bundle_is_in_the_definition(
    plane: ControlPlane, user: User
) -> None:
    await plane.install_crds(widgets())
    definition = GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
    key = NamespacedName("", "widgets.acme.io")
    async with run_replica(plane, local(definitions=("widgets.acme.io",))) as running:
        running.manager.webhooks.register(OLD, converter=Widgets())
        await running.ready()
        await user.client.create(
            {
                "apiVersion": "acme.io/v1",
                "kind": "Widget",
                "metadata": {"namespace": "default", "name": "w"},
                "spec": {"size": 3},
            }
        )
        new = await user.client.get(NEW, NamespacedName("default", "w"))
        assert new is not None
        assert new["spec"] == {"size": "3"}
    restored = await user.client.get(definition, key)
    assert restored is not None
    assert restored["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["name"] == "hooks"
    with pytest.raises(APIError, match="conversion webhook"):
        await user.client.get(NEW, NamespacedName("default", "w"))


async def test_a_manager_without_webhooks_says_so(plane: ControlPlane) -> None:
    from cfo.runtime.manager import Manager

    manager = Manager(ClientConfig.for_control_plane(plane))
    with pytest.raises(RuntimeError, match="ManagerOptions"):
        register_webhooks(manager.webhooks)
    assert manager.webhook_port == 0
