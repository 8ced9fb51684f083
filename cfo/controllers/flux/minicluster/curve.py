"""Creates the CURVE certificate with which the brokers of a MiniCluster authenticate each other and encrypt.

A CURVE key pair is an X25519 pair, written in `Z85`_. The file has ZeroMQ's property format, in which ``flux keygen``
also writes it.

.. _Z85: https://rfc.zeromq.org/spec/32/
"""

from __future__ import annotations

from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

__all__ = ["create_certificate", "z85_decode", "z85_encode"]

_ALPHABET: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES: Final = {character: value for value, character in enumerate(_ALPHABET)}


def create_certificate(host: str) -> str:
    """Return the text of a certificate with a new key pair; ``host`` is recorded as the host that created it."""
    secret = X25519PrivateKey.generate()
    public_text = z85_encode(secret.public_key().public_bytes_raw())
    return (
        "# CURVE certificate of a Flux instance. Keep it secret: its owner can join the instance.\n"
        "metadata\n"
        '    name = "flux-cert-generator"\n'
        f'    keygen.hostname = "{host}"\n'
        "curve\n"
        f'    public-key = "{public_text}"\n'
        f'    secret-key = "{z85_encode(secret.private_bytes_raw())}"\n'
    )


def z85_encode(data: bytes) -> str:
    """Encode ``data`` in Z85: five characters for each four bytes. Raises :class:`ValueError` for another length."""
    if len(data) % 4:
        raise ValueError(f"{len(data)} bytes: the length must be a multiple of 4")
    characters = []
    for start in range(0, len(data), 4):
        number = int.from_bytes(data[start : start + 4], "big")
        characters += [_ALPHABET[number // 85**power % 85] for power in (4, 3, 2, 1, 0)]
    return "".join(characters)


def z85_decode(text: str) -> bytes:
    """Decode Z85. Raises :class:`ValueError` if ``text`` is not Z85."""
    if len(text) % 5:
        raise ValueError(f"{len(text)} characters: the length must be a multiple of 5")
    decoded = bytearray()
    for start in range(0, len(text), 5):
        number = 0
        for character in text[start : start + 5]:
            if character not in _VALUES:
                raise ValueError(f"{character!r} is not a Z85 character")
            number = number * 85 + _VALUES[character]
        if number >= 1 << 32:
            raise ValueError(f"{text[start : start + 5]!r} is not the Z85 encoding of four bytes")
        decoded += number.to_bytes(4, "big")
    return bytes(decoded)
