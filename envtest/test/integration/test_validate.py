"""``envtest validate`` on the manifests of this repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from envtest.configuration.kubernetes_version import SUPPORTED

REPOSITORY = Path(__file__).parents[3]
FOLDERS = [name for name in ("config", "charts", "examples") if (REPOSITORY / name).is_dir()]


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
