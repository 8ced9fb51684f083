"""The plan for one RayCluster: a pure function of the RayCluster, the objects around it, and the options.

The order of the steps keeps a RayCluster protected at each moment, and lets any later run continue:

1. A running RayCluster whose pods have to change is suspended, with an annotation that records this.
2. One update removes the injected entries and sets the fields of the target. Whatever is derived from an entry or an
   object is set no later than this update, and these are removed no earlier.
3. The operator's NetworkPolicy stops to admit everyone, because neither the proxy nor TLS protects its ports any more.
4. The operator's objects are deleted. NetworkPolicies are deleted only when KubeRay's own policies exist.
5. The operator's conditions are removed from the status, because nothing corrects them any more.
6. The finalizer is removed once the ClusterRoleBindings that it guards are deleted.
7. A RayCluster that was suspended here is resumed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.api.raycluster.cluster import is_managed_by_multikueue, is_suspended
from cfo.api.raycluster.conditions import CONDITION_TYPES
from cfo.api.raycluster.facts import Concern, RayClusterFacts
from cfo.api.raycluster.names import FIELD_MANAGER, FINALIZER, VERSION_ANNOTATION, names_of
from cfo.console.conditions import without_conditions
from cfo.console.migrate.raycluster.children import (
    are_restricted_by_kuberay,
    is_operators,
    is_operators_binding,
    references_of,
    title,
)
from cfo.console.migrate.raycluster.injected import DEFAULT_SETTINGS, Cleaning, clean
from cfo.console.migrate.raycluster.steps import Action, ObjectPlan, Step
from cfo.console.migrate.raycluster.targets import (
    Conversion,
    KubeRay,
    Target,
    closed_policy,
    convert,
)
from cfo.runtime import (
    NETWORK_POLICY,
    SECRET,
    SERVICE_ACCOUNT,
    Object,
    annotations_of,
    controller_of,
    gvk_of,
    has_finalizer,
    is_deleting,
    labels_of,
    name_of,
)
from cfo.runtime.objects import copied
from cfo.webhooks.raycluster.injection_plan import OAUTH, InjectionSettings
from cfo.webhooks.raycluster.json_types import count_errors, has_json_types

SUSPENDED_ANNOTATION: Final = "ray.openshift.ai/suspended-by-migration"
"""On a RayCluster that the migration suspended, until it resumes it."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a migration.

    ``allow_downtime``: restart running RayClusters. ``without_tls``: continue if the target does not provide mutual
    TLS. ``finalizers_only``: only delete the ClusterRoleBindings and remove the finalizers. ``settings``: those with
    which entries may have been injected.
    """

    target: Target
    kuberay: KubeRay = field(default_factory=KubeRay)
    allow_downtime: bool = False
    without_tls: bool = False
    finalizers_only: bool = False
    settings: tuple[InjectionSettings, ...] = DEFAULT_SETTINGS


@dataclass(frozen=True, slots=True)
class ObservedCluster:
    """A RayCluster and the objects around it.

    ``children``: the objects of its namespace that have its label, from either operator or KubeRay. ``bindings``: the
    ClusterRoleBindings that have its labels or its name. ``has_pods``: whether it controls any pod.
    """

    cluster: Object
    children: Sequence[Object] = ()
    bindings: Sequence[Object] = ()
    has_pods: bool = False


def plan_safely(observed: ObservedCluster, options: Options) -> ObjectPlan:
    """Return the plan for one RayCluster; an object that cannot be read blocks this RayCluster, and no other."""
    try:
        return plan_cluster(observed, options)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # Without the CRD's validation, any field of these objects can have any type.
        reason = f"it, or an object of it, cannot be read: {type(error).__name__}: {error}"
        return ObjectPlan(observed.cluster, blockers=[" ".join(reason.split())])


def plan_cluster(observed: ObservedCluster, options: Options) -> ObjectPlan:
    """Return the plan for one RayCluster. No argument is modified."""
    cluster = observed.cluster
    plan = ObjectPlan(cluster)
    if not has_json_types(cluster) or count_errors(cluster):
        plan.blockers.append("its pod templates are malformed or too large to be read")
        return plan
    cleaning = clean(cluster, options.settings)
    _describe(plan, observed, cleaning)
    own = [obj for obj in observed.children if is_operators(obj, cluster)]
    release = _release_steps(plan, observed)
    if is_deleting(cluster) or is_managed_by_multikueue(cluster) or options.finalizers_only:
        plan.steps = release
        if is_deleting(cluster):
            plan.notes.append("is being deleted")
        elif is_managed_by_multikueue(cluster):
            plan.notes.append(
                "MultiKueue runs it on another cluster, so at most its finalizer is removed"
            )
        elif release and OAUTH.name in cleaning.features:
            plan.notes.append("no one can log in to the dashboard until the rest is migrated")
        return plan
    conversion = convert(cleaning, observed.children, options.target, options.kuberay)
    _check(plan, cleaning, conversion, options)
    update = _update_steps(cluster, conversion, observed, options, cleaning)
    restarts = _pod_part(conversion.cluster) != _pod_part(cluster)
    suspended_here = SUSPENDED_ANNOTATION in annotations_of(cluster)
    before, after = _restart_steps(observed, restarts=restarts)
    manager = ""
    if restarts and not is_suspended(cluster):
        plan.restarts = True
        manager = _manager_of(cluster)
        plan.blockers += _restart_blockers(manager, allow_downtime=options.allow_downtime)
    kept: list[str] = []
    children = _child_steps(kept, own, conversion, observed)
    conditions = _condition_steps(cluster)
    steps = [*before, *update, *children, *conditions, *release, *after]
    if not plan.blockers:
        plan.steps = steps
        plan.kept = kept
        plan.notes += conversion.notes
        return plan
    if not cleaning.differing and not manager:
        plan.prevented = [step.text for step in steps]
        plan.notes += conversion.notes
    if suspended_here:
        plan.notes.append("the migration has suspended it, and will resume it")
    return plan


def _describe(plan: ObjectPlan, observed: ObservedCluster, cleaning: Cleaning) -> None:
    cluster = observed.cluster
    plan.has += sorted(cleaning.features)
    if has_finalizer(cluster, FINALIZER):
        plan.has.append("finalizer")
    if is_suspended(cluster):
        plan.has.append("suspended")
    names = names_of(cluster)
    expected = {
        names.head_policy,
        names.workers_policy,
        names.dashboard,
        names.client,
        names.ca_secret,
    }
    for obj in observed.children:
        if name_of(obj) in expected and not is_operators(obj, cluster):
            plan.notes.append(f"{title(obj)} belongs to another owner: kept")


def _check(plan: ObjectPlan, cleaning: Cleaning, conversion: Conversion, options: Options) -> None:
    plan.blockers += (
        f"{entry}: remove it, or create the RayCluster again" for entry in cleaning.differing
    )
    for lost in conversion.lost:
        if options.without_tls:
            plan.notes.append(f"loses {lost}")
        else:
            plan.blockers.append(f"would lose {lost}; --without-tls accepts this")


def _restart_blockers(manager: str, *, allow_downtime: bool) -> list[str]:
    """Return why a running RayCluster must not be restarted, at most one reason (``manager``: :func:`_manager_of`)."""
    if manager:
        return [f"is running and {manager}"]
    return [] if allow_downtime else ["is running: suspend it, or restart it with --allow-downtime"]


def _manager_of(cluster: Object) -> str:
    """Return who suspends and resumes the RayCluster, and what to do with it; empty if its user does."""
    owner = controller_of(cluster)
    if owner is not None:
        return f"belongs to {owner.get('kind')} {owner.get('name')}: suspend or recreate that"
    if QUEUE_NAME_LABEL in labels_of(cluster):
        return "Kueue manages it: set spec.active of its Workload to false, and to true afterwards"
    return ""


def _restart_steps(observed: ObservedCluster, *, restarts: bool) -> tuple[list[Step], list[Step]]:
    """Return the steps before and after a change of the pods of a RayCluster: suspend, wait, and resume.

    A RayCluster that an owner or Kueue suspends and resumes is never resumed here, whatever its annotations.
    """
    cluster = observed.cluster
    before: list[Step] = []
    after: list[Step] = []
    suspends = restarts and not is_suspended(cluster)
    if suspends:
        before.append(Step(Action.UPDATE, cluster, "suspend", _suspended))
    if restarts and (suspends or observed.has_pods):
        before.append(Step(Action.WAIT_FOR_PODS, cluster, "wait until its pods are deleted"))
    suspended_here = SUSPENDED_ANNOTATION in annotations_of(cluster) and not _manager_of(cluster)
    if suspends or suspended_here:
        after.append(Step(Action.UPDATE, cluster, "resume", _resumed))
    return before, after


def _suspended(cluster: Object) -> Object:
    result = copied(cluster)
    if is_suspended(cluster):
        return result
    result["spec"]["suspend"] = True
    result["metadata"]["annotations"] = {**annotations_of(result), SUSPENDED_ANNOTATION: "true"}
    return result


def _resumed(cluster: Object) -> Object:
    result = copied(cluster)
    annotations = annotations_of(result)
    if annotations.pop(SUSPENDED_ANNOTATION, None) is None:
        return result
    if not annotations:
        del result["metadata"]["annotations"]
    result["spec"]["suspend"] = False  # KubeRay does not resume a RayCluster whose field is unset
    return result


def _pod_part(cluster: Object) -> object:
    """Return the part of a RayCluster that only takes effect in new pods.

    KubeRay keeps running pods when it changes, except with the upgrade strategy ``Recreate``: then it deletes all pods
    when any field of the spec changes.
    """
    spec = cluster.get("spec") or {}
    if (spec.get("upgradeStrategy") or {}).get("type") == "Recreate":
        return {key: value for key, value in spec.items() if key != "suspend"}
    groups = [spec.get("headGroupSpec") or {}, *(spec.get("workerGroupSpecs") or ())]
    return [
        [group.get("template") for group in groups],
        spec.get("tlsOptions"),
        spec.get("authOptions"),
    ]


def _update_steps(
    cluster: Object,
    conversion: Conversion,
    observed: ObservedCluster,
    options: Options,
    cleaning: Cleaning,
) -> list[Step]:
    if conversion.cluster == cluster:
        return []
    parts = []
    if cleaning.removed:
        parts.append(f"remove {len(cleaning.removed)} injected parts")
    if conversion.set:
        parts.append(f"set {', '.join(conversion.set)}")

    def change(current: Object) -> Object:
        cleaned = clean(current, options.settings)
        if cleaned.differing:  # changed since it was planned
            return current
        return convert(cleaned, observed.children, options.target, options.kuberay).cluster

    return [Step(Action.UPDATE, cluster, "; ".join(parts), change)]


def _child_steps(
    kept: list[str], own: Sequence[Object], conversion: Conversion, observed: ObservedCluster
) -> list[Step]:
    """Return the steps for the operator's objects; add those that are left for another run to ``kept``."""
    steps: list[Step] = []
    policies: list[str] = []
    used = references_of(conversion.cluster)
    is_replaced = are_restricted_by_kuberay(observed.cluster, observed.children)
    head_policy = names_of(observed.cluster).head_policy
    for obj in own:
        gvk = gvk_of(obj)
        if gvk == NETWORK_POLICY and not is_replaced:
            policies.append(name_of(obj))
            if name_of(obj) == head_policy and closed_policy(obj) != obj:
                steps.append(
                    Step(Action.UPDATE, obj, f"close the open ports of {title(obj)}", closed_policy)
                )
        elif gvk in (SECRET, SERVICE_ACCOUNT) and (obj["kind"], name_of(obj)) in used:
            kept.append(f"{title(obj)}, which its pod templates use")
        elif not is_deleting(obj):
            steps.append(Step(Action.DELETE, obj, f"delete {title(obj)}"))
    if policies:
        kept.append(f"NetworkPolicy {', '.join(policies)} until KubeRay's own policies exist")
    return steps


def _condition_steps(cluster: Object) -> list[Step]:
    if without_conditions(cluster, CONDITION_TYPES) is cluster:
        return []
    change = partial(without_conditions, types=CONDITION_TYPES)
    return [Step(Action.UPDATE_STATUS, cluster, "remove the operator's conditions", change)]


def _release_steps(plan: ObjectPlan, observed: ObservedCluster) -> list[Step]:
    """Return the steps that delete the ClusterRoleBindings of the RayCluster and remove the finalizer."""
    cluster = observed.cluster
    steps: list[Step] = []
    for binding in observed.bindings:
        if is_operators_binding(binding, cluster):
            steps.append(Step(Action.DELETE, binding, f"delete {title(binding)}"))
        else:
            plan.notes.append(f"{title(binding)} is not the operator's: kept")
    if has_finalizer(cluster, FINALIZER):
        steps.append(Step(Action.RELEASE, cluster, "remove the finalizer", _released))
    return steps


def _released(cluster: Object) -> Object:
    result = copied(cluster)
    finalizers = [item for item in result["metadata"].get("finalizers") or () if item != FINALIZER]
    result["metadata"]["finalizers"] = finalizers
    if not finalizers:
        del result["metadata"]["finalizers"]
    return result


def plan_takeover(
    observed: ObservedCluster, *, has_proxies: bool, active_features: Collection[str] = ()
) -> ObjectPlan:
    """Return what this operator changes of one RayCluster when it starts.

    ``has_proxies``: whether the operator injects proxies for dashboards, which need the finalizer. ``active_features``:
    ``kuberay.kubeRayFeatures`` of its configuration.
    """
    cluster = observed.cluster
    plan = ObjectPlan(cluster)
    plan.notes += dict.fromkeys(_unconfirmed_settings(cluster, active_features))
    release: list[Step] = []
    if not has_proxies and has_finalizer(cluster, FINALIZER) and not is_deleting(cluster):
        text = "remove the finalizer, which nothing needs"
        release.append(Step(Action.UPDATE, cluster, text))
    if is_managed_by_cfo(observed):
        plan.notes.append("already managed by cfo")
        plan.steps = release
        return plan
    if has_finalizer(cluster, FINALIZER):
        plan.has.append("finalizer")
    if VERSION_ANNOTATION not in annotations_of(cluster):
        plan.has.append("old names")
    if is_deleting(cluster):
        plan.notes.append(
            "is being deleted: the operator deletes its ClusterRoleBindings and removes the finalizer"
        )
        return plan
    for policy in _own_policies(observed):
        if not _applies_policy_types(policy):
            text = f"set policyTypes of {title(policy)}"
            plan.steps.append(Step(Action.UPDATE, policy, text))
    plan.steps += release
    plan.notes.append(
        "pod templates stay as they are, and so do Secrets, Routes and Ingresses, unless the CA expires or the name of "
        "the RayCluster is not valid for a Service"
    )
    return plan


def _unconfirmed_settings(cluster: Object, active_features: Collection[str]) -> Iterator[str]:
    """Yield a note about each setting, such as those of a migration to KubeRay, on which the operator will not rely.

    Whether KubeRay creates NetworkPolicies is observed, so ``networkPolicy`` need not be configured.
    """
    if not has_json_types(cluster):
        return
    facts = RayClusterFacts(cluster)
    for concern in Concern:
        delegation = facts.unconfirmed_delegation(concern, active_features)
        if delegation is None or concern is Concern.NETWORK_POLICY:
            continue
        yield (
            f"sets {delegation.setting}: if {delegation.actor.value} acts on it, add {delegation.feature} to "
            "kuberay.kubeRayFeatures in the operator's configuration, otherwise the operator acts as well"
        )


def is_managed_by_cfo(observed: ObservedCluster) -> bool:
    """Return whether this operator has written all NetworkPolicies of the RayCluster that an operator created."""
    policies = _own_policies(observed)
    return bool(policies) and all(map(_applies_policy_types, policies))


def _own_policies(observed: ObservedCluster) -> list[Object]:
    return [
        obj
        for obj in observed.children
        if gvk_of(obj) == NETWORK_POLICY and is_operators(obj, observed.cluster)
    ]


def _applies_policy_types(policy: Object) -> bool:
    """Return whether the operator owns the field; the Go operator leaves it to the API server's default."""
    return any(
        "f:policyTypes" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
        for entry in policy["metadata"].get("managedFields") or ()
        if entry.get("manager") == FIELD_MANAGER
    )
