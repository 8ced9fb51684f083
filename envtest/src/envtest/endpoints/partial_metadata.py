"""The PartialObjectMetadata of an object, for clients that need no more, and for the rows of Tables."""

from __future__ import annotations

from envtest.apimachinery.objects import Object

__all__ = ["partial_metadata"]

_CONVERTED = (
    "deprecated.daemonset.template.generation",
    *(
        f"autoscaling.alpha.kubernetes.io/{name}"
        for name in ("behavior", "conditions", "current-metrics", "metrics")
    ),
)
"""Annotations that kube-apiserver's internal type, which it makes both of, does not have."""


def partial_metadata(obj: Object, version: str) -> Object:
    """Return the PartialObjectMetadata of an object; ``version`` is that of the group ``meta.k8s.io``."""
    metadata = obj["metadata"]
    annotations = metadata.get("annotations") or {}
    if not annotations.keys().isdisjoint(_CONVERTED):
        kept = {name: text for name, text in annotations.items() if name not in _CONVERTED}
        metadata = {**metadata, "annotations": kept}
        if not kept:
            del metadata["annotations"]
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": metadata,
    }
