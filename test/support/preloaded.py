"""Commands of cfo and of projects that use it, in forks: the process that forks has loaded the modules.

The tests start more than a hundred operators, and most of the CPU time of a start goes to imports. The commands are
separate processes as before, with arguments, environment, folder, signals and exit code of their own. Starts with all
imports are tested by ``test_start``, ``test_entry_point`` and ``test_packaging``, those of projects by
``test_scaffold``.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Self

import anyio

_MAX_REQUEST = 1 << 20


class PreloadedCommand:
    """A running command, with the attributes of :class:`asyncio.subprocess.Process` that tests use."""

    def __init__(
        self,
        status: asyncio.StreamReader,
        pipe: asyncio.BaseTransport,
        stderr: asyncio.StreamReader,
        pid: int,
    ) -> None:
        self.stderr = stderr
        self.pid = pid
        self.returncode: int | None = None
        self._waiting = asyncio.create_task(self._wait(status, pipe))

    @classmethod
    async def start(
        cls,
        *arguments: str,
        env: Mapping[str, str],
        cwd: Path,
        stdin: int | None = None,
        stdout: int | None = None,
        merge: bool = False,
        module: str = "cfo",
    ) -> Self:
        """Run ``python -m module`` with these arguments; :attr:`stderr` is a pipe, with ``merge`` also of stdout.

        ``stdin`` and ``stdout`` are numbers of files; without them, the process has those of this process. A ``module``
        other than ``cfo`` is a program in ``cwd`` that uses the library, or a tool that imports such programs.
        """
        status, reported = os.pipe()
        output, written = os.pipe()
        streams = {2: written}
        if merge:
            streams[1] = written
        if stdout is not None:
            streams[1] = stdout
        if stdin is not None:
            streams[0] = stdin
        request = json.dumps(
            {
                "module": module,
                "arguments": arguments,
                "env": dict(env),
                "cwd": str(cwd),
                "streams": list(streams),
            }
        ).encode()
        server, _ = _server(load_operator if module == "cfo" else load_tools_of_projects)
        socket.send_fds(server, [request], [reported, *streams.values()])
        os.close(reported)
        os.close(written)
        (reader, pipe), (stderr, _) = await _connect(status), await _connect(output)
        return cls(reader, pipe, stderr, int(await reader.readline()))

    async def _wait(self, status: asyncio.StreamReader, pipe: asyncio.BaseTransport) -> int:
        self.returncode = int(await status.readline())
        pipe.close()
        return self.returncode

    async def wait(self) -> int:
        """Wait until the process has ended, and return its exit code."""
        return await asyncio.shield(self._waiting)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):  # its end is reported a little later
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


async def run_preloaded(
    *arguments: str,
    env: Mapping[str, str],
    cwd: Path,
    stdin: int | None = None,
    module: str = "cfo",
) -> tuple[int, str]:
    """Run a command as :meth:`PreloadedCommand.start`; return its exit code and its output (stdout and stderr)."""
    process = await PreloadedCommand.start(
        *arguments, env=env, cwd=cwd, stdin=stdin, merge=True, module=module
    )
    output = (await process.stderr.read()).decode()
    return await process.wait(), output


async def _connect(descriptor: int) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    reader = asyncio.StreamReader()
    pipe = os.fdopen(descriptor, "rb", buffering=0)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader, transport


@cache
def _server(load: Callable[[], None]) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Return the connection to a process that runs :func:`serve` until this process ends, and that process.

    ``load`` is a function of this module that loads the modules.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        name = load.__name__
        code = f"from test.support.preloaded import {name}, serve; serve({theirs.fileno()}, {name})"
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return ours, process


def load_operator() -> None:
    """Load what ``cfo run`` and ``cfo uninstall`` import."""
    from cfo.startup import tune_process

    # An operator imports the modules of its features when it starts; all of them take 0.2 s.
    with tune_process():
        import cfo.cli
        import cfo.console.uninstall.uninstall_command
        import cfo.controllers.appwrapper
        import cfo.controllers.flux
        import cfo.controllers.flux.fluxjob
        import cfo.controllers.flux.minicluster
        import cfo.controllers.inferencestack
        import cfo.controllers.raycluster
        import cfo.dashboard.in_cluster
        import cfo.operator
        import cfo.webhooks.appwrapper
        import cfo.webhooks.flux
        import cfo.webhooks.inferencestack
        import cfo.webhooks.raycluster  # noqa: F401
        from cfo.features import all_views
        from cfo.manifests.overlays import COMPONENTS, render

        all_views()
        # "uninstall" renders all components. Schemas of our CRDs and compiled modules, which are kept, take a second.
        render(components=COMPONENTS)
        anyio.run(anyio.sleep, 0)  # imports the backend


def load_tools_of_projects() -> None:
    """Load what a project that ``cfo new`` writes imports: the public names of the library, envtest and pytest."""
    import pytest_asyncio.plugin  # noqa: F401

    from cfo import runtime
    from cfo.runtime import client, controller, objects, webhook
    from cfo.runtime.objects import custom_resource_definition
    from envtest import ControlPlane
    from test.support.website import Website

    for package in (runtime, client, controller, objects, webhook):
        for name in package.__all__:
            getattr(package, name)

    async def start_control_plane() -> None:
        crd = custom_resource_definition(Website)
        async with ControlPlane.embedded(crds=[crd], controllers=["all"]):
            pass

    anyio.run(start_control_plane)  # imports the rest of envtest


def serve(descriptor: int, load: Callable[[], None]) -> None:
    """Call ``load``, then fork for each request, and report the pid and later the exit code to its first pipe."""
    load()
    gc.collect()
    gc.freeze()  # collections in the forks would read, and so copy, all modules
    requests = socket.socket(fileno=descriptor)
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.data is not None:
                    pid, status = key.data
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    os.write(status, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                    os.close(status)
                    continue
                request, files, _, _ = socket.recv_fds(requests, _MAX_REQUEST, 4)
                if not request:
                    return
                status, *streams = files
                pid = os.fork()
                if not pid:
                    selector.close()
                    command = json.loads(request)
                    _become(command, *streams)
                    for descriptor in (requests.detach(), *files):
                        os.close(descriptor)
                    runpy.run_module(command["module"], run_name="__main__", alter_sys=True)
                    sys.exit()
                for descriptor in streams:
                    os.close(descriptor)
                os.write(status, b"%d\n" % pid)
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, status))


def _become(command: dict[str, Any], *streams: int) -> None:
    """Give this process what a new one would have."""
    for number, stream in zip(command["streams"], streams, strict=True):
        os.dup2(stream, number)
    os.environ.clear()
    os.environ.update(command["env"])
    os.chdir(command["cwd"])
    sys.argv = [command["module"], *command["arguments"]]
