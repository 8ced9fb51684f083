"""Numbers of things, in the output of commands."""

from __future__ import annotations


def counted(many: int, noun: str) -> str:
    """Return a number with its noun, as ``1 object``, ``2 objects``, ``2 NetworkPolicies`` or ``2 Ingresses``."""
    if many == 1:
        return f"{many} {noun}"
    if noun.endswith("s"):
        return f"{many} {noun}es"
    if noun.endswith("y"):
        return f"{many} {noun.removesuffix('y')}ies"
    return f"{many} {noun}s"
