"""What commands share."""

import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cfo.cli import cli
from cfo.console.errors import InvalidInput
from cfo.console.execution import confirm, timeout_option


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


@pytest.mark.parametrize(
    ("text", "seconds"), [("20s", 20.0), ("1m30s", 90.0), ("0.5", 0.5), ("7", 7.0)]
)
def test_timeout_is_a_duration_or_a_number_of_seconds(text: str, seconds: float) -> None:
    @click.command()
    @timeout_option("2m", "Time.")
    def command(timeout: float) -> None:
        click.echo(f"{timeout}")

    assert CliRunner().invoke(command, ["--timeout", text]).output == f"{seconds}\n"
    assert CliRunner().invoke(command).output == "120.0\n"


@pytest.mark.parametrize("text", ["0", "0s", "-1s", "nan", "20 s", "soon"])
@pytest.mark.parametrize("arguments", [["uninstall", "--timeout"], ["run", "--until-settled"]])
def test_invalid_timeout_is_rejected_with_what_is_allowed(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(cli, [*arguments, text], prog_name="cfo")
    assert result.exit_code == 2
    assert (
        f"{text!r}: must be a duration such as 90s or 5m, or a number of seconds" in result.output
    )
