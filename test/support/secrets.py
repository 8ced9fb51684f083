"""Accessors for Secrets."""

from __future__ import annotations

from base64 import b64decode

from cfo.runtime.objects.unstructured import Object


def data_of(secret: Object) -> dict[str, bytes]:
    """Return the decoded data of a Secret."""
    return {key: b64decode(value) for key, value in (secret.get("data") or {}).items()}
