"""Semantic versions (https://semver.org) and their order."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering

_NUMBER = r"(0|[1-9]\d*)"
_PATTERN = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?")


@total_ordering
@dataclass(frozen=True)
class Version:
    """``major.minor.patch`` and an optional pre-release; build metadata is not supported because it has no order."""

    major: int
    minor: int
    patch: int
    pre: str = ""

    @classmethod
    def parse(cls, string: str) -> Version:
        """Parse ``1.2.3``, ``v1.2.3`` or ``1.2.3-rc.1``. Raises :class:`ValueError`, which names the string."""
        match = _PATTERN.fullmatch(string.removeprefix("v"))
        if match is None or _has_leading_zero(match[4] or ""):
            raise ValueError(
                f"{string!r}: must be a semantic version such as v1.2.3 or v1.2.3-rc.1"
            )
        return cls(int(match[1]), int(match[2]), int(match[3]), match[4] or "")

    @property
    def stream(self) -> tuple[int, int]:
        """Major and minor version: the releases that share them are one stream."""
        return self.major, self.minor

    def __str__(self) -> str:
        number = f"{self.major}.{self.minor}.{self.patch}"
        return f"{number}-{self.pre}" if self.pre else number

    def __lt__(self, other: Version) -> bool:
        return self._key() < other._key()

    def _key(self) -> tuple[object, ...]:
        is_release = not self.pre
        parts = [_identifier_key(part) for part in self.pre.split(".") if part]
        return self.major, self.minor, self.patch, is_release, parts


def _identifier_key(identifier: str) -> tuple[int, int, str]:
    """Return the sort key of one identifier of a pre-release: numbers are less than words."""
    if identifier.isdigit():
        return 0, int(identifier), ""
    return 1, 0, identifier


def _has_leading_zero(pre: str) -> bool:
    """Return whether a number in ``pre`` has a leading zero, which semantic versioning does not allow."""
    numbers = [part for part in pre.split(".") if part.isdigit()]
    return any(number != "0" and number.startswith("0") for number in numbers)
