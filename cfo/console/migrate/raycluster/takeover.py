"""What this operator changes when it takes over from the Go operator: nothing of the workloads, few of the objects.

The operator itself makes these changes when it starts; ``cfo migrate`` writes nothing for this target.
"""

from __future__ import annotations

from cfo.api.appwrapper.names import APPWRAPPER, Phase
from cfo.api.raycluster.names import FIELD_MANAGER, FINALIZER, VERSION_ANNOTATION
from cfo.console.migrate.raycluster.children import is_operators, title
from cfo.console.migrate.raycluster.planning import ObservedCluster
from cfo.console.migrate.raycluster.targets import Target
from cfo.console.migrate.steps import Action, ObjectPlan, Step
from cfo.controllers.raycluster.proxy_bindings import is_oauth_proxy_binding
from cfo.runtime import NETWORK_POLICY, Object, annotations_of, gvk_of, has_finalizer, is_deleting, key_of
from cfo.runtime.objects import CLUSTER_ROLE_BINDING

__all__ = ["plan_orphaned_binding", "plan_takeover", "plan_wrapper"]


def plan_takeover(observed: ObservedCluster, *, oauth: bool) -> ObjectPlan:
    """Return what the operator changes of one RayCluster.

    ``oauth``: whether dashboards get an OAuth proxy, which needs the finalizer.
    """
    cluster = observed.cluster
    plan = ObjectPlan(cluster)
    own = [obj for obj in observed.children if is_operators(obj, cluster)]
    plan.has = ["finalizer"] if has_finalizer(cluster, FINALIZER) else []
    plan.has.append("names with hash" if VERSION_ANNOTATION in annotations_of(cluster) else "old names")
    plan.has += [title(obj) for obj in own if gvk_of(obj) == NETWORK_POLICY]
    if is_deleting(cluster):
        plan.notes.append("is being deleted: the operator deletes its ClusterRoleBindings and removes the finalizer")
        return plan
    for obj in own:
        if gvk_of(obj) == NETWORK_POLICY and not _applies_policy_types(obj):
            plan.steps.append(Step(Action.UPDATE, obj, f"set policyTypes of {title(obj)}"))
    if not oauth and has_finalizer(cluster, FINALIZER):
        plan.steps.append(Step(Action.UPDATE, cluster, "remove the finalizer, which nothing needs"))
    plan.notes.append("pod templates, Secrets, Routes and Ingresses stay as they are")
    return plan


def _applies_policy_types(policy: Object) -> bool:
    """Return whether the operator owns the field; the Go operator leaves it to the API server's default."""
    return any(
        "f:policyTypes" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
        for entry in policy["metadata"].get("managedFields") or ()
        if entry.get("manager") == FIELD_MANAGER
    )


def plan_wrapper(wrapper: Object, target: Target) -> ObjectPlan:
    """Return the plan for one AppWrapper: it is never changed."""
    plan = ObjectPlan(wrapper)
    phase = str((wrapper.get("status") or {}).get("phase") or "") or "no phase"
    plan.has = [phase, f"{len((wrapper.get('spec') or {}).get('components') or ())} components"]
    if target is Target.CFO:
        plan.notes.append(f"continues in phase {phase}; its components are not created again")
    elif phase in (Phase.SUCCEEDED, Phase.FAILED):
        plan.notes.append("is finished: delete it while an AppWrapper controller runs")
    else:
        plan.notes.append(
            "needs an AppWrapper controller, also to be deleted: "
            + ("RHOAI 3 has none" if target is Target.RHOAI else "KubeRay has none")
        )
    assert gvk_of(wrapper) == APPWRAPPER
    return plan


def plan_orphaned_binding(binding: Object, namespace: str) -> ObjectPlan:
    """Return the plan for a ClusterRoleBinding with the labels of a RayCluster in ``namespace`` that does not exist."""
    plan = ObjectPlan(binding, has=["its RayCluster does not exist"])
    assert gvk_of(binding) == CLUSTER_ROLE_BINDING
    if is_oauth_proxy_binding(binding, namespace):
        plan.steps.append(Step(Action.DELETE, binding, f"delete {title(binding)}"))
    else:
        plan.notes.append(f"{key_of(binding).name} is not the operator's: kept")
    return plan
