"""The command line: what it costs to ask it something small, and what it says of mistakes."""

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
    assert lines[0].startswith('cfo envtest: CustomResourceDefinition.apiextensions.k8s.io "foo" is invalid')
