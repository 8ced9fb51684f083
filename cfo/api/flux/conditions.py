"""What the conditions of an object say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cfo.runtime import find_condition

__all__ = ["is_false", "is_true", "message_of"]


def is_true(obj: Mapping[str, Any], kind: str) -> bool:
    """Return whether the condition ``kind`` of an object exists and is true."""
    return _condition(obj, kind).get("status") == "True"


def is_false(obj: Mapping[str, Any], kind: str) -> bool:
    """Return whether the condition ``kind`` of an object exists and is false."""
    return _condition(obj, kind).get("status") == "False"


def message_of(obj: Mapping[str, Any], kind: str) -> str:
    """Return the message of the condition ``kind`` of an object; empty if there is none."""
    return str(_condition(obj, kind).get("message") or "")


def _condition(obj: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return find_condition((obj.get("status") or {}).get("conditions"), kind) or {}
