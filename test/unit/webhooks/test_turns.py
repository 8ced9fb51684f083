"""Tests that namespaces take turns with the requests of reviews."""

from __future__ import annotations

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from cfo.webhooks.turns import MAX_REQUESTS, Turns


class Requests:
    """Requests of reviews that end when the test says so."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._turns = Turns()
        self.running: list[tuple[str, anyio.Event]] = []

    async def start(self, namespace: str, client: str = "") -> anyio.CancelScope:
        """Start a request, which waits for its turn; return what cancels it."""
        scope = anyio.CancelScope()
        self._tasks.start_soon(self._send, client, namespace, scope)
        await checkpoint()
        await checkpoint()
        return scope

    async def _send(self, client: str, namespace: str, scope: anyio.CancelScope) -> None:
        with scope:
            async with self._turns.turn(client, namespace):
                answered = anyio.Event()
                self.running.append((f"{client}{namespace}", answered))
                try:
                    await answered.wait()
                finally:
                    self.running.remove((f"{client}{namespace}", answered))

    async def answer_first(self) -> str:
        """Answer the oldest request; return the namespace whose request runs next, if one was waiting."""
        _, answered = self.running[0]
        number = len(self.running)
        answered.set()
        for _ in range(5):
            await checkpoint()
        return self.running[-1][0] if len(self.running) == number else ""


async def test_namespaces_take_turns() -> None:
    async with anyio.create_task_group() as tasks:
        requests = Requests(tasks)
        for namespace in ["a"] * (MAX_REQUESTS + 3) + ["b", "b", "c"]:
            await requests.start(namespace)
        assert [namespace for namespace, _ in requests.running] == ["a"] * MAX_REQUESTS
        order = [await requests.answer_first() for _ in range(7)]
        assert order == ["a", "b", "c", "a", "b", "a", ""]
        while requests.running:
            await requests.answer_first()


async def test_pod_that_names_a_namespace_takes_no_turns_of_others_there() -> None:
    async with anyio.create_task_group() as tasks:
        requests = Requests(tasks)
        for _ in range(MAX_REQUESTS + 3):
            await requests.start("victim", "pod/")
        await requests.start("victim", "server/")
        order = [await requests.answer_first() for _ in range(4)]
        assert order == ["pod/victim", "server/victim", "pod/victim", "pod/victim"]
        while requests.running:
            await requests.answer_first()


async def test_cancelled_requests_leave_no_turn_behind() -> None:
    async with anyio.create_task_group() as tasks:
        requests = Requests(tasks)
        for _ in range(MAX_REQUESTS):
            await requests.start("a")
        waiting = [await requests.start("b") for _ in range(2)]
        waiting[0].cancel()
        await checkpoint()
        # The other one is cancelled when its turn has already come.
        _, answered = requests.running[0]
        answered.set()
        await checkpoint()
        waiting[1].cancel()
        for _ in range(5):
            await checkpoint()
        await requests.start("c")
        found = [namespace for namespace, _ in requests.running]
        assert found == [*["a"] * (MAX_REQUESTS - 1), "c"]
        while requests.running:
            await requests.answer_first()
