"""Subresources of pods: binding and eviction."""

from __future__ import annotations

from typing import Any

from envtest.context import RequestContext
from envtest.create_update import update_object
from envtest.decoder import parse_typed
from envtest.deletion import delete_object
from envtest.errors import (
    GroupResource,
    StatusError,
    bad_request,
    conflict,
    not_found,
    plain_error,
    too_many_requests,
)
from envtest.http import Request, Response
from envtest.label_selectors import matches_label_selector
from envtest.negotiation import Output
from envtest.objects import Object, find_condition, set_condition
from envtest.options import DeleteOptions, begin_write
from envtest.response_transform import encode_as
from envtest.server_core import Core

__all__ = ["bind", "evict"]

_BUDGETS = GroupResource("policy", "poddisruptionbudgets")
_SUCCESS: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


async def bind(core: Core, request: Request, ctx: RequestContext, output: Output) -> Response:
    """Handle POST of a Binding, which assigns a pod to a node, once."""
    begin_write(request, ctx, "CREATE")
    binding, _ = await parse_typed(request, group="", version="v1", kind="Binding")
    if not ctx.name:  # the legacy resource "bindings", whose body names the pod
        pods = core.registry.lookup("", "v1", "pods")
        assert pods is not None
        ctx.info, ctx.subresource = pods, "binding"
        ctx.name = (binding.get("metadata") or {}).get("name") or ""
    target: dict[str, Any] = binding.get("target") or {}
    node = target.get("name") or ""
    if not node:
        raise StatusError(422, "Invalid", f'Binding "{ctx.name}" is invalid: target.name: Required value', None)
    await core.admission.mutate(ctx, binding, None)
    await core.admission.validate(ctx, binding, None)
    resource = GroupResource("", "pods/binding")

    async def assign(pod: Object | None) -> Object:
        if pod is None:
            raise not_found(ctx.info.resource, ctx.name)
        if pod["metadata"].get("deletionTimestamp"):
            raise conflict(resource, ctx.name, f"pod {ctx.name} is being deleted, cannot be assigned to a host")
        assigned = pod["spec"].get("nodeName")
        if assigned:
            raise conflict(resource, ctx.name, f'pod {ctx.name} is already assigned to node "{assigned}"')
        if pod["spec"].get("schedulingGates"):
            raise conflict(resource, ctx.name, f"pod {ctx.name} has non-empty .spec.schedulingGates")
        pod["spec"]["nodeName"] = node
        annotations = (binding.get("metadata") or {}).get("annotations")
        if annotations:
            pod["metadata"].setdefault("annotations", {}).update(annotations)
        conditions = pod.setdefault("status", {}).setdefault("conditions", [])
        if find_condition(conditions, "PodScheduled") is None:
            set_condition(conditions, {"type": "PodScheduled", "status": "True", "lastProbeTime": None}, now=ctx.now)
        return pod

    await update_object(core, ctx, assign, skip_validating=True)
    return Response(encode_as(_SUCCESS, output), 201, output.content_type)


async def evict(core: Core, request: Request, ctx: RequestContext, output: Output) -> Response:
    """Handle POST of an Eviction: a deletion that a PodDisruptionBudget may reject (429)."""
    begin_write(request, ctx, "CREATE")
    eviction, _ = await parse_typed(request, group="policy", version="v1", kind="Eviction")
    name = (eviction.get("metadata") or {}).get("name")
    if name and name != ctx.name:
        raise bad_request("name in URL does not match name in Eviction object")
    record = core.store.get(ctx.info.storage, ctx.namespace, ctx.name)
    if record is None:
        raise not_found(ctx.info.resource, ctx.name)
    await core.admission.mutate(ctx, eviction, None)
    await core.admission.validate(ctx, eviction, None)
    pod = record.obj()
    if (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed", "Pending"} and not record.deleting:
        _check_budgets(core, ctx, pod)
    delete_options: dict[str, Any] = eviction.get("deleteOptions") or {}
    preconditions = delete_options.get("preconditions") or {}
    options = DeleteOptions(
        grace_period=delete_options.get("gracePeriodSeconds"),
        propagation=delete_options.get("propagationPolicy"),
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        dry_run=ctx.dry_run or bool(delete_options.get("dryRun")),
    )
    ctx.operation, ctx.subresource, ctx.dry_run = "DELETE", "", options.dry_run
    await delete_object(core, ctx, options, skip_admission=True)
    return Response(encode_as(_SUCCESS, output), 201, output.content_type)


def _check_budgets(core: Core, ctx: RequestContext, pod: Object) -> None:
    labels = pod["metadata"].get("labels") or {}
    budgets = [
        budget
        for budget in (record.obj() for record in core.store.list(_BUDGETS, ctx.namespace))
        if matches_label_selector((budget.get("spec") or {}).get("selector"), labels)
    ]
    if len(budgets) > 1:
        raise plain_error(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    for budget in budgets:
        status = budget.get("status") or {}
        if (status.get("disruptionsAllowed") or 0) <= 0:
            name = budget["metadata"]["name"]
            cause = (
                f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods and has "
                f"{status.get('currentHealthy', 0)} currently"
            )
            details = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
            message = "Cannot evict pod as it would violate the pod's disruption budget."
            raise too_many_requests(message, 10, details=details)
