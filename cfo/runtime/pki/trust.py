"""Which servers a TLS client trusts."""

from __future__ import annotations

import ssl


def client_context(ca_pem: bytes) -> ssl.SSLContext:
    """Return a context for TLS 1.2 or later that verifies servers as Go's clients do.

    ``ca_pem``: the trusted CA certificates, empty for those of the system. Each of them is trusted even if it is not
    self-signed. The strict X.509 flag, which Python 3.13 sets, is cleared: it rejects certificates without key
    identifiers, which Go accepts and which kubeadm and other tools created for years. Raises :class:`ssl.SSLError` and
    :class:`ValueError` for invalid certificates.
    """
    context = ssl.create_default_context(cadata=ca_pem.decode("ascii", "replace") or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
