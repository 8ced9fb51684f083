"""Run the operator as a separate process (``cfo run``) against a test control plane."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cfo import operator
from cfo.config.model import OperatorConfiguration
from cfo.config.section import ConfigurationError
from cfo.runtime.client.errors import AlreadyExists
from cfo.runtime.objects.unstructured import NamespacedName
from cfo.version import CONFIG_MAP_NAME
from test.support.preloaded import PreloadedCommand
from test.support.raycluster_environment import Environment, eventually

CONFIG_MAP_KEY = NamespacedName("default", CONFIG_MAP_NAME)

LOOPBACK_ADDRESSES = {
    "metrics": {"bindAddress": "127.0.0.1:0"},
    "health": {"bindAddress": "127.0.0.1:0"},
}
"""Configuration sections that bind the metrics and health servers to free ports."""

PLAIN_CONFIG = {
    **LOOPBACK_ADDRESSES,
    "kuberay": {"rayDashboardOAuthEnabled": False, "ingressDomain": "apps.test"},
}
"""A configuration without OAuth."""

SHORT_ELECTION = {
    "leaderElect": True,
    "leaseDuration": "5s",
    "renewDeadline": "4s",
    "retryPeriod": "500ms",
}
"""Leader election for operators that are killed: their successors wait until the Lease has expired."""


class OperatorProcess:
    """A running ``cfo run`` process; ``output`` contains its stderr so far."""

    def __init__(self, process: asyncio.subprocess.Process | PreloadedCommand) -> None:
        self.process = process
        self.output = ""
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        if self.process.stderr is None:
            return
        async for line in self.process.stderr:
            self.output += line.decode()

    async def exit_code(self) -> int:
        """Wait until the process exits (at most 30 seconds) and return its exit code."""
        async with asyncio.timeout(120):
            code = await self.process.wait()
            await self._reader
        return code

    async def address(self, endpoint: str) -> str:
        """Return the URL of ``endpoint`` (``metrics`` or ``health``) once the log contains its port."""
        pattern = re.compile(rf'"endpoint":"{endpoint}".*"port":(\d+)')

        async def check() -> str | None:
            match = pattern.search(self.output)
            if self.process.returncode is not None:
                pytest.fail(f"the process has ended: {self.output}")
            return f"http://127.0.0.1:{match[1]}" if match else None

        return str(await eventually(check, f"the {endpoint} server"))

    async def ready(self) -> None:
        """Wait until ``/readyz`` succeeds."""
        address = await self.address("health")
        async with aiohttp.ClientSession(address) as session:

            async def check() -> bool:
                assert self.process.returncode is None, self.output
                try:
                    async with session.get("/readyz") as response:
                        return response.status == 200
                except aiohttp.ClientConnectionError:
                    return False  # the process ends

            await eventually(check, "readiness")


@asynccontextmanager
async def run_operator(
    environment: Environment,
    directory: Path,
    *arguments: str,
    log: Path | None = None,
    executable: Path | None = None,
    **variables: str,
) -> AsyncIterator[OperatorProcess]:
    """Run ``cfo run`` against the control plane of ``environment`` until the end of the block.

    The log is collected, unless it is written to the file ``log``. ``executable`` is the ``cfo`` of another version.
    ``variables`` are added to the environment of the process. Those of the interpreter (``PYTHON...``) only take effect
    in a process that has not imported anything, so such a process is not forked.
    """
    kubeconfig = directory / "kubeconfig"
    namespace = variables.get("NAMESPACE", "default")
    await _write_kubeconfig(environment, namespace, kubeconfig)
    command = ("run", "--kubeconfig", str(kubeconfig), "--log-format", "json", *arguments)
    env = {**os.environ, "NAMESPACE": "default", **variables}
    if executable is not None:
        env.pop("PYTHONPATH", None)  # it has modules of its own
    process: asyncio.subprocess.Process | PreloadedCommand
    program = (sys.executable, "-m", "cfo") if executable is None else (str(executable),)
    is_new = any(name.startswith("PYTHON") for name in variables)
    if is_new or log is not None or executable is not None:
        with ExitStack() as stack:
            stderr: Any = asyncio.subprocess.PIPE
            if log is not None:
                stderr = stack.enter_context(log.open("ab"))
            process = await asyncio.create_subprocess_exec(
                *program, *command, env=env, cwd=directory, stderr=stderr
            )
    else:
        process = await PreloadedCommand.start(*command, env=env, cwd=directory)
    running = OperatorProcess(process)
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await running.exit_code()


async def _write_kubeconfig(environment: Environment, namespace: str, path: Path) -> None:
    """Write the kubeconfig of an operator in ``namespace``.

    One without an administrator's permissions finds the webhook configurations of the manifests, as in a cluster.
    """
    if environment.installations is None:
        environment.plane.kubeconfig(path)
        return
    key = NamespacedName(namespace, CONFIG_MAP_NAME)
    configuration = OperatorConfiguration()
    with contextlib.suppress(ConfigurationError):
        parsed = await operator.read_configuration(environment.client, key)
        if parsed is not None:
            configuration = parsed.configuration
    config = await environment.operator_config(configuration, namespace=namespace)
    environment.plane.kubeconfig(path, token=config.token)
    for manifest in operator.webhook_configurations(namespace, configuration):
        with contextlib.suppress(AlreadyExists):
            await environment.create(manifest)


async def create_config_map(environment: Environment, data: dict[str, str] | None) -> None:
    """Create the operator's ConfigMap with ``data``; ``None`` creates nothing."""
    metadata = {"namespace": CONFIG_MAP_KEY.namespace, "name": CONFIG_MAP_KEY.name}
    if data is not None:
        await environment.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        )
