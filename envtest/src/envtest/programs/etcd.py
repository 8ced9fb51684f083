"""The program ``etcd``: answers health checks, keeps the objects, and serves an API for each ``kube-apiserver``.

It listens before the modules of the API server are imported, which takes most of the time until it can serve.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from envtest.programs.flags import ETCD, CommandLine, FlagError

if TYPE_CHECKING:
    from envtest.programs.hosted import HostedServers
    from envtest.server.assembly import APIServer

__all__ = ["main"]

VERSION = "3.6.0"
_REQUEST_SECONDS = 10.0
_LIMIT = 1 << 20
_SOCKET_PATH_BYTES = 100
"""Maximum length of a Unix socket's path; macOS allows 103 bytes."""


def _report(message: str) -> None:
    sys.stderr.write(f"etcd: {message}\n")
    sys.stderr.flush()


def _response(path: str, socket_path: Path) -> tuple[int, Any]:
    match path.partition("?")[0]:
        case "/health" | "/livez" | "/readyz":
            return 200, {"health": "true", "reason": ""}
        case "/version":
            return 200, {"etcdserver": VERSION, "etcdcluster": VERSION}
        case "/envtest/socket":
            return 200, {"socket": str(socket_path)}
    return 404, {"message": "not found"}


class _Etcd:
    """One running program."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._hosted: asyncio.Future[HostedServers] = asyncio.get_running_loop().create_future()
        self._connections: set[asyncio.Task[None]] = set()
        self.socket_path = data_dir / "envtest.sock"
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if len(os.fsencode(self.socket_path)) > _SOCKET_PATH_BYTES:
            self._temporary = tempfile.TemporaryDirectory(prefix="envtest-")
            self.socket_path = Path(self._temporary.name) / "envtest.sock"

    async def run(self, urls: list[str], stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set. Raises OSError, FlagError."""
        servers: list[asyncio.Server] = []
        try:
            servers.append(
                await asyncio.start_unix_server(self._control, sock=self._listener(), limit=_LIMIT)
            )
            for url in urls:
                parts = urlsplit(url)
                if parts.scheme != "http" or not parts.hostname:
                    raise FlagError(f"--listen-client-urls={url}: must be an http URL")
                servers.append(
                    await asyncio.start_server(self._answer, parts.hostname, parts.port or 2379)
                )
            self._hosted.set_result(await asyncio.to_thread(_import_servers, self._data_dir))
            await stop.wait()
        finally:
            for server in servers:
                server.close()
            for task in list(self._connections):
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            if self._hosted.done():
                await self._hosted.result().close()
            with suppress(FileNotFoundError):
                self.socket_path.unlink()
            if self._temporary is not None:
                self._temporary.cleanup()

    def _listener(self) -> socket.socket:
        """Return a Unix socket to which only this user can connect."""
        with suppress(FileNotFoundError):
            self.socket_path.unlink()
        listener = socket.socket(socket.AF_UNIX)
        mask = os.umask(0o177)
        try:
            listener.bind(str(self.socket_path))
        except BaseException:
            listener.close()
            raise
        finally:
            os.umask(mask)
        return listener

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one HTTP request."""
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                words = head.partition(b"\r\n")[0].split(b" ")
                path = words[1].decode("latin-1") if len(words) == 3 else ""
                code, document = _response(path, self.socket_path)
                body = json.dumps(document).encode()
                start = f"HTTP/1.1 {code} {'OK' if code == 200 else 'Not Found'}\r\nContent-Type: application/json\r\n"
                writer.write(
                    f"{start}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                )
                if words[0] != b"HEAD":
                    writer.write(body)
                await writer.drain()
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # asyncio reports a handler of a connection that is cancelled as an error
        finally:
            writer.close()

    async def _control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the API that a ``kube-apiserver`` program requests until the program closes its side."""
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        hosted: HostedServers | None = None
        api_server: APIServer | None = None

        def send(key: str, text: str) -> None:
            writer.write(json.dumps({key: text}).encode() + b"\n")

        try:
            request = json.loads(await reader.readline())
            hosted = await asyncio.shield(self._hosted)
            from envtest.configuration.kubernetes_version import parse_version
            from envtest.programs.server_options import read_options

            try:
                options = read_options(
                    CommandLine(request["flags"], []),
                    parse_version(request.get("kubernetesVersion", "")),
                )
                for message in options.messages:
                    send("message", message)
                api_server = await hosted.start(options, lambda message: send("message", message))
            except (OSError, ValueError) as error:
                send("error", str(error))
                return
            send("message", f"Serving on https://{options.host}:{options.port}")
            await reader.read()
        except (ConnectionError, ValueError, LookupError, TypeError) as error:
            _report(f"kube-apiserver: {error!r}")
        except asyncio.CancelledError:
            pass  # as above: this program ends
        finally:
            if hosted is not None and api_server is not None:
                await hosted.stop(api_server)
            self._connections.discard(task)
            writer.close()


def _import_servers(data_dir: Path) -> HostedServers:
    """Import all modules that an API server needs, in a thread, so that health checks are answered meanwhile."""
    import envtest.programs.server_options  # noqa: F401
    from envtest.programs.hosted import HostedServers

    return HostedServers(data_dir)


async def _run(command: CommandLine) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    data_dir = Path(
        command.last("data-dir") or f"{command.last('name', 'default')}.etcd"
    ).absolute()
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    urls = command.items("listen-client-urls") or ["http://localhost:2379"]
    with (data_dir / "envtest.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FlagError(f"--data-dir={data_dir} is used by another process") from None
        await _Etcd(data_dir).run(urls, stop)


def main(arguments: list[str]) -> int:
    """Run the program until SIGTERM or SIGINT; return its exit code."""
    try:
        command = ETCD.parse(arguments)
        if command.is_help():
            sys.stdout.write(ETCD.usage())
            return 0
        if "version" in command.values:
            sys.stdout.write(f"etcd Version: {VERSION}\n")
            return 0
        for warning in command.warnings:
            _report(warning)
        asyncio.run(_run(command))
    except (OSError, ValueError) as error:
        _report(str(error))
        return 1
    return 0
