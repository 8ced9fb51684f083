"""Measured processes: start them, wait for them, and read their CPU time and memory.

CPU time and memory come from the operating system, so they are valid for programs in any language.
"""

from __future__ import annotations

import asyncio
import os
import platform
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil

IDLE_SECONDS = 0.8
"""Seconds without CPU time or requests after which a process is considered idle."""


def free_port() -> int:
    """Return a TCP port on which no process listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def wait_until(
    condition: Callable[[], bool], description: str, timeout: float = 600.0, interval: float = 0.02
) -> None:
    """Check ``condition`` every ``interval`` seconds until it holds.

    Raises :class:`TimeoutError` with ``description`` after ``timeout`` seconds.
    """
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{description}: not within {timeout:.0f} s")
        await asyncio.sleep(interval)


class MeasuredProcess:
    """A running process with its log. ``started_at`` is the value of ``time.perf_counter`` just before its exec."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path, started_at: float) -> None:
        self.process = process
        self.log = log
        self.started_at = started_at
        self._psutil = psutil.Process(process.pid)

    def cpu(self) -> float:
        """Return the seconds of CPU time used since the start, in user and system mode."""
        if (
            platform.system() == "Linux"
        ):  # the process's own clock has nanoseconds, where psutil reads ticks of 10 ms
            return time.clock_gettime(~self.process.pid << 3 | 2)
        times = self._psutil.cpu_times()
        return float(times.user + times.system)

    def rss(self) -> float:
        """Return the MB of memory that are resident now."""
        return float(self._psutil.memory_info().rss / 1e6)

    def peak(self) -> float:
        """Return the maximum of the resident memory so far, in MB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM"))

    def memory(self) -> dict[str, float]:
        """Return current and maximum memory, under their names in samples."""
        return {"rss MB": self.rss(), "peak MB": self.peak()}

    def check_running(self) -> None:
        """Raise :class:`RuntimeError` with the end of the log if the process has exited."""
        if self.process.returncode is not None:
            tail = self.log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"the process exited with code {self.process.returncode}: {tail}")

    async def wait_until_ready(self, port: int, path: str, timeout: float = 120.0) -> float:
        """Wait until an HTTP request for ``path`` returns 200, and return the seconds since the start.

        Raises :class:`TimeoutError` after ``timeout`` seconds, and :class:`RuntimeError` if the process exits.
        """
        end = time.perf_counter() + timeout
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    writer.write(request)
                    status_line = await reader.readuntil(b"\r\n")
                    if b" 200 " in status_line:
                        return time.perf_counter() - self.started_at
                finally:
                    writer.close()
            self.check_running()
            if time.perf_counter() > end:
                tail = self.log.read_text(errors="replace")[-2000:]
                raise TimeoutError(
                    f"{path}: no response with status 200 within {timeout:.0f} s: {tail}"
                )
            await asyncio.sleep(0.01)

    async def wait_until_idle(self, idle: float = IDLE_SECONDS, timeout: float = 900.0) -> float:
        """Wait until the process has used no CPU for ``idle`` seconds.

        Returns the seconds from the start of the process to the start of the idle time. Raises :class:`TimeoutError`
        after ``timeout`` seconds, and :class:`RuntimeError` if the process exits.
        """
        end = time.perf_counter() + timeout
        since, used = time.perf_counter(), self.cpu()
        while time.perf_counter() - since < idle:
            await asyncio.sleep(0.05)
            self.check_running()
            if self.cpu() - used > 0.02:
                since, used = time.perf_counter(), self.cpu()
            if time.perf_counter() > end:
                raise TimeoutError(f"the process was not idle within {timeout:.0f} s")
        return since - self.started_at

    async def stop(self) -> None:
        """Stop the process like Kubernetes: SIGTERM, and SIGKILL after a grace period of 30 s."""
        if self.process.returncode is None:
            self.process.terminate()
            try:
                async with asyncio.timeout(30):
                    await self.process.wait()
            except TimeoutError:
                self.process.kill()
                await self.process.wait()


@asynccontextmanager
async def start_process(
    command: Sequence[str], log: Path, **environment: str
) -> AsyncIterator[MeasuredProcess]:
    """Run ``command`` with its output in ``log``; stop it at the end.

    Python is allowed to write bytecode, because an installed program has its bytecode, too.
    """
    environment = {**os.environ, **environment}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with log.open("ab") as output:
        started_at = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
        )
    measured = MeasuredProcess(process, log, started_at)
    try:
        yield measured
    finally:
        await measured.stop()
