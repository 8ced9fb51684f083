"""Brings stored RayClusters to what the profile of their namespace enforces.

Usually the webhook has done this before. This controller applies the same function to RayClusters that were stored
while the webhook was not called, or before the profile applied. It changes only what running pods do not notice; what
their pod templates lack is reported in an Event, and such RayClusters are not exposed.
"""

from __future__ import annotations

from cfo.api.raycluster.conditions import EXPOSED
from cfo.api.raycluster.enforcement import enforce
from cfo.api.raycluster.facts import Concern, RayClusterFacts
from cfo.config.kuberay import NamespaceSettings
from cfo.controllers.raycluster.concern import ClusterConcern, Decision, ObservedCluster
from cfo.runtime import READ, Rule


class ProfileEnforcement(ClusterConcern[None]):
    """Removes from stored RayClusters what weakens the profile, and reports what they lack."""

    name = "raycluster-profile"
    condition = EXPOSED
    rules = (Rule("ray.io", "rayclusters", (*READ, "patch")),)

    async def observe(self, cluster: ObservedCluster) -> None:
        """Observe nothing: the RayCluster and its settings are sufficient."""

    def decide(self, cluster: ObservedCluster, found: None) -> Decision:
        """Return the change of one cluster, and what it lacks."""
        return decide_enforcement(cluster.facts, cluster.settings)


def decide_enforcement(facts: RayClusterFacts, settings: NamespaceSettings) -> Decision:
    """Return the change with which a cluster meets the profile of its namespace, and what it lacks."""
    decision = Decision(cluster=facts.cluster)
    enforced = frozenset(map(Concern, settings.enforced))
    features = settings.kuberay.kuberay_features
    required = enforce(facts, facts, enforced, features)
    if required:
        decision.spec_patch = required.patch
        paths = ", ".join("spec." + ".".join(path) for path in required.reasons)
        decision.warn(
            "ProfileEnforced",
            f"The operator changed {paths}, because the profile {settings.profile} of this namespace does not "
            "allow the former value",
        )
    if facts.lacks_tls(enforced, features):
        decision.warn(
            "ProfileNotMet",
            f"The profile {settings.profile} of this namespace requires mutual TLS, but the RayCluster was created "
            "without the operator's parts for it, so it is not exposed. Create the RayCluster again",
        )
    return decision
