"""Decodes the keys of CURVE certificates."""

from __future__ import annotations

from typing import Final

from cfo.controllers.flux.minicluster.resources import Z85_ALPHABET

__all__ = ["z85_decode"]

_VALUES: Final = {character: value for value, character in enumerate(Z85_ALPHABET)}


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
