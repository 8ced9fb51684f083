"""Decides what a profile of the configuration changes in a RayCluster.

The webhook changes what a user sends, with a warning; a controller changes what was stored while the webhook was not
called. Both use :func:`enforce`. The rule is that a user's own settings never weaken what the profile enforces:

* The ingress rules of ``networkPolicy`` and ``networkIsolation`` are removed, because policies only add to each other:
  they would open ports that the operator's policies close. The rest of these fields stays, it can only restrict more.
* If KubeRay's ``tlsOptions`` or ``authOptions`` is active, a new RayCluster that no other actor protects gets it, and
  one that has it keeps it. If it is not active, the operator's own parts are injected into a new RayCluster, and an
  update cannot remove them. A stored RayCluster without any of them is not changed: KubeRay does not restart its pods,
  and nodes with and without TLS cannot connect. It :meth:`lacks TLS
  <cfo.api.raycluster.facts.RayClusterFacts.lacks_tls>`, and is not exposed.
* KubeRay's Ingress is turned off where authentication is enforced.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from cfo.api.raycluster.facts import Actor, Concern, RayClusterFacts
from cfo.api.reading import mapping


class Enforcement(msgspec.Struct):
    """What has to change: a merge patch of the spec, and the changed paths with the reason for each change."""

    patch: dict[str, Any] = msgspec.field(default_factory=dict)
    reasons: dict[tuple[str, ...], str] = msgspec.field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.patch)

    def add(self, path: tuple[str, ...], value: Any, reason: str, *, reported: bool = True) -> None:
        """Add a change; ``value`` ``None`` removes the field. A default for a new RayCluster is not ``reported``."""
        parent = self.patch
        for part in path[:-1]:
            parent = parent.setdefault(part, {})
        parent[path[-1]] = value
        if reported:
            self.reasons[path] = reason


_PROTECTIONS: Final = (
    (Concern.MTLS, "tlsOptions", "enabled", True),
    (Concern.AUTHENTICATION, "authOptions", "mode", "token"),
)
"""The concerns that a field of KubeRay provides: the name of the field, and its key with the required value."""


def enforce(
    facts: RayClusterFacts,
    old: RayClusterFacts | None,
    enforced: Collection[Concern],
    active_features: Collection[str],
) -> Enforcement:
    """Return what has to change in a RayCluster, which replaces ``old`` (``None``: it is new).

    For a stored RayCluster, ``old`` is the same object. ``active_features`` as in
    :meth:`~cfo.api.raycluster.facts.RayClusterFacts.actor`.
    """
    result = Enforcement()
    if not enforced or facts.is_managed_by_multikueue:
        return result
    spec = mapping(facts.cluster.get("spec"))
    if Concern.NETWORK_POLICY in enforced:
        for name in ("networkPolicy", "networkIsolation"):
            _remove_ingress_rules(result, name, mapping(spec.get(name)))
    for concern, name, key, value in _PROTECTIONS:
        by_kuberay = old is None or old.actor(concern, active_features) is Actor.KUBERAY
        current = mapping(spec.get(name)).get(key)
        is_ours = facts.actor(concern, active_features) is Actor.OPERATOR
        is_required = concern in enforced and name in active_features and is_ours
        if is_required and by_kuberay and current != value:
            is_change = old is not None or current is not None
            result.add(
                (name, key), value, "set to the value that the profile requires", reported=is_change
            )
    head = mapping(spec.get("headGroupSpec"))
    if Concern.AUTHENTICATION in enforced and head.get("enableIngress"):
        result.add(
            ("headGroupSpec", "enableIngress"),
            False,
            "the Ingress of KubeRay requires no authentication",
        )
    return result


def _remove_ingress_rules(result: Enforcement, name: str, policy: Mapping[str, Any]) -> None:
    """Remove the ingress rules of KubeRay's field (by pod group), or of the fork's (for the head)."""
    reason = "removed, because it would open ports that the policies of the operator close"
    if policy.get("ingressRules"):
        result.add((name, "ingressRules"), None, reason)
    for part in ("head", "worker"):
        if mapping(policy.get(part)).get("ingressRules"):
            result.add((name, part, "ingressRules"), None, reason)
    groups = policy.get("workerGroups")
    if not isinstance(groups, list):
        return
    if any(mapping(group).get("ingressRules") for group in groups):
        closed = [_without_ingress_rules(group) for group in groups]
        result.add((name, "workerGroups"), closed, f"ingressRules {reason}")


def _without_ingress_rules(group: object) -> object:
    if not isinstance(group, dict):
        return group
    return {key: value for key, value in group.items() if key != "ingressRules"}
