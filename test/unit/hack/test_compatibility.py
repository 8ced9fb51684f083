"""The release tool rejects changes that break existing objects, and gives new bundles new versions."""

from __future__ import annotations

import subprocess
from contextlib import nullcontext
from copy import deepcopy
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfo.api.inferencestack.models import inference_stack_crds
from hack.files import ToolError
from hack.release.compatibility import changed_profiles
from hack.release.crd_changes import breaking_changes
from hack.release.request import Request
from hack.release.semver import Version
from hack.release.stack_releases import CRDS, PROFILES, RELEASES, check_compatibility, next_releases

ROOT = Path(__file__).parents[3]


def test_own_crds_are_compatible_with_themselves() -> None:
    for each in inference_stack_crds():
        assert breaking_changes(each, each) == []


def test_changed_and_removed_profiles_are_reported() -> None:
    old = {"v1.0": {"tag": "1"}, "v2.0": {"tag": "2"}, "v2.1": {"tag": "3"}}
    new = {"v1.0": {"tag": "1"}, "v2.0": {"tag": "4"}, "v2.2": {"tag": "5"}}
    changed, removed = changed_profiles(old, new)
    assert "profile v2.0 was changed" in changed
    assert "profile v2.1 was removed" in removed


@pytest.mark.parametrize(
    ("released", "is_patch", "expected"),
    [
        ((), False, ["1.1.0", "2.14.0"]),
        (("1.1.0", "2.14.0"), False, ["1.1.0", "1.2.0", "2.14.0", "2.15.0"]),
        (("1.1.0", "2.14.0"), True, ["1.1.0", "1.1.1", "2.14.0", "2.14.1"]),
        (("1.1.0",), False, ["1.1.0", "1.2.0", "2.14.0"]),
    ],
)
def test_released_bundles_get_a_new_version(
    released: tuple[str, ...], is_patch: bool, expected: list[str]
) -> None:
    listed = {Version(1, 1, 0): "fast", Version(2, 14, 0): "fast"}
    found = next_releases(
        listed, {Version.parse(each) for each in released}, "stable", is_patch=is_patch
    )
    assert list(map(str, found)) == expected
    assert {channel for version, channel in found.items() if version not in listed} <= {"stable"}


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """Return a repository with CRDs and profiles that were released as v1.0.0."""
    for name in ("doublewordai.co_inferencestacks.yaml", "workload.codeflare.dev_appwrappers.yaml"):
        write(
            tmp_path / CRDS / name,
            yaml.load((ROOT / CRDS / name).read_text(), Loader=yaml.CSafeLoader),
        )
    write(tmp_path / PROFILES, {"v2.0": {"tag": "1"}})
    write(tmp_path / RELEASES, releases("1.1.0", "2.14.0"))
    for command in (
        ["init", "--quiet"],
        ["add", "--all"],
        ["commit", "--quiet", "-m", "All"],
        ["tag", "v1.0.0"],
    ):
        identity = ["-c", "user.name=Tester", "-c", "user.email=tester@example.test"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *command], check=True)
    return tmp_path


def write(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.dump(document, Dumper=yaml.CSafeDumper))


def request(version: str) -> Request:
    return Request(Version.parse(version), {}, {}, "stable", hotfix=False, today=date(2026, 1, 1))


def remove_field(root: Path, name: str) -> None:
    path = root / CRDS / name
    document = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    changed = deepcopy(document)
    for version in changed["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"]["properties"].pop("status")
    write(path, changed)


def test_minor_release_with_a_breaking_change_is_refused(released: Path) -> None:
    tagged = [Version(1, 0, 0)]
    check_compatibility(released, request("1.1.0"), tagged)
    remove_field(released, "workload.codeflare.dev_appwrappers.yaml")
    with pytest.raises(
        ToolError,
        match=r"version v1\.1\.0: breaks objects of v1\.0\.0: .*appwrappers.*status: the field was rem",
    ):
        check_compatibility(released, request("1.1.0"), tagged)
    check_compatibility(released, request("2.0.0"), tagged)


def test_shared_crd_never_breaks(released: Path) -> None:
    remove_field(released, "doublewordai.co_inferencestacks.yaml")
    with pytest.raises(ToolError, match=r"inferencestacks.*status: the field was removed"):
        check_compatibility(released, request("2.0.0"), [Version(1, 0, 0)])
    (released / CRDS / "doublewordai.co_inferencestacks.yaml").unlink()
    with pytest.raises(ToolError, match="the CRD was removed"):
        check_compatibility(released, request("2.0.0"), [Version(1, 0, 0)])


def test_changed_profile_is_refused_and_a_new_one_is_not(released: Path) -> None:
    write(released / PROFILES, {"v2.0": {"tag": "1"}, "v2.1": {"tag": "2"}})
    check_compatibility(released, request("1.1.0"), [Version(1, 0, 0)])
    write(released / PROFILES, {"v2.0": {"tag": "2"}})
    with pytest.raises(
        ToolError, match=r"profile v2\.0 was changed: all pods of stacks that have it would restart"
    ):
        check_compatibility(released, request("1.1.0"), [Version(1, 0, 0)])


def releases(*stable: str) -> dict[str, Any]:
    return {"releases": [{"version": version, "channel": "stable"} for version in stable]}


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        (releases("1.1.0", "2.14.0", "2.15.0"), ""),
        (releases("2.14.0"), "1.1.0 is not listed; a release must never be removed"),
        (
            {
                "releases": [
                    {"version": "1.1.0", "channel": "fast"},
                    *releases("2.14.0")["releases"],
                ]
            },
            "1.1.0 was released in stable, and must not leave it",
        ),
        ({"releases": "x"}, "releases: must be a list"),
    ],
)
def test_released_operator_stays_in_its_channels(
    released: Path, listed: dict[str, Any], message: str
) -> None:
    write(released / RELEASES, listed)
    expected = pytest.raises(ToolError, match=message) if message else nullcontext()
    with expected:
        check_compatibility(released, request("1.1.0"), [Version(1, 0, 0)])


def test_list_of_releases_is_valid() -> None:
    listed = yaml.safe_load((ROOT / RELEASES).read_text())["releases"]
    assert {Version.parse(entry["version"]).major for entry in listed} == {1, 2}
