"""Brings stored RayClusters to what the profile of their namespace enforces.

Usually the webhook has done this before. This controller applies the same function to RayClusters that were stored
while the webhook was not called, or before the profile applied. It changes only what running pods do not notice; what
their pod templates lack is reported in an Event, and such RayClusters are not exposed.
"""

from __future__ import annotations

from cfo.api.raycluster.enforcement import enforce, unmet
from cfo.api.raycluster.facts import Concern
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster.environment import Environment
from cfo.controllers.raycluster.reconciler import ClusterReconciler
from cfo.controllers.raycluster.watches import CLUSTER_CHANGED
from cfo.runtime import READ, Builder, Manager, NotFound, Request, Result, Rule
from cfo.runtime.client import patch_checked


class EnforcementReconciler(ClusterReconciler):
    """Removes from stored RayClusters what weakens the profile, and reports what they lack."""

    name = "raycluster-profile"
    rules = (Rule("ray.io", "rayclusters", (*READ, "patch")),)

    async def reconcile(self, request: Request) -> Result:
        """Bring one cluster to its profile."""
        children = await self.existing(request)
        if children is None:
            return Result()
        settings = await self.settings(request)
        enforced, features = frozenset(map(Concern, settings.enforced)), settings.kuberay.kuberay_features
        required = enforce(children.facts, children.facts, enforced, features)
        if required:
            try:
                await patch_checked(self._client, children.cluster, {"spec": required.patch}, unchanged=True)
            except NotFound:
                return Result()
            paths = ", ".join("spec." + ".".join(path) for path in required.reasons)
            children.record_warning(
                "ProfileEnforced",
                f"The operator changed {paths}, because the profile {settings.profile} of this namespace does not "
                "allow the former value",
            )
        if unmet(children.facts, enforced, features):
            children.record_warning(
                "ProfileNotMet",
                f"The profile {settings.profile} of this namespace requires mutual TLS, but the RayCluster was created "
                "without the operator's parts for it, so it is not exposed. Create the RayCluster again",
            )
        return children.result()


def setup(manager: Manager, config: KubeRayConfiguration, environment: Environment) -> None:
    """Add the controller to ``manager`` if the configuration has profiles."""
    if not config.profiles:
        return
    reconciler = EnforcementReconciler(manager, config, environment)
    reconciler.subscribe(Builder(manager, reconciler.name).for_(RAY_CLUSTER, CLUSTER_CHANGED).complete(reconciler))
