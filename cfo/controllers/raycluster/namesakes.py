"""Finding RayClusters: by what their objects are called, and by what their pods and objects are labelled.

A cluster's *address* is ``<name>-<namespace>``, from which hosts and ClusterRoleBindings get their names. It is not
unique: ``a-b`` in ``c`` and ``a`` in ``b-c`` have the same. Such clusters are namesakes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from cfo.api.raycluster.naming import label_value
from cfo.runtime.cache.entry import Entry
from cfo.runtime.cache.informer import Informer, Reader
from cfo.runtime.objects import NamespacedName, Object, key_of, name_of, namespace_of

__all__ = ["add_indexes", "address_of", "at_address", "labelled", "older_namesakes"]

_ADDRESS = "address"
_LABEL = "label"


def add_indexes(clusters: Informer) -> None:
    """Gives the informer of RayClusters the indexes that the functions here look into."""
    clusters.add_index(_ADDRESS, _addresses)
    clusters.add_index(_LABEL, _labels)


def _addresses(entry: Entry) -> Iterable[str]:
    return (f"{entry.key.name}-{entry.key.namespace}",)


def _labels(entry: Entry) -> Iterable[str]:
    return (f"{entry.key.namespace}/{label_value(entry.key.name)}",)


def address_of(cluster: Mapping[str, Any]) -> str:
    """The address of ``cluster``."""
    return f"{name_of(cluster)}-{namespace_of(cluster)}"


def at_address(clusters: Reader, address: str) -> Collection[NamespacedName]:
    """The clusters with this address."""
    return clusters.keys(_ADDRESS, address)


def labelled(clusters: Reader, namespace: str, label: str) -> Collection[NamespacedName]:
    """The clusters in ``namespace`` whose objects and pods carry ``label`` as the cluster's name."""
    return clusters.keys(_LABEL, f"{namespace}/{label}")


def older_namesakes(clusters: Reader, cluster: Mapping[str, Any]) -> list[Object]:
    """The clusters with the same address that were there before ``cluster`` and are to stay."""
    key = key_of(cluster)
    age = (cluster["metadata"].get("creationTimestamp") or "", key)
    return [
        entry.object()
        for entry in clusters.entries(index=(_ADDRESS, address_of(cluster)))
        if entry.key != key and not entry.meta.is_deleting and (entry.meta.creation_timestamp, entry.key) < age
    ]
