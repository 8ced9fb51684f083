"""A control plane with all controllers for the tests of one module, and where the clients are installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from envtest import ControlPlane
from envtest.controllers import AVAILABLE
from envtest.threaded import ThreadedControlPlane

INSTALLED = Path(os.environ.get("ENVTEST_CLIENTS") or "unset")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, and skip them unless the clients are installed."""
    here = Path(__file__).parent
    missing = pytest.mark.skip(reason="ENVTEST_CLIENTS is not a directory (make test-clients)")
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.clients)
            if not INSTALLED.is_dir():
                item.add_marker(missing)


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run the control plane; return the path of its kubeconfig."""
    path = tmp_path_factory.mktemp("cluster") / "kubeconfig"
    with ThreadedControlPlane(ControlPlane.embedded(controllers=tuple(AVAILABLE))) as thread:
        thread.plane.kubeconfig(path)
        yield path


@pytest.fixture
def installed() -> Path:
    """Return the folder in which the clients are installed."""
    return INSTALLED.resolve()
