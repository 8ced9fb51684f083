"""The examples in README.md and docs/ run, and the files and options that the pages name exist."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from click.testing import CliRunner

from envtest.api_client import APIClient
from envtest.chaos import KINDS
from envtest.chaos.report import EXPLANATIONS
from envtest.command import command
from envtest.controllers import AVAILABLE
from envtest.faults import Fault
from envtest.scenarios.loader import MATCH_FIELDS, NODE_FIELDS, POD_FIELDS
from test.support.pytest_runs import run_pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE
    )


def example_files(page: Path) -> dict[str, str]:
    """The examples of a page by the file name in their first line; each Python example must have one."""
    files = {}
    for block in blocks(page, "python") + blocks(page, "yaml"):
        match = re.match(r"# (\w+\.(?:py|yaml))\n", block)
        assert match, f"{page.name}: an example does not start with its file name: {block[:60]}"
        files[match[1]] = block
    return files


def settings_files(page: Path) -> dict[str, str]:
    """The settings of pytest that a page shows, otherwise those of the README, by their file name."""
    found = blocks(page, "toml") + blocks(page, "ini")
    if not found:
        return settings_files(ROOT / "README.md")
    return {block.partition("\n")[0].removeprefix("# "): block for block in found}


WITH_EXAMPLES = [page for page in PAGES if blocks(page, "python")]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.stem)
def test_examples_run(
    page: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    files = example_files(page)
    for name, content in files.items():
        (pytester.path / name).write_text(content)
    for name, content in settings_files(page).items():
        (pytester.path / name).write_text(content)
    tests = [name for name in files if name.startswith("test_")]
    if tests:
        result = run_pytest(pytester)
        result.assert_outcomes(
            passed=sum(
                len(re.findall(r"^(?:async )?def test_", files[name], re.MULTILINE))
                for name in tests
            )
        )
    for name in files.keys() - tests:
        if name.endswith(".py"):
            subprocess.run([sys.executable, name], cwd=pytester.path, check=True, timeout=240)


def test_example_of_validate_prints_what_the_page_shows(tmp_path: Path) -> None:
    page = ROOT / "docs" / "validate.md"
    manifest = next(block for block in blocks(page, "yaml") if block.startswith("# app.yaml"))
    (tmp_path / "app.yaml").write_text(manifest)
    example = page.read_text().partition("envtest validate app.yaml")[2]
    shown = example.partition("```\n\n```\n")[2].partition("```")[0]
    command_line = [sys.executable, "-m", "envtest", "validate", "app.yaml"]
    result = subprocess.run(
        command_line, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert result.stdout + result.stderr == shown
    assert result.returncode == 1


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not on the PATH")
def test_shell_example_runs(tmp_path: Path) -> None:
    scripts = blocks(ROOT / "docs" / "languages.md", "sh")
    (script,) = [block for block in scripts if block.startswith("# check.sh")]
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
    }
    done = subprocess.run(
        ["sh", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "successfully rolled out" in done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_and_files_exist(page: Path) -> None:
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target
    for path in re.findall(r"`((?:src|test|hack)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path


def test_tables_named_for_contributors_exist() -> None:
    text = (ROOT / "docs" / "built-in-kinds.md").read_text()
    source = "".join(file.read_text() for file in (ROOT / "src").rglob("*.py"))
    for name in set(re.findall(r"`(_?[A-Z][A-Z_]+)`", text)) - {"KUBEBUILDER_ASSETS"}:
        assert re.search(rf"^{name}\b", source, re.MULTILINE), name


def test_options_of_the_command_line() -> None:
    text = (ROOT / "docs" / "command-line.md").read_text()
    shown = CliRunner().invoke(command, ["--help"]).output
    documented = {
        option for line in text.splitlines() if line.startswith("| `--") for option in options(line)
    }
    assert documented == set(options(shown))


def test_options_of_chaos() -> None:
    text = (ROOT / "docs" / "chaos.md").read_text()
    documented = {
        option
        for line in text.splitlines()
        if line.startswith("| `--")
        for option in options(line)[:1]
    }
    assert documented == set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", chaos_help(), re.MULTILINE))


def test_faults_and_findings_of_chaos_are_documented() -> None:
    text = (ROOT / "docs" / "chaos.md").read_text()
    tables = text.partition("## Faults")[2].partition("## Scenarios")[0]
    rows = [line.split("|")[1] for line in tables.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([a-z ]+)`", row)}
    assert named == {*KINDS, *EXPLANATIONS}


def chaos_help() -> str:
    return CliRunner().invoke(command, ["chaos", "--help"]).output


def options(text: str) -> list[str]:
    return re.findall(r"--[a-z-]*[a-z]", text)


def test_controllers_are_documented() -> None:
    table = (
        (ROOT / "docs" / "controllers.md").read_text().partition("| name |")[2].partition("\n\n")[0]
    )
    assert {
        name
        for line in table.splitlines()
        for name in re.findall(r"`([a-z-]+)`", line.split("|")[1:2][0])
    } == set(AVAILABLE)


def test_fields_of_faults_are_documented() -> None:
    table = (
        (ROOT / "docs" / "faults.md")
        .read_text()
        .partition("| field of a rule |")[2]
        .partition("\n\n")[0]
    )
    documented = {
        name
        for line in table.splitlines()[2:]
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert documented == set(Fault.__dataclass_fields__) - {"injected", "since"}


def test_fields_of_scenarios_are_documented() -> None:
    text = (ROOT / "docs" / "nodes.md").read_text()
    documented = {
        name
        for line in text.splitlines()
        if line.startswith("| `")
        for name in words(line.split("|")[1])
    }
    assert documented >= {*NODE_FIELDS, *POD_FIELDS, *MATCH_FIELDS} - {"match"}


def words(text: str) -> list[str]:
    return re.findall(r"`(\w+)`", text)


async def test_the_command_serves_until_interrupted(tmp_path: Path) -> None:
    (line,) = [
        line
        for block in blocks(ROOT / "README.md", "sh")
        for line in block.splitlines()
        if "--crds" in line
    ]
    assert line.startswith("envtest --kubeconfig dev.kubeconfig")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "envtest", "--kubeconfig", "dev.kubeconfig"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert (await process.stdout.readline()).startswith(b"Serving on https://127.0.0.1:")
        exported = (await process.stdout.readline()).decode()
        assert exported == f"export KUBECONFIG={(tmp_path / 'dev.kubeconfig').resolve()}\n"
        document = yaml.safe_load((tmp_path / "dev.kubeconfig").read_text())
        cluster = document["clusters"][0]["cluster"]
        served = SimpleNamespace(
            url=cluster["server"],
            ca_pem=base64.b64decode(cluster["certificate-authority-data"]),
            token=document["users"][0]["user"]["token"],
        )
        async with APIClient(served) as api:
            assert (await api.get("/readyz")).code == 200
    finally:
        process.terminate()
        assert await process.wait() == 0
