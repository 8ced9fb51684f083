"""One run of ``cfo migrate``: plan, apply or undo for all objects in scope. The command line is in another module."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from cfo.api.raycluster.cluster import has_cluster_labels
from cfo.api.raycluster.names import RAY_CLUSTER, ROUTE
from cfo.config.kuberay import KubeRayConfiguration
from cfo.console.migrate.raycluster.applying import Executor, Outcome
from cfo.console.migrate.raycluster.observation import Observer
from cfo.console.migrate.raycluster.planning import (
    ObservedCluster,
    Options,
    plan_cluster,
    plan_orphaned_binding,
    plan_takeover,
    plan_wrapper,
)
from cfo.console.migrate.raycluster.steps import ObjectPlan
from cfo.console.migrate.raycluster.targets import Target
from cfo.console.migrate.raycluster.undoing import (
    Record,
    UndoFile,
    plan_undo_cluster,
    plan_undo_object,
)
from cfo.runtime import (
    Client,
    NamespacedName,
    Object,
    UnknownKind,
    gvk_of,
    key_of,
    namespace_of,
    owner_references_of,
    uid_of,
)
from cfo.runtime.objects import CLUSTER_ROLE_BINDING

FIELD_MANAGER: Final = "cfo-migrate"
"""The field manager of all writes of the migration."""

_Replan = Callable[[], Awaitable[ObjectPlan | None]]


def plan_safely(observed: ObservedCluster, options: Options) -> ObjectPlan:
    """Return the plan for one RayCluster; an object that cannot be read blocks this RayCluster, and no other."""
    try:
        return plan_cluster(observed, options)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # Without the CRD's validation, any field of these objects can have any type.
        reason = f"it, or an object of it, cannot be read: {type(error).__name__}: {error}"
        return ObjectPlan(observed.cluster, blockers=[" ".join(reason.split())])


class Session:
    """Plans and executes the migration with ``options`` of the objects that ``observer`` reads.

    ``config`` is the operator's configuration for RayClusters.
    """

    def __init__(
        self, client: Client, observer: Observer, options: Options, config: KubeRayConfiguration
    ) -> None:
        self._client = client
        self._observer = observer
        self._options = options
        self._config = config

    async def plan(self) -> list[ObjectPlan]:
        """Return the plans for all objects in scope: RayClusters, their leftovers, and AppWrappers."""
        plans = [plan for plan, _ in await self._planned()]
        if not self._options.finalizers_only and not self._observer.names:
            plans += [
                plan_wrapper(wrapper, self._options.target)
                for wrapper in await self._observer.wrappers()
            ]
        return plans

    async def _planned(self) -> list[tuple[ObjectPlan, _Replan]]:
        observed = await self._observer.clusters()
        if self._options.target is Target.CFO:
            oauth = await self._uses_oauth()
            plans = [plan_takeover(item, oauth=oauth) for item in observed]
        else:
            plans = [plan_safely(item, self._options) for item in observed]
        result: list[tuple[ObjectPlan, _Replan]] = [
            (plan, partial(self._replan, plan.object)) for plan in plans
        ]
        for binding, namespace in await self._observer.orphaned_bindings():
            replan = partial(self._replan_binding, binding, namespace)
            result.append((plan_orphaned_binding(binding, namespace), replan))
        return result

    async def _replan_binding(self, binding: Object, namespace: str) -> ObjectPlan | None:
        current = await self._client.get(CLUSTER_ROLE_BINDING, key_of(binding), live=True)
        if current is None or uid_of(current) != uid_of(binding):
            return None
        return plan_orphaned_binding(current, namespace)

    async def _replan(self, cluster: Object) -> ObjectPlan | None:
        observed = await self._observer.cluster(key_of(cluster))
        if observed is None or uid_of(observed.cluster) != uid_of(cluster):
            return None
        return plan_safely(observed, self._options)

    async def _uses_oauth(self) -> bool:
        """Return whether the operator's configuration and the platform give dashboards an OAuth proxy."""
        try:
            await self._client.mapper.resource(ROUTE)
        except UnknownKind:
            return False
        return self._config.ray_dashboard_oauth_enabled

    async def apply(
        self, undo: UndoFile | None, report: Callable[[str], None], *, timeout: float, dry_run: bool
    ) -> list[Outcome]:
        """Migrate all objects in scope, and return the result for each.

        Everything that will be changed is written to ``undo`` before the first change. Raises :class:`OSError` if that
        fails, and the errors of reading the scope.
        """
        record = undo.record if undo is not None else _record_nothing
        planned = await self._planned()
        for plan, _ in planned:
            record(plan)
        executor = Executor(
            self._client, self._observer, record, report, timeout=timeout, dry_run=dry_run
        )
        outcomes = [await executor.migrate(plan, replan) for plan, replan in planned]
        if dry_run:
            return outcomes
        for outcome, (_, replan) in zip(outcomes, planned, strict=True):
            if (
                outcome.plan.kept and not outcome.error
            ):  # KubeRay has had time to create its own policies
                await executor.resume(outcome, replan)
        return outcomes

    async def undo(
        self,
        file: UndoFile,
        report: Callable[[str], None],
        *,
        force: bool,
        timeout: float,
        dry_run: bool,
    ) -> list[Outcome]:
        """Restore the objects of ``file``: first those around each RayCluster, then the RayCluster itself."""
        executor = Executor(
            self._client, self._observer, _record_nothing, report, timeout=timeout, dry_run=dry_run
        )
        clusters: dict[NamespacedName, Object | None] = {}

        async def cluster_at(key: NamespacedName) -> Object | None:
            if key not in clusters:
                clusters[key] = await self._client.get(RAY_CLUSTER, key, live=True)
            return clusters[key]

        async def cluster_of(obj: Object) -> Object | None:
            """Return the RayCluster to which an object belongs: by its owner reference, or a binding by its labels."""
            for reference in owner_references_of(obj):
                if reference.get("kind") == RAY_CLUSTER.kind:
                    owner = await cluster_at(
                        NamespacedName(namespace_of(obj), str(reference.get("name")))
                    )
                    if owner is not None and uid_of(owner) == reference.get("uid"):
                        return owner
            existing = (cluster for cluster in clusters.values() if cluster is not None)
            is_binding = gvk_of(obj) == CLUSTER_ROLE_BINDING
            return next(
                (
                    cluster
                    for cluster in existing
                    if is_binding and has_cluster_labels(obj, cluster)
                ),
                None,
            )

        async def plan_cluster_undo(record: Record) -> ObjectPlan:
            observed = await self._observer.cluster(key_of(record.before))
            return plan_undo_cluster(
                record, observed, force=force, allow_downtime=self._options.allow_downtime
            )

        async def plan_object_undo(record: Record) -> ObjectPlan:
            cluster = await cluster_of(record.before)
            if cluster is None:
                return ObjectPlan(
                    record.before,
                    notes=["its RayCluster does not exist any more: not created again"],
                )
            if uid_of(cluster) in blocked:
                return ObjectPlan(record.before, blockers=["its RayCluster is blocked"])
            current = await self._client.get(
                gvk_of(record.before), key_of(record.before), live=True
            )
            return plan_undo_object(record, current, frozenset({uid_of(cluster)}), force=force)

        records = list(file.records.values())
        of_clusters = [record for record in records if gvk_of(record.before) == RAY_CLUSTER]
        for record in of_clusters:
            await cluster_at(key_of(record.before))
        last = [
            (await plan_cluster_undo(record), partial(plan_cluster_undo, record))
            for record in of_clusters
        ]
        blocked = {uid_of(plan.object) for plan, _ in last if plan.blockers}
        first = [
            (await plan_object_undo(record), partial(plan_object_undo, record))
            for record in records
            if gvk_of(record.before) != RAY_CLUSTER
        ]
        return [await executor.migrate(plan, replan) for plan, replan in (*first, *last)]


def _record_nothing(_: ObjectPlan) -> None:
    pass
