"""The profiles with which existing InferenceStacks are rendered must not change between releases."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["changed_profiles"]


def changed_profiles(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the profiles of ``old`` that are different in ``new``, or do not exist there.

    Stacks keep their profile, so all of their pods would restart with the next release.
    """
    found: list[str] = []
    for name, defaults in old.items():
        if json.dumps(new.get(name), sort_keys=True) == json.dumps(defaults, sort_keys=True):
            continue
        change = "changed" if name in new else "removed"
        found.append(f"profile {name} was {change}: all pods of stacks that have it would restart")
    return found
