"""A pytest plugin: parallel workers share the work that pytest does to rewrite the asserts in test modules.

Each worker of pytest-xdist imports all test modules. In a fresh clone, each one would rewrite and compile most modules,
which takes more CPU time than the rest of collection. With this plugin, each worker begins with other modules, and then
finds in ``__pycache__`` what the others have written. The order of the tests stays the same.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import all test modules before they are collected, in an order of this worker's own."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        return
    first = int(worker.removeprefix("gw"))
    workers = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    names = _test_modules(session.config)
    for share in range(first, first + workers):
        for name in names[share % workers :: workers]:
            # Collection imports the module again, and reports why it cannot.
            with contextlib.suppress(Exception, pytest.skip.Exception):
                importlib.import_module(name)


def _test_modules(config: pytest.Config) -> list[str]:
    """Return the names of the test modules in the folders that pytest was started with."""
    root = config.rootpath
    folders = [root / argument for argument in config.args]
    paths = [path for folder in folders for path in sorted(folder.rglob("test_*.py"))]
    return [_module_name(path.relative_to(root)) for path in paths]


def _module_name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts)
