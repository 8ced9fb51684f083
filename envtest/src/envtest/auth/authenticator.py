"""Who sent this request: client certificate, bearer token (static or of a service account), or nobody (anonymous).

As kube-apiserver with ``--token-auth-file``, ``--client-ca-file`` and service-account issuing: the first that knows
the credential wins; a bearer token that nobody knows is refused, no credential at all is ``system:anonymous``.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.x509.oid import NameOID

from envtest.auth.tokens import ForeignToken, InvalidToken, ServiceAccountTokens
from envtest.auth.user import ANONYMOUS, AUTHENTICATED, CREDENTIAL_ID, MASTERS, User, with_groups

__all__ = ["Authenticator", "TokenFileError", "TokenIdentity", "load_token_file"]

_MAX_CERTIFICATES = 256
_UNKNOWN = "invalid bearer token"


class TokenFileError(ValueError):
    """A token file that cannot be used; the message names file and line."""


class TokenIdentity(NamedTuple):
    """Whom a token stands for, and for which audiences."""

    user: User
    audiences: list[str]


def load_token_file(path: Path) -> dict[str, User]:
    """The users of a kube-apiserver token file: CSV lines ``token,user,uid[,"group1,group2"]``.

    Raises TokenFileError for a line with fewer than three columns or an empty token, and where the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TokenFileError(f"cannot read the token file {path}: {error}") from error
    users: dict[str, User] = {}
    reader = csv.reader(io.StringIO(text), skipinitialspace=True)
    for row in reader:
        if not row or row[0].startswith("#"):
            continue
        where = f"{path}, line {reader.line_num}"
        if len(row) < 3:
            raise TokenFileError(f"{where}: a token file has three columns at least (token, user, uid), not {len(row)}")
        token, name, uid = row[0], row[1], row[2]
        if not token or not name:
            raise TokenFileError(f"{where}: token and user must not be empty")
        groups = tuple(group for group in row[3].split(",") if group) if len(row) > 3 else ()
        users[token] = User(name, uid, groups)
    return users


class Authenticator:
    """Finds out who a request comes from.

    ``admin_token`` stands for user ``admin`` of ``system:masters``; ``users`` maps further static tokens to users.
    Static tokens are looked up by their SHA-256, so that the time a look-up takes tells nothing of them.
    """

    def __init__(
        self,
        tokens: ServiceAccountTokens,
        *,
        admin_token: str = "",
        users: Mapping[str, User] | None = None,
        anonymous: bool = True,
    ) -> None:
        self._tokens = tokens
        self._anonymous = anonymous
        self._static: dict[bytes, User] = {}
        self._certificates: dict[bytes, User | None] = {}
        for token, user in (users or {}).items():
            self.add_user(token, user)
        if admin_token:
            self.add_user(admin_token, User("admin", "admin", (MASTERS,)))

    def add_user(self, token: str, user: User) -> None:
        """Lets ``token`` stand for ``user``."""
        self._static[_digest(token)] = user

    def remove_user(self, token: str) -> None:
        """Lets ``token`` stand for nobody any more, as if it had expired."""
        self._static.pop(_digest(token), None)

    def authenticate(self, authorization: str, peer_certificate: bytes | None = None) -> User | None:
        """The user that sent a request with this ``Authorization`` header and client certificate (DER, verified).

        ``None`` means 401: a token that nobody knows, or no credential where anonymous requests are not allowed.
        """
        if peer_certificate is not None:
            user = self._of_certificate(peer_certificate)
            if user is not None:
                return user
        token = bearer_token(authorization)
        if token:
            try:
                return self.identify(token).user
            except InvalidToken:
                return None
        return ANONYMOUS if self._anonymous else None

    def identify(self, token: str, audiences: Sequence[str] | None = None) -> TokenIdentity:
        """Whom ``token`` stands for. Raises InvalidToken where that is nobody, or not for any of ``audiences``."""
        user = self._static.get(_digest(token))
        if user is not None:
            own = self._tokens.audiences
            meant = [audience for audience in audiences if audience in own] if audiences else list(own)
            if not meant:
                raise InvalidToken(_UNKNOWN)
            return TokenIdentity(with_groups(user, AUTHENTICATED), meant)
        try:
            user, meant = self._tokens.authenticate(token, audiences or None)
        except ForeignToken as error:
            raise InvalidToken(_UNKNOWN) from error
        except InvalidToken as error:
            raise InvalidToken(f"[{_UNKNOWN}, {error}]") from error
        return TokenIdentity(with_groups(user, AUTHENTICATED), meant)

    def _of_certificate(self, der: bytes) -> User | None:
        if der not in self._certificates:
            if len(self._certificates) >= _MAX_CERTIFICATES:
                self._certificates.clear()
            self._certificates[der] = _certificate_user(der)
        return self._certificates[der]


def bearer_token(authorization: str) -> str:
    """The token of an ``Authorization`` header, empty where it is of another scheme or malformed."""
    parts = authorization.strip().split(" ", 2)
    return parts[1] if len(parts) > 1 and parts[0].lower() == "bearer" else ""


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _certificate_user(der: bytes) -> User | None:
    subject = x509.load_der_x509_certificate(der).subject
    names = _texts(subject, NameOID.COMMON_NAME)
    if not names or not names[0]:
        return None
    groups = tuple(_texts(subject, NameOID.ORGANIZATION_NAME))
    extra = {CREDENTIAL_ID: (f"X509SHA256={hashlib.sha256(der).hexdigest()}",)}
    return with_groups(User(names[0], "", groups, extra), AUTHENTICATED)


def _texts(name: x509.Name, oid: x509.ObjectIdentifier) -> list[str]:
    values = (attribute.value for attribute in name.get_attributes_for_oid(oid))
    return [value for value in values if isinstance(value, str)]
