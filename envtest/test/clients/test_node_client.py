"""The official JavaScript client, ``@kubernetes/client-node`` of npm."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("programs") / "node_client.mjs"
PAGE = Path(__file__).parents[2] / "docs" / "languages.md"
CHECKS = ["typed", "patches", "watch", "informer", "apply", "custom", "workloads"]


pytestmark = pytest.mark.skipif(not shutil.which("npm"), reason="npm is not on the PATH")


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


def test_example_of_the_documentation_runs(installed: Path, tmp_path: Path) -> None:
    (example,) = re.findall(r"^```js\n(.*?)^```", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    (tmp_path / "config-map.test.mjs").write_text(example)
    (tmp_path / "node_modules").symlink_to(installed / "node" / "node_modules")
    done = subprocess.run(
        ["node", "--test", "config-map.test.mjs"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "pass 1" in done.stdout
