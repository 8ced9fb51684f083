"""Fixtures for all tests: a control plane, a client for it, and recordings of real servers if they exist."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient

_SHARED = Path(__file__).parents[3] / "shared"


@pytest.fixture
def shared() -> Path:
    """Return the folder with recordings of real servers; skip the test if it does not exist."""
    if not _SHARED.is_dir():
        pytest.skip("no recordings next to the repository")
    return _SHARED


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    """Run a control plane: the embedded one, or the real one of ``$KUBEBUILDER_ASSETS``."""
    async with ControlPlane.auto() as running:
        yield running


@pytest.fixture
async def api(plane: ControlPlane) -> AsyncIterator[APIClient]:
    """Yield a client of the control plane, authenticated as admin."""
    async with APIClient(plane) as requests:
        yield requests
