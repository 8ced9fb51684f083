"""The keys of service account tokens: signatures (RS256, ES256, ES384, ES512), key ids and JSON Web Keys.

The algorithm of a token follows from the type of the key, as in ``pkg/serviceaccount/jwt.go``, so that a token cannot
choose a weaker one.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

__all__ = ["PrivateKey", "PublicKey", "load_public_keys", "unpadded_base64"]

_CURVES: Final = {
    "secp256r1": ("ES256", "P-256", hashes.SHA256()),
    "secp384r1": ("ES384", "P-384", hashes.SHA384()),
    "secp521r1": ("ES512", "P-521", hashes.SHA512()),
}
_MAX_KEYS: Final = 64
_UNSUPPORTED: Final = (
    "the service account key is neither an RSA key nor a key of the curve P-256, P-384 or P-521"
)


class PublicKey:
    """Verifies the signatures of one key. Raises ValueError for a key that Kubernetes does not support."""

    def __init__(self, key: Any) -> None:
        if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _CURVES:
            self.algorithm, self._curve, self._hash = _CURVES[key.curve.name]
            self._size = (key.curve.key_size + 7) // 8
        elif isinstance(key, rsa.RSAPublicKey):
            self.algorithm = "RS256"
            self._hash = hashes.SHA256()
        else:
            raise ValueError(_UNSUPPORTED)
        self._key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey = key
        spki = key.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self.id = unpadded_base64(hashlib.sha256(spki).digest())

    def verify(self, signature: bytes, signed: bytes) -> bool:
        """Return whether ``signature``, in the format of JSON Web Signatures, is this key's of ``signed``."""
        try:
            if isinstance(self._key, rsa.RSAPublicKey):
                self._key.verify(signature, signed, padding.PKCS1v15(), self._hash)
                return True
            if len(signature) != 2 * self._size:
                return False
            r = int.from_bytes(signature[: self._size], "big")
            s = int.from_bytes(signature[self._size : 2 * self._size], "big")
            self._key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(self._hash))
        except InvalidSignature:
            return False
        return True

    def json_web_key(self) -> dict[str, str]:
        """Return the key as JSON Web Key."""
        common = {"use": "sig", "kid": self.id, "alg": self.algorithm}
        if isinstance(self._key, rsa.RSAPublicKey):
            numbers = self._key.public_numbers()
            return {**common, "kty": "RSA", "n": _integer(numbers.n), "e": _integer(numbers.e)}
        point = self._key.public_numbers()
        coordinates = {
            name: unpadded_base64(value.to_bytes(self._size, "big"))
            for name, value in (("x", point.x), ("y", point.y))
        }
        return {**common, "kty": "EC", "crv": self._curve, **coordinates}


class PrivateKey:
    """Signs with the key of ``pem``, or with a new P-256 key. Raises ValueError for an unsupported key."""

    def __init__(self, pem: bytes | None = None) -> None:
        key = ec.generate_private_key(ec.SECP256R1()) if pem is None else _load_private_key(pem)
        self.public = PublicKey(key.public_key())
        self._key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey = key

    @property
    def pem(self) -> bytes:
        """The key as PEM (PKCS #8)."""
        return self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    def sign(self, content: bytes) -> bytes:
        """Return the signature of ``content`` in the format of JSON Web Signatures."""
        if isinstance(self._key, rsa.RSAPrivateKey):
            return self._key.sign(content, padding.PKCS1v15(), hashes.SHA256())
        _, _, algorithm = _CURVES[self._key.curve.name]
        size = (self._key.curve.key_size + 7) // 8
        r, s = decode_dss_signature(self._key.sign(content, ec.ECDSA(algorithm)))
        return r.to_bytes(size, "big") + s.to_bytes(size, "big")


def load_public_keys(pem: bytes) -> list[PublicKey]:
    """Return the public keys of a file as ``--service-account-key-file`` takes it.

    Each of its PEM blocks is a public key, a certificate or a private key. Raises ValueError if there is none, or if
    one cannot be used.
    """
    keys = [PublicKey(_public_key(block)) for block in _blocks(pem)]
    if not keys:
        raise ValueError("the file contains no PEM block with a key")
    return keys


def _blocks(pem: bytes) -> Iterator[bytes]:
    end = b"-----END "
    for number, part in enumerate(pem.split(b"-----BEGIN ")[1:]):
        if number >= _MAX_KEYS:
            raise ValueError(f"the file contains more than {_MAX_KEYS} keys")
        if end in part and b" PARAMETERS-----" not in part.partition(b"\n")[0]:
            yield b"-----BEGIN " + part


def _public_key(block: bytes) -> Any:
    first = block.partition(b"\n")[0]
    if b"CERTIFICATE" in first:
        return x509.load_pem_x509_certificate(block).public_key()
    if b"PRIVATE" in first:
        return _load_private_key(block).public_key()
    return serialization.load_pem_public_key(block)


def _load_private_key(pem: bytes) -> Any:
    try:
        return serialization.load_pem_private_key(pem, password=None)
    except TypeError as error:
        raise ValueError("the service account key is encrypted") from error


def unpadded_base64(raw: bytes) -> str:
    """Return the URL-safe base64 of ``raw`` without padding, as in JSON Web Tokens."""
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _integer(value: int) -> str:
    return unpadded_base64(value.to_bytes((value.bit_length() + 7) // 8, "big"))
