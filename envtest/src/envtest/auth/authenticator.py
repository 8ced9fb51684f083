"""Authentication of a request by client certificate, by bearer token (static or of a service account), or as anonymous.

Behaves like kube-apiserver with ``--token-auth-file``, ``--client-ca-file`` and service account issuing: the first
authenticator that accepts the credential decides. An unknown bearer token is rejected; a request without a credential
is ``system:anonymous``.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.x509.oid import NameOID
from multidict import MultiMapping

from envtest.apimachinery.clock import Clock
from envtest.apimachinery.file_errors import reason_of
from envtest.apimachinery.user import (
    ANONYMOUS,
    AUTHENTICATED,
    CREDENTIAL_ID,
    MASTERS,
    UNAUTHENTICATED,
    User,
    with_groups,
)
from envtest.auth.front_proxy import NO_HEADERS, ClientAuthorities
from envtest.auth.tokens import ForeignToken, InvalidToken, ServiceAccountTokens
from envtest.formats.bounded_file import read_file

__all__ = ["Authenticator", "TokenFileError", "TokenIdentity", "load_token_file"]

_MAX_CERTIFICATES = 256
_INVALID = "invalid bearer token"


class TokenFileError(ValueError):
    """Raised if a token file is invalid; the message contains the file and line."""


class TokenIdentity(NamedTuple):
    """The user of a token, and the audiences for which the token is valid."""

    user: User
    audiences: list[str]


def load_token_file(path: Path) -> dict[str, User]:
    """Read the users of a kube-apiserver token file: CSV lines ``token,user,uid[,"group1,group2"]``.

    Raises TokenFileError when the file cannot be read, and for a line with fewer than three columns or an empty token.
    """
    try:
        text = read_file(path).decode()
    except OSError as error:
        raise TokenFileError(f"cannot read the token file {path}: {reason_of(error)}") from error
    except UnicodeDecodeError:
        raise TokenFileError(f"cannot read the token file {path}: it is not UTF-8") from None
    users: dict[str, User] = {}
    reader = csv.reader(io.StringIO(text), skipinitialspace=True)
    for row in reader:
        if not row or row[0].startswith("#"):
            continue
        location = f"{path}, line {reader.line_num}"
        if len(row) < 3:
            raise TokenFileError(
                f"{location}: must have at least three columns (token, user, uid), got {len(row)}"
            )
        token = row[0]
        name = row[1]
        uid = row[2]
        if not token or not name:
            raise TokenFileError(f"{location}: token and user must not be empty")
        groups = tuple(group for group in row[3].split(",") if group) if len(row) > 3 else ()
        users[token] = User(name, uid, groups)
    return users


class Authenticator:
    """Determines the user of a request.

    ``admin_token`` authenticates user ``admin`` of ``system:masters``; ``users`` maps other static tokens to users.
    Static tokens are looked up by their SHA-256, so that the duration of a look-up reveals nothing about them. With
    ``authorities``, a client certificate can be that of a front proxy, and any other must be one of its client CA.
    """

    def __init__(
        self,
        tokens: ServiceAccountTokens,
        *,
        admin_token: str = "",
        users: Mapping[str, User] | None = None,
        anonymous: bool = True,
        clock: Clock | None = None,
        authorities: ClientAuthorities | None = None,
    ) -> None:
        self._clock = clock or Clock()
        self._authorities = authorities
        self._tokens = tokens
        self._anonymous = anonymous
        self._static: dict[bytes, User] = {}
        self._certificates: dict[bytes, _Certificate] = {}
        for token, user in (users or {}).items():
            self.add_user(token, user)
        if admin_token:
            self.add_user(admin_token, User("admin", "admin", (MASTERS,)))

    def fork(self, tokens: ServiceAccountTokens, clock: Clock) -> Authenticator:
        """Return an authenticator of the same static users, for a copy of the control plane."""
        copy = Authenticator(
            tokens, anonymous=self._anonymous, clock=clock, authorities=self._authorities
        )
        copy._static = dict(self._static)
        return copy

    def add_user(self, token: str, user: User) -> None:
        """Authenticate ``token`` as ``user`` from now on."""
        self._static[_digest(token)] = user

    def remove_user(self, token: str) -> None:
        """Reject ``token`` from now on, as if it had expired."""
        self._static.pop(_digest(token), None)

    def authenticate(
        self,
        authorization: str,
        peer_certificate: bytes | None = None,
        headers: MultiMapping[str] = NO_HEADERS,
    ) -> User | None:
        """Return the user of a request with this ``Authorization`` header and client certificate (DER, verified).

        ``headers`` are those of a front proxy. ``None`` means 401: an unknown token, no credential while anonymous
        requests are disabled, or a certificate that has expired by the clock of the plane or identifies no user.
        """
        rejected = False
        if peer_certificate is not None:
            certificate = self._cached_certificate(peer_certificate)
            expired = not certificate.first <= self._clock.now() <= certificate.last
            if certificate.is_proxy and not expired and self._authorities is not None:
                user = self._authorities.proxy.user(headers)
                if user is not None:
                    return _authenticated(user)
            rejected = expired or not certificate.is_client
            if certificate.user is not None and not rejected:
                return certificate.user
        token = bearer_token(authorization)
        if token:
            try:
                return self.identify(token).user
            except InvalidToken:
                return None
        return ANONYMOUS if self._anonymous and not rejected else None

    def identify(self, token: str, audiences: Sequence[str] | None = None) -> TokenIdentity:
        """Return the user of ``token``. Raises InvalidToken when it is unknown or valid for none of ``audiences``."""
        user = self._static.get(_digest(token))
        if user is not None:
            own = self._tokens.audiences
            valid_audiences = (
                [audience for audience in audiences if audience in own] if audiences else list(own)
            )
            if not valid_audiences:
                raise InvalidToken(_INVALID)
            return TokenIdentity(with_groups(user, AUTHENTICATED), valid_audiences)
        try:
            user, valid_audiences = self._tokens.authenticate(token, audiences or None)
        except ForeignToken as error:
            raise InvalidToken(_INVALID) from error
        except InvalidToken as error:
            raise InvalidToken(f"[{_INVALID}, {error}]") from error
        return TokenIdentity(with_groups(user, AUTHENTICATED), valid_audiences)

    def _cached_certificate(self, der: bytes) -> _Certificate:
        if der not in self._certificates:
            if len(self._certificates) >= _MAX_CERTIFICATES:
                self._certificates.clear()
            self._certificates[der] = _parse_certificate(der, self._authorities)
        return self._certificates[der]


def bearer_token(authorization: str) -> str:
    """Return the token of an ``Authorization`` header; empty for another scheme or a malformed header."""
    parts = authorization.strip().split(" ", 2)
    return parts[1] if len(parts) > 1 and parts[0].lower() == "bearer" else ""


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class _Certificate(NamedTuple):
    """The user of a client certificate, and the first and the last moment at which it is valid.

    ``is_client`` is whether the CA of users has signed it, ``is_proxy`` whether it is that of the front proxy.
    """

    user: User | None
    first: datetime
    last: datetime
    is_client: bool
    is_proxy: bool


def _parse_certificate(der: bytes, authorities: ClientAuthorities | None) -> _Certificate:
    certificate = x509.load_der_x509_certificate(der)
    user = _certificate_user(certificate.subject, der)
    is_client = True
    is_proxy = False
    if authorities is not None:
        name = next(iter(_name_values(certificate.subject, NameOID.COMMON_NAME)), "")
        is_client = authorities.is_client(certificate)
        is_proxy = authorities.is_proxy(certificate, name)
    return _Certificate(
        user,
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        is_client,
        is_proxy,
    )


def _authenticated(user: User) -> User:
    """Return a user with the group of authenticated users, unless it is in that of the others."""
    return user if UNAUTHENTICATED in user.groups else with_groups(user, AUTHENTICATED)


def _certificate_user(subject: x509.Name, der: bytes) -> User | None:
    names = _name_values(subject, NameOID.COMMON_NAME)
    if not names or not names[0]:
        return None
    groups = tuple(_name_values(subject, NameOID.ORGANIZATION_NAME))
    extra = {CREDENTIAL_ID: (f"X509SHA256={hashlib.sha256(der).hexdigest()}",)}
    return with_groups(User(names[0], "", groups, extra), AUTHENTICATED)


def _name_values(name: x509.Name, oid: x509.ObjectIdentifier) -> list[str]:
    values = (attribute.value for attribute in name.get_attributes_for_oid(oid))
    return [value for value in values if isinstance(value, str)]
