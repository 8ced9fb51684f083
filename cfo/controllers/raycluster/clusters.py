"""Lookups of RayClusters in their informer, for mapping other objects to clusters."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from cfo.api.raycluster.naming import label_value
from cfo.runtime import Entry, Informer, NamespacedName, Reader

_LABEL = "label"


def add_indexes(clusters: Informer) -> None:
    """Add the index that :func:`clusters_with_label` reads to the informer of RayClusters."""
    clusters.add_index(_LABEL, _shortened_label)


def _shortened_label(entry: Entry) -> Iterable[str]:
    """Yield the label value of a cluster whose name is too long for a label; other clusters are found by name."""
    label = label_value(entry.name)
    return (f"{entry.namespace}/{label}",) if label != entry.name else ()


def all_clusters(clusters: Reader) -> Collection[NamespacedName]:
    """Return the names of all RayClusters."""
    return [entry.key for entry in clusters.entries()]


def clusters_with_label(clusters: Reader, namespace: str, label: str) -> Collection[NamespacedName]:
    """Return the clusters in ``namespace`` whose children and pods have ``label`` as the cluster's name."""
    key = NamespacedName(namespace, label)
    same_name = [key] if clusters.contains(key) and label_value(label) == label else []
    return [*same_name, *clusters.keys(_LABEL, f"{namespace}/{label}")]
