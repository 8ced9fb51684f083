"""Users that a front proxy has authenticated: its client certificate, and headers with the name of the user.

Behaves like kube-apiserver with ``--requestheader-client-ca-file``. Certificates of intermediate CAs are not accepted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from urllib.parse import unquote

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from msgspec import Struct
from multidict import CIMultiDict, MultiMapping

from envtest.apimachinery.user import User

__all__ = ["NO_HEADERS", "ClientAuthorities", "FrontProxy"]

NO_HEADERS: MultiMapping[str] = CIMultiDict()
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


class FrontProxy(Struct, frozen=True):
    """A proxy that is trusted to name users.

    ``ca`` (PEM) has signed its certificate, whose common name is in ``allowed_names`` unless those are empty. The first
    of the ``username_headers`` with a value has the name; ``group_headers`` can be repeated; what follows one of the
    ``extra_prefixes`` in a header's name is the key of an extra field.
    """

    ca: bytes
    allowed_names: tuple[str, ...] = ()
    username_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()

    def user(self, headers: MultiMapping[str]) -> User | None:
        """Return the user that the headers name, or ``None``."""
        name = _first_value(headers, self.username_headers)
        if not name:
            return None
        groups: list[str] = []
        for header in self.group_headers:
            groups += headers.getall(header, ())
        uid = _first_value(headers, self.uid_headers)
        return User(name, uid, tuple(groups), self._extra(headers))

    def _extra(self, headers: MultiMapping[str]) -> dict[str, tuple[str, ...]]:
        extra: dict[str, list[str]] = {}
        for header, value in headers.items():
            for prefix in self.extra_prefixes:
                if header.lower().startswith(prefix.lower()):
                    extra.setdefault(_extra_key(header[len(prefix) :]), []).append(value)
        return {key: tuple(values) for key, values in extra.items()}

    def settings(self) -> dict[str, str]:
        """Return the data that the ConfigMap ``extension-apiserver-authentication`` has about the proxy."""
        lists = {
            "allowed-names": self.allowed_names,
            "extra-headers-prefix": self.extra_prefixes,
            "group-headers": self.group_headers,
            "uid-headers": self.uid_headers,
            "username-headers": self.username_headers,
        }
        shown = {
            f"requestheader-{name}": json.dumps(list(items), separators=(",", ":"))
            for name, items in lists.items()
        }
        return {"requestheader-client-ca-file": self.ca.decode("ascii"), **shown}


class ClientAuthorities:
    """The CAs of client certificates: of users, and of a front proxy. Raises ValueError for unusable certificates."""

    def __init__(self, client_ca: bytes | None, proxy: FrontProxy) -> None:
        self.proxy = proxy
        self._clients = _read_certificates(client_ca or b"")
        self._proxies = _read_certificates(proxy.ca)

    def is_proxy(self, certificate: x509.Certificate, name: str) -> bool:
        """Return whether a certificate with the common name ``name`` is that of the front proxy."""
        allowed = self.proxy.allowed_names
        if allowed and name not in allowed:
            return False
        return _is_issued_by(certificate, self._proxies)

    def is_client(self, certificate: x509.Certificate) -> bool:
        """Return whether a certificate identifies a user: that of a proxy, or of its CA, does not."""
        return _is_issued_by(certificate, self._clients)


def _read_certificates(pem: bytes) -> list[x509.Certificate]:
    """Return the certificates of a PEM file, none for an empty one. Raises ValueError."""
    return x509.load_pem_x509_certificates(pem) if pem.strip() else []


def _is_issued_by(certificate: x509.Certificate, authorities: Sequence[x509.Certificate]) -> bool:
    """Return whether one of the authorities has signed a certificate, or is the certificate itself."""
    return any(
        authority == certificate or _has_signed(authority, certificate) for authority in authorities
    )


def _has_signed(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _first_value(headers: MultiMapping[str], names: Iterable[str]) -> str:
    for name in names:
        value = headers.get(name, "").strip()
        if value:
            return value
    return ""


def _extra_key(text: str) -> str:
    """Return a key of the extra fields; one with a malformed percent-encoding stays as it is."""
    lowered = text.lower()
    _, *escapes = lowered.split("%")
    is_well_formed = all(len(rest) >= 2 and set(rest[:2]) <= _HEX_DIGITS for rest in escapes)
    return unquote(lowered) if is_well_formed else lowered
