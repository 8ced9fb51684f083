"""Fixtures for all tests: a control plane, requests to it, and the recordings that may be beside the repository."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient

_SHARED = Path(__file__).parents[3] / "shared"


@pytest.fixture
def shared() -> Path:
    """The folder with recordings of real servers; tests that need it are skipped without it."""
    if not _SHARED.is_dir():
        pytest.skip("there are no recordings beside the repository")
    return _SHARED


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    """A running control plane: embedded, or the real one of ``$KUBEBUILDER_ASSETS``."""
    async with ControlPlane.auto() as running:
        yield running


@pytest.fixture
async def api(plane: ControlPlane) -> AsyncIterator[APIClient]:
    """Requests to the control plane, as admin."""
    async with APIClient(plane) as requests:
        yield requests
