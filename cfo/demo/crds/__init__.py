"""The custom resource definitions which the embedded control plane needs for the operator, as package data.

Made from the published ones by ``hack/compact_crd.py``; a real cluster has them from KubeRay.
"""

from __future__ import annotations

import gzip
from importlib import resources

import orjson

from cfo.runtime.objects import Object

__all__ = ["load"]


def load() -> list[Object]:
    """The definitions, decoded."""
    return [
        orjson.loads(gzip.decompress(file.read_bytes()))
        for file in sorted(resources.files(__name__).iterdir(), key=lambda file: file.name)
        if file.name.endswith(".json.gz")
    ]
