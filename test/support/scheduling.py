"""Run all tasks that are ready, without advancing any clock."""

from __future__ import annotations

import asyncio


async def run_until_idle() -> None:
    """Return when every other task waits for I/O, for a timer, or for the test."""
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    while ready:  # noqa: ASYNC110 - waits for the event loop itself
        await asyncio.sleep(0)
