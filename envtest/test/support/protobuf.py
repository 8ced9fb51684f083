"""Encodes protobuf messages field by field, as a Go client does from its types."""

from __future__ import annotations

__all__ = ["envelope", "field", "varint"]


def varint(value: int) -> bytes:
    """Encode an unsigned number."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: bytes | int) -> bytes:
    """Encode a field: a number, or the bytes of a string or message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value & (2**64 - 1))
    return varint(number << 3 | 2) + varint(len(value)) + value


def envelope(version: str, kind: str, raw: bytes) -> bytes:
    """Wrap a message as Kubernetes does, with its apiVersion and kind."""
    return b"k8s\0" + field(1, field(1, version.encode()) + field(2, kind.encode())) + field(2, raw)
