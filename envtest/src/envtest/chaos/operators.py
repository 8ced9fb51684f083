"""The operator under test: a command that runs as a process group, or a coroutine function in this process."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from envtest.apimachinery.string_lists import checked_strings
from envtest.chaos.run_clock import process_group

__all__ = [
    "Connection",
    "Function",
    "Instance",
    "Operator",
    "OperatorCommand",
    "OperatorFunction",
    "StartError",
]

_CANCELLATIONS: Final = 100
OUTPUT_BYTES: Final = 8192
"""How much of the end of a command's output reports show."""


class StartError(RuntimeError):
    """Raised when the operator cannot be started; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Connection:
    """What the operator needs to connect: a kubeconfig file, and its content. ``folder`` is for temporary files."""

    kubeconfig: Path
    url: str
    ca_pem: bytes
    token: str
    folder: Path


class Instance(Protocol):
    """A running operator."""

    def kill(self) -> None:
        """End it at once, without a chance to clean up."""

    async def wait(self) -> str:
        """Wait until it has ended; return how, as text."""

    def processes(self) -> Sequence[int]:
        """Return the ids of its processes, other than this one."""

    def output(self) -> str:
        """Return the end of what it and the instances before it have printed."""

    def own_output(self) -> str:
        """Return the end of what only this instance has printed."""


class Operator(Protocol):
    """Starts instances of the operator."""

    async def start(self, connection: Connection) -> Instance:
        """Start an instance. Raises StartError."""


@dataclass(frozen=True, slots=True)
class OperatorCommand:
    """A command in any language; it gets ``$KUBECONFIG``, and runs in a process group of its own.

    ``environment`` is added to the environment of this process; ``folder`` is its working directory.
    Raises TypeError if ``command`` is a string instead of a sequence of strings, ValueError if it has no program.
    """

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path | str | None = None

    def __post_init__(self) -> None:
        command = checked_strings("command", self.command)
        if not command or not command[0]:
            raise ValueError("command: must begin with the name or the path of a program")

    async def start(self, connection: Connection) -> Instance:
        """Start the command. Raises StartError."""
        log = connection.folder / "output.log"
        with log.open("ab") as out:
            start = out.seek(0, os.SEEK_END)
            try:
                process = await asyncio.create_subprocess_exec(
                    *self.command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    env={
                        **os.environ,
                        **self.environment,
                        "KUBECONFIG": str(connection.kubeconfig),
                    },
                    cwd=self.folder,
                    start_new_session=True,
                )
            except OSError as error:
                raise StartError(f"{self.command[0]}: {error.strerror or error}") from error
        return _Process(process, log, start)


class _Process:
    def __init__(self, process: asyncio.subprocess.Process, log: Path, start: int) -> None:
        self._process = process
        self._log = log
        self._start = start

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            # start_new_session: the group has the id of the process
            os.killpg(self._process.pid, signal.SIGKILL)

    async def wait(self) -> str:
        code = await self._process.wait()
        self.kill()  # the children of a process that has exited
        return f"exit code {code}" if code >= 0 else f"signal {-code}"

    def processes(self) -> Sequence[int]:
        return process_group(self._process.pid)

    def output(self) -> str:
        return self._read(0)

    def own_output(self) -> str:
        return self._read(self._start)

    def _read(self, start: int) -> str:
        """Return the end of the log, from ``start`` at the earliest."""
        with self._log.open("rb") as file:
            file.seek(max(start, file.seek(0, os.SEEK_END) - OUTPUT_BYTES))
            return file.read().decode(errors="replace")


Function = Callable[[Connection], Awaitable[object]]
"""A coroutine function that runs an operator until it is cancelled."""


@dataclass(frozen=True, slots=True)
class OperatorFunction:
    """An operator in this process and event loop; a crash cancels its task, and refuses all of its later requests."""

    function: Function

    async def start(self, connection: Connection) -> Instance:
        """Start the function as a task."""

        async def run() -> None:
            await self.function(connection)

        return _Task(asyncio.create_task(run()))


class _Task:
    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task
        self._killed = asyncio.Event()
        self._output = ""

    def kill(self) -> None:
        self._task.cancel()
        self._killed.set()

    async def wait(self) -> str:
        killed = asyncio.create_task(self._killed.wait())
        try:
            await asyncio.wait([self._task, killed], return_when=asyncio.FIRST_COMPLETED)
        finally:
            killed.cancel()
        # a cancellation is lost if it meets a result in asyncio.wait_for()
        for _ in range(_CANCELLATIONS):
            done, _ = await asyncio.wait([self._task], timeout=0.05)
            if done:
                break
            self._task.cancel()
        else:
            raise StartError("the function does not end when it is cancelled")
        return self._ended()

    def _ended(self) -> str:
        if self._task.cancelled():
            return "cancelled"
        error = self._task.exception()
        if error is None:
            return "returned"
        self._output = f"{type(error).__name__}: {error}"
        return self._output

    def processes(self) -> Sequence[int]:
        return ()

    def output(self) -> str:
        return self._output

    def own_output(self) -> str:
        return ""  # how it ended says it
