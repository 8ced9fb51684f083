"""SIGTERM and SIGINT, as something to iterate over."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator

import anyio

__all__ = ["stop_signals"]


async def stop_signals() -> AsyncIterator[str]:
    """The names of the signals that ask the process to end, as they come. Only in the main thread."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for received in signals:
            yield signal.Signals(received).name
