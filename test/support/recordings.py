"""What the Go operator was seen to do, where the recordings exist (the folder ``shared`` beside the repository)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

GOLDEN = Path(__file__).parents[3] / "shared" / "golden"
RAYCLUSTER = GOLDEN / "raycluster"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def raycluster_cases() -> list[Any]:
    """A parameter for each recorded ``configuration/scenario``; one that skips where there is none."""
    return _cases(RAYCLUSTER)


def startup_cases() -> list[Any]:
    """A parameter for each recorded start ``platform/scenario``; one that skips where there is none."""
    return _cases(GOLDEN / "startup")


def appwrapper_cases(*names: str) -> list[Any]:
    """A parameter for each recorded ``configuration/scenario`` of AppWrappers whose scenario matches one of ``names``
    (patterns; all, if none is given); one that skips where there is none."""
    return _cases(GOLDEN / "appwrapper", *names)


def _cases(folder: Path, *names: str) -> list[Any]:
    paths = {path for name in names or ("*",) for path in folder.glob(f"*/{name}.yaml")}
    found = sorted(path.relative_to(folder).with_suffix("").as_posix() for path in paths)
    missing = pytest.param("none", marks=pytest.mark.skip(reason=f"no recordings in {GOLDEN.parent.name}"))
    return [pytest.param(case, id=case) for case in found] or [missing]


def load(case: str) -> dict[str, Any]:
    """The recording ``configuration/scenario``; shared between tests, so not to be changed."""
    return _load(RAYCLUSTER / f"{case}.yaml")


def load_startup(case: str) -> dict[str, Any]:
    """The recorded start ``platform/scenario``; shared between tests, so not to be changed."""
    return _load(GOLDEN / "startup" / f"{case}.yaml")


def load_appwrapper(case: str) -> dict[str, Any]:
    """The recording ``configuration/scenario`` of AppWrappers; shared between tests, so not to be changed."""
    return _load(GOLDEN / "appwrapper" / f"{case}.yaml")


@cache
def _load(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.load(path.read_text(), Loader=_LOADER)
    return document


def observations(recording: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The observations that list whole objects, each with its title."""
    for step in recording["steps"]:
        objects = step.get("objects")
        if objects is not None and all(item.get("metadata", {}).get("name") for item in objects):
            yield step["observe"], objects
