"""Watches certificates in files that another tool writes: cert-manager, OLM, a mounted Secret.

Programs that write one file after the other cause a mismatch between certificate and key for a short time: the previous
pair is served until the new one is complete. The kubelet replaces a mounted directory atomically (through the symbolic
link ``..data``), but up to a minute after the Secret has changed. The watchers wait for files that do not exist yet.
"""

from __future__ import annotations

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


class FilesWatcher:
    """Calls :meth:`_load` at the start and whenever a file in ``directory`` changes. The files may be created later."""

    name = "files"

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
            failure = f"{self._watched}: {error}"
            if isinstance(error, OSError):
                failure = f"{error.strerror}: {error.filename}"
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


class CertificateFilesWatcher(FilesWatcher):
    """Reads the files of ``source`` whenever they change, and serves the certificate in them.

    ``server`` is the name of the server, for logs.
    """

    def __init__(
        self, source: CertificateFiles, serving: ServingCertificate, server: str = "webhook"
    ) -> None:
        super().__init__(source.directory)
        self.name = f"{server} certificate files"
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
    """Reads the CAs (PEM) of client certificates from ``file`` whenever it changes; ``serving`` then requires them."""

    name = "webhook client CA"

    def __init__(self, file: Path, serving: ServingCertificate) -> None:
        super().__init__(file.parent)
        self._file = file
        self._serving = serving

    def _load(self) -> None:
        if self._file.stat().st_size > _MAX_CA_BYTES:
            raise ValueError(f"{self._file.name} is too large: limit is {_MAX_CA_BYTES} bytes")
        self._serving.trust_clients(self._file.read_bytes())
