"""The official JavaScript client, ``@kubernetes/client-node`` of npm."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("programs") / "node_client.mjs"
CHECKS = ["typed", "patches", "watch", "informer", "apply", "custom", "workloads"]


@pytest.mark.skipif(not shutil.which("npm"), reason="npm is not on the PATH")
def test_client_passes_all_checks(installed: Path, kubeconfig: Path) -> None:
    done = subprocess.run(
        ["node", PROGRAM],
        capture_output=True,
        text=True,
        cwd=installed / "node",
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == CHECKS
