"""Limits the bytes that are held for slow clients: beyond the limit, the oldest transfer is given up."""

from __future__ import annotations

import asyncio


class ByteBudget:
    """The bytes of transfers that are not complete, which together have at most ``limit``.

    Each transfer runs in an :class:`asyncio.Timeout`, which identifies it. If all are too large, that of the oldest
    transfer expires at once.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sizes: dict[asyncio.Timeout, int] = {}
        self._total = 0
        self._given_up: set[asyncio.Timeout] = set()

    def add(self, transfer: asyncio.Timeout, size: int) -> None:
        """Count ``size`` more bytes of ``transfer``, until :meth:`remove`."""
        self._sizes[transfer] = self._sizes.get(transfer, 0) + size
        self._total += size
        if self._total > self._limit:
            self._give_up_oldest()

    def _give_up_oldest(self) -> None:
        """Let the oldest transfers expire until the others have at most the limit together."""
        remaining = self._total - sum(self._sizes[transfer] for transfer in self._given_up)
        now = asyncio.get_running_loop().time()
        for transfer, size in self._sizes.items():
            if remaining <= self._limit:
                return
            if transfer not in self._given_up:
                self._given_up.add(transfer)
                transfer.reschedule(now)
                remaining -= size

    def is_given_up(self, transfer: asyncio.Timeout) -> bool:
        """Return whether ``transfer`` has expired because others needed the bytes."""
        return transfer in self._given_up

    def remove(self, transfer: asyncio.Timeout) -> None:
        """Forget ``transfer``, which is complete or has failed."""
        self._given_up.discard(transfer)
        self._total -= self._sizes.pop(transfer, 0)
