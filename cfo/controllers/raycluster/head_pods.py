"""The head pods of RayClusters: found by KubeRay's labels, and replaced if they started without pull secrets."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Final

from cfo.api.raycluster.cluster import POD_CLUSTER_LABEL, head_pod_spec
from cfo.api.raycluster.names import label_value
from cfo.controllers.host_claims import is_owned_by
from cfo.controllers.naming_label import NamingLabel
from cfo.controllers.raycluster.children import Children
from cfo.controllers.raycluster.watches import clusters_with_label
from cfo.runtime import (
    POD,
    Clock,
    Entry,
    Informer,
    NamespacedName,
    Object,
    Reader,
    Request,
    is_controlled_by,
    name_of,
    namespace_of,
    rfc3339,
    uid_of,
)

MAX_HEADS: Final = 100
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
        return list(islice((pod for pod in labelled if is_owned_by(pod, cluster)), MAX_HEADS + 1))

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


class HeadPodReplacer:
    """Deletes head pods that lack pull secrets, so that KubeRay recreates them.

    OpenShift adds pull secrets to a new ServiceAccount a moment after its creation, and a pod gets the pull secrets of
    its account only when it is created. Pods that set their own pull secrets, or use a ServiceAccount chosen by the
    user, never get any. If the pod template names no account (nothing was injected at admission), only pods older than
    the pull secrets are deleted: a newer pod that lacks them shows that its successor would lack them as well.

    Only pods whose controller is the cluster, by uid, are deleted: any client can set the labels of a head pod.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[frozenset[str], str]] = {}
        """By uid of the cluster: the account's pull secrets, and when they were first observed (RFC 3339)."""

    def forget(self, cluster: Object) -> None:
        """Forget the pull secrets of ``cluster``, which is being deleted."""
        self._seen.pop(uid_of(cluster), None)

    async def replace(self, children: Children, accounts: Reader, pods: HeadPods | None) -> None:
        """Delete the head pods of one cluster that lack pull secrets; ``accounts`` has its ServiceAccount."""
        cluster = children.cluster
        pod_spec = head_pod_spec(cluster)
        account_name = children.facts.names.proxy_service_account
        chosen = pod_spec.get("serviceAccountName")
        if pod_spec.get("imagePullSecrets") or chosen not in (None, "", account_name):
            return
        account = accounts.get(NamespacedName(namespace_of(cluster), account_name)) or {}
        required = _pull_secrets(account)
        if not required or pods is None:
            return
        seen, since = self._seen.get(uid_of(cluster), (frozenset(), ""))
        if seen != required:
            since = rfc3339(self._clock.now())
            self._seen[uid_of(cluster)] = (frozenset(required), since)
        for entry in pods.of(cluster):
            if not chosen and entry.meta.creation_timestamp > since:
                continue
            pod = entry.object()
            if not required <= _pull_secrets(pod.get("spec") or {}):
                await children.delete(POD, pod, belongs=lambda pod: is_controlled_by(pod, cluster))


def _pull_secrets(obj: Object) -> set[str]:
    return {reference.get("name") or "" for reference in obj.get("imagePullSecrets") or ()}
