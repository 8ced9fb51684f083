"""Tests of the command ``envtest``."""

from __future__ import annotations

import socket
import subprocess
import sys
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
        (
            ["--host", "1.2.3.4"],
            "--host: '1.2.3.4': must be an IP address or a name of this machine",
        ),
        (["--host", ""], "--host: must not be empty"),
        (
            ["--data-dir", "/proc/version/x"],
            "cannot use the data folder /proc/version/x: Not a directory",
        ),
        (
            ["--data-dir", "/proc/version"],
            "Invalid value for '--data-dir': Directory '/proc/version' is a file (see envtest --help)",
        ),
        (
            ["--data-dir", "/dev/zero"],
            "the data folder /dev/zero must be a folder, or a path where one can be created",
        ),
        (
            ["--token-auth-file", "/dev/zero"],
            "cannot read the token file /dev/zero: larger than 67108864 bytes",
        ),
        (
            ["--kubeconfig", "/nope/x"],
            "--kubeconfig /nope/x: must be a file in a folder that exists",
        ),
        (
            ["--audit-log", "/nope/x"],
            "audit log /nope/x: cannot be written: No such file or directory",
        ),
        (
            ["--kubeconfig", "/proc/x"],
            "--kubeconfig /proc/x: cannot be written: No such file or directory",
        ),
        (["--token", ""], "--token: must not be empty, or contain spaces or control characters"),
        (
            ["--service-cluster-ip-range", "10.0.0.0/99"],
            (
                "--service-cluster-ip-range: '10.0.0.0/99': must be an IPv4 network with a prefix length"
                " from 12 to 29, such as 10.0.0.0/24"
            ),
        ),
    ],
)
def test_value_that_cannot_be_used_is_one_line_with_its_option(
    arguments: list[str], error: str
) -> None:
    result = CliRunner().invoke(command, [*arguments, "--controllers", "none"], prog_name="envtest")
    # the only output: the server was not announced
    assert (result.exit_code, result.output) == (2, f"Error: {error}\n")
    assert not Path("/nope").exists()


def test_folder_of_programs_that_cannot_be_written_is_one_line() -> None:
    result = CliRunner().invoke(command, ["assets", "--folder", "/proc/x"])
    error = "Error: --folder /proc/x: cannot be written: No such file or directory\n"
    assert (result.exit_code, result.output) == (2, error)


def test_kubeconfig_of_another_program_is_refused_before_the_server_is_announced(
    tmp_path: Path,
) -> None:
    foreign = tmp_path / "config"
    foreign.write_text("kind: Config\n")
    result = CliRunner().invoke(command, ["--kubeconfig", str(foreign), "--controllers", "none"])
    assert result.exit_code == 2
    assert result.output.startswith(f"Error: --kubeconfig {foreign}: exists and was not written by")
    assert result.output.count("\n") == 1
    assert foreign.read_text() == "kind: Config\n"


@pytest.mark.parametrize(
    ("controllers", "error"),
    [
        ("none,gc", "--controllers: none, gc: must be names of controllers, or only none"),
        ("all,none", "--controllers: all, none: must be names of controllers, or only none"),
        (
            " , ",
            "--controllers ' , ': must be names of controllers, separated by commas, or all, or none",
        ),
    ],
)
def test_contradictory_controllers_are_one_line(controllers: str, error: str) -> None:
    result = CliRunner().invoke(command, ["--controllers", controllers])
    assert (result.exit_code, result.output) == (2, f"Error: {error}\n")


@pytest.mark.parametrize(
    ("options", "is_hinted"),
    [([], True), (["--token", "t0"], False), (["--kubeconfig", "kubeconfig"], False)],
)
def test_start_without_a_known_token_names_the_options(
    tmp_path: Path, options: list[str], is_hinted: bool
) -> None:
    arguments = [sys.executable, "-m", "envtest", "--controllers", "none", *options]
    with subprocess.Popen(
        arguments, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        served = process.stdout.readline()
        hint = process.stderr.readline() if is_hinted else ""
        if "--kubeconfig" in options:
            process.stdout.readline()
        controllers = process.stdout.readline()
        process.terminate()
        remaining = process.stderr.read()
    assert served.startswith("Serving on https://127.0.0.1:")
    assert controllers == (
        "Controllers: none; --controllers all runs all others, such as deployment and pods\n"
    )
    assert ("set --kubeconfig FILE, or --token TOKEN" in hint) is is_hinted
    assert remaining == ""
    assert process.returncode == 0


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
        (
            ["serve"],
            "No such command 'serve'; without a command, envtest serves (see envtest --help)",
        ),
        (["chaos"], "Missing argument 'COMMAND...' (see envtest chaos --help)"),
        (
            ["--port", "abc"],
            "Invalid value for '--port': 'abc' is not a valid integer (see envtest --help)",
        ),
        (
            ["--kubeconfig", ""],
            "Invalid value for '--kubeconfig': must not be empty (see envtest --help)",
        ),
        (
            ["assets", "--folder", ""],
            "Invalid value for '--folder': must not be empty (see envtest assets --help)",
        ),
        (
            ["chaos", "--budget", "nan", "true"],
            "Invalid value for '--budget': 'nan' is not a finite number (see envtest chaos --help)",
        ),
    ],
)
def test_wrong_arguments_are_reported_in_one_line(arguments: list[str], error: str) -> None:
    result = CliRunner().invoke(command, arguments, prog_name="envtest")
    assert (result.exit_code, result.output) == (2, f"Error: {error}\n")
