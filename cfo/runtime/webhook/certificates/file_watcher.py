"""Watches certificates in files that another tool writes: cert-manager, OLM, a mounted Secret.

Programs that write one file after the other cause a mismatch between certificate and key for a short time: the previous
pair is served until the new one is complete. The kubelet replaces a mounted directory atomically (through the symbolic
link ``..data``), but up to a minute after the Secret has changed. The watchers wait for files that do not exist yet.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel
import structlog
from anyio.abc import TaskStatus

from cfo.runtime.pki.certificates import KeyPair
from cfo.runtime.webhook.certificates.serving_certificate import ServingCertificate
from cfo.runtime.webhook.options import CertificateFiles

_MAX_CA_BYTES: Final = 1024 * 1024
_POLL_INTERVAL_MS: Final = 30_000
"""How often the files are read in any case, because some network file systems report no changes."""

_log = structlog.get_logger(__name__)


class FilesWatcher(ABC):
    """Calls :meth:`_load` at the start and whenever a file in ``directory`` changes. The files may be created later.

    ``name`` is what the files are, for logs.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = name
        self._changed = anyio.Event()
        self.failure = "the files have not been read yet"
        """Why the current files cannot be used; empty if they are in use."""

    @abstractmethod
    def _load(self) -> None:
        """Read and use the files. Raises :class:`OSError` or :class:`ValueError` if they cannot be used."""

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Watch the files until cancelled."""
        task_status.started()
        while True:
            directory, inode = self._existing_directory()
            await self._run_until_replaced(directory, inode)

    async def _run_until_replaced(self, directory: Path, inode: int) -> None:
        """Watch ``directory`` until :meth:`_existing_directory` is another one, which needs a watch of its own."""
        stop = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, directory, stop)
            try:
                # The watch starts here, before the first read, so that no change is missed in between.
                await anyio.lowlevel.checkpoint()
                while self._existing_directory() == (directory, inode):
                    # A change while the files are read must cause another read.
                    self._changed = anyio.Event()
                    self._read()
                    await self._changed.wait()
            finally:
                stop.set()

    def _existing_directory(self) -> tuple[Path, int]:
        """Return the directory of the files, or its nearest parent that exists, and the inode of that directory."""
        directory = self._directory
        while not directory.is_dir():
            directory = directory.parent
        return directory, directory.stat().st_ino

    async def _watch(self, directory: Path, stop: anyio.Event) -> None:
        """Set ``_changed`` whenever a file changes, and every :data:`_POLL_INTERVAL_MS`, until ``stop`` is set."""
        from watchfiles import awatch  # imported lazily: 1 MB that is only needed with such files

        changes = awatch(
            directory,
            watch_filter=None,
            debounce=400,
            step=20,
            stop_event=stop,
            rust_timeout=_POLL_INTERVAL_MS,
            yield_on_timeout=True,
            # A parent of the directory can have any number of files.
            recursive=directory == self._directory,
        )
        async for _ in changes:
            self._changed.set()

    def _read(self) -> None:
        """Load the files, and log a failure once."""
        failure = ""
        try:
            self._load()
        except OSError as error:
            failure = f"{error.strerror}: {error.filename}"
        except ValueError as error:
            failure = f"{self._directory}: {error}"
        if failure and failure != self.failure:
            _log.warning(
                "Failed to read files, waiting for them to change",
                files=self._name,
                directory=str(self._directory),
                error=failure,
            )
        self.failure = failure


class CertificateFilesWatcher(FilesWatcher):
    """Reads the files of ``source`` whenever they change, and serves the certificate in them.

    ``server`` is the name of the server, for logs.
    """

    def __init__(
        self, source: CertificateFiles, serving: ServingCertificate, server: str = "webhook"
    ) -> None:
        super().__init__(source.directory, f"{server} certificate files")
        self._source = source
        self._serving = serving

    @property
    def bundle(self) -> bytes | None:
        """The CA bundle (PEM) that API servers should trust; ``None`` if there is no such file."""
        try:
            return (self._source.directory / self._source.ca).read_bytes()
        except OSError:
            return None

    def _load(self) -> None:
        directory = self._source.directory
        certificate = (directory / self._source.certificate).read_bytes()
        key = (directory / self._source.key).read_bytes()
        self._serving.serve(KeyPair(certificate, key))


class ClientCAWatcher(FilesWatcher):
    """Reads the CAs (PEM) of client certificates from ``file`` whenever it changes.

    ``serving`` then refuses connections without a client certificate of one of them.
    """

    def __init__(self, file: Path, serving: ServingCertificate) -> None:
        super().__init__(file.parent, "webhook client CA")
        self._file = file
        self._serving = serving

    def _load(self) -> None:
        if self._file.stat().st_size > _MAX_CA_BYTES:
            raise ValueError(f"{self._file.name} is too large: limit is {_MAX_CA_BYTES} bytes")
        self._serving.trust_clients(self._file.read_bytes())
