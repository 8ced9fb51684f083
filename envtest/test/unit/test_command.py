"""Tests of the command ``envtest``."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from click import Context
from click.testing import CliRunner

from envtest.chaos.command import chaos
from envtest.command import command
from envtest.storage.archive import Archive


def test_port_in_use_is_one_line_with_exit_code_2() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = CliRunner().invoke(command, ["--port", str(port), "--controllers", "none"])
    assert result.exit_code == 2
    assert (
        result.output
        == f"Error: --port {port}: is in use on 127.0.0.1; set another port, or 0 for a free one\n"
    )


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--host", "1.2.3.4"], "--host 1.2.3.4: must be an address of this machine, or its name"),
        (
            ["--kubeconfig", "/nope/x"],
            "--kubeconfig /nope/x: must be a file in a folder that exists",
        ),
        (
            ["--service-cluster-ip-range", "10.0.0.0/99"],
            (
                "service-cluster-ip-range: '10.0.0.0/99': must be an IPv4 network with a prefix length"
                " from 12 to 29, such as 10.0.0.0/24"
            ),
        ),
    ],
)
def test_value_that_cannot_be_used_is_one_line_with_its_option(
    arguments: list[str], error: str
) -> None:
    result = CliRunner().invoke(command, [*arguments, "--controllers", "none"])
    assert (result.exit_code, result.output) == (2, f"Error: {error}\n")
    assert not Path("/nope").exists()


def test_data_folder_in_use_is_one_line(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    try:
        archive.put("a", b"b")
        result = CliRunner().invoke(command, ["--data-dir", str(tmp_path), "--controllers", "none"])
    finally:
        archive.close()
    reason = "is in use by another process; stop it, or use another folder"
    assert (result.exit_code, result.output) == (
        2,
        f"Error: the data folder {tmp_path} {reason}\n",
    )


def test_scenario_is_the_behavior_of_pods_and_steps_are_what_chaos_executes() -> None:
    names = {option for parameter in chaos.get_params(Context(chaos)) for option in parameter.opts}
    assert "--steps" in names
    assert "--scenario" not in names
    assert "--scenario" in {
        option for parameter in command.get_params(Context(command)) for option in parameter.opts
    }


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--bad"], "No such option '--bad' (see envtest --help)"),
        (["frob"], "No such command 'frob' (see envtest --help)"),
        (["chaos"], "Missing argument 'COMMAND...' (see envtest chaos --help)"),
    ],
)
def test_wrong_arguments_are_reported_in_one_line(arguments: list[str], error: str) -> None:
    result = CliRunner().invoke(command, arguments, prog_name="envtest")
    assert (result.exit_code, result.output) == (2, f"Error: {error}\n")
