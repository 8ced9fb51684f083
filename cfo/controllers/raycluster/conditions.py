"""Writes three conditions to the status of a RayCluster: what this operator provides for it, in the words of users.

They say at which URL the dashboard is exposed, until when the CA for mutual TLS is valid, and which NetworkPolicies
exist. One Normal Event reports what became true. The conditions are computed from the cached objects after the other
controllers have written them, and only once they have been the same for a second, so a new RayCluster costs one write.
They have no ``observedGeneration``, which would cost a write for each step of the autoscaler.

KubeRay keeps conditions of other types (``raycluster_controller.go`` of KubeRay 1.7). A RayCluster that MultiKueue
manages has none: MultiKueue overwrites its status with that of another Kubernetes cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog

from cfo.api.gateway import HTTP_ROUTE
from cfo.api.raycluster.certificates import CA_LIFETIME, recorded_renewal
from cfo.api.raycluster.cluster import has_injected_tls, is_suspended
from cfo.api.raycluster.conditions import CONDITION_TYPES, EXPOSED, MUTUAL_TLS, NETWORK_POLICIES
from cfo.api.raycluster.kinds import RAY_CLUSTER, ROUTE
from cfo.api.raycluster.naming import CLUSTER_LABEL, FIELD_MANAGER, names_of
from cfo.api.raycluster.responsibility import Actor, is_managed_by_multikueue, responsibility_of
from cfo.config import KubeRayConfiguration
from cfo.console.summaries import exposure as addresses
from cfo.console.summaries.related import Related
from cfo.controllers.raycluster.children import MAX_CACHED_BYTES, belongs_to
from cfo.controllers.raycluster.clusters import add_indexes
from cfo.controllers.raycluster.dashboard_access import Exposure, may_expose
from cfo.controllers.raycluster.environment import Environment
from cfo.controllers.raycluster.platform import UNKNOWN_RETRY_SECONDS
from cfo.controllers.raycluster.predicates import CHILD_CHANGED, CLUSTER_CHANGED
from cfo.controllers.raycluster.secrets import CLUSTER_SECRETS, secret_informer
from cfo.runtime import (
    GVK,
    INGRESS,
    NETWORK_POLICY,
    SECRET,
    Builder,
    Client,
    Clock,
    Conflict,
    DiscoveryIncomplete,
    EnqueueRequestForOwner,
    Entry,
    EventRecorder,
    Forbidden,
    Invalid,
    Manager,
    NamespacedName,
    NotFound,
    Object,
    Reader,
    Request,
    Result,
    Rule,
    find_condition,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    on_update,
    or_,
    rfc3339,
    set_condition,
)
from cfo.runtime.client import apply_status

__all__ = ["QUIET_SECONDS", "ConditionReconciler", "conditions_of", "setup"]

_log = structlog.get_logger("cfo.controllers.raycluster")

QUIET_SECONDS = 1.0
"""How long the conditions must have been the same before they are written."""


class _StoredCondition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct, gc=False):
    conditions: tuple[_StoredCondition, ...] | None = None


class _Cluster(msgspec.Struct, gc=False):
    status: _Status | None = None


_decoder = msgspec.json.Decoder(_Cluster)


def _own_conditions(cluster: Entry) -> list[_StoredCondition]:
    """Return our conditions; none if the status has other types, which a CRD without a schema accepts."""
    try:
        status = _decoder.decode(cluster.raw).status
    except msgspec.ValidationError:
        return []
    conditions = (status.conditions if status is not None else None) or ()
    return [item for item in conditions if item.type in CONDITION_TYPES]


OWN_CONDITIONS_CHANGED = on_update(lambda old, new: _own_conditions(old) != _own_conditions(new))
"""Passes updates in which another client changed the conditions that the operator writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Condition:
    type: str
    is_true: bool
    reason: str
    message: str

    def as_object(self) -> Object:
        return {"type": self.type, "status": str(self.is_true), "reason": self.reason, "message": self.message}


def conditions_of(
    cluster: Object, children: Mapping[GVK, Sequence[Object]], exposure: Exposure, config: KubeRayConfiguration
) -> list[Object]:
    """Return the conditions of ``cluster``, without times.

    ``children`` are its objects, of Secrets only the metadata. ``exposure`` is the decision about its dashboard, and
    ``config`` the configuration of its namespace.
    """
    actors = responsibility_of(cluster, config.kuberay_features)
    found = (
        _exposed(cluster, children, exposure, actors.exposure),
        _mutual_tls(cluster, children.get(SECRET, ()), actors.mtls, is_enabled=config.mtls_enabled),
        _network_policies(cluster, children.get(NETWORK_POLICY, ())),
    )
    return [condition.as_object() for condition in found]


def _exposed(cluster: Object, children: Mapping[GVK, Sequence[Object]], exposure: Exposure, actor: Actor) -> _Condition:
    related = Related(children=children)
    url = addresses.dashboard_url(cluster, related)
    if url:
        client = addresses.client_address(cluster, related)
        message = f"Dashboard: {url}" + (f"; Ray client: {client}" if client else "")
        return _Condition(type=EXPOSED, is_true=True, reason="Exposed", message=message)
    if exposure.reason:
        return _Condition(type=EXPOSED, is_true=False, reason=exposure.reason, message=exposure.message)
    if actor is not Actor.OPERATOR:
        return _Condition(
            type=EXPOSED, is_true=False, reason=_BY[actor], message=f"{actor.value} exposes the dashboard"
        )
    if is_suspended(cluster):
        return _Condition(type=EXPOSED, is_true=False, reason="Suspended", message="The RayCluster is suspended")
    return _Condition(
        type=EXPOSED,
        is_true=False,
        reason="NotExposed",
        message="The dashboard has no Route, Ingress or HTTPRoute; the Events of this RayCluster give the reason",
    )


def _mutual_tls(cluster: Object, secrets: Sequence[Object], actor: Actor, *, is_enabled: bool) -> _Condition:
    if actor is not Actor.OPERATOR and not has_injected_tls(cluster):
        return _Condition(
            type=MUTUAL_TLS, is_true=False, reason=_BY[actor], message=f"{actor.value} provides mutual TLS"
        )
    if not has_injected_tls(cluster):
        cause = "was created without it" if is_enabled else "has none: kuberay.mTLSEnabled is false"
        return _Condition(type=MUTUAL_TLS, is_true=False, reason="NotInjected", message=f"The RayCluster {cause}")
    name = names_of(cluster).ca_secret
    secret = next((item for item in secrets if name_of(item) == name), None)
    if secret is None:
        return _Condition(
            type=MUTUAL_TLS, is_true=False, reason="NoCertificateAuthority", message=f"The Secret {name} does not exist"
        )
    renewal = recorded_renewal(secret)
    message = f"The CA in the Secret {name} exists"
    if renewal is not None:
        message = (
            f"The CA in the Secret {name} is valid until {renewal + CA_LIFETIME / 3:%Y-%m-%d} and is renewed "
            f"on {renewal:%Y-%m-%d}"
        )
    return _Condition(type=MUTUAL_TLS, is_true=True, reason="CertificateAuthority", message=message)


def _network_policies(cluster: Object, policies: Sequence[Object]) -> _Condition:
    ours = {names_of(cluster).head_policy, names_of(cluster).workers_policy}
    names = sorted(name_of(policy) for policy in policies)
    if not names:
        message = "No NetworkPolicy of the operator or of KubeRay protects the pods"
        return _Condition(type=NETWORK_POLICIES, is_true=False, reason="NoNetworkPolicy", message=message)
    actor = Actor.OPERATOR if ours.intersection(names) else Actor.KUBERAY
    message = f"By {actor.value}: {', '.join(names)}"
    return _Condition(type=NETWORK_POLICIES, is_true=True, reason=_BY[actor], message=message)


_BY: Final = {
    Actor.OPERATOR: "Operator",
    Actor.KUBERAY: "KubeRay",
    Actor.OPEN_DATA_HUB: "OpenDataHub",
    Actor.MULTIKUEUE: "MultiKueue",
}


class ConditionReconciler:
    """Writes the conditions of RayClusters once they have settled."""

    rules = (Rule("ray.io", "rayclusters/status", "patch"),)

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        clock: Clock,
        environment: Environment,
        children: Mapping[GVK, Reader],
    ) -> None:
        self._client = client
        self._events = events
        self._clock = clock
        self._environment = environment
        self._children = children
        self.pending: dict[Request, tuple[list[Object], float]] = {}
        """The conditions that are about to be written, and since when they have been the same."""
        self._is_forbidden = False

    async def reconcile(self, request: Request) -> Result:
        """Write the conditions of one cluster if they changed a second ago."""
        cluster = await self._client.get(RAY_CLUSTER, request)
        if cluster is None or is_deleting(cluster) or is_managed_by_multikueue(cluster) or self._is_forbidden:
            self.pending.pop(request, None)
            return Result()
        settings = await self._environment.profiles.settings(self._client, request.namespace)
        try:
            exposure = await self._environment.access.exposure_of(cluster, settings)
        except DiscoveryIncomplete:
            return Result(requeue_after=UNKNOWN_RETRY_SECONDS)
        desired = conditions_of(cluster, self._children_of(cluster), exposure, settings.kuberay)
        stored = (cluster.get("status") or {}).get("conditions") or []
        changed = [condition for condition in desired if not _is_stored(condition, stored)]
        if not changed:
            self.pending.pop(request, None)
            return Result()
        now = self._clock.monotonic()
        before, since = self.pending.get(request, ([], now))
        if desired != before:
            self.pending[request] = (desired, now)
            return Result(requeue_after=QUIET_SECONDS)
        if now < since + QUIET_SECONDS:
            return Result(requeue_after=since + QUIET_SECONDS - now)
        del self.pending[request]
        await self._write(cluster, desired, changed, stored)
        return Result()

    def _children_of(self, cluster: Object) -> dict[GVK, list[Object]]:
        """Return the objects of ``cluster`` by kind: of the names that the operator uses, and KubeRay's policies."""
        readers = dict(self._children)
        environment = self._environment
        for gvk, kind in ((ROUTE, environment.routes), (HTTP_ROUTE, environment.gateway_kinds.http_routes)):
            if kind.served is not None:
                readers[gvk] = kind.served.reader
        return {gvk: list(_read(reader, gvk, cluster)) for gvk, reader in readers.items()}

    async def _write(
        self, cluster: Object, desired: Sequence[Object], changed: Sequence[Object], stored: Sequence[Object]
    ) -> None:
        """Apply all conditions; report those that are true and ``changed``."""
        conditions = [dict(known) for known in stored if known.get("type") in CONDITION_TYPES]
        for condition in desired:
            set_condition(conditions, condition, now=rfc3339(self._clock.now()))
        try:
            # not forced: it would replace all conditions if the schema does not make them a map
            await apply_status(self._client, cluster, {"conditions": conditions}, force=False)
        except Forbidden as error:
            self._is_forbidden = True  # until a restart; everything else works without the conditions
            _log.warning("Permission denied, cannot write the conditions of RayClusters", cause=error.message)
            return
        except (Conflict, Invalid, NotFound) as error:
            _log.info("Conditions not written", object=str(key_of(cluster)), error=str(error))
            return
        messages = [condition["message"] for condition in changed if condition["status"] == "True"]
        if messages:
            self._events.event(cluster, "Normal", "Configured", ". ".join(messages))


def _is_stored(condition: Object, stored: Sequence[Mapping[str, Any]]) -> bool:
    return condition.items() <= (find_condition(stored, condition["type"]) or {}).items()


def _read(reader: Reader, gvk: GVK, cluster: Object) -> Iterator[Object]:
    names = names_of(cluster)
    wanted = {
        NETWORK_POLICY: (names.head_policy, names.workers_policy, *_kuberay_policies(cluster)),
        SECRET: (names.ca_secret,),
    }.get(gvk, (names.dashboard, names.client))
    for name in dict.fromkeys(wanted):
        obj = reader.get(NamespacedName(namespace_of(cluster), name))
        if obj is not None and belongs_to(obj, cluster):
            yield obj


def _kuberay_policies(cluster: Object) -> Iterator[str]:
    """Yield the names of the NetworkPolicies that KubeRay 1.7 creates for nodes of each kind."""
    yield from (f"{name_of(cluster)}-{node_type}" for node_type in ("head", "workers"))


def setup(manager: Manager, config: KubeRayConfiguration, environment: Environment) -> None:
    """Add the controller of conditions to ``manager``."""
    name = "raycluster-conditions"
    clusters = manager.cache.informer(RAY_CLUSTER)
    add_indexes(clusters)
    ingress_selector = "" if may_expose(config) else CLUSTER_LABEL
    ingresses = manager.cache.informer(INGRESS, label_selector=ingress_selector, max_bytes=MAX_CACHED_BYTES)
    policies = manager.cache.informer(NETWORK_POLICY, max_bytes=MAX_CACHED_BYTES)
    reconciler = ConditionReconciler(
        manager.client.with_field_manager(FIELD_MANAGER),
        manager.events(name),
        manager.clock,
        environment,
        {INGRESS: ingresses.reader, NETWORK_POLICY: policies.reader, SECRET: secret_informer(manager).reader},
    )
    controller = (
        Builder(manager, name)
        .for_(RAY_CLUSTER, or_(CLUSTER_CHANGED, OWN_CONDITIONS_CHANGED))
        .owns(INGRESS, CHILD_CHANGED, label_selector=ingress_selector, max_bytes=MAX_CACHED_BYTES)
        .owns(NETWORK_POLICY, CHILD_CHANGED, max_bytes=MAX_CACHED_BYTES)
        .owns(SECRET, **CLUSTER_SECRETS)
        .complete(reconciler)
    )
    owner = EnqueueRequestForOwner(RAY_CLUSTER)
    environment.routes.subscribe(controller, owner, CHILD_CHANGED)
    environment.gateway_kinds.http_routes.subscribe(controller, owner, CHILD_CHANGED)
    environment.profiles.subscribe(controller, clusters.reader)
    environment.access.subscribe(manager, controller, clusters.reader)
