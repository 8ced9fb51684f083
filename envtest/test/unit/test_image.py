"""The container image of envtest: what it installs, and how it runs. No image is built."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Dockerfile").read_text()


def versions(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==(\S+)", path.read_text(), re.MULTILINE))


def test_all_dependencies_are_installed_with_hashes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[^\w.-]", each)[0].lower() for each in project["dependencies"]}
    assert names <= versions(ROOT / "image" / "requirements.txt").keys()
    installs = re.findall(r"pip (?:--python \S+ )?install (.*) \\", TEXT)
    assert installs
    assert all("--require-hashes" in command or "--no-index" in command for command in installs)


def test_versions_are_those_of_the_repository() -> None:
    constraints = ROOT.parent / "constraints.txt"
    if not constraints.is_file():
        pytest.skip("not in a checkout of the repository")
    image, known = versions(ROOT / "image" / "requirements.txt"), versions(constraints)
    assert image == {name: known[name] for name in image}, "run `make lock`"
    names = "build-requirements.txt"
    assert (ROOT / "image" / names).read_text() == (
        ROOT.parent / "deploy" / "image" / names
    ).read_text()
    images = [
        re.findall(r"^FROM (\S+)", path.read_text(), re.MULTILINE)
        for path in (ROOT / "Dockerfile", ROOT.parent / "Dockerfile")
    ]
    assert images[0] == images[1]


def test_final_stage_has_no_root_and_compiles_nothing() -> None:
    final = TEXT.rpartition("\nFROM ")[2]
    assert "USER 65532:65532\n" in final
    assert "EXPOSE 6443\n" in final
    assert "RUN" not in final
    assert 'ENTRYPOINT ["envtest"]\n' in final


def test_build_context_contains_only_the_distribution() -> None:
    patterns = (ROOT / ".dockerignore").read_text().splitlines()
    assert patterns[0] == "*"
    assert {"!src", "!image", "!pyproject.toml", "!README.md", "!LICENSE"} <= {*patterns}
