"""Numbers of things, in the output of commands."""

from __future__ import annotations


def counted(many: int, noun: str) -> str:
    """Return a number with its noun, as ``1 object`` or ``2 objects``."""
    return f"{many} {noun}" if many == 1 else f"{many} {noun}s"
