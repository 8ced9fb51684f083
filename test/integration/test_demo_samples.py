"""The samples of ``make run`` show what a person meets: authentication, a queue, and failures with their reasons."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_default_samples_settle_and_explain_their_failures(tmp_path: Path) -> None:
    path = f"{ROOT}{os.pathsep}{ROOT / 'envtest' / 'src'}"
    command = [
        sys.executable,
        "-m",
        "cfo",
        "run",
        "--embedded",
        "--until-settled",
        "100",
    ]
    done = subprocess.run(
        [*command, "--apply", str(ROOT / "config/samples")],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    rows = {words[2]: words for line in lines if len(words := line.split()) > 3}
    assert sum("✓ All applied workloads have settled (" in line for line in lines) == 1
    assert rows["interactive"][0] == "✓"
    assert rows["queued"][3] == "suspended"
    assert (rows["queued-report"][3], rows["failing-report"][3]) == ("Suspended", "Failed")
    assert "ImagePullBackOff" in done.stdout or "ErrImagePull" in done.stdout
    assert "exit code 3" in done.stdout
    assert "https://ray-dashboard-interactive-default.apps.example.test" in done.stdout
    assert "authentication none" not in done.stdout
