"""``cfo migrate`` on the command line: errors of one line, and exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cfo.cli import cli


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["migrate", *arguments], prog_name="cfo")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["plan", "--to", "kuberay"],
            "either --namespace NAMESPACE or --all-namespaces is required",
        ),
        (
            ["apply", "--to", "rhoai", "-A", "-n", "ns"],
            "either --namespace NAMESPACE or --all-namespaces is required",
        ),
        (["plan", "--to", "kuberay", "-A", "rc"], "names of RayClusters require --namespace"),
        (["plan", "--to", "cfo", "-A", "--finalizers-only"], "cannot be used with --to cfo"),
        (["plan", "--to", "cfo", "-A", "--without-tls"], "cannot be used with --to cfo"),
    ],
)
def test_invalid_arguments_are_reported_in_one_line(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert message in result.stderr


def test_invalid_undo_file_is_reported_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "undo.json"
    path.write_text("{}")
    result = run("undo", str(path))
    assert (result.exit_code, result.stderr) == (
        2,
        f"Error: {path}: not an undo file of cfo migrate\n",
    )


def test_missing_kubeconfig_is_reported_in_one_line(tmp_path: Path) -> None:
    result = run("plan", "--to", "kuberay", "-A", "--kubeconfig", str(tmp_path / "missing"))
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
