"""Brings stored RayClusters to what the profile of their namespace enforces.

Usually the webhook has done this before. This controller applies the same function to RayClusters that were stored
while the webhook was not called, or before the profile applied. It changes only what running pods do not notice; what
their pod templates lack is reported in an Event, and such RayClusters are not exposed.
"""

from __future__ import annotations

from cfo.api.raycluster.enforcement import enforce, lacks_tls
from cfo.api.raycluster.facts import Concern
from cfo.controllers.raycluster.children import Children
from cfo.controllers.raycluster.reconciler import ClusterConcern, ObservedCluster
from cfo.runtime import READ, NotFound, Rule
from cfo.runtime.client import patch_checked


class ProfileEnforcement(ClusterConcern):
    """Removes from stored RayClusters what weakens the profile, and reports what they lack."""

    name = "raycluster-profile"
    rules = (Rule("ray.io", "rayclusters", (*READ, "patch")),)

    async def reconcile(self, children: Children, cluster: ObservedCluster) -> None:
        """Bring one cluster to its profile."""
        settings = cluster.settings
        enforced, features = (
            frozenset(map(Concern, settings.enforced)),
            settings.kuberay.kuberay_features,
        )
        required = enforce(children.facts, children.facts, enforced, features)
        if required:
            try:
                await patch_checked(
                    self._client, children.cluster, {"spec": required.patch}, unchanged=True
                )
            except NotFound:
                return
            paths = ", ".join("spec." + ".".join(path) for path in required.reasons)
            children.record_warning(
                "ProfileEnforced",
                f"The operator changed {paths}, because the profile {settings.profile} of this namespace does not "
                "allow the former value",
            )
        if lacks_tls(children.facts, enforced, features):
            children.record_warning(
                "ProfileNotMet",
                f"The profile {settings.profile} of this namespace requires mutual TLS, but the RayCluster was created "
                "without the operator's parts for it, so it is not exposed. Create the RayCluster again",
            )
