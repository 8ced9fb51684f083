"""Watches certificates in files that another tool writes: cert-manager, OLM, a mounted Secret.

Programs that write one file after the other cause a mismatch between certificate and key for a short time: the previous
pair is served until the new one is complete.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cfo.runtime.process.files_watcher import FilesWatcher
from cfo.runtime.webhook.certificates.serving_certificate import KeyPair, ServingCertificate
from cfo.runtime.webhook.options import CertificateFiles

__all__ = ["CertificateFilesWatcher", "ClientCAWatcher"]

_MAX_CA_BYTES: Final = 1024 * 1024


class CertificateFilesWatcher(FilesWatcher):
    """Reads the files of ``source`` whenever they change, and serves the certificate in them.

    ``server`` is the name of the server, for logs.
    """

    def __init__(self, source: CertificateFiles, serving: ServingCertificate, server: str = "webhook") -> None:
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
        self._serving.serve(
            KeyPair((directory / self._source.certificate).read_bytes(), (directory / self._source.key).read_bytes())
        )


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
