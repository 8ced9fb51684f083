"""Service account tokens: JWTs that the API server issues (TokenRequest) and verifies.

The claims follow ``pkg/serviceaccount/claims.go``: issuer, audiences, and under ``kubernetes.io`` the account with its
uid and the object that the token is bound to. A token is valid until it expires, or until its account or its bound
object is deleted.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import orjson

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.user import (
    CREDENTIAL_ID,
    User,
    service_account_groups,
    service_account_username,
)
from envtest.auth.policy_rules import quoted_list
from envtest.auth.token_keys import PrivateKey, PublicKey, load_public_keys, unpadded_base64
from envtest.storage.store import Store

__all__ = [
    "ISSUER",
    "BoundObject",
    "ForeignToken",
    "InvalidToken",
    "IssuedToken",
    "ServiceAccountTokens",
    "TokenSettings",
]

ISSUER: Final = "https://kubernetes.default.svc"
_SERVICE_ACCOUNTS = GroupResource("", "serviceaccounts")
_BINDABLE: Final = {
    "pod": GroupResource("", "pods"),
    "secret": GroupResource("", "secrets"),
    "node": GroupResource("", "nodes"),
}
_LEGACY_ISSUER: Final = "kubernetes/serviceaccount"
_LEEWAY_SECONDS: Final = 60
_MAX_VERIFIED: Final = 512


class InvalidToken(Exception):
    """Raised for a token of this server's issuer that is invalid or has expired; the message contains the reason."""


class ForeignToken(InvalidToken):
    """Raised for a token of another issuer, which another authenticator may accept."""


class BoundObject(NamedTuple):
    """The object that a token is bound to: ``pod``, ``secret`` or ``node``, with its name and uid."""

    kind: str
    name: str
    uid: str


class IssuedToken(NamedTuple):
    """A new token and its expiration time (seconds since the epoch)."""

    token: str
    expires: int


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """The keys and issuers of service account tokens, as kube-apiserver's flags set them.

    ``key`` (PEM) signs; without it a new key is generated. ``public_keys`` (PEM files) verify as well as the signing
    key. The first of ``issuers`` issues tokens, and tokens of the others are accepted. ``audiences`` are those of the
    API server itself, by default the issuers. ``key_set_url`` is the ``jwks_uri`` of the discovery document.
    """

    key: bytes | None = None
    public_keys: tuple[bytes, ...] = ()
    issuers: tuple[str, ...] = (ISSUER,)
    audiences: tuple[str, ...] = ()
    key_set_url: str = ""


class ServiceAccountTokens:
    """Signs and verifies the tokens of one API server; raises ValueError for keys that cannot be used.

    ``key`` replaces that of ``settings``: with the key of an earlier process, its tokens stay valid.
    """

    def __init__(
        self,
        store: Store,
        *,
        key: bytes | None = None,
        settings: TokenSettings | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        settings = settings or TokenSettings()
        self._store = store
        self._key = PrivateKey(key or settings.key)
        self._public: dict[str, PublicKey] = {self._key.public.id: self._key.public}
        for file in settings.public_keys:
            for public in load_public_keys(file):
                self._public.setdefault(public.id, public)
        self._clock = clock
        self._verified: dict[bytes, dict[str, Any]] = {}
        self._issuers = settings.issuers
        self._key_set_url = settings.key_set_url
        self.issuer = settings.issuers[0]
        self.audiences = settings.audiences or settings.issuers

    def fork(self, store: Store, clock: Callable[[], float]) -> Self:
        """Return the same keys and issuers for a copy of the control plane."""
        copied = copy(self)
        copied._store = store
        copied._clock = clock
        copied._verified = {}
        return copied

    def private_key(self) -> bytes:
        """Return the signing key as PEM (PKCS #8), to be stored with the data of a persistent server."""
        return self._key.pem

    def issue(
        self,
        namespace: str,
        name: str,
        uid: str,
        *,
        audiences: Sequence[str] = (),
        seconds: int = 3600,
        bound: BoundObject | None = None,
        node: BoundObject | None = None,
    ) -> IssuedToken:
        """Issue a token of the account, valid for ``seconds``; ``node`` is the node of a bound pod."""
        now = int(self._clock())
        private: dict[str, Any] = {
            "namespace": namespace,
            "serviceaccount": {"name": name, "uid": uid},
        }
        for each in (bound, node):
            if each is not None:
                private[each.kind] = {"name": each.name, "uid": each.uid}
        claims = {
            "aud": list(audiences or self.audiences),
            "exp": now + seconds,
            "iat": now,
            "iss": self.issuer,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": private,
            "nbf": now,
            "sub": service_account_username(namespace, name),
        }
        return IssuedToken(self._sign(claims), now + seconds)

    def legacy_token(self, namespace: str, name: str, uid: str, secret_name: str) -> str:
        """Return the token for a Secret of type ``kubernetes.io/service-account-token``; it does not expire."""
        prefix = "kubernetes.io/serviceaccount/"
        claims = {
            "iss": _LEGACY_ISSUER,
            f"{prefix}namespace": namespace,
            f"{prefix}secret.name": secret_name,
            f"{prefix}service-account.name": name,
            f"{prefix}service-account.uid": uid,
            "sub": service_account_username(namespace, name),
        }
        return self._sign(claims)

    def authenticate(
        self, token: str, audiences: Sequence[str] | None = None
    ) -> tuple[User, list[str]]:
        """Return the user of a token, and which of ``audiences`` (default: the API server's own) it is valid for.

        Raises InvalidToken, and its subclass ForeignToken.
        """
        claims = self._cached_claims(token)
        if claims["iss"] == _LEGACY_ISSUER:
            return self._legacy_user(claims, token), list(audiences or self.audiences)
        now = self._clock()
        if now >= claims["exp"]:
            raise InvalidToken("service account token has expired")
        if now < claims["nbf"] - _LEEWAY_SECONDS:
            raise InvalidToken("service account token is not valid yet")
        accepted = self.audiences if audiences is None else tuple(audiences)
        common = [audience for audience in accepted if audience in claims["aud"]]
        if not common:
            token_audiences = quoted_list(claims["aud"])
            target_audiences = quoted_list(accepted)
            raise InvalidToken(
                f"token audiences {token_audiences} is invalid for the target audiences {target_audiences}"
            )
        return self._user(claims), common

    def configuration(self, address: str) -> dict[str, Any]:
        """Return the OpenID Connect document ``/.well-known/openid-configuration`` of the server at ``address``."""
        return {
            "issuer": self.issuer,
            "jwks_uri": self._key_set_url or f"https://{address}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": sorted(
                {key.algorithm for key in self._public.values()}
            ),
        }

    def key_set(self) -> dict[str, Any]:
        """Return the JSON Web Key Set (``/openid/v1/jwks``)."""
        return {"keys": [key.json_web_key() for key in self._public.values()]}

    def _sign(self, claims: dict[str, Any]) -> str:
        header = {"alg": self._key.public.algorithm, "kid": self._key.public.id}
        signed = f"{unpadded_base64(orjson.dumps(header))}.{unpadded_base64(orjson.dumps(claims))}"
        return f"{signed}.{unpadded_base64(self._key.sign(signed.encode()))}"

    def _cached_claims(self, token: str) -> dict[str, Any]:
        """Return the claims of a token; the signature is verified only when it is first seen, as in kube-apiserver."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        claims = self._verified.get(digest)
        if claims is None:
            claims = self._verify(token)
            if len(self._verified) >= _MAX_VERIFIED:
                self._verified.clear()
            self._verified[digest] = claims
        return claims

    def _verify(self, token: str) -> dict[str, Any]:
        signed, _, signature = token.rpartition(".")
        try:
            encoded_header, encoded_payload = signed.split(".")
            header = orjson.loads(_decode(encoded_header))
            payload = orjson.loads(_decode(encoded_payload))
            if payload["iss"] not in (*self._issuers, _LEGACY_ISSUER):
                raise ForeignToken(f"issued by {payload['iss']}")
        except (ValueError, KeyError, TypeError) as error:
            raise ForeignToken("malformed token") from error
        try:
            raw = _decode(signature)
            key_id = header.get("kid")
            algorithm = header["alg"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidToken("invalid signature") from error
        named = self._public.get(key_id) if isinstance(key_id, str) else None
        candidates = [named] if named is not None else list(self._public.values())
        candidates = [key for key in candidates if key.algorithm == algorithm]
        if not candidates:
            raise InvalidToken("unsupported signature algorithm")
        if not any(key.verify(raw, signed.encode()) for key in candidates):
            raise InvalidToken("invalid signature")
        claims: dict[str, Any] = payload
        return claims

    def _user(self, claims: dict[str, Any]) -> User:
        private = claims["kubernetes.io"]
        namespace = private["namespace"]
        account = private["serviceaccount"]
        self._check_account(namespace, account["name"], account["uid"])
        extra: dict[str, tuple[str, ...]] = {CREDENTIAL_ID: (f"JTI={claims['jti']}",)}
        for kind in ("secret", "pod", "node"):
            reference = private.get(kind)
            if reference is None:
                continue
            if kind != "node" or "pod" not in private:
                self._check_bound(kind, namespace, reference)
            if kind != "secret":
                extra[f"authentication.kubernetes.io/{kind}-name"] = (reference["name"],)
                extra[f"authentication.kubernetes.io/{kind}-uid"] = (reference["uid"],)
        return _account_user(namespace, account["name"], account["uid"], extra)

    def _legacy_user(self, claims: dict[str, Any], token: str) -> User:
        prefix = "kubernetes.io/serviceaccount/"
        namespace = claims[f"{prefix}namespace"]
        name = claims[f"{prefix}service-account.name"]
        uid = claims[f"{prefix}service-account.uid"]
        secret = self._store.get(_BINDABLE["secret"], namespace, claims[f"{prefix}secret.name"])
        current = (
            (secret.obj().get("data") or {}).get("token", "")
            if secret is not None and not secret.deleting
            else ""
        )
        if current != _standard_base64(token):
            raise InvalidToken("service account token has been invalidated")
        self._check_account(namespace, name, uid)
        return _account_user(namespace, name, uid, {})

    def _check_account(self, namespace: str, name: str, uid: str) -> None:
        record = self._store.get(_SERVICE_ACCOUNTS, namespace, name)
        if record is None:
            raise InvalidToken(f'serviceaccounts "{name}" not found')
        if record.uid != uid:
            raise InvalidToken(f"service account UID ({record.uid}) does not match claim ({uid})")
        if record.deleting:
            raise InvalidToken("service account token has been invalidated")

    def _check_bound(self, kind: str, namespace: str, reference: dict[str, str]) -> None:
        if kind == "node":
            namespace = ""
        record = self._store.get(_BINDABLE[kind], namespace, reference["name"])
        if record is None or record.uid != reference["uid"]:
            raise InvalidToken("service account token has been invalidated")


def _account_user(namespace: str, name: str, uid: str, extra: dict[str, tuple[str, ...]]) -> User:
    return User(
        service_account_username(namespace, name), uid, service_account_groups(namespace), extra
    )


def _decode(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _standard_base64(text: str) -> str:
    return b64encode(text.encode()).decode()
