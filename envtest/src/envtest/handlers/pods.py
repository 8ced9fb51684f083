"""Subresources of pods: binding and eviction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from envtest.apimachinery.errors import GroupResource, bad_request, conflict, not_found, plain_error
from envtest.apimachinery.field_errors import aggregate, not_supported_string, required
from envtest.apimachinery.objects import Object, set_condition
from envtest.endpoints.decoder import decode_typed
from envtest.endpoints.negotiation import Output
from envtest.endpoints.options import begin_write, delete_options_of
from envtest.endpoints.request import Request, Response
from envtest.endpoints.response_transform import encode_as
from envtest.handlers.disruptions import add_disruption_target, spend_budget
from envtest.registry.object_metadata import check_namespace
from envtest.registry.resource import RequestContext
from envtest.writes.create_update import registry_key, update_object
from envtest.writes.deletion import check_preconditions, delete_object
from envtest.writes.server_core import Core

__all__ = ["bind", "evict"]

_SUCCESS: Object = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}


async def bind(core: Core, request: Request, ctx: RequestContext, output: Output) -> Response:
    """Handle POST of a Binding, which assigns a pod to a node, once."""
    begin_write(request, ctx, "CREATE")
    binding = await decode_typed(request, ctx, "io.k8s.api.core.v1.Binding", group="")
    check_namespace(binding, ctx)
    is_legacy = not ctx.name  # the resource "bindings", whose body names the pod
    if is_legacy:
        pods = core.registry.lookup("", "v1", "pods")
        assert pods is not None
        ctx.info = pods
        ctx.subresource = "binding"
        ctx.name = (binding.get("metadata") or {}).get("name") or ""
    binding = await core.admission.mutate(ctx, binding, None)
    metadata: dict[str, Any] = binding.get("metadata") or {}
    if is_legacy:
        ctx.name = metadata.get("name") or ""
    if (metadata.get("name") or "") != ctx.name:
        raise bad_request("name in URL does not match name in Binding object")
    target: dict[str, Any] = binding.get("target") or {}
    node = target.get("name") or ""
    kind = target.get("kind") or ""
    errors = []
    if kind not in {"", "Node"}:
        errors.append(not_supported_string("target.kind", kind, ("Node", "<empty>")))
    if not node:
        errors.append(required("target.name"))
    if errors:  # kube-apiserver returns the errors of a Binding without a reason
        raise plain_error(aggregate(errors))
    await core.admission.validate(ctx, binding, None)
    resource = GroupResource("", "pods/binding")

    async def assign(pod: Object | None) -> Object:
        if pod is None:
            raise not_found(ctx.info.resource, ctx.name)
        _check_precondition(ctx, pod, metadata, "resourceVersion", "ResourceVersion")
        if pod["metadata"].get("deletionTimestamp"):
            raise conflict(
                resource, ctx.name, f"pod {ctx.name} is being deleted, cannot be assigned to a host"
            )
        assigned = pod["spec"].get("nodeName")
        if assigned:
            raise conflict(
                resource, ctx.name, f'pod {ctx.name} is already assigned to node "{assigned}"'
            )
        if pod["spec"].get("schedulingGates"):
            raise conflict(
                resource, ctx.name, f"pod {ctx.name} has non-empty .spec.schedulingGates"
            )
        pod["spec"]["nodeName"] = node
        if metadata.get("annotations"):
            pod["metadata"].setdefault("annotations", {}).update(metadata["annotations"])
        if metadata.get("labels"):
            pod["metadata"]["labels"] = {
                **metadata["labels"],
                **(pod["metadata"].get("labels") or {}),
            }
        conditions = pod["status"].get("conditions") or []
        pod["status"]["conditions"] = [
            each for each in conditions if each.get("type") != "PodScheduled"
        ]
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
        set_condition(pod["status"]["conditions"], scheduled, now=ctx.now)
        return pod

    await update_object(core, ctx, assign, uid=metadata.get("uid") or "", skip_validating=True)
    return Response(encode_as(_SUCCESS, output), 201, output.content_type)


def _check_precondition(
    ctx: RequestContext, pod: Object, metadata: Object, name: str, shown: str
) -> None:
    """Raise StatusError (409) if the body requires another value of a metadata field than the pod has."""
    wanted = metadata.get(name)
    actual = pod["metadata"].get(name)
    if wanted and wanted != actual:
        why = f"Precondition failed: {shown} in precondition: {wanted}, {shown} in object meta: {actual}"
        prefix = (
            f"StorageError: invalid object, Code: 4, Key: {registry_key(ctx)}, ResourceVersion: 0"
        )
        raise conflict(ctx.info.resource, ctx.name, f"{prefix}, AdditionalErrorMsg: {why}")


async def evict(core: Core, request: Request, ctx: RequestContext, output: Output) -> Response:
    """Handle POST of an Eviction: a deletion that a PodDisruptionBudget may reject (429)."""
    begin_write(request, ctx, "CREATE")
    definition = "io.k8s.api.policy.v1.Eviction"
    eviction = await decode_typed(request, ctx, definition, group="policy", old_version="v1beta1")
    check_namespace(eviction, ctx)
    eviction = await core.admission.mutate(ctx, eviction, None)
    if (eviction.get("metadata") or {}).get("name") != ctx.name:
        raise bad_request("name in URL does not match name in Eviction object")
    record = core.store.get(ctx.info.storage, ctx.namespace, ctx.name)
    if record is None:
        raise not_found(ctx.info.resource, ctx.name)
    await core.admission.validate(ctx, eviction, None)
    pod = record.obj()
    options = delete_options_of(_delete_document(eviction, dry_run=ctx.dry_run))
    if (pod.get("status") or {}).get("phase") not in {
        "Succeeded",
        "Failed",
        "Pending",
    } and not record.deleting:
        await spend_budget(core, ctx, pod, dry_run=options.dry_run)
    check_preconditions(pod, ctx, options)
    if not options.dry_run:
        revision = await add_disruption_target(core, ctx)
        if options.resource_version is not None:
            options = replace(options, resource_version=revision)
    ctx.operation = "DELETE"
    ctx.subresource = ""
    ctx.dry_run = options.dry_run
    await delete_object(core, ctx, options, skip_admission=True)
    return Response(encode_as(_SUCCESS, output), 201, output.content_type)


def _delete_document(eviction: Object, *, dry_run: bool) -> Object:
    """Return the DeleteOptions of an eviction; the request and the body can both ask for a dry run."""
    document: Object = dict(eviction.get("deleteOptions") or {})
    if dry_run and document.get("dryRun") and document["dryRun"] != ["All"]:
        shown = " ".join(map(str, document["dryRun"]))
        raise bad_request(
            f"Non-matching dry-run options in request and content: [All] and [{shown}]"
        )
    if dry_run:
        document["dryRun"] = ["All"]
    return document
