"""What a benchmark plays on: an API server in one process, who is measured in another, the world in a third.

The API server is the embedded one; its audit log tells what the measured process asked for, and when. CPU time and
memory come from the operating system, so that they hold for programs in any language.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import psutil
import yaml

from cfo.api.appwrapper.models import appwrapper_crd
from cfo.demo import crds
from cfo.runtime import Client, RESTMapper, Transport, load_config
from cfo.runtime.objects import Object

__all__ = ["Asked", "Measured", "Plane", "eventually", "free_port", "gathered", "plane", "started"]

OPERATOR = "bench-operator"
"""The user as whom the measured process speaks; the audit log is read for it."""

AT_ONCE = 24
QUIET = 0.8
"""Seconds without CPU time or requests after which somebody is said to be done."""


def free_port() -> int:
    """A TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def eventually(condition: Callable[[], bool], what: str, patience: float = 600.0, pause: float = 0.02) -> None:
    """Looks at ``condition`` until it holds."""
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {patience:.0f} s")
        await asyncio.sleep(pause)


async def gathered(deeds: Iterable[Callable[[], Awaitable[Any]]], at_once: int = AT_ONCE) -> None:
    """Does all of them, so many at a time."""
    waiting = iter(deeds)

    async def hand() -> None:
        for deed in waiting:
            await deed()

    async with asyncio.TaskGroup() as hands:
        for _ in range(at_once):
            hands.create_task(hand())


class Measured:
    """A process that is measured."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path, began: float) -> None:
        self.process = process
        self.log = log
        self.began = began
        self._known = psutil.Process(process.pid)

    def cpu(self) -> float:
        """Seconds of CPU that it has used since it was started, in user and system mode."""
        times = self._known.cpu_times()
        return float(times.user + times.system)

    def rss(self) -> float:
        """MB of memory that are resident now."""
        return float(self._known.memory_info().rss / 1e6)

    def peak(self) -> float:
        """MB of memory that were resident at the most."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM"))

    def memory(self) -> dict[str, float]:
        """Both, named as samples name them."""
        return {"rss MB": self.rss(), "peak MB": self.peak()}

    def alive(self) -> None:
        """Raises :class:`RuntimeError` with the end of the log if it is gone."""
        if self.process.returncode is not None:
            tail = self.log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"it ended with {self.process.returncode}: {tail}")

    async def listening(self, port: int, path: str, patience: float = 120.0) -> float:
        """Waits until ``path`` answers 200 over HTTP; gives seconds since the process was started."""
        end = time.perf_counter() + patience
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    writer.write(request)
                    answer = await reader.readuntil(b"\r\n")
                    if b" 200 " in answer:
                        return time.perf_counter() - self.began
                finally:
                    writer.close()
            self.alive()
            if time.perf_counter() > end:
                raise TimeoutError(f"{path} did not answer: {self.log.read_text(errors='replace')[-2000:]}")
            await asyncio.sleep(0.01)

    async def idle(self, quiet: float = QUIET, patience: float = 900.0) -> float:
        """Waits until it uses no CPU any more; gives the seconds since its start at which that began."""
        end = time.perf_counter() + patience
        since, used = time.perf_counter(), self.cpu()
        while time.perf_counter() - since < quiet:
            await asyncio.sleep(0.05)
            self.alive()
            if self.cpu() - used > 0.02:
                since, used = time.perf_counter(), self.cpu()
            if time.perf_counter() > end:
                raise TimeoutError("it does not come to rest")
        return since - self.began

    async def stop(self) -> None:
        """Ends it as Kubernetes does: SIGTERM, later SIGKILL."""
        if self.process.returncode is None:
            self.process.terminate()
            try:
                async with asyncio.timeout(30):
                    await self.process.wait()
            except TimeoutError:
                self.process.kill()
                await self.process.wait()


@asynccontextmanager
async def started(command: Sequence[str], log: Path, **environment: str) -> AsyncIterator[Measured]:
    """Runs ``command`` with its output in ``log``; Python may keep bytecode, as where it is installed."""
    environment = {**os.environ, **environment}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with log.open("ab") as out:
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, env=environment
        )
    measured = Measured(process, log, began)
    try:
        yield measured
    finally:
        await measured.stop()


@dataclass(frozen=True)
class Asked:
    """What was asked for since some moment: counts of ``verb resource``, and when the last of them was answered."""

    requests: dict[str, int]
    last: float

    @property
    def total(self) -> int:
        """All requests but watches and leases."""
        return sum(self.requests.values())

    @property
    def writes(self) -> int:
        """Those which change something, if they were answered well; Events aside."""
        writes = ("create ", "update ", "patch ", "delete ")
        return sum(
            count
            for request, count in self.requests.items()
            if request.startswith(writes) and not request.endswith(("reviews", " events")) and " -> " not in request
        )


class Plane:
    """The API server; :attr:`client` is the world's."""

    def __init__(self, process: Measured, folder: Path, client: Client) -> None:
        self.process = process
        self.folder = folder
        self.client = client
        self.kubeconfig = folder / "operator.kubeconfig"
        self._audit = folder / "audit.log"

    def mark(self) -> int:
        """A moment to count from."""
        return self._audit.stat().st_size

    def asked(self, since: int = 0) -> Asked:
        """What the measured process has asked for, watches and leases aside.

        Raises :class:`RuntimeError` where the API server failed: nothing measured then means anything.
        """
        requests: Counter[str] = Counter()
        last = 0.0
        with self._audit.open("rb") as file:
            file.seek(since)
            for line in file:
                if OPERATOR.encode() not in line or not line.endswith(b"\n"):
                    continue
                event = orjson.loads(line)
                reference = event.get("objectRef", {})
                what = reference.get("resource") or event["requestURI"].partition("?")[0]
                if event["verb"] == "watch" or what == "leases" or event["user"]["username"] != OPERATOR:
                    continue
                if reference.get("subresource"):
                    what += f"/{reference['subresource']}"
                code = event["responseStatus"]["code"]
                if code >= 500:
                    raise RuntimeError(f"the API server answered {event['verb']} {event['requestURI']} with {code}")
                requests[f"{event['verb']} {what}{f' -> {code}' if code >= 400 else ''}"] += 1
                last = max(last, datetime.fromisoformat(event["stageTimestamp"]).timestamp())
        return Asked(dict(requests), last)

    async def quiet(self, quiet: float = QUIET, patience: float = 1200.0) -> None:
        """Waits until no request comes any more, whoever's; but renewals of leases."""
        end = time.monotonic() + patience
        since, seen = time.monotonic(), self.mark()
        while time.monotonic() - since < quiet:
            await asyncio.sleep(0.05)
            with self._audit.open("rb") as file:
                file.seek(seen)
                lines = file.readlines()
            seen += sum(map(len, lines))
            if any(b"/leases" not in line for line in lines):
                since = time.monotonic()
            if time.monotonic() > end:
                raise TimeoutError("the API server does not come to rest")

    async def create(self, objects: Iterable[Object], at_once: int = AT_ONCE) -> None:
        """Creates all of them, so many at a time."""
        await gathered((lambda obj=obj: self.client.create(obj) for obj in objects), at_once)


@asynccontextmanager
async def plane(
    *definitions: Object, controllers: Sequence[str] = (), data: Path | None = None
) -> AsyncIterator[Plane]:
    """An API server with RayClusters and AppWrappers, and ``definitions``, in a folder that goes with it."""
    with tempfile.TemporaryDirectory(prefix="cfo-bench-") as name:
        folder = Path(name)
        installed = folder / "crds.json"
        installed.write_bytes(
            b"\n---\n".join(orjson.dumps(each) for each in [*crds.load(), appwrapper_crd(), *definitions])
        )
        installed = installed.rename(installed.with_suffix(".yaml"))
        token, admin = secrets.token_hex(16), folder / "admin.kubeconfig"
        (folder / "tokens.csv").write_text(f'{token},{OPERATOR},{OPERATOR},"system:masters"\n')
        command = [
            *(sys.executable, "-m", "envtest", "--kubeconfig", str(admin), "--crds", str(installed)),
            *("--token-auth-file", str(folder / "tokens.csv"), "--audit-log", str(folder / "audit.log")),
            *("--controllers", ",".join(controllers) or "none"),
            *(("--data-dir", str(data)) if data else ()),
        ]
        async with started(command, folder / "plane.log") as process:

            def up() -> bool:
                process.alive()
                return "export" in process.log.read_text(errors="replace")

            await eventually(up, "the API server's start", 60)
            document = yaml.safe_load(admin.read_text())
            document["users"][0]["user"] = {"token": token}
            (folder / "operator.kubeconfig").write_text(yaml.safe_dump(document))
            async with Transport(await load_config(str(admin))) as transport:
                yield Plane(process, folder, Client(transport, RESTMapper(transport), field_manager="bench"))
