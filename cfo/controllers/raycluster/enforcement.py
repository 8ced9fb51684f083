"""Brings stored RayClusters to what the profile of their namespace enforces.

Usually the webhook has done this before. This controller applies the same function to RayClusters that were stored
while the webhook was not called, or before the profile applied. It changes only what running pods do not notice; what
their pod templates lack is reported in an Event, and such RayClusters are not exposed.
"""

from __future__ import annotations

from cfo.api.raycluster.enforcement import enforce, unmet
from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.api.raycluster.naming import FIELD_MANAGER
from cfo.api.raycluster.responsibility import Concern
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster.children import Children
from cfo.controllers.raycluster.environment import Environment
from cfo.controllers.raycluster.predicates import CLUSTER_CHANGED
from cfo.controllers.raycluster.profiles import Profiles
from cfo.runtime import (
    READ,
    Builder,
    Client,
    EventRecorder,
    Manager,
    NotFound,
    Request,
    Result,
    Rule,
    is_deleting,
)
from cfo.runtime.client import patch_checked

__all__ = ["EnforcementReconciler", "setup"]


class EnforcementReconciler:
    """Removes from stored RayClusters what weakens the profile, and reports what they lack."""

    rules = (Rule("ray.io", "rayclusters", (*READ, "patch")),)

    def __init__(self, client: Client, events: EventRecorder, profiles: Profiles) -> None:
        self._client = client
        self._events = events
        self._profiles = profiles

    async def reconcile(self, request: Request) -> Result:
        """Bring one cluster to its profile."""
        cluster = await self._client.get(RAY_CLUSTER, request)
        if cluster is None or is_deleting(cluster):
            return Result()
        settings = await self._profiles.settings(self._client, request.namespace)
        enforced, features = frozenset(map(Concern, settings.enforced)), settings.kuberay.kuberay_features
        children = Children(self._client, self._events, cluster)
        required = enforce(children.facts, children.facts, enforced, features)
        if required:
            try:
                await patch_checked(self._client, cluster, {"spec": required.patch}, unchanged=True)
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
    name = "raycluster-profile"
    reconciler = EnforcementReconciler(
        manager.client.with_field_manager(FIELD_MANAGER), manager.events(name), environment.profiles
    )
    controller = Builder(manager, name).for_(RAY_CLUSTER, CLUSTER_CHANGED).complete(reconciler)
    environment.profiles.subscribe(controller, manager.cache.informer(RAY_CLUSTER).reader)
