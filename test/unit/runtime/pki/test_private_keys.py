"""Loading of private keys from PEM."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from cfo.runtime.pki.private_keys import MAX_PRIVATE_KEY_BYTES, load_private_key
from test.support.composite_keys import composite_rsa_key

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())


def pem(
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat
) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


@pytest.mark.parametrize("key", [RSA, EC], ids=["rsa", "ec"])
@pytest.mark.parametrize(
    "pem_format",
    [serialization.PrivateFormat.TraditionalOpenSSL, serialization.PrivateFormat.PKCS8],
)
def test_rsa_and_ec_keys_are_loaded_from_traditional_and_pkcs8_pem(
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, pem_format: serialization.PrivateFormat
) -> None:
    assert load_private_key(pem(key, pem_format)).private_numbers() == key.private_numbers()


@pytest.mark.parametrize("part", ["d", "dmp1", "dmq1", "iqmp"])
def test_corrupt_rsa_key_is_rejected(part: str) -> None:
    numbers = RSA.private_numbers()
    parts = {
        name: getattr(numbers, name)
        for name in ("p", "q", "d", "dmp1", "dmq1", "iqmp", "public_numbers")
    }
    corrupt = rsa.RSAPrivateNumbers(**{**parts, part: parts[part] + 2})
    content = pem(
        corrupt.private_key(unsafe_skip_rsa_key_validation=True),
        serialization.PrivateFormat.TraditionalOpenSSL,
    )
    with pytest.raises(ValueError, match="corrupt"):
        load_private_key(content)


@pytest.mark.parametrize(
    "content", [b"", b"no key", pem(RSA, serialization.PrivateFormat.PKCS8)[:400]]
)
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


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1()])
def test_allowed_curves_are_loaded(curve: ec.EllipticCurve) -> None:
    key = ec.generate_private_key(curve)
    content = pem(key, serialization.PrivateFormat.TraditionalOpenSSL)
    assert load_private_key(content).private_numbers() == key.private_numbers()


@pytest.mark.parametrize("curve", [ec.SECP224R1(), ec.SECP521R1(), ec.SECP256K1()])
def test_other_curves_are_rejected(curve: ec.EllipticCurve) -> None:
    content = pem(ec.generate_private_key(curve), serialization.PrivateFormat.PKCS8)
    with pytest.raises(ValueError, match=f"{curve.name}, P-256 and P-384 are allowed"):
        load_private_key(content)


@pytest.mark.parametrize("bits", [1024, 8192])
def test_rsa_keys_of_unusual_sizes_are_rejected(bits: int) -> None:
    with pytest.raises(ValueError, match=f"RSA key of {bits} bits, 2048 to 4096 bits are allowed"):
        load_private_key(composite_rsa_key(bits))


def test_rsa_key_of_4096_bits_is_loaded() -> None:
    loaded = load_private_key(composite_rsa_key(4096))
    assert isinstance(loaded, rsa.RSAPrivateKey)
    assert loaded.key_size == 4096


def test_rsa_key_with_large_public_exponent_is_rejected() -> None:
    with pytest.raises(ValueError, match="corrupt"):
        load_private_key(composite_rsa_key(2048, exponent=(1 << 61) - 1))


def test_large_file_is_rejected_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serialization, "load_pem_private_key", None)
    with pytest.raises(ValueError, match=f"at most {MAX_PRIVATE_KEY_BYTES} are allowed"):
        load_private_key(composite_rsa_key(16384))
