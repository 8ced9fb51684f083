"""RSA keys of any size whose factors are not primes, which are quick to create and consistent in their numbers."""

from __future__ import annotations

import base64
import secrets
from math import gcd


def composite_rsa_key(bits: int, *, exponent: int = 65537) -> bytes:
    """Return a key with a modulus of about ``bits`` bits as PEM in the traditional format."""
    p, q = _factor(bits // 2, exponent), _factor(bits // 2, exponent)
    while gcd(p, q) != 1:
        q = _factor(bits // 2, exponent)
    d = pow(exponent, -1, (p - 1) * (q - 1) // gcd(p - 1, q - 1))
    numbers = (0, p * q, exponent, d, p, q, d % (p - 1), d % (q - 1), pow(q, -1, p))
    der = _tagged(0x30, b"".join(_tagged(0x02, _big_endian(number)) for number in numbers))
    return (
        b"-----BEGIN RSA PRIVATE KEY-----\n"
        + base64.encodebytes(der)
        + b"-----END RSA PRIVATE KEY-----\n"
    )


def _factor(bits: int, exponent: int) -> int:
    while True:
        candidate = secrets.randbits(bits) | (3 << (bits - 2)) | 1
        if gcd(exponent, candidate - 1) == 1:
            return candidate


def _big_endian(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big")


def _tagged(tag: int, content: bytes) -> bytes:
    """Return one DER element."""
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    encoded = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(encoded))) + encoded + content
