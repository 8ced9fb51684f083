"""Lets everything run that can run, without letting time pass."""

from __future__ import annotations

import asyncio


async def settled() -> None:
    """Returns when all other tasks wait for something that does not come by itself: I/O, a clock, the test."""
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    while ready:  # noqa: ASYNC110 - it is the loop itself that is waited for
        await asyncio.sleep(0)
