"""Replaces head pods that started without the pull secrets of their ServiceAccount."""

from __future__ import annotations

from functools import partial

from cfo.api.raycluster.cluster import head_pod_spec
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.controllers.raycluster.concern import Decision
from cfo.controllers.raycluster.head_pods import HeadPods
from cfo.runtime import (
    POD,
    Clock,
    NamespacedName,
    Object,
    Reader,
    is_controlled_by,
    namespace_of,
    rfc3339,
    uid_of,
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
        account = accounts.get(NamespacedName(namespace_of(cluster), account_name)) or {}
        required = _pull_secrets(account)
        if not required:
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
                decision.add_absent(
                    POD, entry.key, current=pod, belongs=partial(_controls, cluster)
                )


def _controls(cluster: Object, pod: Object) -> bool:
    return is_controlled_by(pod, cluster)


def _pull_secrets(obj: Object) -> set[str]:
    return {reference.get("name") or "" for reference in obj.get("imagePullSecrets") or ()}
