"""Fast loading of PEM private keys.

OpenSSL takes 30 ms to verify that the factors of an RSA key are primes, which blocks the event loop, and the keys in
our own Secrets are loaded repeatedly. A corrupt key is detected without that check, because the key's numbers must be
consistent.
"""

from __future__ import annotations

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

__all__ = ["PrivateKey", "load_private_key"]

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


def load_private_key(pem: bytes) -> PrivateKey:
    """Load the unencrypted RSA or EC key in ``pem``; do not use it for keys from untrusted sources.

    Raises :class:`ValueError` with a message that completes a sentence starting with "the key": "is missing or is not a
    private key".
    """
    try:
        key = serialization.load_pem_private_key(pem, password=None, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError("is missing or is not a private key") from None
    if not isinstance(key, PrivateKey):
        raise ValueError("is neither an RSA nor an ECDSA key")  # noqa: TRY004 (the value is invalid, not the type)
    if isinstance(key, rsa.RSAPrivateKey) and not _is_consistent(key.private_numbers()):
        raise ValueError("is a corrupt RSA key")
    return key


def _is_consistent(numbers: rsa.RSAPrivateNumbers) -> bool:
    """Return whether the numbers of an RSA key are consistent, so that the public key verifies its signatures."""
    p, q, e = numbers.p, numbers.q, numbers.public_numbers.e
    return (
        min(p, q) > 1
        and p * q == numbers.public_numbers.n
        and numbers.d * e % (p - 1) == 1
        and numbers.d * e % (q - 1) == 1
        and numbers.dmp1 == numbers.d % (p - 1)
        and numbers.dmq1 == numbers.d % (q - 1)
        and numbers.iqmp * q % p == 1
    )
