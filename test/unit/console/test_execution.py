"""What commands share."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cfo.cli import cli
from cfo.console.errors import InvalidInput
from cfo.console.execution import confirm


def test_confirmation_without_standard_input_needs_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)  # as for a process that was started with it closed
    with pytest.raises(InvalidInput, match="--yes is required"):
        confirm("Remove it?")


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "-n", "team"],
        ["doctor", "-n", "ops"],
        ["uninstall", "-n", "ops", "--yes"],
        ["migrate", "--to", "kuberay", "-n", "team"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_on_a_cluster_have_a_context(tmp_path: Path, arguments: list[str]) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{current-context: a, contexts: [{name: a, context: {cluster: a}}], "
        "clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]}"
    )
    command = [*arguments, "--kubeconfig", str(kubeconfig), "--context", "other"]
    result = CliRunner().invoke(cli, command, prog_name="cfo")
    assert result.exit_code != 0
    assert "context" in result.output
    assert "other" in result.output
    assert "127.0.0.1" not in result.output
