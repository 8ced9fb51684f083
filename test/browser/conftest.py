"""A headless Chromium for the tests of the page; they are skipped where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

SCREENSHOTS = Path(os.environ.get("CFO_SCREENSHOTS") or "build/screenshots")
"""The directory in which the tests leave what the page looked like."""

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture
async def browser() -> AsyncIterator[Any]:
    """Run a browser; it is started for each test, because the event loop is that of the test."""
    api = pytest.importorskip(
        "playwright.async_api", reason="playwright is not installed: make test-browser"
    )
    executable = next(filter(None, map(shutil.which, _NAMES)), None)
    if executable is None:
        pytest.skip("no Chromium on PATH")
    async with api.async_playwright() as playwright:
        running = await playwright.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--disable-gpu"]
        )
        yield running
        await running.close()


@pytest.fixture
def screenshots() -> Path:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    return SCREENSHOTS
