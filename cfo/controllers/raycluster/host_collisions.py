"""Finding RayClusters: by what their objects are called, and by what their pods and objects are labelled.

A cluster's *address* is ``<name>-<namespace>``, from which hosts and ClusterRoleBindings get their names. It is not
unique: ``a-b`` in ``c`` and ``a`` in ``b-c`` have the same. Such clusters are namesakes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from cfo.api.raycluster.naming import label_value
from cfo.runtime.cache.entry import Entry
from cfo.runtime.cache.informer import Informer, Reader
from cfo.runtime.objects import NamespacedName, Object, key_of, name_of, namespace_of

__all__ = ["add_indexes", "address_of", "at_address", "labelled", "older_namesakes"]

_LABEL = "label"


def add_indexes(clusters: Informer) -> None:
    """Gives the informer of RayClusters the index that the functions here look into."""
    clusters.add_index(_LABEL, _labels)


def _labels(entry: Entry) -> Iterable[str]:
    """The label of a cluster whose name is too long for one. All others are found by their names."""
    label = label_value(entry.name)
    return (f"{entry.namespace}/{label}",) if label != entry.name else ()


def address_of(cluster: Mapping[str, Any]) -> str:
    """The address of ``cluster``."""
    return f"{name_of(cluster)}-{namespace_of(cluster)}"


def at_address(clusters: Reader, address: str) -> Collection[NamespacedName]:
    """The clusters with this address."""
    return [key for key in _namesakes(address) if clusters.contains(key)]


def _namesakes(address: str) -> Iterator[NamespacedName]:
    for at, character in enumerate(address):
        if character == "-":
            yield NamespacedName(address[at + 1 :], address[:at])


def labelled(clusters: Reader, namespace: str, label: str) -> Collection[NamespacedName]:
    """The clusters in ``namespace`` whose objects and pods carry ``label`` as the cluster's name."""
    key = NamespacedName(namespace, label)
    named = [key] if clusters.contains(key) and label_value(label) == label else []
    return [*named, *clusters.keys(_LABEL, f"{namespace}/{label}")]


def older_namesakes(clusters: Reader, cluster: Mapping[str, Any]) -> list[Object]:
    """The clusters with the same address that were there before ``cluster`` and are to stay."""
    key = key_of(cluster)
    age = (cluster["metadata"].get("creationTimestamp") or "", key)
    others = [clusters.entry(other) for other in at_address(clusters, address_of(cluster)) if other != key]
    return [
        entry.object()
        for entry in others
        if entry is not None and not entry.meta.is_deleting and (entry.meta.creation_timestamp, entry.key) < age
    ]
