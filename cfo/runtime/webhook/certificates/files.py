"""A serving certificate from files that others write: cert-manager, OLM, a mounted Secret.

A kubelet swaps a mounted folder at once (through a link ``..data``), but may do so a minute after the Secret changed;
other programs write file after file. So a certificate and a key that do not belong together are no disaster: the former
pair is served until a good one is there. What is not there yet is waited for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel
import structlog
from anyio.abc import TaskStatus

from cfo.runtime.webhook.certificates.serving import KeyPair, ServingCertificate
from cfo.runtime.webhook.options import CertificateFiles

__all__ = ["CertificateFilesWatcher"]

_LOOK_AGAIN_MS: Final = 30_000  # some network file systems tell of no change

_log = structlog.get_logger("cfo.runtime.webhook.certificates")


class CertificateFilesWatcher:
    """Reads the files of ``source`` whenever they change, and shows what is in them."""

    name = "webhook certificate files"
    needs_leader = False

    def __init__(self, source: CertificateFiles, serving: ServingCertificate) -> None:
        self._source = source
        self._serving = serving
        self._changed = anyio.Event()
        self.failure = "the files were not read yet"

    @property
    def bundle(self) -> bytes | None:
        """What API servers shall trust (PEM), where that is in the files."""
        try:
            return (self._source.directory / self._source.ca).read_bytes()
        except OSError:
            return None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Follows the files until cancelled."""
        task_status.started()
        while True:
            folder, inode = self._folder()
            stop = anyio.Event()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch, folder, stop)
                try:
                    # The watch begins before the first look, so that nothing falls in between.
                    await anyio.lowlevel.checkpoint()
                    while self._folder() == (folder, inode):
                        self._changed = anyio.Event()
                        self._read()
                        await self._changed.wait()
                finally:
                    stop.set()

    def _folder(self) -> tuple[Path, int]:
        """The folder of the files, or the nearest one above it that exists; and which one that is."""
        folder = self._source.directory
        while not folder.is_dir():
            folder = folder.parent
        return folder, folder.stat().st_ino

    async def _watch(self, folder: Path, stop: anyio.Event) -> None:
        from watchfiles import awatch  # only who has such files pays for it (1 MB)

        changes = awatch(
            folder,
            watch_filter=None,
            debounce=400,
            step=20,
            stop_event=stop,
            rust_timeout=_LOOK_AGAIN_MS,
            yield_on_timeout=True,
            recursive=folder == self._source.directory,
        )
        async for _ in changes:
            self._changed.set()

    def _read(self) -> None:
        folder = self._source.directory
        try:
            pair = KeyPair((folder / self._source.certificate).read_bytes(), (folder / self._source.key).read_bytes())
            self._serving.serve(pair)
        except (OSError, ValueError) as error:
            failure = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else f"{folder}: {error}"
            if failure != self.failure:
                _log.warning("the webhook certificate cannot be read (yet)", folder=str(folder), error=failure)
            self.failure = failure
        else:
            self.failure = ""
