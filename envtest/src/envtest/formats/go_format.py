"""Formats values as Go's ``fmt`` package does, for error messages of kube-apiserver that contain such values."""

from __future__ import annotations

from typing import Any

import orjson

__all__ = ["go_syntax", "go_text", "go_type"]


def _number(value: int | float) -> str:
    if isinstance(value, int):
        return str(value)
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return f"{value:g}" if 1e-4 <= abs(value) < 1e21 else repr(value)


def go_text(value: Any) -> str:
    """Format as ``%v``: ``map[a:1 b:[x y]]``, ``<nil>``."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, dict):
        return "map[" + " ".join(f"{name}:{go_text(value[name])}" for name in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(go_text, value)) + "]"
    return str(value)


def go_syntax(value: Any) -> str:
    """Format as ``%#v``: ``map[string]interface {}{"a":1}``."""
    if value is None:
        return "interface {}(nil)"
    if isinstance(value, str):
        return orjson.dumps(value).decode()
    if isinstance(value, dict):
        items = ", ".join(
            f"{orjson.dumps(name).decode()}:{go_syntax(value[name])}" for name in sorted(value)
        )
        return f"map[string]interface {{}}{{{items}}}"
    if isinstance(value, list):
        return "[]interface {}{" + ", ".join(map(go_syntax, value)) + "}"
    return go_text(value)


def go_type(value: Any) -> str:
    """Return ``%T`` of a decoded JSON value."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64"
    if isinstance(value, float):
        return "float64"
    if isinstance(value, str):
        return "string"
    return "map[string]interface {}" if isinstance(value, dict) else "[]interface {}"
