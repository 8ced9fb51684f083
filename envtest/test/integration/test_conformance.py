"""The embedded control plane compared with recordings of the real kube-apiserver; skipped without the recordings.

At least 98 % of the recorded exchanges must match; ``docs/differences.md`` explains the differences.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from envtest import ControlPlane, User

MIN_MATCHING = 0.98


GROUPS = 4
"""How many parts of the recordings, and of the longest one, are replayed together; a replay mostly pauses."""


async def replay(
    shared: Path, plane: ControlPlane, *options: str, files: Sequence[Path] = ()
) -> tuple[int, int, str]:
    """Replay recordings; return the number of matching exchanges, the number of all exchanges, and the output."""
    folder = shared / "conformance"
    command = [sys.executable, str(folder / "replay.py"), "check", "--server", plane.url]
    command += [
        f"--token={plane.token}",
        "--insecure",
        "-q",
        *options,
        *map(str, files or [folder / "recorded"]),
    ]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    assert process.stdout is not None
    output = (await process.stdout.read()).decode()
    await process.wait()
    total = re.search(r"^TOTAL (\d+)/(\d+)", output, re.MULTILINE)
    assert total, output
    return int(total.group(1)), int(total.group(2)), output


@pytest.mark.timeout(280)
async def test_recordings_without_controllers_match(shared: Path) -> None:
    """Each part has a control plane of its own, since recordings use names without a namespace."""
    longest = shared / "conformance" / "recorded" / "webhooks.json"
    files = sorted(set(longest.parent.iterdir()) - {longest}, key=lambda file: file.stat().st_size)
    names = [
        f"--only={scenario['name']}" for scenario in json.loads(longest.read_bytes())["scenarios"]
    ]

    async def replay_part(files: Sequence[Path], *options: str) -> tuple[int, int, str]:
        async with ControlPlane.embedded(controllers=()) as plane:
            plane.add_user("alice-token", User("alice", "alice-uid", ("team-a",)))
            return await replay(shared, plane, "--without", "kcm", *options, files=files)

    parts = await asyncio.gather(
        *(replay_part(files[number::GROUPS]) for number in range(GROUPS)),
        *(replay_part([longest], *names[number::GROUPS]) for number in range(GROUPS)),
    )
    output = "\n".join(text for _, _, text in parts)
    total = sum(each for _, each, _ in parts)
    print(output)
    assert total > 1000
    assert sum(matched for matched, _, _ in parts) >= MIN_MATCHING * total, output


@pytest.mark.timeout(120)
async def test_recordings_of_garbage_collection_match(shared: Path) -> None:
    async with ControlPlane.embedded(controllers=("gc", "namespace")) as plane:
        matched, total, output = await replay(shared, plane, "--only", "gc/")
    assert total > 20
    assert matched >= MIN_MATCHING * total, output
