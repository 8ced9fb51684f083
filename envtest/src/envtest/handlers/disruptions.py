"""The PodDisruptionBudgets that an eviction spends."""

from __future__ import annotations

from envtest.apimachinery.errors import (
    GroupResource,
    StatusError,
    forbidden,
    not_found,
    plain_error,
    too_many_requests,
)
from envtest.apimachinery.label_selectors import matches_label_selector
from envtest.apimachinery.objects import Object, find_condition, set_condition
from envtest.registry.resource import RequestContext
from envtest.writes.create_update import update_object
from envtest.writes.server_core import Core

__all__ = ["add_disruption_target", "spend_budget"]

_BUDGETS = GroupResource("policy", "poddisruptionbudgets")
_MAX_DISRUPTED = 2000
_RETRY_SECONDS = 10


async def spend_budget(core: Core, ctx: RequestContext, pod: Object, *, dry_run: bool) -> None:
    """Count the disruption of a pod in the status of the budget that selects it, if there is one.

    Unhealthy pods do not count while enough others are healthy, or if the budget always allows their eviction.
    Raises StatusError: 429 if the budget allows no disruption, 500 if several budgets select the pod.
    """
    labels = pod["metadata"].get("labels") or {}
    budgets: list[Object] = []
    for record in core.store.list(_BUDGETS, ctx.namespace):
        budget = record.obj()
        selector = (budget.get("spec") or {}).get("selector")
        if matches_label_selector(selector, labels):
            budgets.append(budget)
    if len(budgets) > 1:
        raise plain_error(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    if not budgets or _is_unguarded(budgets[0], pod):
        return
    if dry_run:
        _decrement(budgets[0], pod, ctx.now)
        return
    info = core.registry.lookup("policy", "v1", "poddisruptionbudgets")
    assert info is not None
    name = budgets[0]["metadata"]["name"]
    status = RequestContext(
        ctx.user,
        "update",
        info,
        ctx.namespace,
        name,
        "status",
        operation="UPDATE",
        moment=ctx.moment,
    )

    async def decrement(budget: Object | None) -> Object:
        if budget is None:
            raise not_found(_BUDGETS, name)
        _decrement(budget, pod, ctx.now)
        return budget

    await update_object(core, status, decrement, skip_validating=True)


def _is_unguarded(budget: Object, pod: Object) -> bool:
    """Return whether a pod can be evicted without spending the budget, because it is not ready anyway."""
    ready = find_condition((pod.get("status") or {}).get("conditions"), "Ready")
    if ready is not None and ready.get("status") == "True":
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy") or 0
    return 0 < desired <= (status.get("currentHealthy") or 0)


def _decrement(budget: Object, pod: Object, now: str) -> None:
    """Record a disruption in the status of a budget, in place. Raises StatusError: 429 or 403."""
    name = budget["metadata"]["name"]
    status = budget.setdefault("status", {})
    allowed = status.get("disruptionsAllowed") or 0
    if (status.get("observedGeneration") or 0) < (budget["metadata"].get("generation") or 0):
        cause = f"The disruption budget {name} is still being processed by the server."
        raise _rejection(cause, retry_after=_RETRY_SECONDS)
    if allowed < 0:
        raise forbidden(
            GroupResource("policy", "poddisruptionbudget"),
            name,
            "pdb disruptions allowed is negative",
        )
    if len(status.get("disruptedPods") or ()) > _MAX_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden(GroupResource("policy", "poddisruptionbudget"), name, why)
    if allowed == 0:
        raise _rejection(_why_none_allowed(name, status))
    status["disruptionsAllowed"] = allowed - 1
    if allowed == 1:
        condition = {
            "type": "DisruptionAllowed",
            "status": "False",
            "reason": "InsufficientPods",
            "message": "",
        }
        if status.get("observedGeneration"):
            condition["observedGeneration"] = status["observedGeneration"]
        set_condition(status.setdefault("conditions", []), condition, now=now)
    status.setdefault("disruptedPods", {})[pod["metadata"]["name"]] = now


def _why_none_allowed(name: str, status: Object) -> str:
    condition = find_condition(status.get("conditions"), "DisruptionAllowed")
    if condition is not None and condition.get("reason") == "SyncFailed":
        why = f"because it failed sync: {condition.get('message') or ''}"
        return f"The disruption budget {name} does not allow evicting pods currently {why}"
    healthy = status.get("currentHealthy") or 0
    desired = status.get("desiredHealthy") or 0
    if healthy <= desired:
        return (
            f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        )
    return f"The disruption budget {name} does not allow evicting pods currently"


def _rejection(cause: str, *, retry_after: int = 0) -> StatusError:
    details = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    return too_many_requests(message, retry_after, details=details)


async def add_disruption_target(core: Core, ctx: RequestContext) -> str:
    """Set the pod condition with the reason of the disruption; return the pod's new resourceVersion."""
    status = RequestContext(
        ctx.user,
        "update",
        ctx.info,
        ctx.namespace,
        ctx.name,
        "status",
        operation="UPDATE",
        moment=ctx.moment,
    )

    async def add(pod: Object | None) -> Object:
        if pod is None:
            raise not_found(ctx.info.resource, ctx.name)
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": None,
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
        set_condition(pod["status"].setdefault("conditions", []), condition, now=ctx.now)
        return pod

    pod, _ = await update_object(core, status, add, skip_validating=True)
    revision: str = pod["metadata"]["resourceVersion"]
    return revision
