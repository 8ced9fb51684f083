"""The CRDs that the operator needs on an embedded control plane, as package data.

``hack/generate/compact_crd.py`` generates them from the published CRDs. On a real cluster, KubeRay installs them.
"""

from __future__ import annotations

import gzip
from importlib import resources

import orjson

from cfo.runtime import Object

__all__ = ["load"]


def load() -> list[Object]:
    """Return the decoded CRDs."""
    return [
        orjson.loads(gzip.decompress(file.read_bytes()))
        for file in sorted(resources.files(__name__).iterdir(), key=lambda file: file.name)
        if file.name.endswith(".json.gz")
    ]
