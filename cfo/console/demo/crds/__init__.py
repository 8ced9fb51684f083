"""The CRDs of KubeRay for embedded control planes, as package data.

``hack/generate/compact_crd.py`` generates them from the published CRDs. On a real cluster, KubeRay installs them.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from importlib import resources

import orjson

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.runtime import GVK, Object

__all__ = ["load"]


def load(kinds: Iterable[GVK] = (RAY_CLUSTER,)) -> list[Object]:
    """Return the decoded CRDs of ``kinds``; by default that of RayClusters, which the operator needs."""
    names = [f"{kind.group}_{kind.kind.lower()}s.json.gz" for kind in kinds]
    files = [resources.files(__name__) / name for name in names]
    return [orjson.loads(gzip.decompress(file.read_bytes())) for file in files]
