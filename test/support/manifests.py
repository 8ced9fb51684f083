"""Accessors for manifests and Makefiles."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any


def by_key(objects: list[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    keys = [(obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]) for obj in objects]
    assert [key for key, count in Counter(keys).items() if count > 1] == []
    return dict(zip(keys, objects, strict=True))


ROOT = Path(__file__).parents[2]


def targets() -> set[str]:
    text = (ROOT / "Makefile").read_text() + (ROOT / "hack" / "deploy.mk").read_text()
    return set(re.findall(r"^([a-z][a-z0-9-]*):(?!=)", text, re.MULTILINE))
