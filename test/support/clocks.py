"""Clocks that a test controls."""

from __future__ import annotations

import asyncio

from cfo.runtime.clock import SystemClock


class SkippingClock(SystemClock):
    """Waits for nothing, and remembers how long it would have been."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)
