"""Private keys as PEM, read quickly.

To prove that the factors of an RSA key are primes takes OpenSSL 30 ms, in which an event loop stands still; and keys
from one's own Secrets are read again and again. Damage shows without that proof: the numbers of a key belong together.
"""

from __future__ import annotations

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

__all__ = ["PrivateKey", "load_private_key"]

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


def load_private_key(pem: bytes) -> PrivateKey:
    """The unencrypted RSA or EC key in ``pem``; not for keys of people who are not trusted.

    Raises :class:`ValueError`, whose text goes on after "the key": "is missing or is not a private key".
    """
    try:
        key = serialization.load_pem_private_key(pem, password=None, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError("is missing or is not a private key") from None
    if not isinstance(key, PrivateKey):
        raise ValueError("is neither an RSA nor an ECDSA key")  # noqa: TRY004 (the text is at fault, not its type)
    if isinstance(key, rsa.RSAPrivateKey) and not _is_consistent(key.private_numbers()):
        raise ValueError("is a damaged RSA key")
    return key


def _is_consistent(numbers: rsa.RSAPrivateNumbers) -> bool:
    """Whether the numbers of an RSA key belong together, so that what the private one signs the public one verifies."""
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
