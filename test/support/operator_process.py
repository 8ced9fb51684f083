"""The operator as a process of its own, started with ``cfo run`` against a test control plane."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from cfo.operator import CONFIG_MAP_NAME
from cfo.runtime.objects import NamespacedName
from test.support.raycluster_environment import (
    Environment,
    eventually,
)

KEY = NamespacedName("default", CONFIG_MAP_NAME)


LOOPBACK = {"metrics": {"bindAddress": "127.0.0.1:0"}, "health": {"bindAddress": "127.0.0.1:0"}}


PLAIN = {**LOOPBACK, "kuberay": {"rayDashboardOAuthEnabled": False, "ingressDomain": "apps.test"}}


class Operator:
    """A running ``cfo run``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.output = ""
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.output += line.decode()

    async def exit_code(self) -> int:
        """Waits for the end."""
        async with asyncio.timeout(30):
            code = await self.process.wait()
            await self._reader
        return code

    async def address(self, endpoint: str) -> str:
        """Where it serves ``endpoint``."""
        pattern = re.compile(rf'"endpoint":"{endpoint}".*"port":(\d+)')

        async def look() -> str | None:
            found = pattern.search(self.output)
            assert self.process.returncode is None, self.output
            return f"http://127.0.0.1:{found[1]}" if found else None

        return str(await eventually(look, f"{endpoint} served"))

    async def ready(self) -> None:
        """Waits until it is ready."""
        address = await self.address("health")
        async with aiohttp.ClientSession(address) as session:

            async def look() -> bool:
                async with session.get("/readyz") as answer:
                    return answer.status == 200

            await eventually(look, "ready")


@asynccontextmanager
async def operator(there: Environment, directory: Path, *arguments: str, **environment: str) -> AsyncIterator[Operator]:
    """Runs ``cfo run`` against a world until the end of the block."""
    kubeconfig = directory / "kubeconfig"
    there.plane.kubeconfig(kubeconfig)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cfo", "run", "--kubeconfig", str(kubeconfig), "--log-format", "json", *arguments),
        env={**os.environ, "NAMESPACE": "default", **environment},
        cwd=directory,
        stderr=asyncio.subprocess.PIPE,
    )
    running = Operator(process)
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await running.exit_code()


async def configure(there: Environment, data: dict[str, str] | None) -> None:
    """Makes the ConfigMap."""
    metadata = {"namespace": KEY.namespace, "name": KEY.name}
    if data is not None:
        await there.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
