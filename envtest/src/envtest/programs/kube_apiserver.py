"""The program ``kube-apiserver``: asks the ``etcd`` of envtest to serve an API, until this program ends.

Uses only the standard library. The connection to ``etcd`` is a Unix socket that only its owner can use; its path is
published at ``/envtest/socket`` of the client URL.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any, NoReturn
from urllib.parse import urlsplit

from envtest.configuration.kubernetes_version import LATEST
from envtest.programs.flags import KUBE_APISERVER, CommandLine, FlagError

__all__ = ["main"]

CONNECT_SECONDS = 20.0
"""Seconds to wait for ``etcd`` at the start."""
_PAUSE_SECONDS = 0.02
_LONG_PAUSE_SECONDS = 0.2
_REQUEST_SECONDS = 5.0
_MAX_RESPONSE = 1 << 16


class _Stopped(BaseException):
    """Raised by the signals that end the program."""


class _Failed(Exception):
    """Raised if the API cannot be served; the message contains the reason."""


def _stop(*_: object) -> NoReturn:
    raise _Stopped


def _report(message: str) -> None:
    sys.stderr.write(f"kube-apiserver: {message}\n")
    sys.stderr.flush()


def _socket_path(url: str) -> str:
    """Return the path of the Unix socket of the ``etcd`` at ``url``. Raises OSError, or _Failed for another server."""
    if "://" not in url:
        url = f"http://{url}"
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise _Failed(f"--etcd-servers={url}: must be an http URL")
    host = parts.hostname
    address = (host, parts.port or 2379)
    with socket.create_connection(address, timeout=_REQUEST_SECONDS) as connection:
        connection.sendall(
            f"GET /envtest/socket HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        )
        response = b""
        while len(response) < _MAX_RESPONSE and (part := connection.recv(4096)):
            response += part
    head, _, body = response.partition(b"\r\n\r\n")
    try:
        path = json.loads(body)["socket"] if b" 200 " in head.partition(b"\r\n")[0] else None
    except (ValueError, LookupError, TypeError):
        path = None
    if not isinstance(path, str):
        raise _Failed(f"--etcd-servers={url}: the server is not the etcd of envtest")
    if os.stat(path).st_uid != os.getuid():  # noqa: PTH116 - importing pathlib takes as long as all else
        raise _Failed(f"--etcd-servers={url}: the etcd of another user")
    return path


def _connect(servers: list[str], deadline: float | None) -> socket.socket:
    """Return a connection to the first of ``servers`` that answers; retry until ``deadline``. Raises _Failed."""
    while True:
        for url in servers:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(_socket_path(url))
            except OSError as error:
                connection.close()
                reason = error
            except BaseException:
                connection.close()
                raise
            else:
                return connection
        if deadline is not None and time.monotonic() > deadline:
            raise _Failed(f"cannot connect to etcd at {', '.join(servers)}: {reason}")
        pause = _PAUSE_SECONDS if deadline is not None else _LONG_PAUSE_SECONDS
        time.sleep(pause)


def _messages(connection: socket.socket) -> Iterator[dict[str, Any]]:
    """Yield the messages of ``etcd`` until it closes the connection."""
    waiting = b""
    while part := connection.recv(4096):
        *lines, waiting = (waiting + part).split(b"\n")
        for line in lines:
            yield json.loads(line)


def _serve(connection: socket.socket, request: bytes) -> None:
    """Request the API and return when ``etcd`` ends. Raises _Failed, _Stopped."""
    with connection:
        try:
            connection.sendall(request)
            for message in _messages(connection):
                if "error" in message:
                    raise _Failed(message["error"])
                _report(message["message"])
        except _Stopped:
            connection.shutdown(socket.SHUT_WR)
            for _ in _messages(connection):
                pass
            raise
        except OSError as error:
            _report(f"lost the connection to etcd: {error}")


def _absolute(path: str) -> str:
    return os.path.abspath(path)  # noqa: PTH100 - symbolic links stay


def _request(command: CommandLine, version: str) -> bytes:
    values = {
        name: [
            _absolute(value) if name in KUBE_APISERVER.paths and value else value for value in given
        ]
        for name, given in command.values.items()
    }
    return json.dumps({"flags": values, "kubernetesVersion": version}).encode() + b"\n"


def _run(command: CommandLine, version: str) -> NoReturn:
    servers = command.items("etcd-servers")
    if not servers:
        raise FlagError("--etcd-servers must be specified")
    deadline: float | None = time.monotonic() + CONNECT_SECONDS
    while True:
        _serve(_connect(servers, deadline), _request(command, version))
        _report("etcd ended; waiting for it")
        deadline = None


def main(arguments: list[str], version: str = str(LATEST)) -> int:
    """Run the program until SIGTERM or SIGINT; return its exit code. ``version`` is the version to behave like."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        command = KUBE_APISERVER.parse(arguments)
        if command.is_help():
            sys.stdout.write(KUBE_APISERVER.usage())
            return 0
        if "version" in command.values:
            sys.stdout.write(f"Kubernetes {version}\n")
            return 0
        for warning in command.warnings:
            _report(warning)
        _run(command, version)
    except (FlagError, _Failed) as error:
        _report(str(error))
        return 1
    except _Stopped:
        return 0
