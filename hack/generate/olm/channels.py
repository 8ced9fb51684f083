"""Which channels offer a release, and the upgrade graph of each channel.

In each channel, the newest patch of a minor version replaces the newest patch of the previous minor version and skips
all other older ones, so that one upgrade leads to the newest release. opm renders a `semver template`_ in the same way.

.. _semver template: https://olm.operatorframework.io/docs/reference/catalog-templates/
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from cfo.manifests.names import PREFIX
from hack import ROOT
from hack.release import history
from hack.release.history import CHANNELS
from hack.release.semver import Version

Releases = Sequence[tuple[Version, str]]
"""Releases, oldest first, and their channels."""

PACKAGE = PREFIX
"""The name of the OLM package."""


def releases() -> list[tuple[Version, str]]:
    """Return every release of the catalog, oldest first, and its channel."""
    return list(history.releases(ROOT).items())


def channel_of(version: Version) -> str:
    """Return the channel of a version: candidate if it is not released yet."""
    return dict(releases()).get(version, "candidate")


def channel_names(version: Version, channel: str) -> list[str]:
    """Return the channels that offer a version of ``channel``: ``stable-v1``, ``fast-v1``, ..."""
    return [f"{name}-v{version.major}" for name in CHANNELS[: CHANNELS.index(channel) + 1]][::-1]


def default_channel(listed: Releases | None = None) -> str:
    """Return the most mature channel with a release, of the newest major version in it, as opm does.

    ``listed`` are the releases of another package.
    """
    best, major = max(
        (CHANNELS.index(channel), version.major) for version, channel in listed or releases()
    )
    return f"{CHANNELS[best]}-v{major}"


def channels(package: str = PACKAGE, listed: Releases | None = None) -> list[dict[str, Any]]:
    """Return the channels of a package with their upgrade graphs; ``listed`` are the releases of another package."""
    blobs = []
    for index, name in reversed(list(enumerate(CHANNELS))):
        members: list[Version] = []
        for version, channel in listed or releases():
            if CHANNELS.index(channel) >= index:
                members.append(version)
        for major, versions in groupby(members, key=lambda version: version.major):
            entries: list[dict[str, Any]] = []
            previous = ""
            for _, patches in groupby(versions, key=lambda version: version.minor):
                *older, head = [f"{package}.v{version}" for version in patches]
                entries += [{"name": each} for each in older]
                edges: dict[str, Any] = {}
                if previous:
                    edges["replaces"] = previous
                skips = sorted(entry["name"] for entry in entries if entry["name"] != previous)
                if skips:
                    edges["skips"] = skips
                entries.append({"name": head, **edges})
                previous = head
            blobs.append(
                {
                    "schema": "olm.channel",
                    "name": f"{name}-v{major}",
                    "package": package,
                    "entries": entries,
                }
            )
    return blobs
