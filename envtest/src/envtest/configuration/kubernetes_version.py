"""The Kubernetes version that a control plane behaves like.

The shipped tables describe the newest version; files in ``data/versions`` contain what is different in the others (see
:mod:`envtest.builtins.catalog`). They are read when a control plane of another version starts.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["LATEST", "SUPPORTED", "KubernetesVersion", "parse_version"]

_FORMAT: Final = re.compile(
    r"v?(?P<major>\d{1,3})\.(?P<minor>\d{1,3})(?:\.(?P<patch>\d{1,3}))?", re.ASCII
)


class KubernetesVersion(NamedTuple):
    """A release of Kubernetes; only the patch number in ``/version`` depends on ``patch``."""

    major: int
    minor: int
    patch: int = 0

    @property
    def release(self) -> str:
        """The minor release, ``1.36``."""
        return f"{self.major}.{self.minor}"

    @property
    def is_latest(self) -> bool:
        """Whether the shipped tables describe this version without differences."""
        return self.release == LATEST.release

    def __str__(self) -> str:
        return f"v{self.major}.{self.minor}.{self.patch}"


LATEST: Final = KubernetesVersion(1, 36)
SUPPORTED: Final = ("1.34", "1.35", LATEST.release)
"""The minor releases to choose from, oldest first."""


def parse_version(text: str) -> KubernetesVersion:
    """Return the version of ``1.35``, ``v1.35`` or ``1.35.2``; an empty text is the newest one.

    Raises TypeError for what is not a string, because the number 1.30 is 1.3; ValueError for anything else, and for
    versions that are not supported.
    """
    if not isinstance(text, str):
        raise TypeError(
            f"Kubernetes version {text!r}: must be a string, such as {LATEST.release!r}"
        )
    if not text:
        return LATEST
    match = _FORMAT.fullmatch(text)
    if match is None:
        raise ValueError(
            f"Kubernetes version {text[:40]!r}: must be MAJOR.MINOR or MAJOR.MINOR.PATCH"
        )
    version = KubernetesVersion(int(match["major"]), int(match["minor"]), int(match["patch"] or 0))
    if version.release not in SUPPORTED:
        raise ValueError(
            f"Kubernetes version {text!r} is not supported: must be one of {', '.join(SUPPORTED)}"
        )
    return version
