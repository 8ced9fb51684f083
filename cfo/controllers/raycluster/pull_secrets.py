"""Replaces head pods that started without the pull secrets of their ServiceAccount."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from hashlib import sha256
from typing import Final

import msgspec
import orjson

from cfo.api.raycluster.cluster import head_pod_spec
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.controllers.cached_fields import field_reader
from cfo.controllers.cached_size import MAX_CACHED_BYTES
from cfo.controllers.raycluster.concern import Decision
from cfo.controllers.raycluster.head_pods import HeadPods
from cfo.runtime import (
    POD,
    Clock,
    NamespacedName,
    Object,
    Reader,
    is_controlled_by,
    key_of,
    namespace_of,
    rfc3339,
    uid_of,
)


class _Seen(msgspec.Struct, frozen=True):
    """The digest of the pull secrets that an account has, of any number and length, and since when (RFC 3339)."""

    cluster_uid: str
    digest: bytes
    since: str


class HeadPodReplacer:
    """Deletes head pods that lack pull secrets, so that KubeRay recreates them.

    OpenShift adds pull secrets to a new ServiceAccount a moment after its creation, and a pod gets the pull secrets of
    its account only when it is created. Pods that set their own pull secrets, or use a ServiceAccount chosen by the
    user, never get any. If the pod template names no account (nothing was injected at admission), only pods older than
    the pull secrets are deleted: a newer pod that lacks them shows that its successor would lack them as well.

    Only pods whose controller is the cluster, by uid, are deleted: any client can set the labels of a head pod. One of
    more than 64 KiB is kept.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[NamespacedName, _Seen] = {}

    def forget(self, cluster: NamespacedName) -> None:
        """Forget the pull secrets of ``cluster``, which is deleted."""
        self._seen.pop(cluster, None)

    def decide(
        self, decision: Decision, facts: RayClusterFacts, accounts: Reader, pods: HeadPods
    ) -> None:
        """Delete the head pods of one cluster that lack pull secrets; ``accounts`` has its ServiceAccount."""
        cluster = facts.cluster
        pod_spec = head_pod_spec(cluster)
        account_name = facts.names.proxy_service_account
        chosen = pod_spec.get("serviceAccountName")
        if pod_spec.get("imagePullSecrets") or chosen not in (None, "", account_name):
            return
        account = accounts.entry(NamespacedName(namespace_of(cluster), account_name))
        required = _names(_of_account(account)) if account is not None else frozenset()
        if not required:
            return
        digest = _digest(required)
        seen = self._seen.get(key_of(cluster))
        if seen is None or (seen.cluster_uid, seen.digest) != (uid_of(cluster), digest):
            seen = _Seen(uid_of(cluster), digest, since=rfc3339(self._clock.now()))
            self._seen[key_of(cluster)] = seen
        for entry in pods.of(cluster):
            if not chosen and entry.meta.creation_timestamp > seen.since:
                continue
            if entry.size > MAX_CACHED_BYTES:
                continue  # a tenant decides how large pods are, and how often they are read
            if not required <= _names(_of_pod(entry)):
                known = entry.metadata_object()
                decision.add_absent(
                    POD, entry.key, current=known, belongs=partial(_controls, cluster)
                )


def _controls(cluster: Object, pod: Object) -> bool:
    return is_controlled_by(pod, cluster)


def _digest(names: Collection[str]) -> bytes:
    return sha256(orjson.dumps(sorted(names))).digest()


class _Reference(msgspec.Struct, gc=False):
    """The name of a Secret."""

    name: str = ""


_of_account: Final = field_reader("imagePullSecrets", kind=tuple[_Reference, ...], default=())
_of_pod: Final = field_reader("spec", "imagePullSecrets", kind=tuple[_Reference, ...], default=())


def _names(references: Iterable[_Reference]) -> frozenset[str]:
    return frozenset(reference.name for reference in references)
