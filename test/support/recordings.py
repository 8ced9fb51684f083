"""Recordings of the Go operator, if they exist in the folder ``shared`` next to the repository."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

GOLDEN = Path(__file__).parents[3] / "shared" / "golden"
RAYCLUSTER_RECORDINGS = GOLDEN / "raycluster"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def raycluster_cases() -> list[Any]:
    """Return a parameter per recorded ``configuration/scenario``; a skipped one if there are no recordings."""
    return _cases(RAYCLUSTER_RECORDINGS)


def startup_cases() -> list[Any]:
    """Return a parameter per recorded start ``platform/scenario``; a skipped one if there are no recordings."""
    return _cases(GOLDEN / "startup")


def appwrapper_cases(*names: str) -> list[Any]:
    """Return a parameter per recorded ``configuration/scenario`` of AppWrappers; a skipped one without recordings.

    ``names`` are patterns that select scenarios; without them, all are selected.
    """
    return _cases(GOLDEN / "appwrapper", *names)


def _cases(folder: Path, *names: str) -> list[Any]:
    paths = {path for name in names or ("*",) for path in folder.glob(f"*/{name}.yaml")}
    found = sorted(path.relative_to(folder).with_suffix("").as_posix() for path in paths)
    missing = pytest.param(
        "none", marks=pytest.mark.skip(reason=f"no recordings in {GOLDEN.parent.name}")
    )
    return [pytest.param(case, id=case) for case in found] or [missing]


def load_raycluster(case: str) -> dict[str, Any]:
    """Return the recording ``configuration/scenario``; tests share it and must not modify it."""
    return _load(RAYCLUSTER_RECORDINGS / f"{case}.yaml")


def load_startup(case: str) -> dict[str, Any]:
    """Return the recorded start ``platform/scenario``; tests share it and must not modify it."""
    return _load(GOLDEN / "startup" / f"{case}.yaml")


def load_appwrapper(case: str) -> dict[str, Any]:
    """Return the recording ``configuration/scenario`` of AppWrappers; tests share it and must not modify it."""
    return _load(GOLDEN / "appwrapper" / f"{case}.yaml")


def load_crd(name: str) -> dict[str, Any]:
    """Return the CRD in the file ``name`` without suffix; tests share it and must not modify it.

    Parsing that of RayClusters takes 0.4 s.
    """
    return _load(GOLDEN.parent / "crds" / f"{name}.yaml")


@cache
def _load(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.load(path.read_text(), Loader=_LOADER)
    return document


def observations(recording: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield title and objects of each observation that lists whole objects."""
    for step in recording["steps"]:
        objects = step.get("objects")
        if objects is not None and all(item.get("metadata", {}).get("name") for item in objects):
            yield step["observe"], objects


def flux_cases(*patterns: str) -> list[str]:
    """Return the recorded scenarios of MiniClusters, as paths without suffix; none if there are no recordings."""
    folder = GOLDEN / "flux"
    paths = {path for pattern in patterns for path in folder.glob(f"{pattern}.yaml")}
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in paths)


def load_flux(case: str) -> dict[str, Any]:
    """Return the recording of a scenario of MiniClusters; tests share it and must not modify it."""
    return _load(GOLDEN / "flux" / f"{case}.yaml")
