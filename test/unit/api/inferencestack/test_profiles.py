"""Pinned defaults."""

from __future__ import annotations

import pytest

from cfo.api.inferencestack.profiles import (
    PROFILES,
    newest_profile,
    pinned_profile,
    profiles_of_chart,
)


@pytest.mark.parametrize(
    ("version", "name"), [("v0", "v0.2"), ("v1", "v1.0"), ("v2", "v2.13"), ("v9", "v2.13")]
)
def test_new_stack_gets_newest_profile_of_its_major_version(version: str, name: str) -> None:
    assert newest_profile(version).name == name


def test_profiles_of_all_major_versions_are_known() -> None:
    assert {profile.operator_version for profile in PROFILES.values()} == {"v0", "v1", "v2"}
    assert list(PROFILES) == [profile.name for profile in PROFILES.values()]


@pytest.mark.parametrize(
    ("chart", "version", "names"),
    [
        ("inference-stack-1.8.2", "1.0.0", ["v2.13", "v2.13-0"]),
        ("inference-stack-1.0.0", "0.22.0-rc20", ["v2.1"]),
        ("inference-stack-1.0.0", "unknown", ["v2.1", "v2.0"]),
        ("inference-stack-0.3.0", "0.22.0-rc19", ["v1.0", "v0.2"]),
        ("inference-stack-9.9.9", "1.0.0", []),
        ("", "", []),
    ],
)
def test_profiles_are_found_by_the_labels_that_helm_set(
    chart: str, version: str, names: list[str]
) -> None:
    assert [profile.name for profile in profiles_of_chart(chart, version)] == names


@pytest.mark.parametrize(
    ("status", "name"),
    [
        ({"profile": "v2.1"}, "v2.1"),
        ({"profile": "v77"}, None),
        ({"profile": []}, None),
        ({}, None),
        ([], None),
        (None, None),
    ],
)
def test_pinned_profile_is_read_from_the_status(status: object, name: str | None) -> None:
    profile = pinned_profile({"status": status})
    assert (profile and profile.name) == name
