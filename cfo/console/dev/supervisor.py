"""``cfo dev -- COMMAND``: runs a program as a child process, and restarts it when a source file is saved.

All changes within a short time cause one restart. A file with a syntax error is reported, and the running program is
kept until the next change. A program that ends is started again after the next change. A signal ends the program and
the supervisor: the first one gracefully, the second one at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import click
from anyio.abc import TaskStatus

from cfo.console.errors import CommandFailed, run_async

_SUFFIXES: Final = frozenset({".json", ".py", ".pyi", ".sh", ".toml", ".yaml", ".yml"})
_BURST_MS: Final = 300
"""Editors and version control write many files at once; changes within this time are one change."""
_GRACE_SECONDS: Final = 10.0


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


async def source_changes(
    folders: Sequence[Path], stop: anyio.Event, *, started: Callable[[], None] = lambda: None
) -> AsyncIterator[set[Path]]:
    """Yield the source files below ``folders`` that have changed, one set for each burst of changes, until ``stop``.

    ``started`` is called when the first change can be noticed. Caches, hidden folders and virtual environments are
    ignored (the default of watchfiles).
    """
    from watchfiles import Change, DefaultFilter, awatch

    ignored = DefaultFilter()

    def is_source(change: Change, path: str) -> bool:
        return Path(path).suffix in _SUFFIXES and ignored(change, path)

    changes = awatch(
        *folders, watch_filter=is_source, debounce=_BURST_MS, step=100, stop_event=stop, rust_timeout=1_000,
        yield_on_timeout=True,
    )  # fmt: skip
    is_started = False
    async for found in changes:
        if not is_started:
            is_started = True
            started()  # the first timeout comes after the watch has begun
        if found:
            yield {Path(path) for _, path in found}


class Supervisor:
    """Runs ``command`` with the environment variables ``environment``, and restarts it when ``folders`` change.

    ``report`` is called with each line for the user. ``folders`` can contain files.
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
        self._ending: anyio.abc.Process | None = None
        self._interrupted = False
        self._stop = anyio.Event()
        self.starts = 0

    def stop(self) -> None:
        """Stop the program and the supervisor."""
        self._stop.set()

    async def run(
        self, *, handle_signals: bool = True, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Run until a signal or :meth:`stop`; the program has ended when this returns.

        Raises :class:`OSError` if the program cannot be started.
        """
        async with anyio.create_task_group() as tasks:
            if handle_signals:
                tasks.start_soon(self._handle_signals)
            try:
                await self._start(tasks)
                async for changed in source_changes(self._folders, self._stop, started=task_status.started):
                    await self._apply(changed, tasks)
            finally:
                with anyio.CancelScope(shield=True):
                    await self._end()
                tasks.cancel_scope.cancel()

    async def _apply(self, changed: set[Path], tasks: anyio.abc.TaskGroup) -> None:
        problems = syntax_errors(changed)
        for problem in problems:
            self._report(f"{problem}; waiting for the next change")
        if problems:
            return
        names = sorted(path.name for path in changed)
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        self._report(f"{', '.join(names[:3])}{more} changed, restarting")
        await self._end()
        if not self._stop.is_set():
            await self._start(tasks)

    async def _start(self, tasks: anyio.abc.TaskGroup) -> None:
        # In a group of its own, so that a signal from the terminal reaches only the supervisor, which ends the program.
        self._process = await anyio.open_process(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=None,
            stderr=None,
            env=self._environment,
            start_new_session=True,
        )
        self.starts += 1
        tasks.start_soon(self._report_end, self._process)

    async def _report_end(self, process: anyio.abc.Process) -> None:
        code = await process.wait()
        if process is not self._ending and not self._stop.is_set():
            self._report(f"the program ended with code {code}; waiting for the next change")

    async def _end(self) -> None:
        """End the program and its children: gracefully, and after the grace period or a second signal at once."""
        process = self._ending = self._process
        if process is None:
            return
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
            with anyio.move_on_after(self._grace):
                while process.returncode is None and not self._interrupted:
                    with anyio.move_on_after(0.2):  # anyio cannot wait for two things at once
                        await process.wait()
            if process.returncode is None:
                self._report(f"the program did not stop within {self._grace:g} s, killing it")
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.aclose()
        self._process = None  # only now: if this is cancelled, the process is ended again

    async def _handle_signals(self) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for _ in signals:
                self._interrupted = self._stop.is_set()
                self._stop.set()


@click.command(
    "dev",
    short_help="Run a program, and restart it when its source changes.",
    context_settings={"ignore_unknown_options": True},
)
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

    Several files that are saved together cause one restart. While a file has a syntax error, the running program is
    kept. Ctrl-C ends both.
    """
    supervisor = Supervisor(program, folders or (Path.cwd(),), report)
    try:
        run_async(supervisor.run)
    except OSError as error:
        raise CommandFailed(f"cannot run {program[0]}: {error.strerror or error}") from None


def report(line: str) -> None:
    """Print a line of the supervisor."""
    click.secho(f"dev: {line}", err=True, fg="cyan")
