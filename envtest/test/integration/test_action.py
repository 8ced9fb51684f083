"""The scripts of the GitHub Action ``envtest``, with the programs of this environment."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ACTION = Path(__file__).parents[2] / "action.yml"
INPUT = re.compile(r"\$\{\{ inputs\.([\w-]+) \}\}")


class Action:
    """Runs steps of the action in a folder, as a runner does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._definition: dict[str, Any] = yaml.safe_load(ACTION.read_text())
        programs = folder / "envtest" / "bin"
        programs.mkdir(parents=True)
        (programs / "envtest").write_text(
            f'#!/bin/sh\necho $$ >> "{folder}/pids"\nexec {sys.executable} -m envtest "$@"\n'
        )
        (programs / "envtest").chmod(0o755)

    def run(self, step: str, **inputs: str) -> tuple[int, str]:
        """Run a step with these inputs; return its exit code and output."""
        found = next(each for each in self._definition["runs"]["steps"] if each.get("name") == step)
        given = {name: each.get("default", "") for name, each in self._definition["inputs"].items()}
        given |= {name.replace("_", "-"): value for name, value in inputs.items()}
        variables = {
            name: INPUT.sub(lambda match: given[match[1]], text)
            for name, text in found["env"].items()
        }
        files = {name: str(self.folder / name) for name in ("GITHUB_ENV", "GITHUB_OUTPUT")}
        result = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", found["run"]],
            cwd=self.folder,
            env={**os.environ, **variables, **files, "RUNNER_TEMP": str(self.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        return result.returncode, result.stdout

    def exported(self) -> dict[str, str]:
        """The environment variables of later steps."""
        return dict(
            line.split("=", 1) for line in (self.folder / "GITHUB_ENV").read_text().splitlines()
        )


@pytest.fixture
def action(tmp_path: Path) -> Iterator[Action]:
    """The action; its server is stopped after the test."""
    yield Action(tmp_path)
    pids = tmp_path / "pids"
    for pid in pids.read_text().split() if pids.exists() else ():
        try:
            os.kill(int(pid), signal.SIGTERM)
        except ProcessLookupError:
            continue


def test_manifests_are_validated(action: Action) -> None:
    (action.folder / "a b.yaml").write_text(
        '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "date": {}}'
    )
    (action.folder / "c.yaml").write_text(
        '{"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": "a"}}'
    )
    code, output = action.run(
        "Validate manifests", validate="a b.yaml\nc.yaml\n", kubernetes_version="1.34"
    )
    assert code == 1
    assert "::error file=a b.yaml,line=1,title=ConfigMap a::date: unknown field" in output
    assert "::warning file=c.yaml" in output
    assert action.run("Validate manifests", validate="c.yaml")[0] == 0
    assert action.run("Validate manifests", validate="c.yaml", strict="true")[0] == 1


def test_server_is_started_and_exported(action: Action) -> None:
    code, output = action.run("Start the API server", kubernetes_version="1.35")
    assert (code, output) == (0, "")
    exported = action.exported()
    assert "https://127.0.0.1:" in Path(exported["KUBECONFIG"]).read_text()
    shown = subprocess.run(
        [f"{exported['KUBEBUILDER_ASSETS']}/kube-apiserver", "--version"],
        capture_output=True,
        check=True,
    )
    assert shown.stdout == b"Kubernetes v1.35.0\n"


def test_step_fails_if_the_server_cannot_start(action: Action) -> None:
    code, output = action.run("Start the API server", crds="missing\n")
    assert code == 1
    assert "missing" in output
