"""The command line: what it imports, and how it reports errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cfo.cli import _LazyGroup, cli

HEAVY = ("aiohttp", "anyio", "cryptography", "kubernetes_asyncio", "pydantic", "structlog", "yaml")


@pytest.mark.parametrize("arguments", [["--help"], ["version"], ["envtest", "--help"]])
def test_small_questions_load_no_library(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom cfo.cli import cli\n"
        f"cli({arguments!r}, standalone_mode=False)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert out.stdout.splitlines()[-1] == "[]"


def test_the_list_of_commands_says_what_the_commands_say() -> None:
    context = cli.make_context("cfo", ["version"])
    assert isinstance(cli, _LazyGroup)
    for name, (_, text) in cli.lazy.items():
        command = cli.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str(60) == text


def test_a_definition_that_cannot_be_installed_is_one_line(tmp_path: Path) -> None:
    crd = tmp_path / "crd.yaml"
    crd.write_text("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: foo}\n")
    result = CliRunner().invoke(cli, ["envtest", "--crds", str(crd)], prog_name="cfo")
    assert result.exit_code == 2
    lines = result.output.splitlines()
    assert len(lines) == 1
    assert 'envtest: CustomResourceDefinition.apiextensions.k8s.io "foo" is invalid' in lines[0]


WITHOUT = """
import sys


class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Blocker())
from cfo.cli import main

sys.argv[1:] = {arguments!r}
main()
"""
"""A program that runs the command line as if the distributions of the extra ``embedded`` were not installed."""


def run_without(blocked: set[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    code = WITHOUT.format(blocked=blocked, arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("blocked", [{"envtest"}, {"envtest", "rich"}])
@pytest.mark.parametrize("arguments", [["envtest"], ["envtest", "--help"], ["run", "--embedded"]])
def test_commands_without_the_embedded_extra_print_how_to_install_it(blocked: set[str], arguments: list[str]) -> None:
    done = run_without(blocked, *arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == ("Error: the embedded control plane is not installed; run: pip install 'cfo[embedded]'\n")


def test_embedded_run_without_rich_prints_how_to_install_it() -> None:
    done = run_without({"rich"}, "run", "--embedded")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "pip install 'cfo[embedded]'" in done.stderr


@pytest.mark.parametrize(
    "arguments", [["--help"], ["run", "--help"], ["version"], ["config", "default"], ["manifests"]]
)
def test_other_commands_do_not_need_the_embedded_extra(arguments: list[str]) -> None:
    done = run_without({"envtest", "rich"}, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_another_missing_module_is_not_reported_as_the_embedded_extra() -> None:
    done = run_without({"anyio"}, "run", "--embedded")
    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'anyio'" in done.stderr
