"""The head pods of RayClusters, found by KubeRay's labels."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Final

from cfo.api.raycluster.cluster import POD_CLUSTER_LABEL
from cfo.api.raycluster.names import label_value
from cfo.controllers.host_claims import is_controlled_in_namespace
from cfo.controllers.naming_label import NamingLabel
from cfo.controllers.raycluster.watches import clusters_with_label
from cfo.runtime import (
    Entry,
    Informer,
    NamespacedName,
    Object,
    Reader,
    Request,
    name_of,
    namespace_of,
)

MAX_HEADS: Final = 20
"""More head pods than a RayCluster ever has: usually it has one."""

_CLUSTERS: Final = NamingLabel(POD_CLUSTER_LABEL)


class HeadPods:
    """The informer of head pods, indexed by the RayCluster that their label names."""

    def __init__(self, informer: Informer) -> None:
        self.informer = informer
        self._reader = _CLUSTERS.add_index(informer).reader

    def of(self, cluster: Object) -> list[Entry]:
        """Return the pods that ``cluster`` controls, at most one more than :data:`MAX_HEADS`.

        The label is not sufficient, because any client can set it.
        """
        labelled = _CLUSTERS.entries(
            self._reader, NamespacedName(namespace_of(cluster), label_value(name_of(cluster)))
        )
        return list(
            islice(
                (pod for pod in labelled if is_controlled_in_namespace(pod, cluster)), MAX_HEADS + 1
            )
        )

    def are_known(self, cluster: Object) -> bool:
        """Return whether :meth:`of` returns all: none is too large for the cache, and there are not too many."""
        return (
            self._reader.is_complete(namespace_of(cluster)) and len(self.of(cluster)) <= MAX_HEADS
        )


def clusters_of_pod(clusters: Reader, pod: Entry) -> Collection[Request]:
    """Return the clusters to which KubeRay's label assigns a pod."""
    return clusters_with_label(
        clusters, pod.key.namespace, pod.meta.labels.get(POD_CLUSTER_LABEL, "")
    )
