"""``envtest validate`` on the manifests of this repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from envtest.command import command
from envtest.configuration.kubernetes_version import SUPPORTED

REPOSITORY = Path(__file__).parents[3]
FOLDERS = [name for name in ("config", "charts", "examples") if (REPOSITORY / name).is_dir()]


@pytest.mark.parametrize(
    "files",
    [{}, {"notes.txt": "x"}, {"kustomization.yaml": "resources: []\n"}, {"values.yaml": "a: 1\n"}],
)
def test_nothing_to_check_is_an_error_unless_it_is_allowed(
    tmp_path: Path, files: dict[str, str]
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    result = CliRunner().invoke(command, ["validate", str(tmp_path)], prog_name="envtest")
    message = f"envtest validate: no Kubernetes object in {tmp_path}; --allow-empty accepts this\n"
    assert (result.exit_code, result.output[-len(message) :]) == (2, message)
    allowed = CliRunner().invoke(command, ["validate", "--quiet", "--allow-empty", str(tmp_path)])
    assert (allowed.exit_code, allowed.output) == (0, "")


def test_empty_standard_input_is_nothing_to_check() -> None:
    result = CliRunner().invoke(command, ["validate", "--quiet", "-"], input="")
    assert result.exit_code == 2
    assert "no Kubernetes object in the standard input; --allow-empty" in result.output


@pytest.mark.skipif(not FOLDERS, reason="not in a checkout of the repository")
def test_pre_commit_hook_passes_for_files_without_objects(tmp_path: Path) -> None:
    (hook,) = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text())
    (tmp_path / "values.yaml").write_text("a: 1\n")
    _, *arguments = hook["entry"].split()
    result = CliRunner().invoke(command, [*arguments, str(tmp_path / "values.yaml")])
    assert (result.exit_code, result.output) == (0, "")


@pytest.mark.skipif(not FOLDERS, reason="not in a checkout of the repository")
@pytest.mark.parametrize("version", [SUPPORTED[0], SUPPORTED[-1]])
def test_manifests_of_the_repository_are_valid(version: str) -> None:
    arguments = [
        sys.executable,
        "-m",
        "envtest",
        "validate",
        "--kubernetes-version",
        version,
        *FOLDERS,
    ]
    result = subprocess.run(
        arguments, cwd=REPOSITORY, capture_output=True, text=True, timeout=240, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert {
        line.partition(": warning: ")[2].split(" ")[0] for line in result.stdout.splitlines()
    } <= {"no"}
    assert " 0 errors" in result.stderr
