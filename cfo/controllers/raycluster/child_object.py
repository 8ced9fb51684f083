"""The frame of each object that belongs to a RayCluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cfo.api.raycluster.cluster import cluster_labels
from cfo.runtime import GVK, Object, namespace_of

__all__ = ["child_object"]


def child_object(cluster: Mapping[str, Any], gvk: GVK, name: str, **fields: Any) -> Object:
    """Return an object called ``name`` in the namespace of ``cluster``, with its label and further ``fields``."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace_of(cluster), "labels": cluster_labels(cluster)}
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata, **fields}
