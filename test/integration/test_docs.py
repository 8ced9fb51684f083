"""The examples in docs/ behave as documented, each is run or has a reason, and what readers must read is short."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from cfo.cli import cli
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.errors import Forbidden
from cfo.runtime.objects.unstructured import GVK, NamespacedName, controller_of
from envtest import ControlPlane
from envtest.command import command as envtest_command
from test.support.config_map_webhooks import free_url
from test.support.raycluster_environment import crd, eventually

DOCS = Path(__file__).parents[2] / "docs"
WEBSITE = GVK("example.com", "v1", "Website")
KEY = NamespacedName("default", "hello")


def load_example(document: str, first_line: str) -> ModuleType:
    """Execute the fenced block of ``document`` that begins with ``first_line``, and return it as a module."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / document).read_text(), flags=re.DOTALL)
    (source,) = [block for block in blocks if block.startswith(first_line)]
    module = ModuleType(first_line.strip("# "))
    exec(compile(source, f"{document}:{first_line}", "exec"), module.__dict__)
    return module


async def test_operator_example_of_the_runtime_guide() -> None:
    website = load_example("runtime.md", "# website.py")
    (text,) = re.findall(
        r"```yaml\n(# website.yaml.*?)```", (DOCS / "runtime.md").read_text(), flags=re.DOTALL
    )
    async with ControlPlane.auto(crds=[yaml.safe_load(text)]) as plane:
        manager = website.new_manager(ClientConfig.for_control_plane(plane))
        async with manager:
            await manager.started()
            client = manager.api_reader.with_field_manager("tester")
            obj = await client.create(
                {
                    "apiVersion": WEBSITE.api_version,
                    "kind": WEBSITE.kind,
                    "metadata": {"namespace": KEY.namespace, "name": KEY.name},
                    "spec": {"html": "<h1>Hello</h1>", "replicas": 2},
                }
            )

            async def get_status() -> Any:
                found = await client.get(WEBSITE, KEY)
                assert found is not None
                return found.get("status")

            assert await eventually(get_status, "a status") == {"readyReplicas": 0}
            deployment = await client.get(website.DEPLOYMENT, KEY)
            assert deployment is not None
            assert deployment["spec"]["replicas"] == 2
            assert (controller_of(deployment) or {}).get("uid") == obj["metadata"]["uid"]
            config_map = await client.get(website.CONFIG_MAP, KEY)
            assert config_map is not None
            assert config_map["data"] == {"index.html": "<h1>Hello</h1>"}

            await client.patch(
                website.DEPLOYMENT,
                KEY,
                {"status": {"replicas": 2, "readyReplicas": 2}},
                subresource="status",
            )

            async def ready() -> bool:
                return bool(await get_status() == {"readyReplicas": 2})

            assert await eventually(ready, "the reported replicas")


def test_operator_example_of_the_runtime_guide_prints_one_line_without_a_kubeconfig(
    tmp_path: Path,
) -> None:
    (program,) = [
        block
        for block in blocks_of(DOCS / "runtime.md", "python")
        if block.startswith("# website.py")
    ]
    (tmp_path / "website.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "website.py"],
        cwd=tmp_path,
        env={**os.environ, "KUBECONFIG": "/nonexistent", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "$KUBECONFIG: /nonexistent: no such file\n")


async def test_webhook_example_of_the_runtime_guide() -> None:
    website = load_example("runtime.md", "# website_webhook.py")
    async with ControlPlane.auto(crds=[crd("example.com", "v1", "Website", "websites")]) as plane:
        manager = website.new_manager(ClientConfig.for_control_plane(plane), str(free_url()))
        async with manager:
            await manager.started()

            async def ready() -> bool:
                return "webhooks" not in await manager.health.failures()

            await eventually(ready, "the webhooks")
            client = manager.api_reader.with_field_manager("tester")
            obj = {
                "apiVersion": WEBSITE.api_version,
                "kind": WEBSITE.kind,
                "metadata": {"namespace": KEY.namespace, "name": KEY.name},
                "spec": {"html": "<h1>Hello</h1>"},
            }
            assert (await client.create(obj))["spec"]["replicas"] == 1
            with pytest.raises(
                Forbidden, match=r"spec.html: Required value: must contain the page"
            ):
                await client.patch(WEBSITE, KEY, {"spec": {"html": ""}})
            assert (await client.patch(WEBSITE, KEY, {"spec": {"replicas": 0}}))["spec"][
                "replicas"
            ] == 0


# Every example of the pages


ROOT = DOCS.parent
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
PROGRAMS = {
    "data-scientists.md": {
        "# first_cluster.py": "test/sdk/test_codeflare_sdk.py, with the SDK's interpreter"
    },
    "operator-authors.md": {"# test_children.py": "below"},
    "runtime.md": {"# website.py": "above", "# website_webhook.py": "above"},
}
"""The Python examples that run, by page and first line, with the place of their test."""
EXCERPTS = {
    "children.md": {
        "from cfo.runtime.client import Child, reconcile_children": "examples/11-website is the program",
        "async def write(self, environment: Environment)": "examples/09-sets-and-conditions is the program",
    },
    "runtime.md": {
        "# reconcile every Website that refers to a changed Secret of its namespace": "see examples/04-watches",
        'finalizer = Finalizer(client, "example.com/bucket")': "examples/09-sets-and-conditions is the program",
        "async with ControlPlane.embedded(crds=[website_crd]) as plane:": "the programs above are tested so",
    },
    "runtime-topics.md": {
        "class WebsiteSpec(APIModel,": "examples/07-typed-resources is the program",
        "# the Websites of a host": "test_typed_resources.py runs it",
        "pod = Child.present(V1Pod(": "examples/10-generated-apis is the program",
        "election = LeaderElectionOptions(": "examples/05-finalizers-and-leader is the program",
    },
}
"""The Python examples that are no programs, by page and beginning, with the reason."""
RUN = ("cfo manifests",)
"""Commands that the test runs; all others are parsed, so that their names and options exist."""
NOT_RUN = {
    "cfo dashboard": "test_dashboard.py",
    "cfo dev": "test_dev.py",
    "cfo migrate": "test_migrate.py",
    "cfo new": "test_scaffold.py",
    "cfo status": "test_status.py",
    "cfo uninstall": "test_install.py",
}
"""Commands that need a cluster or do not end, with the test in this folder that runs them."""


def blocks_of(page: Path, language: str) -> list[str]:
    found = re.findall(
        rf"^( *)```{language}\n(.*?)^ *```", page.read_text(), flags=re.DOTALL | re.MULTILINE
    )
    return [textwrap.dedent(block) for _, block in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_python_example_runs_or_has_a_reason(page: Path) -> None:
    known = [*PROGRAMS.get(page.name, ()), *EXCERPTS.get(page.name, ())]
    blocks = blocks_of(page, "python")
    for block in blocks:
        compile(block, page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        assert any(block.startswith(beginning) for beginning in known), block[:80]
    for beginning in known:
        assert any(block.startswith(beginning) for block in blocks), (
            f"no example begins with {beginning}"
        )


def test_examples_of_the_page_about_children_are_lines_of_the_programs() -> None:
    """Lines may be indented differently; ``...`` means that lines are left out."""
    folders = ("09-sets-and-conditions", "11-website")
    programs = [
        program for folder in folders for program in (ROOT / "examples" / folder).glob("*.py")
    ]
    sources = "\n".join(program.read_text() for program in programs)
    known = {line.strip() for line in sources.splitlines()} | {"..."}
    shown = "".join(blocks_of(DOCS / "children.md", "python"))
    assert {line.strip() for line in shown.splitlines()} <= known


def own_commands(page: Path) -> list[list[str]]:
    """Return the words of each cfo or envtest command in the shell examples of a page."""
    lines = "".join(blocks_of(page, "sh")).replace("\\\n", " ").splitlines()
    parts = [
        shlex.split(part, comments=True)
        for line in lines
        for part in re.split(r" \| | && |^[.]venv/bin/", line)
    ]
    return [part for part in parts if part and part[0] in ("cfo", "envtest")]


def parse(
    command: click.Command, arguments: list[str], parent: click.Context | None = None
) -> None:
    """Let click parse a command line; it ends the test if a command or an option does not exist."""
    context = command.make_context(command.name, arguments, parent=parent)
    rest = [*context._protected_args, *context.args]
    if isinstance(command, click.Group) and rest:
        _, found, rest = command.resolve_command(context, rest)
        assert found is not None
        parse(found, rest, context)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if own_commands(page)], ids=lambda page: page.name
)
def test_each_own_command_is_run_or_parsed(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sample = yaml.safe_load((ROOT / "config/samples/all/inferencestack.yaml").read_text())
    for name in ("cluster.yaml", "edited.yaml", "stack.yaml", "crd.yaml", "my_operator.py"):
        Path(name).write_text(yaml.safe_dump(sample))
    Path("steps").mkdir()
    for words in own_commands(page):
        for name in (word for word in words if word.endswith(".json")):
            Path(name).touch()
        name = " ".join(words[:2])
        if name in RUN:
            done = CliRunner().invoke(cli, [word.replace("...", "0" * 64) for word in words[1:]])
            assert done.exit_code == 0, (words, done.output)
        else:
            assert words[0] == "envtest" or Path(__file__).with_name(NOT_RUN[name]).is_file(), words
            parse(envtest_command if words[0] == "envtest" else cli, words[1:])


def test_test_of_the_page_for_operator_authors_passes(tmp_path: Path) -> None:
    page = DOCS / "operator-authors.md"
    shutil.copytree(ROOT / "examples" / "02-children", tmp_path, dirs_exist_ok=True)
    (program,) = blocks_of(page, "python")
    (tmp_path / "test_children.py").write_text(program)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, ROOT / "envtest" / "src")))
    (script,) = [block for block in blocks_of(page, "sh") if block.startswith("python -m pytest")]
    command = ["sh", "-ec", script]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stdout + done.stderr


# Words

READERS = {"administrators.md": 2500, "operator-authors.md": 2000}
"""How many words a reader may have to read before the first installation or operator, at most."""


def words(text: str) -> int:
    """Count the words, without the bars of tables and other tokens that have no letter or digit."""
    return sum(bool(re.search(r"\w", word)) for word in text.split())


@pytest.mark.parametrize("name", READERS)
def test_path_of_a_reader_has_at_most_the_promised_words(name: str) -> None:
    page = DOCS / name
    (path,) = re.findall(
        r"^\*\*Path to [^*]*\*\*(.*?)\n\n", page.read_text(), flags=re.DOTALL | re.MULTILINE
    )
    (limit,) = re.findall(r"at\s+most\s+([\d,]+)\s+words", path)
    assert int(limit.replace(",", "")) <= READERS[name]
    pages = [page, *(DOCS / target for target in re.findall(r"\]\(([\w-]+\.md)\)", path))]
    assert words(" ".join(each.read_text() for each in pages)) <= READERS[name]


def test_page_for_data_scientists_is_short() -> None:
    assert words((DOCS / "data-scientists.md").read_text()) <= 800
