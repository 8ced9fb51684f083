"""Workflows are thin: what they run is a make target that exists, so that it runs here as well."""

from __future__ import annotations

import importlib
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))


def targets() -> set[str]:
    text = (ROOT / "Makefile").read_text() + (ROOT / "hack" / "deploy.mk").read_text()
    return set(re.findall(r"^([a-z][a-z0-9-]*):(?!=)", text, re.MULTILINE))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_step_is_a_make_target(path: Path) -> None:
    workflow: dict[Any, Any] = yaml.safe_load(path.read_text())
    assert workflow["permissions"].keys() == {"contents"}
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    runs = [step["run"] for step in steps if "run" in step]
    assert runs
    for run in runs:
        match = re.fullmatch(r'make ([a-z0-9-]+)( \w+="\$\{\w+\}")?', run)
        assert match is not None, run
        assert match[1] in targets(), run
    for step in steps:
        if "uses" in step:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@v\d+", step["uses"]), step


def test_all_that_is_promised_is_there() -> None:
    assert {path.stem for path in WORKFLOWS} == {"tests", "e2e", "olm", "image", "release", "nightly"}


def test_each_target_is_listed_and_phony() -> None:
    done = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 127:
        pytest.skip("make is not installed")
    assert done.returncode == 0, done.stderr
    listed = {line.split()[0] for line in done.stdout.splitlines() if line.strip()}
    assert targets() <= listed
    makefiles = (ROOT / "Makefile").read_text() + (ROOT / "hack" / "deploy.mk").read_text().replace("\\\n", "")
    phony = {name for line in re.findall(r"^\.PHONY:(.*)$", makefiles, re.MULTILINE) for name in line.split()}
    assert listed <= phony


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        ("main", ["dev"]),
        ("v1.10.0", ["v1.10.0", "stable"]),
        ("v1.9.1", ["v1.9.1"]),
        ("v1.11.0", ["v1.11.0"]),
        ("v2.0.0-rc.1", ["v2.0.0-rc.1"]),
    ],
)
def test_images_get_the_names_that_the_release_process_asks_for(
    ref: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "hack"))
    tags = importlib.import_module("tags")
    releases = {"1.9.1": "stable", "1.10.0": "stable", "1.11.0": "fast"}
    text = yaml.safe_dump({"releases": [{"version": v, "channel": c} for v, c in releases.items()]}, sort_keys=False)
    assert tags.names(ref, text) == expected
