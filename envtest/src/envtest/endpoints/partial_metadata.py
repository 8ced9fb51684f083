"""The PartialObjectMetadata of an object, for clients that need no more, and for the rows of Tables."""

from __future__ import annotations

from envtest.apimachinery.objects import Object

__all__ = ["partial_metadata"]

_GENERATION = "deprecated.daemonset.template.generation"
"""An annotation that kube-apiserver's internal type, which it makes both of, does not have."""


def partial_metadata(obj: Object, version: str) -> Object:
    """Return the PartialObjectMetadata of an object; ``version`` is that of the group ``meta.k8s.io``."""
    metadata = obj["metadata"]
    if _GENERATION in (metadata.get("annotations") or {}):
        metadata = {**metadata, "annotations": {**metadata["annotations"]}}
        del metadata["annotations"][_GENERATION]
        if not metadata["annotations"]:
            del metadata["annotations"]
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": metadata,
    }
