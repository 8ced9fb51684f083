"""The embedded control plane against the recordings of the real kube-apiserver, where these exist.

At least 98 % of the exchanges must match; ``docs/differences.md`` explains what does not.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from envtest import ControlPlane
from envtest.context import User

ENOUGH = 0.98


async def replay(shared: Path, plane: ControlPlane, *options: str) -> tuple[int, int, str]:
    """Replays recordings; returns how many exchanges match, of how many, and what was printed."""
    folder = shared / "conformance"
    command = [sys.executable, str(folder / "replay.py"), "check", "--server", plane.url, "--token", plane.token]
    command += ["--insecure", "-q", *options, str(folder / "recorded")]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    assert process.stdout is not None
    printed = (await process.stdout.read()).decode()
    await process.wait()
    total = re.search(r"^TOTAL (\d+)/(\d+)", printed, re.MULTILINE)
    assert total, printed
    return int(total.group(1)), int(total.group(2)), printed


@pytest.mark.timeout(280)
async def test_everything_but_the_controllers(shared: Path) -> None:
    async with ControlPlane.embedded(controllers=()) as plane:
        plane.add_user("alice-token", User("alice", "alice-uid", ("team-a",)))
        matched, total, printed = await replay(shared, plane, "--without", "kcm")
    print(printed)
    assert total > 1000
    assert matched >= ENOUGH * total, printed


@pytest.mark.timeout(120)
async def test_the_garbage_collector_and_the_namespace_controller(shared: Path) -> None:
    async with ControlPlane.embedded(controllers=("gc", "namespace")) as plane:
        matched, total, printed = await replay(shared, plane, "--only", "gc/")
    assert total > 20
    assert matched >= ENOUGH * total, printed
