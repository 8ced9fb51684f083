"""Keys of service account tokens: RSA and ECDSA, from files with keys and certificates."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from envtest.apimachinery.errors import GroupResource
from envtest.auth.token_keys import PrivateKey, load_public_keys
from envtest.auth.tokens import ForeignToken, InvalidToken, ServiceAccountTokens, TokenSettings
from envtest.formats.certificate_authority import CertificateAuthority
from envtest.storage import Store


def pem(key: Any, kind: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption())


def public_pem(key: Any) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


RSA = rsa.generate_private_key(65537, 2048)
KEYS = {
    "RS256": RSA,
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "ES384": ec.generate_private_key(ec.SECP384R1()),
    "ES512": ec.generate_private_key(ec.SECP521R1()),
}


@pytest.mark.parametrize("algorithm", KEYS)
def test_signature_is_verified_with_the_public_key(algorithm: str) -> None:
    key = PrivateKey(pem(KEYS[algorithm], serialization.PrivateFormat.TraditionalOpenSSL))
    [public] = load_public_keys(public_pem(KEYS[algorithm]))
    assert (public.algorithm, public.id) == (algorithm, key.public.id)
    signature = key.sign(b"content")
    assert public.verify(signature, b"content")
    assert not public.verify(signature, b"other")
    assert not public.verify(signature[:-1], b"content")
    assert public.json_web_key()["kty"] == ("RSA" if algorithm == "RS256" else "EC")


def test_file_can_contain_keys_and_certificates() -> None:
    authority = CertificateAuthority()
    found = load_public_keys(authority.pem + public_pem(RSA) + pem(KEYS["ES384"]))
    assert [key.algorithm for key in found] == ["ES256", "RS256", "ES384"]
    assert found[0].id == PrivateKey(authority.pair.key).public.id


@pytest.mark.parametrize("content", [b"", b"text", pem(ed25519.Ed25519PrivateKey.generate())])
def test_unusable_files_are_errors(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"no PEM block|neither an RSA key"):
        load_public_keys(content)


def tokens(
    store: Store, key: Any, *more: Any, issuers: tuple[str, ...] = ("https://a",)
) -> ServiceAccountTokens:
    settings = TokenSettings(pem(key), tuple(public_pem(each) for each in more), issuers)
    return ServiceAccountTokens(store, settings=settings)


def test_tokens_of_other_keys_and_issuers_are_accepted() -> None:
    store = Store()
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "robot", "namespace": "a", "uid": "1"},
    }
    store.create(GroupResource("", "serviceaccounts"), account)
    old = tokens(store, RSA)
    token = old.issue("a", "robot", "1").token
    assert old.key_set()["keys"][0]["alg"] == "RS256"
    rotated = tokens(store, KEYS["ES256"], RSA, issuers=("https://b", "https://a"))
    assert rotated.authenticate(token)[0].name == "system:serviceaccount:a:robot"
    assert rotated.configuration("host")["id_token_signing_alg_values_supported"] == [
        "ES256",
        "RS256",
    ]
    assert rotated.issue("a", "robot", "1").token != token
    stranger = tokens(store, ec.generate_private_key(ec.SECP256R1()))
    with pytest.raises(InvalidToken, match="invalid signature"):
        tokens(store, KEYS["ES256"]).authenticate(stranger.issue("a", "robot", "1").token)
    with pytest.raises(InvalidToken, match="unsupported signature algorithm"):
        tokens(store, KEYS["ES256"]).authenticate(token)
    with pytest.raises(ForeignToken):
        tokens(store, RSA, issuers=("https://b",)).authenticate(token)
