from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hack.plugins import shared_imports

SHARES = ["a.test_a", "a.test_b", "b.test_c", "b.test_d", "b.test_e"]


@pytest.fixture
def session(tmp_path: Path) -> Any:
    """Return a session that was started with two folders, a file, and a test that does not exist."""
    for name in SHARES:
        path = tmp_path / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.touch()
    arguments = ["a", "b", "a/test_a.py", "a/test_a.py::test"]
    return SimpleNamespace(config=SimpleNamespace(rootpath=tmp_path, args=arguments))


@pytest.mark.parametrize(
    ("worker", "order"),
    [
        ("gw0", ["a.test_a", "b.test_d", "a.test_b", "b.test_e", "b.test_c"]),
        ("gw1", ["a.test_b", "b.test_e", "b.test_c", "a.test_a", "b.test_d"]),
        ("gw2", ["b.test_c", "a.test_a", "b.test_d", "a.test_b", "b.test_e"]),
    ],
)
def test_each_worker_begins_with_a_share_of_its_own(
    session: Any, monkeypatch: pytest.MonkeyPatch, worker: str, order: list[str]
) -> None:
    imported: list[str] = []

    def import_module(name: str) -> None:
        imported.append(name)
        if name == "a.test_b":
            raise ImportError(name)
        if name == "b.test_e":
            pytest.skip("on this platform")

    monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
    monkeypatch.setattr(importlib, "import_module", import_module)
    shared_imports.pytest_collection(session)
    monkeypatch.undo()
    assert imported == order


def test_only_workers_import_modules_before_they_are_collected(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setattr(importlib, "import_module", pytest.fail)
    shared_imports.pytest_collection(session)
    monkeypatch.undo()
