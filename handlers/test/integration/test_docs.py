"""The programs and commands of the pages run as they are."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

import cfo_handlers as kopf
from cfo.runtime import (
    CONFIG_MAP,
    GVK,
    Client,
    ClientConfig,
    Manager,
    ManagerOptions,
    NamespacedName,
    key_of,
)
from cfo_handlers.command import command
from envtest import ControlPlane
from test.support import ROOT, blocks_of, crd, eventually, load_example

WEBSITE = GVK("example.com", "v1", "Website")
CRD = crd("example.com", "v1", "Website", "websites")
PAGES = [ROOT / "README.md", ROOT / "example" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = {
    "README.md": ["# greeter.py"],
    "docs/from-kopf.md": ["# bakery.py"],
    "docs/blocking-code.md": ["# reporter.py"],
}
"""The Python examples by page and first line, each of which a test here runs."""


async def test_first_operator_of_the_readme(
    kube_client: Client, control_plane: ControlPlane, namespace: str
) -> None:
    before = kopf.get_default_registry()
    registry = kopf.OperatorRegistry()
    kopf.set_default_registry(registry)
    load_example(ROOT / "README.md", "# greeter.py")
    kopf.set_default_registry(before)
    config = ClientConfig.for_control_plane(control_plane)
    manager = Manager(config, ManagerOptions(field_manager="greeter", namespaces=[namespace]))
    kopf.add_to(manager, registry=registry)
    async with manager:
        await manager.started()
        metadata = {"namespace": namespace, "name": "world", "labels": {"greet": ""}}
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        await kube_client.create(obj)

        async def is_greeted() -> bool:
            found = await kube_client.get(CONFIG_MAP, key_of(obj))
            assert found is not None
            return bool(found.get("data") == {"greeting": "Hello, world!"})

        await eventually(is_greeted)


async def test_handlers_in_the_manager_of_a_program(
    kube_client: Client,
    control_plane: ControlPlane,
    namespace: str,
    install_crds: Callable[..., list[str]],
) -> None:
    install_crds(CRD)
    bakery = load_example(ROOT / "docs" / "from-kopf.md", "# bakery.py")
    manager = bakery.new_manager(ClientConfig.for_control_plane(control_plane))
    async with manager:
        await manager.started()
        key = NamespacedName(namespace, "hello")
        await _create_website(kube_client, key)

        async def get_status() -> Any:
            found = await kube_client.get(WEBSITE, key)
            assert found is not None
            return found.get("status")

        assert await eventually(get_status) == {"create": {"message": "hello was created"}}


async def test_sync_reconciler_of_the_page_runs_in_a_thread(
    kube_client: Client,
    control_plane: ControlPlane,
    namespace: str,
    install_crds: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install_crds(CRD)
    posted: list[Any] = []

    def post(url: str, *, json: Any, timeout: float) -> None:
        posted.append((url, json, timeout))

    monkeypatch.setitem(sys.modules, "requests", SimpleNamespace(post=post))
    reporter = load_example(ROOT / "docs" / "blocking-code.md", "# reporter.py")
    manager = reporter.new_manager(ClientConfig.for_control_plane(control_plane))
    async with manager:
        await manager.started()
        await _create_website(kube_client, NamespacedName(namespace, "hello"), {"a": 1})

        async def is_posted() -> bool:
            return ("https://reports.example.com", {"a": 1}, 10) in posted

        await eventually(is_posted)


async def _create_website(client: Client, key: NamespacedName, spec: Any = None) -> None:
    await client.create(
        {
            "apiVersion": WEBSITE.api_version,
            "kind": WEBSITE.kind,
            "metadata": {"namespace": key.namespace, "name": key.name},
            "spec": spec or {},
        }
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_python_example_of_a_page_is_run_here(page: Path) -> None:
    beginnings = [block.partition("\n")[0] for block in blocks_of(page, "python")]
    assert beginnings == PROGRAMS.get(str(page.relative_to(ROOT)), [])


def own_commands() -> list[list[str]]:
    """Return the words of each ``cfo-handlers`` command in the pages."""
    texts = [page.read_text() for page in PAGES]
    found = re.findall(
        r"^cfo-handlers [^#\n`]*|`cfo-handlers [^`]*`", "\n".join(texts), re.MULTILINE
    )
    return [shlex.split(each.strip("`")) for each in found]


def test_each_command_of_the_pages_has_the_options_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = own_commands()
    assert len(commands) > 2
    for words in commands:
        for name in words[2:]:
            if name.endswith(".py"):
                Path(name).parent.mkdir(parents=True, exist_ok=True)
                Path(name).touch()
        context = command.make_context("cfo-handlers", words[1:])
        _, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert isinstance(found, click.Command)
        found.make_context(found.name, rest, parent=context)
