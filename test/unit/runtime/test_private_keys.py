"""Loading of private keys from PEM."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from cfo.runtime.private_keys import load_private_key

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())


def pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, format: serialization.PrivateFormat) -> bytes:  # noqa: A002
    return key.private_bytes(serialization.Encoding.PEM, format, serialization.NoEncryption())


@pytest.mark.parametrize("key", [RSA, EC], ids=["rsa", "ec"])
@pytest.mark.parametrize(
    "pem_format", [serialization.PrivateFormat.TraditionalOpenSSL, serialization.PrivateFormat.PKCS8]
)
def test_rsa_and_ec_keys_are_loaded_from_traditional_and_pkcs8_pem(
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, pem_format: serialization.PrivateFormat
) -> None:
    assert load_private_key(pem(key, pem_format)).private_numbers() == key.private_numbers()


@pytest.mark.parametrize("part", ["d", "dmp1", "dmq1", "iqmp"])
def test_corrupt_rsa_key_is_rejected(part: str) -> None:
    numbers = RSA.private_numbers()
    parts = {name: getattr(numbers, name) for name in ("p", "q", "d", "dmp1", "dmq1", "iqmp", "public_numbers")}
    corrupt = rsa.RSAPrivateNumbers(**{**parts, part: parts[part] + 2})
    content = pem(
        corrupt.private_key(unsafe_skip_rsa_key_validation=True), serialization.PrivateFormat.TraditionalOpenSSL
    )
    with pytest.raises(ValueError, match="corrupt"):
        load_private_key(content)


@pytest.mark.parametrize("content", [b"", b"no key", pem(RSA, serialization.PrivateFormat.PKCS8)[:400]])
def test_missing_or_malformed_key_is_rejected(content: bytes) -> None:
    with pytest.raises(ValueError, match="is missing or is not a private key"):
        load_private_key(content)


def test_unsupported_algorithm_is_rejected() -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    content = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(ValueError, match="neither"):
        load_private_key(content)
