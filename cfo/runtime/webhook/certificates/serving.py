"""The certificate that is shown in each TLS handshake; it can be changed between two of them.

Connections that are open keep the certificate that they began with: nothing is dropped.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import anyio
import structlog
from cryptography import x509

from cfo.runtime.webhook.metrics import CertificateMetrics

__all__ = ["KeyPair", "ServingCertificate"]

_log = structlog.get_logger("cfo.runtime.webhook.certificates")


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate, with those that lead from it to its authority, and its private key; both PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyPair(...)"

    @property
    def leaf(self) -> x509.Certificate:
        """The certificate itself. Raises :class:`ValueError` when it is none."""
        return x509.load_pem_x509_certificate(self.certificate)


class ServingCertificate:
    """What a server shows. :attr:`available` is set as soon as there is something."""

    def __init__(self, metrics: CertificateMetrics | None = None) -> None:
        self.available = anyio.Event()
        self.pair: KeyPair | None = None
        self.leaf: x509.Certificate | None = None
        self._metrics = metrics
        self._context: ssl.SSLContext | None = None

    def serve(self, pair: KeyPair) -> None:
        """Shows ``pair`` from the next handshake on.

        Raises :class:`ValueError` when certificate and key cannot be used together; then nothing changes.
        """
        if pair == self.pair:
            return
        try:
            leaf, context = pair.leaf, _context(pair)
        except (ValueError, ssl.SSLError) as error:
            if self._metrics is not None:
                self._metrics.read_errors.inc()
            raise ValueError(f"the certificate cannot be served: {error}") from error
        self.pair, self.leaf, self._context = pair, leaf, context
        if self._metrics is not None:
            self._metrics.reads.inc()
            self._metrics.expires.set(leaf.not_valid_after_utc.timestamp())
        self.available.set()
        _log.info(
            "serving a certificate",
            serial=f"{leaf.serial_number:x}",
            expires=leaf.not_valid_after_utc.isoformat(),
        )

    def front(self) -> ssl.SSLContext:
        """The context for a listening socket: TLS 1.2 and later, HTTP/1.1, the certificate of the moment."""
        context = _server_context()

        def choose(connection: ssl.SSLObject, _name: str, _context: ssl.SSLContext) -> int | None:
            if self._context is None:
                return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
            connection.context = self._context
            return None

        # Called in every handshake, also of clients that name no server.
        context.sni_callback = choose
        return context


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    context.num_tickets = 0  # API servers keep connections; a resumed session would go on with the old certificate
    return context


def _context(pair: KeyPair) -> ssl.SSLContext:
    context = _server_context()
    with _file(pair.certificate.rstrip() + b"\n" + pair.key) as path:
        context.load_cert_chain(path)
    return context


@contextmanager
def _file(content: bytes) -> Iterator[str]:
    """A file with ``content``, which :mod:`ssl` insists on; in memory where that exists, as disks may be read-only."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile(prefix="cfo-", suffix=".pem") as file:
        file.write(content)
        file.flush()
        yield file.name
