"""What exec, attach and port-forward answer: the callbacks of a test, or the data of the scenario."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from envtest.apimachinery.clock import Clock
from envtest.apimachinery.errors import internal_error
from envtest.apimachinery.objects import Object
from envtest.scenarios.scenario import Scenario
from envtest.simulation.model import CommandAnswer
from envtest.streams.port_forward import Forwarded, ForwardError
from envtest.streams.remote_command import STDERR, STDOUT, Streams, exit_status

__all__ = ["ExecCall", "PortCall", "forward_port", "run_attach", "run_command"]

_NO_ANSWER: Final = 127


def _as_bytes(data: bytes | str) -> bytes:
    return data.encode() if isinstance(data, str) else data


class ExecCall:
    """One exec or attach, for callbacks: the ``pod`` (a copy), ``container``, ``command``, and whether it has a tty."""

    def __init__(
        self, pod: Object, container: str, command: list[str], streams: Streams, *, tty: bool
    ) -> None:
        self.pod = pod
        self.container = container
        self.command = command
        self.tty = tty
        self._streams = streams

    async def read(self) -> bytes:
        """Return the next bytes of stdin, or none at its end."""
        return await self._streams.stdin.read()

    async def write(self, data: bytes | str) -> None:
        """Write to stdout."""
        await self._streams.write(STDOUT, _as_bytes(data))

    async def write_error(self, data: bytes | str) -> None:
        """Write to stderr."""
        await self._streams.write(STDERR, _as_bytes(data))


class PortCall:
    """One connection of a port-forward, for callbacks: the ``pod`` (a copy) and the ``port``."""

    def __init__(self, pod: Object, port: int, connection: Forwarded) -> None:
        self.pod = pod
        self.port = port
        self._connection = connection

    async def read(self) -> bytes:
        """Return the next bytes of the client, or none at the end."""
        return await self._connection.incoming.read()

    async def write(self, data: bytes | str) -> None:
        """Send bytes to the client."""
        await self._connection.write(_as_bytes(data))


async def _call(function: Callable[..., Any], call: Any) -> Any:
    result = function(call)
    return await result if inspect.isawaitable(result) else result


async def _answer_call(function: Callable[..., Any], call: ExecCall) -> dict[str, Any]:
    try:
        result = await _call(function, call)
    except ConnectionError:
        raise
    except Exception as error:  # noqa: BLE001 - a failure of the test's function is the answer to the client
        return internal_error(f"error executing command in container: {error!r}").status()
    if isinstance(result, str | bytes):
        await call.write(result)
        result = 0
    return exit_status(int(result or 0), call.command)


async def _give(answer: CommandAnswer, streams: Streams, clock: Clock) -> int:
    if answer.after:
        due = asyncio.Event()
        timer = clock.call_later(answer.after, due.set)
        try:
            await due.wait()
        finally:
            timer.cancel()
    if answer.stdout:
        await streams.write(STDOUT, answer.stdout.encode())
    if answer.stderr:
        await streams.write(STDERR, answer.stderr.encode())
    while answer.echo and (data := await streams.stdin.read()):
        await streams.write(STDOUT, data)
    return answer.exit_code


async def run_command(
    scenario: Scenario,
    clock: Clock,
    pod: Object,
    container: str,
    command: list[str],
    streams: Streams,
    *,
    tty: bool,
) -> dict[str, Any]:
    """Answer a command; return the Status. A command without an answer ends with exit code 127."""
    function = scenario.callback("exec", pod)
    if function is not None:
        return await _answer_call(function, ExecCall(pod, container, command, streams, tty=tty))
    for answer in scenario.behavior_of(pod).exec or ():
        if answer.matches(command, container):
            return exit_status(await _give(answer, streams, clock), command)
    text = f"envtest: the scenario has no answer to this command: {' '.join(command)}\n"
    await streams.write(STDERR, text.encode())
    return exit_status(_NO_ANSWER, command)


async def run_attach(
    scenario: Scenario, clock: Clock, pod: Object, container: str, streams: Streams, *, tty: bool
) -> dict[str, Any]:
    """Answer attach; return the Status. Without an answer, it ends with exit code 127."""
    function = scenario.callback("attach", pod)
    if function is not None:
        return await _answer_call(function, ExecCall(pod, container, [], streams, tty=tty))
    answer = scenario.behavior_of(pod).attach
    if answer is not None and answer.container in ("", container):
        return exit_status(await _give(answer, streams, clock), [])
    text = f"envtest: the scenario has no answer to attach for container {container}\n"
    await streams.write(STDERR, text.encode())
    return exit_status(_NO_ANSWER, [])


async def forward_port(scenario: Scenario, pod: Object, port: int, connection: Forwarded) -> None:
    """Answer one connection to a port. Raises ForwardError if nothing listens on it."""
    function = scenario.callback("forward", pod)
    prefix = f"error forwarding port {port} to pod {pod['metadata']['name']}, uid {pod['metadata']['uid']}: "
    if function is not None:
        try:
            await _call(function, PortCall(pod, port, connection))
        except ConnectionError:
            raise
        except Exception as error:
            raise ForwardError(f"{prefix}{error!r}") from error
        return
    address = scenario.ports_of(pod).get(port)
    refused = f"failed to connect to localhost:{port} inside namespace: connection refused"
    if address is None:
        raise ForwardError(prefix + refused)
    try:
        reader, writer = await asyncio.open_connection(*address)
    except OSError:
        raise ForwardError(prefix + refused) from None
    await _relay(reader, writer, connection)


async def _relay(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: Forwarded
) -> None:
    async def upload() -> None:
        while data := await connection.incoming.read():
            writer.write(data)
            await writer.drain()
        with suppress(OSError):
            writer.write_eof()

    uploading = asyncio.ensure_future(upload())
    try:
        while data := await reader.read(65536):
            await connection.write(data)
    except OSError:
        pass
    finally:
        uploading.cancel()
        await asyncio.gather(uploading, return_exceptions=True)
        writer.close()
