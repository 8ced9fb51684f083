"""Fixtures for all tests: a control plane, an API client of it, and the folder of recordings."""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from envtest import ControlPlane
from envtest.api_client import APIClient
from hack.ways import WRITE_OPTION
from test.support.properties import PROPERTY

_SHARED = Path(__file__).parents[2] / "shared"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option with which ``python -m hack.trace`` runs some tests."""
    parser.addoption(WRITE_OPTION, action="store_true", help="write the ways that the tests trace")


def pytest_configure() -> None:
    """Log in a format that takes a third of the time, without the values of local variables; check properties alike."""
    settings.register_profile("cfo", PROPERTY)
    settings.load_profile("cfo")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.dev.set_exc_info,
            structlog.processors.TimeStamper(fmt=None),
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ]
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Allow errors in reconcilers, which many tests are about, and skip some tests on the real control plane.

    Those are tests with the marker ``embedded``, which has the reason.
    """
    for item in items:
        item.add_marker("function_errors")
    if not os.environ.get("KUBEBUILDER_ASSETS"):
        return
    for item in items:
        marker = item.get_closest_marker("embedded")
        if marker is not None:
            item.add_marker(
                pytest.mark.skip(
                    reason=f"needs the embedded control plane: {marker.kwargs['reason']}"
                )
            )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collections, and exclude them and all modules from later ones, and do fewer.

    They took a quarter of the collection's time, and a fifth of the tests' time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 10, 10)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Undo what a test, or a program that it runs, configures for logs; a fixture of each test takes more time."""
    before = structlog.get_config()
    result = yield
    if structlog.get_config() != before:
        structlog.configure(**before)
    return result


@pytest.fixture
def shared() -> Path:
    """Return the folder with recordings of real servers; skip the test if the folder does not exist."""
    if not _SHARED.is_dir():
        pytest.skip("no recordings next to the repository")
    return _SHARED


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    """Run a control plane: the embedded one, or the binaries in ``$KUBEBUILDER_ASSETS`` if that is set."""
    async with ControlPlane.auto() as control_plane:
        yield control_plane


@pytest.fixture
async def api(plane: ControlPlane) -> AsyncIterator[APIClient]:
    """Return an API client of the control plane with administrator permissions."""
    async with APIClient(plane) as client:
        yield client
