"""Keys: created, loaded from PEM, and checked before anything is computed with them.

OpenSSL takes 30 ms to verify that the factors of an RSA key are primes, which blocks the event loop, and the keys in
our own Secrets are loaded repeatedly. A corrupt key is detected without that check, because the numbers of a key must
be consistent.

The cost of a key grows with the cube of its size: one signature with an RSA key of 65,536 bits takes two minutes.
Therefore sizes are checked before anything is computed with a key.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

PrivateKey: TypeAlias = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
PublicKey: TypeAlias = rsa.RSAPublicKey | ec.EllipticCurvePublicKey

MAX_PRIVATE_KEY_BYTES: Final = 8 << 10
"""The largest accepted PEM; an RSA key of 4096 bits takes 3.3 kB."""

_RSA_BITS: Final = range(2048, 4096 + 1)
_MAX_EXPONENT_BITS: Final = 31  # as in Go
_CURVES: Final = (ec.SECP256R1, ec.SECP384R1)


def load_private_key(pem: bytes) -> PrivateKey:
    """Load the unencrypted key in ``pem``: RSA of 2048 to 4096 bits, or ECDSA with the curve P-256 or P-384.

    Whether the factors of an RSA key are primes is not checked: only its owner would suffer.

    Raises :class:`ValueError` with a message that completes a sentence starting with "the key": "is missing or is not a
    private key".
    """
    if len(pem) > MAX_PRIVATE_KEY_BYTES:
        raise ValueError(f"has {len(pem)} bytes, at most {MAX_PRIVATE_KEY_BYTES} are allowed")
    try:
        # Without the validation, this parses the key and computes nothing.
        key = serialization.load_pem_private_key(
            pem, password=None, unsafe_skip_rsa_key_validation=True
        )
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError("is missing or is not a private key") from None
    if not isinstance(key, PrivateKey):
        raise ValueError("is neither an RSA nor an ECDSA key")  # noqa: TRY004 (the value is invalid, not the type)
    if isinstance(key, rsa.RSAPrivateKey):
        if key.key_size not in _RSA_BITS:
            allowed = f"{_RSA_BITS.start} to {_RSA_BITS.stop - 1}"
            raise ValueError(f"is an RSA key of {key.key_size} bits, {allowed} bits are allowed")
        numbers = key.private_numbers()
        if not (_is_bounded(numbers) and _is_consistent(numbers)):
            raise ValueError("is a corrupt RSA key")
    elif not isinstance(key.curve, _CURVES):
        curve = key.curve.name
        raise ValueError(f"is an ECDSA key with the curve {curve}, P-256 and P-384 are allowed")  # noqa: TRY004
    return key


def _is_bounded(numbers: rsa.RSAPrivateNumbers) -> bool:
    """Return whether no number of an RSA key is larger than its modulus allows."""
    p = numbers.p
    q = numbers.q
    modulus = numbers.public_numbers.n
    return (
        p.bit_length() + q.bit_length() <= modulus.bit_length() + 1
        and p & q & 1 == 1
        and numbers.d < modulus
        and numbers.iqmp < p
        and numbers.public_numbers.e.bit_length() <= _MAX_EXPONENT_BITS
    )


def _is_consistent(numbers: rsa.RSAPrivateNumbers) -> bool:
    """Return whether the numbers of an RSA key are consistent, so that the public key verifies its signatures."""
    p = numbers.p
    q = numbers.q
    e = numbers.public_numbers.e
    return (
        min(p, q) > 1
        and p * q == numbers.public_numbers.n
        and numbers.d * e % (p - 1) == 1
        and numbers.d * e % (q - 1) == 1
        and numbers.dmp1 == numbers.d % (p - 1)
        and numbers.dmq1 == numbers.d % (q - 1)
        and numbers.iqmp * q % p == 1
    )


def check_public_key(key: object) -> PublicKey:
    """Return ``key`` if it is of a type and size that :func:`load_private_key` allows. Raises :class:`ValueError`."""
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size in _RSA_BITS and key.public_numbers().e.bit_length() <= _MAX_EXPONENT_BITS:
            return key
    elif isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, _CURVES):
        return key
    raise ValueError(
        "The key must be an RSA key of 2048 to 4096 bits, or an ECDSA key with the curve P-256 or P-384."
    )


def create_key(algorithm: Literal["ecdsa", "rsa"]) -> PrivateKey:
    """Create a private key: P-256 or RSA-2048."""
    if algorithm == "rsa":
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: PrivateKey) -> bytes:
    """Return a private key as PEM, in the traditional format that Go and OpenSSL write."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
