"""What make prints about itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_setup_prints_what_it_does_and_no_duration(tmp_path: Path) -> None:
    """A slow network would break the promise."""
    venv = tmp_path / "venv"
    arguments = ["make", "--dry-run", f"VENV={venv}", f"{venv}/.installed"]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=True)
    (announced,) = [line for line in done.stdout.splitlines() if line.startswith("echo 'Creating")]
    assert f"Creating {venv}: downloading" in announced
    assert "minute" not in announced
