"""What the Go operator was seen to do, where the recordings exist (the folder ``shared`` beside the repository)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

RAYCLUSTER = Path(__file__).parents[1].parent / "shared" / "golden" / "raycluster"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def raycluster_cases() -> list[Any]:
    """A parameter for each recorded ``configuration/scenario``; one that skips where there is none."""
    names = sorted(path.relative_to(RAYCLUSTER).with_suffix("").as_posix() for path in RAYCLUSTER.glob("*/*.yaml"))
    missing = pytest.param("none", marks=pytest.mark.skip(reason=f"no recordings in {RAYCLUSTER.parent.parent.name}"))
    return [pytest.param(name, id=name) for name in names] or [missing]


@cache
def load(case: str) -> dict[str, Any]:
    """The recording ``configuration/scenario``; shared between tests, so not to be changed."""
    document: dict[str, Any] = yaml.load((RAYCLUSTER / f"{case}.yaml").read_text(), Loader=_LOADER)
    return document


def observations(recording: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The observations that list whole objects, each with its title."""
    for step in recording["steps"]:
        objects = step.get("objects")
        if objects is not None and all(item.get("metadata", {}).get("name") for item in objects):
            yield step["observe"], objects
