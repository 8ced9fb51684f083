"""Commands of cfo in a fork of a process in which its modules are loaded.

The tests start more than a hundred operators, and most of the CPU time of a start goes to imports. The commands are
separate processes as before, with arguments, environment, folder, signals and exit code of their own. Starts with all
imports are tested by ``test_start``, ``test_entry_point`` and ``test_packaging``.
"""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
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
        merge: bool = False,
    ) -> Self:
        """Run ``cfo`` with these arguments; :attr:`stderr` is a pipe, with ``merge`` also of stdout.

        Unless ``stdin`` is the number of a file, the process reads what this process reads.
        """
        status, reported = os.pipe()
        output, written = os.pipe()
        request = json.dumps(
            {"arguments": arguments, "env": dict(env), "cwd": str(cwd), "merge": merge}
        ).encode()
        socket.send_fds(
            _server()[0], [request], [reported, written, *([] if stdin is None else [stdin])]
        )
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


async def _connect(descriptor: int) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    reader = asyncio.StreamReader()
    pipe = os.fdopen(descriptor, "rb", buffering=0)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader, transport


@cache
def _server() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Return the connection to a process that runs :func:`serve` until this process ends, and that process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        code = f"from test.support.preloaded import serve; serve({theirs.fileno()})"
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return ours, process


def serve(descriptor: int) -> None:
    """Load the modules, then fork for each request, and report the pid and later the exit code to its first pipe."""
    from cfo.startup import tune_process

    # An operator imports the modules of its features when it starts; all of them take 0.2 s.
    with tune_process():
        import cfo.console.uninstall
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
        from cfo.cli import main
        from cfo.features import all_views
        from cfo.manifests.overlays import COMPONENTS, render

        all_views()
        # "uninstall" renders all components. Schemas of our CRDs and compiled modules, which are kept, take a second.
        render(components=COMPONENTS)
        anyio.run(anyio.sleep, 0)  # imports the backend
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
                request, files, _, _ = socket.recv_fds(requests, _MAX_REQUEST, 3)
                if not request:
                    return
                status, *streams = files
                pid = os.fork()
                if not pid:
                    selector.close()
                    _become(json.loads(request), *streams)
                    for descriptor in (requests.detach(), *files):
                        os.close(descriptor)
                    main()
                for descriptor in streams:
                    os.close(descriptor)
                os.write(status, b"%d\n" % pid)
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, status))


def _become(request: dict[str, Any], stderr: int, stdin: int = 0) -> None:
    """Give this process what a new one would have."""
    os.dup2(stdin, 0)
    os.dup2(stderr, 2)
    if request["merge"]:
        os.dup2(stderr, 1)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv = ["cfo", *request["arguments"]]
