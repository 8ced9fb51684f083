"""Tests of the command line: its imports, and its error messages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cfo.cli import _LazyGroup, cli

HEAVY_LIBRARIES = ("aiohttp", "anyio", "cryptography", "kubernetes_asyncio", "pydantic", "structlog", "yaml")


@pytest.mark.parametrize("arguments", [["--help"], ["version"], ["envtest", "--help"]])
def test_light_commands_import_no_heavy_library(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom cfo.cli import cli\n"
        f"cli({arguments!r}, standalone_mode=False)\n"
        f"print([name for name in {HEAVY_LIBRARIES!r} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert result.stdout.splitlines()[-1] == "[]"


def test_command_list_has_help_of_each_command() -> None:
    context = cli.make_context("cfo", ["version"])
    assert isinstance(cli, _LazyGroup)
    for name, (_, help_text) in cli.lazy_commands.items():
        command = cli.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str(60) == help_text


def test_invalid_crd_is_reported_in_one_line(tmp_path: Path) -> None:
    crd = tmp_path / "crd.yaml"
    crd.write_text("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: foo}\n")
    result = CliRunner().invoke(cli, ["envtest", "--crds", str(crd)], prog_name="cfo")
    assert result.exit_code == 2
    lines = result.output.splitlines()
    assert len(lines) == 1
    assert 'envtest: CustomResourceDefinition.apiextensions.k8s.io "foo" is invalid' in lines[0]


BLOCKING_PROGRAM = """
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
"""A program that runs the command line and blocks the import of ``blocked``, as if it were not installed."""


def run_without(blocked: set[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process that cannot import ``blocked``."""
    code = BLOCKING_PROGRAM.format(blocked=blocked, arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("blocked", [{"envtest"}, {"envtest", "textual"}])
@pytest.mark.parametrize("arguments", [["envtest"], ["envtest", "--help"], ["run", "--embedded"]])
def test_commands_without_the_embedded_extra_print_how_to_install_it(blocked: set[str], arguments: list[str]) -> None:
    result = run_without(blocked, *arguments)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr == (
        "Error: the embedded control plane is not installed; in a checkout, run: pip install ./envtest '.[embedded]'\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["run", "--help"], ["version"], ["config", "default"], ["manifests"], ["status", "--help"]],
)
def test_other_commands_do_not_need_the_embedded_extra(arguments: list[str]) -> None:
    result = run_without({"envtest", "textual", "rich"}, *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout


def test_another_missing_module_is_not_reported_as_the_embedded_extra() -> None:
    result = run_without({"anyio"}, "run", "--embedded")
    assert result.returncode == 1
    assert "ModuleNotFoundError: No module named 'anyio'" in result.stderr
