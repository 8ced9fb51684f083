"""The certificate that a server presents in TLS handshakes. It can be replaced at any time.

A replacement takes effect with the next handshake; connections that are already open stay open.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import structlog
from cryptography import x509

from cfo.runtime.pki.certificates import KeyPair, load_certificates
from cfo.runtime.webhook.metrics import CertificateMetrics

_log = structlog.get_logger(__name__)


class ServingCertificate:
    """The certificate of a TLS server. :attr:`available` is set as soon as there is one.

    With ``require_clients`` clients must present a certificate of a CA that :meth:`trust_clients` has set; before that,
    nothing is available.
    """

    def __init__(
        self, metrics: CertificateMetrics | None = None, *, require_clients: bool = False
    ) -> None:
        self.available = anyio.Event()
        self.pair: KeyPair | None = None
        self.leaf: x509.Certificate | None = None
        self._metrics = metrics
        self._require_clients = require_clients
        self._client_cas = b""
        self._context: ssl.SSLContext | None = None

    def serve(self, pair: KeyPair) -> None:
        """Present ``pair`` starting with the next handshake.

        Raises :class:`ValueError` if certificate and key cannot be used together; the previous pair then stays in use.
        """
        if pair == self.pair:
            return
        try:
            leaf = pair.leaf
            context = self._new_context(pair, self._client_cas)
        except (ValueError, ssl.SSLError) as error:
            if self._metrics is not None:
                self._metrics.read_errors.inc()
            raise ValueError(f"cannot use the serving certificate: {error}") from error
        self.pair = pair
        self.leaf = leaf
        self._context = context
        if self._metrics is not None:
            self._metrics.reads.inc()
            self._metrics.expires.set(leaf.not_valid_after_utc.timestamp())
        self._set_available()
        _log.info(
            "Serving certificate changed",
            serial=f"{leaf.serial_number:x}",
            expires=leaf.not_valid_after_utc.isoformat(),
        )

    def trust_clients(self, cas: bytes) -> None:
        """Accept only clients with a certificate of one of ``cas`` (PEM), starting with the next handshake.

        Raises :class:`ValueError` if they cannot be used; the previous CAs then stay in use.
        """
        if cas == self._client_cas:
            return
        found = load_certificates(cas)
        if self.pair is not None:
            self._context = self._new_context(self.pair, cas)
        self._client_cas = cas
        self._set_available()
        _log.info("Client CAs changed", subjects=[one.subject.rfc4514_string() for one in found])

    def _set_available(self) -> None:
        if self.pair is not None and (self._client_cas or not self._require_clients):
            self.available.set()

    def _new_context(self, pair: KeyPair, client_cas: bytes) -> ssl.SSLContext:
        context = _context(pair)
        if self._require_clients:
            _require_clients(context)
            if client_cas:
                try:
                    context.load_verify_locations(cadata=client_cas.decode())
                except ssl.SSLError as error:
                    raise ValueError(f"cannot use the client CAs: {error}") from error
        return context

    def ssl_context(self) -> ssl.SSLContext:
        """Return the context for a listening socket: TLS 1.2 or later, HTTP/1.1, always the current certificate."""
        context = _server_context()
        if self._require_clients:
            # OpenSSL takes the mode from this context, and the CAs from the context that is chosen below.
            _require_clients(context)

        def choose(connection: ssl.SSLObject, _name: str, _context: ssl.SSLContext) -> int | None:
            if self._context is None:
                return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
            connection.context = self._context
            return None

        # OpenSSL calls this in every handshake, even if the client sends no server name.
        context.sni_callback = choose
        return context


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    # A resumed session would keep the old certificate. API servers reuse connections instead.
    context.num_tickets = 0
    return context


def _require_clients(context: ssl.SSLContext) -> None:
    context.verify_mode = ssl.CERT_REQUIRED
    # As in Go, each CA in the file is trusted, also intermediates.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _context(pair: KeyPair) -> ssl.SSLContext:
    context = _server_context()
    with _file(pair.certificate.rstrip() + b"\n" + pair.key) as path:
        context.load_cert_chain(path)
    return context


@contextmanager
def _file(content: bytes) -> Iterator[str]:
    """Yield the path of a file with ``content``, because :mod:`ssl` loads certificates only from files.

    The file is in memory if the platform supports it, because the root filesystem may be read-only.
    """
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
