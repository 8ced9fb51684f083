"""Typed resources on a control plane: CRDs, reads, writes, predicates, webhooks, and `cfo crd`."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cfo.cli import cli
from cfo.runtime import (
    Builder,
    ClientConfig,
    FieldErrors,
    Forbidden,
    GenerationChanged,
    Invalid,
    Manager,
    ManagerOptions,
    NamespacedName,
    ObjectMeta,
    Request,
    Result,
    ValueChanged,
    custom_resource_definition,
    field,
    has_condition,
    key_of,
    uid_of,
    wait_for,
)
from cfo.runtime.client import connect
from cfo.runtime.objects import CUSTOM_RESOURCE_DEFINITION, InvalidResource, set_controller_owner
from cfo.runtime.objects.kinds import EVENT
from cfo.runtime.webhook import AdmissionRequest
from envtest import ControlPlane
from test.support.config_map_webhooks import OPTIONS, free_url
from test.support.raycluster_environment import eventually
from test.support.website import Website, WebsiteBeta, WebsiteSpec, WebsiteStatus

KEY = NamespacedName("default", "a")
DICTS = Website.gvk
MODULE = "test.support.website"
PAGE = Path(__file__).parents[2] / "docs" / "runtime-topics.md"


class WebsiteWebhook:
    """Sets a note, and rejects pages without content."""

    def default(self, obj: Website, request: AdmissionRequest) -> None:
        if obj.spec.note is None:
            obj.spec.note = f"created by {request.user_info.username}"

    def validate_create(self, obj: Website, request: AdmissionRequest) -> None:
        if not obj.spec.html:
            raise FieldErrors([field.required("spec.html", "must contain the page")])

    def validate_update(self, old: Website, obj: Website, request: AdmissionRequest) -> list[str]:
        return ["fewer replicas"] if obj.spec.replicas < old.spec.replicas else []

    def validate_delete(self, obj: Website, request: AdmissionRequest) -> None:
        pass


class WebsiteReconciler:
    """Reports the wanted replicas as ready."""

    def __init__(self, manager: Manager) -> None:
        self.client = manager.client
        self.reconciled: list[str] = []

    async def reconcile(self, request: Request) -> Result:
        website = await self.client.get(Website, request)
        if website is None or website.is_deleting:
            return Result()
        self.reconciled.append(website.spec.html)
        status = WebsiteStatus(ready_replicas=website.spec.replicas)
        await self.client.apply(Website.intent(request, status=status), subresource="status")
        return Result()


@asynccontextmanager
async def environment(plane: ControlPlane) -> AsyncIterator[tuple[Manager, WebsiteReconciler]]:
    options = replace(OPTIONS, url=free_url())
    manager = Manager(
        ClientConfig.for_control_plane(plane),
        ManagerOptions(field_manager="websites", webhook=options),
    )
    webhook = WebsiteWebhook()
    manager.webhooks.register(Website, defaulter=webhook, validator=webhook)
    reconciler = WebsiteReconciler(manager)
    changed = ValueChanged(Website, lambda website: website.spec.replicas)
    Builder(manager).for_(Website, GenerationChanged(), changed).complete(reconciler)
    async with manager:
        await manager.client.create(custom_resource_definition(Website, WebsiteBeta))
        await manager.started()

        async def is_served() -> bool:
            created = await manager.client.create(website("probe"), dry_run=True)
            return created.spec.note is not None

        await eventually(is_served, "the webhooks are called")
        yield manager, reconciler


def website(name: str, **spec: object) -> Website:
    return Website(
        metadata=ObjectMeta(namespace="default", name=name),
        spec=WebsiteSpec.model_validate({"html": "<p>", **spec}),
    )


async def test_website_is_typed_from_the_crd_to_the_webhook(plane: ControlPlane) -> None:
    async with environment(plane) as (manager, reconciler):
        await _use(manager, reconciler)


async def _use(manager: Manager, reconciler: WebsiteReconciler) -> None:
    client = manager.client

    # Writes return instances with what the API server and the webhook set.
    created = await client.create(website("a"))
    assert (created.spec.replicas, created.spec.note) == (1, "created by admin")
    assert created.metadata.uid
    assert created.key == KEY

    async def ready_replicas() -> int:
        current = await client.get(Website, KEY)
        assert current is not None
        return current.status.ready_replicas

    async def is_ready() -> bool:
        return await ready_replicas() == 1

    await eventually(is_ready, "the status is applied")

    # Reads come from the informer; a read-modify-write keeps what another client added.
    current = await client.get(Website, KEY)
    assert current is not None
    assert manager.cache.informer(Website) is manager.cache.informer(DICTS)
    assert [found.key for found in await client.list(Website, namespace="default")] == [KEY]
    current.metadata.annotations["example.com/seen"] = "yes"
    current.spec.hosts.append("a.example.com")
    updated = await client.update(current)
    assert updated.spec.hosts == ["a.example.com"]
    assert await ready_replicas() == 1
    patched = await client.patch(Website, KEY, {"spec": {"note": "changed"}})
    assert patched.spec.note == "changed"
    assert len(reconciler.reconciled) == 1  # ValueChanged: the replicas are the same

    # The example of the page about an index; informers hold JSON.
    (example,) = re.findall(r"( *# the Websites of a host.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {"Website": Website, "manager": manager}
    exec(compile(textwrap.dedent(example), PAGE.name, "exec"), names)
    assert names["found"] == []
    found = names["websites"].reader.list(index=("host", "a.example.com"))
    assert [Website.decode(obj).spec.html for obj in found] == ["<p>"]

    # An apply owns only the fields that were set, and is skipped if it changes nothing.
    applied = await client.apply(website("a", replicas=2))
    again = await client.apply(website("a", replicas=2))
    assert applied.metadata.generation == again.metadata.generation

    async def is_scaled() -> bool:
        return await ready_replicas() == 2

    await eventually(is_scaled, "the changed number of replicas is reconciled")
    child = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": "child"},
    }
    owned = await client.apply(set_controller_owner(child, applied.to_object()))
    assert owned["metadata"]["ownerReferences"][0]["uid"] == applied.metadata.uid

    # The class, the CEL rules and the webhook reject invalid objects.
    with pytest.raises(Forbidden, match=r"spec\.html: Required value: must contain the page"):
        await client.create(website("b", html=""))
    with pytest.raises(Invalid, match="too many replicas"):
        await client.create(website("b", replicas=20))
    broken = {**website("b").to_object(), "spec": {"html": 1}}
    with pytest.raises(
        Forbidden, match=r"spec\.html: Invalid value: 1: Input should be a valid string"
    ):
        await client.create(broken)

    # The patch of the defaulter contains only its changes: the API server rejects what the class would convert.
    for field_name, value in (("replicas", "3"), ("replicas", True), ("note", None)):
        lax = website("b").to_object()
        lax["spec"][field_name] = value
        if value is None:
            assert (await client.create(lax, dry_run=True))["spec"]["note"] == "created by admin"
            continue
        with pytest.raises(Invalid, match=rf"spec.{field_name}: Invalid value"):
            await client.create(lax)

    # The other version has the same fields.
    beta = await client.get(WebsiteBeta, KEY, live=True)
    assert beta is not None
    assert beta.spec.replicas == 2
    beta.metadata.labels["from"] = "beta"
    assert (await client.update(beta)).metadata.labels == {"from": "beta"}
    with pytest.raises(InvalidResource, match="must be Website"):
        Website.decode(beta.to_object())
    assert await client.delete(Website, KEY)


async def test_object_that_does_not_fit_is_reported(
    plane: ControlPlane,
) -> None:
    """It may be older than a field that the class requires now."""
    manager = Manager(
        ClientConfig.for_control_plane(plane), ManagerOptions(field_manager="websites")
    )
    reconciler = WebsiteReconciler(manager)
    Builder(manager).for_(Website).complete(reconciler)
    crd = custom_resource_definition(Website, WebsiteBeta)
    for version in crd["spec"]["versions"]:
        del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["required"]
    async with manager:
        client = manager.client
        await client.create(crd)
        await manager.started()
        old = website("old").to_object()
        del old["spec"]["html"]
        old["metadata"]["finalizers"] = ["example.com/cleanup"]
        stored = await client.create(old)

        async def notes() -> list[str]:
            events = await client.list(EVENT, namespace="default", live=True)
            about = [each for each in events if each["regarding"]["uid"] == uid_of(stored)]
            return [f"{each['type']} {each['reason']}: {each['note']}" for each in about]

        async def is_reported(count: int) -> list[str]:
            found = await notes()
            assert len(found) == count, found
            return sorted(found, key=len)

        (note,) = await eventually(partial(is_reported, 1), "an Event")
        assert note.startswith("Warning InvalidObject: Website default/old")
        assert "spec.html: Required value" in note
        await client.delete(DICTS, key_of(stored))
        _, note = await eventually(partial(is_reported, 2), "an Event about the deletion")
        assert note.endswith("or until its finalizers are removed by hand")
        await client.patch(DICTS, key_of(stored), {"metadata": {"finalizers": None}})


def test_crd_command_prints_crds() -> None:
    runner = CliRunner()
    result = runner.invoke(cli, ["crd", f"{MODULE}:Website"])
    assert result.exit_code == 0, result.output
    (crd,) = yaml.safe_load_all(result.output)
    assert crd["metadata"]["name"] == "websites.example.com"
    assert runner.invoke(cli, ["crd", f"{MODULE}:Port"]).exit_code == 2
    assert runner.invoke(cli, ["crd", "no.such.module"]).exit_code == 2
    assert (
        "must be a module, such as app.kinds" in runner.invoke(cli, ["crd", "app/kinds.py"]).output
    )


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        (
            "from cfo.runtime import nothing",
            r"kinds.py:1: ImportError: cannot import name 'nothing'",
        ),
        ("import re\n\nre.compile(1)\n", r"TypeError: first argument must be string"),
        ("def f(:", r"invalid syntax \(kinds.py, line 1\)"),
    ],
)
def test_module_that_cannot_be_imported_is_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, problem: str
) -> None:
    (tmp_path / "kinds.py").write_text(program)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "kinds", raising=False)
    result = CliRunner().invoke(cli, ["crd", "kinds"])
    assert result.exit_code == 2
    (line,) = result.output.splitlines()
    assert line.startswith("Error: cannot import kinds: ")
    assert re.search(problem, line)


async def test_durations_of_the_crd_are_those_that_the_class_reads(plane: ControlPlane) -> None:
    config = ClientConfig.for_control_plane(plane)
    async with connect(config, field_manager="tests") as client:
        definition = await client.create(custom_resource_definition(Website))
        await wait_for(
            client,
            CUSTOM_RESOURCE_DEFINITION,
            key_of(definition),
            has_condition("Established"),
            timeout=30,
        )
        created = await client.create(website("default"))
        assert created.spec.interval == timedelta(minutes=5)
        created = await client.create(website("own", interval="1h30m"))
        assert created.spec.interval == timedelta(minutes=90)

        wire = website("a").to_object()
        for refused, message in [
            ("2 weeks", r"spec\.interval"),
            ("PT30S", r"spec\.interval"),
            ("10ms", "must be at least 1s"),
        ]:
            wire["spec"]["interval"] = refused
            with pytest.raises(Invalid, match=message):
                await client.create(wire)
