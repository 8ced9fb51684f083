"""Clocks that a test controls."""

from __future__ import annotations

import asyncio

from cfo.runtime.clock import SystemClock


class SkippingClock(SystemClock):
    """The system clock, except that ``sleep`` returns immediately; ``sleeps`` records the requested seconds."""

    def __init__(self) -> None:
        self.sleeps: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        await asyncio.sleep(0)
