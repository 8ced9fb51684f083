"""Watches a directory whose files another program writes: cert-manager, OLM, a mounted Secret.

The kubelet replaces a mounted directory atomically (through the symbolic link ``..data``), but up to a minute after the
Secret has changed; other programs write one file after the other. The watcher waits for files that do not exist yet.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel
import structlog
from anyio.abc import TaskStatus

__all__ = ["FilesWatcher"]

_POLL_INTERVAL_MS: Final = 30_000  # some network file systems report no changes

_log = structlog.get_logger(__name__)


class FilesWatcher:
    """Calls :meth:`_load` at the start and whenever a file in ``directory`` changes. The files may be created later."""

    name = "files"
    needs_leader = False

    def __init__(self, directory: Path) -> None:
        self._watched = directory
        self._changed = anyio.Event()
        self.failure = "the files have not been read yet"

    def _load(self) -> None:
        """Read and use the files. Raises :class:`OSError` or :class:`ValueError` if they cannot be used."""
        raise NotImplementedError

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Watch the files until cancelled."""
        task_status.started()
        while True:
            directory, inode = self._directory()
            stop = anyio.Event()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch, directory, stop)
                try:
                    # The watch starts before the first read, so that no change is missed in between.
                    await anyio.lowlevel.checkpoint()
                    while self._directory() == (directory, inode):
                        self._changed = anyio.Event()
                        self._read()
                        await self._changed.wait()
                finally:
                    stop.set()

    def _directory(self) -> tuple[Path, int]:
        """Return the directory of the files, or its nearest parent that exists, and the inode of that directory."""
        directory = self._watched
        while not directory.is_dir():
            directory = directory.parent
        return directory, directory.stat().st_ino

    async def _watch(self, directory: Path, stop: anyio.Event) -> None:
        from watchfiles import awatch  # imported lazily: 1 MB that is only needed with such files

        changes = awatch(
            directory,
            watch_filter=None,
            debounce=400,
            step=20,
            stop_event=stop,
            rust_timeout=_POLL_INTERVAL_MS,
            yield_on_timeout=True,
            recursive=directory == self._watched,
        )
        async for _ in changes:
            self._changed.set()

    def _read(self) -> None:
        try:
            self._load()
        except (OSError, ValueError) as error:
            failure = (
                f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else f"{self._watched}: {error}"
            )
            if failure != self.failure:
                _log.warning(
                    "Failed to read files, waiting for them to change",
                    files=self.name,
                    directory=str(self._watched),
                    error=failure,
                )
            self.failure = failure
        else:
            self.failure = ""
