"""Which transfers are given up for newer ones."""

from __future__ import annotations

import asyncio

from cfo.runtime.process.byte_budget import ByteBudget


async def test_oldest_transfers_are_given_up_until_the_others_fit() -> None:
    budget = ByteBudget(100)
    expired: list[int] = []

    async def transfer(number: int, size: int) -> None:
        timeout = asyncio.timeout(None)
        try:
            async with timeout:
                budget.add(timeout, size)
                await asyncio.Event().wait()
        except TimeoutError:
            assert budget.is_given_up(timeout)
            expired.append(number)
        finally:
            budget.remove(timeout)

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        transfers = [
            tasks.create_task(transfer(number, size))
            for number, size in enumerate((30, 30, 30, 60, 10))
        ]
        await asyncio.wait(transfers[:2])
        assert expired == [0, 1]
        for running in transfers[2:]:
            assert not running.done()
            running.cancel()


async def test_transfer_above_the_limit_is_given_up_itself() -> None:
    budget = ByteBudget(100)
    timeout = asyncio.timeout(None)
    try:
        async with timeout:
            budget.add(timeout, 101)
            await asyncio.Event().wait()
    except TimeoutError:
        assert budget.is_given_up(timeout)
    budget.remove(timeout)
    assert not budget.is_given_up(timeout)
