"""Tests of the command line: its imports, and its error messages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from cfo.cli import _LazyGroup, cli

HEAVY_LIBRARIES = (
    "aiohttp",
    "anyio",
    "cryptography",
    "kubernetes_asyncio",
    "pydantic",
    "structlog",
    "yaml",
)


@pytest.mark.parametrize("arguments", [["--help"], ["version"], ["envtest", "--help"]])
def test_light_commands_import_no_heavy_library(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom cfo.cli import cli\n"
        f"cli({arguments!r}, standalone_mode=False)\n"
        f"print([name for name in {HEAVY_LIBRARIES!r} if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert result.stdout.splitlines()[-1] == "[]"


def test_each_command_of_the_list_can_be_loaded() -> None:
    context = cli.make_context("cfo", ["version"])
    assert isinstance(cli, _LazyGroup)
    for name in cli.lazy_commands:
        command = cli.get_command(context, name)
        assert command is not None
        assert command.name == name


def test_help_shows_ten_commands_by_reader_and_more_shows_the_others() -> None:
    shown, others = (CliRunner().invoke(cli, [argument]).output for argument in ("--help", "more"))
    listed = [re.findall(r"^  ([a-z]+)  ", text, re.MULTILINE) for text in (shown, others)]
    assert len(listed[0]) <= 10
    assert sorted([*listed[0], *listed[1], "more"]) == cli.list_commands(
        cli.make_context("cfo", ["version"])
    )
    for text in (shown, others):
        assert text.index("Administrators:") < text.index("Operator authors:")
    assert shown.endswith("Other commands: cfo more\n")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--bad"], "No such option '--bad' (see cfo --help)"),
        (["frob"], "No such command 'frob' (see cfo --help)"),
        (["init", "x"], "No such command 'init', did you mean 'new'? (see cfo --help)"),
        (["docter"], "No such command 'docter', did you mean 'doctor'? (see cfo --help)"),
        (["config", "frob"], "No such command 'frob' (see cfo config --help)"),
        (
            ["migrate"],
            "Missing option '--to'. Choose from: kuberay, rhoai, cfo (see cfo migrate --help)",
        ),
    ],
)
def test_wrong_arguments_are_reported_in_one_line(arguments: list[str], error: str) -> None:
    result = CliRunner().invoke(cli, arguments, prog_name="cfo")
    assert (result.exit_code, result.output) == (2, f"Error: {error}\n")


def test_command_without_arguments_prints_its_help() -> None:
    assert (
        CliRunner()
        .invoke(cli, ["config"], prog_name="cfo")
        .output.startswith("Usage: cfo config [OPTIONS]")
    )


def test_invalid_crd_is_reported_in_one_line(tmp_path: Path) -> None:
    crd = tmp_path / "crd.yaml"
    crd.write_text(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: foo}\n"
    )
    result = CliRunner().invoke(cli, ["envtest", "--crds", str(crd)], prog_name="cfo")
    assert result.exit_code == 2
    lines = result.output.splitlines()
    assert len(lines) == 1
    assert 'Error: CustomResourceDefinition.apiextensions.k8s.io "foo" is invalid' in lines[0]


@pytest.mark.parametrize(
    ("document", "options", "code", "output"),
    [
        ("kuberay: {}", [], 0, ["FILE: valid"]),
        ("kuberay: {}", ["--strict"], 0, ["FILE: valid"]),
        (
            "kubray: {}",
            [],
            0,
            ["Warning: FILE: unknown key kubray (did you mean kuberay?), ignored", "FILE: valid"],
        ),
        (
            "kubray: {}",
            ["--strict"],
            2,
            ["Error: FILE: unknown key kubray (did you mean kuberay?), ignored"],
        ),
        (
            "kuberay: {mTLSEnabled: 1, enabled: 2}",
            ["-o", "yaml"],
            2,
            [
                "Error: FILE: kuberay.enabled: 2: must be true or false",
                "Error: FILE: kuberay.mTLSEnabled: 1: must be true or false",
            ],
        ),
        (
            "kubray: {}\nkuberay: {enabled: 2}",
            [],
            2,
            [
                "Warning: FILE: unknown key kubray (did you mean kuberay?), ignored",
                "Error: FILE: kuberay.enabled: 2: must be true or false",
            ],
        ),
        ("\x80", [], 2, ["Error: FILE: not a text file"]),
        ("", [], 2, ["Error: FILE: is empty"]),
        (" \n", ["--strict"], 2, ["Error: FILE: is empty"]),
    ],
)
def test_config_check_prints_one_line_for_each_problem(
    tmp_path: Path, document: str, options: list[str], code: int, output: list[str]
) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(document.encode("latin-1"))
    result = CliRunner().invoke(cli, ["config", "check", str(file), *options], prog_name="cfo")
    assert (result.exit_code, result.output.splitlines()) == (
        code,
        [line.replace("FILE", str(file)) for line in output],
    )


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_config_check_prints_the_effective_configuration(tmp_path: Path, output: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("kind: ConfigMap\ndata: {a: 'kuberay: {ingressDomain: a.test}'}")
    result = CliRunner().invoke(cli, ["config", "check", str(file), "-o", output], prog_name="cfo")
    document = (yaml.safe_load if output == "yaml" else json.loads)(result.stdout)
    assert document["kuberay"]["ingressDomain"] == "a.test"
    assert document["metrics"]["bindAddress"] == ":8080"


def test_last_line_of_a_json_log_is_json(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "k"
    kubeconfig.write_text("")
    command = ["run", "--log-format", "json", "--kubeconfig", str(kubeconfig)]
    arguments = [sys.executable, "-m", "cfo", *command]
    environment = {**os.environ, "NAMESPACE": "default"}
    result = subprocess.run(
        arguments, capture_output=True, text=True, check=False, timeout=240, env=environment
    )
    (line,) = result.stderr.splitlines()
    assert result.returncode == 1
    assert json.loads(line)["error"] == f"{kubeconfig}: not a kubeconfig file: the file is empty"


def test_file_without_crd_is_reported_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "raycluster.yaml"
    file.write_text("apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: a}\n")
    result = CliRunner().invoke(cli, ["envtest", "--crds", str(file)], prog_name="cfo")
    assert (result.exit_code, result.output) == (
        2,
        f"Error: no CustomResourceDefinition in {file}\n",
    )


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
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240
    )


@pytest.mark.parametrize("arguments", [["envtest"], ["envtest", "--help"], ["run", "--embedded"]])
def test_commands_without_the_embedded_extra_print_how_to_install_it(arguments: list[str]) -> None:
    result = run_without({"envtest"}, *arguments)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr == (
        "Error: the embedded control plane is not installed; in a checkout, run: pip install ./envtest '.[embedded]'; "
        "for a release on the package index: pip install 'codeflare-operator[embedded]'\n"
    )


def test_empty_package_envtest_is_no_installation() -> None:
    """With an editable installation, the folder ``envtest`` of the clone can be imported."""
    code = """
import sys
import types

sys.modules["envtest"] = types.ModuleType("envtest")
from cfo.cli import main

sys.argv[1:] = ["envtest"]
main()
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert result.stderr.startswith("Error: the embedded control plane is not installed")


def test_another_missing_module_is_not_reported_as_the_embedded_extra() -> None:
    result = run_without({"anyio"}, "run", "--embedded")
    assert result.returncode == 1
    assert "ModuleNotFoundError: No module named 'anyio'" in result.stderr
