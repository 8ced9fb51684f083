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
        identifiers = (match[4] or "0").split(".") if match else []
        if match is None or any(
            each.isdigit() and each != "0" and each.startswith("0") for each in identifiers
        ):
            raise ValueError(
                f"{string!r}: must be a semantic version such as v1.2.3 or v1.2.3-rc.1"
            )
        return cls(int(match[1]), int(match[2]), int(match[3]), match[4] or "")

    @property
    def stream(self) -> tuple[int, int]:
        """Major and minor version: the releases that share them are one stream."""
        return self.major, self.minor

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}" + (f"-{self.pre}" if self.pre else "")

    def __lt__(self, other: Version) -> bool:
        return self._key() < other._key()

    def _key(self) -> tuple[object, ...]:
        parts = [
            (0, int(each), "") if each.isdigit() else (1, 0, each)
            for each in self.pre.split(".")
            if each
        ]
        return self.major, self.minor, self.patch, not self.pre, parts
