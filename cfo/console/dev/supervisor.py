"""``cfo dev -- COMMAND``: runs a program as a child process, and restarts it when a source file is saved.

Source files are those of Python, and those with which programs are configured (:data:`_SUFFIXES`).

All changes within a short time cause one restart. A file with a syntax error is reported, and the running program is
kept until the next change. A program that ends is started again after the next change. A signal ends the program and
the supervisor: the first one gracefully, the second one at once.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import anyio.lowlevel
import click

from cfo.console.errors import CommandFailed, InvalidInput, run_async

_SUFFIXES: Final = (".json", ".pyi", ".sh", ".toml", ".yaml", ".yml")
_BURST_MS: Final = 300
"""Editors and version control write many files at once; changes within this time are one change."""
_GRACE_SECONDS: Final = 10.0
_MAX_SHOWN: Final = 3
"""The maximum number of changed files that are named."""


def syntax_errors(paths: Iterable[Path]) -> list[str]:
    """Return one line for each Python file in ``paths`` that cannot be compiled; deleted files are ignored."""
    found = []
    for path in sorted(paths):
        if path.suffix != ".py":
            continue
        try:
            compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        except SyntaxError as error:
            found.append(f"{path}:{error.lineno or 0}: {error.msg}")
        except ValueError as error:  # null bytes
            found.append(f"{path}: {error}")
        except OSError:
            continue
    return found


class Supervisor:
    """Runs ``command`` with the environment variables ``environment``, and restarts it when ``folders`` change.

    ``report`` is called with each line for the user. ``folders`` can contain files. Caches, hidden folders and virtual
    environments in them are ignored (the default of watchfiles).
    """

    def __init__(
        self,
        command: Sequence[str],
        folders: Sequence[Path],
        report: Callable[[str], None],
        *,
        environment: Mapping[str, str] | None = None,
        grace_seconds: float = _GRACE_SECONDS,
    ) -> None:
        self._command = list(command)
        self._folders = list(folders)
        self._report = report
        self._environment = None if environment is None else {**os.environ, **environment}
        self._grace = grace_seconds
        self._process: anyio.abc.Process | None = None
        self._stop = anyio.Event()
        self._woken = anyio.Event()
        self._changed: set[Path] = set()
        self.starts = 0

    def stop(self) -> None:
        """Stop the program and the supervisor."""
        self._stop.set()
        self._woken.set()

    async def run(self, *, handle_signals: bool = True) -> None:
        """Run until a signal or :meth:`stop`; the program has ended when this returns.

        Raises :class:`OSError` if the program cannot be started.
        """
        async with anyio.create_task_group() as tasks:
            if handle_signals:
                tasks.start_soon(self._handle_signals)
            tasks.start_soon(self._watch)
            # Lets the task above start, so that the folders are watched before the program reads them.
            await anyio.lowlevel.checkpoint()
            try:
                while not self._stop.is_set():
                    async with self._program():
                        await self._wait_for_change()
            finally:
                self._stop.set()  # otherwise the thread that watches the folders ends seconds later
            tasks.cancel_scope.cancel()

    async def _watch(self) -> None:
        from watchfiles import PythonFilter, awatch

        is_source = PythonFilter(extra_extensions=_SUFFIXES)
        changes = awatch(
            *self._folders,
            watch_filter=is_source,
            debounce=_BURST_MS,
            step=100,
            stop_event=self._stop,
        )
        async for found in changes:
            self._changed |= {Path(path) for _, path in found}
            self._woken.set()

    async def _wait_for_change(self) -> None:
        """Return when the program should restart, or stop."""
        while not self._stop.is_set():
            await self._woken.wait()
            self._woken = anyio.Event()
            changed = self._changed
            self._changed = set()
            if changed and self._can_restart(changed):
                return

    def _can_restart(self, changed: set[Path]) -> bool:
        problems = syntax_errors(changed)
        for problem in problems:
            self._report(f"{problem}; waiting for the next change")
        if problems:
            return False
        names = sorted(path.name for path in changed)
        shown = ", ".join(names[:_MAX_SHOWN])
        if len(names) > _MAX_SHOWN:
            shown += f" and {len(names) - _MAX_SHOWN} more"
        self._report(f"{shown} changed, restarting")
        return True

    @asynccontextmanager
    async def _program(self) -> AsyncIterator[None]:
        """Run the program during the block, and report its end in it."""
        # In a group of its own, so that a signal from the terminal reaches only the supervisor, which ends the program.
        process = await anyio.open_process(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=None,
            stderr=None,
            env=self._environment,
            start_new_session=True,
        )
        self._process = process
        self.starts += 1

        async def report_end() -> None:
            code = await process.wait()
            self._report(f"the program ended with code {code}; waiting for the next change")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(report_end)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await self._end(process)

    async def _end(self, process: anyio.abc.Process) -> None:
        """End the program and its children: gracefully, and after the grace period at once."""
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
            with anyio.move_on_after(self._grace) as waiting:
                await process.wait()
            if waiting.cancelled_caught:
                self._report(f"the program did not stop within {self._grace:g} s, killing it")
        _kill(process)
        await process.aclose()

    async def _handle_signals(self) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for _ in signals:
                if self._stop.is_set() and self._process is not None:
                    _kill(self._process)
                self.stop()


def _kill(process: anyio.abc.Process) -> None:
    """Kill the processes in the group of ``process``, which may have ended."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


@click.command("dev", context_settings={"ignore_unknown_options": True})
@click.option(
    "--watch",
    "folders",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    metavar="PATH",
    help="Folder or file to watch; by default the current folder. Repeatable.",
)
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def command(folders: tuple[Path, ...], program: tuple[str, ...]) -> None:
    """Run a program, and restart it when its source changes, for example: cfo dev -- python my_operator.py.

    Its source is in files that end with .py, .json, .pyi, .sh, .toml, .yaml or .yml. Several files that are saved
    together cause one restart. While a file has a syntax error, the running program is kept. Ctrl-C ends both.
    """
    if shutil.which(program[0]) is None:
        raise InvalidInput(f"cannot run {program[0]}: there is no such program")
    supervisor = Supervisor(program, folders or (Path.cwd(),), report)
    try:
        run_async(supervisor.run)
    except OSError as error:
        raise CommandFailed(f"cannot run {program[0]}: {error.strerror or error}") from None


def report(line: str) -> None:
    """Print a line of the supervisor."""
    click.secho(f"dev: {line}", err=True, fg="cyan")
