"""Admin access to devices: only namespaces with a label may have it.

kube-apiserver checks this in the strategies of ResourceClaims and their templates, which need the namespace for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from envtest.admission.chain import StorePlugin
from envtest.apimachinery.errors import GroupResource, invalid_object
from envtest.apimachinery.field_errors import forbidden
from envtest.apimachinery.objects import Object
from envtest.registry.resource import RequestContext

__all__ = ["DeviceAdminAccess"]

_CLAIMS: Final = GroupResource("resource.k8s.io", "resourceclaims")
_TEMPLATES: Final = GroupResource("resource.k8s.io", "resourceclaimtemplates")
_NAMESPACES: Final = GroupResource("", "namespaces")
_LABEL: Final = "resource.kubernetes.io/admin-access"


class DeviceAdminAccess(StorePlugin):
    """Rejects admin access to devices in a namespace without the label that allows it."""

    resources = (_CLAIMS, _TEMPLATES)

    def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Check a new claim or template, or an allocation. Raises StatusError: 422."""
        if ctx.operation not in ("CREATE", "UPDATE"):
            return
        if old is None:
            is_claim = ctx.info.resource == _CLAIMS
            claim_spec = obj["spec"] if is_claim else obj["spec"].get("spec")
            requested = next(_requests(claim_spec), "")
        elif ctx.subresource == "status" and next(_results(old), "") == "":
            requested = next(_results(obj), "")
        else:
            return  # the spec is immutable, and so is an allocation
        if not requested:
            return
        namespace = self._store.get(_NAMESPACES, "", ctx.namespace)
        labels = (namespace.labels if namespace is not None else None) or {}
        if labels.get(_LABEL) != "true":
            text = f"admin access to devices requires the `{_LABEL}: true` label on the containing namespace"
            name = obj["metadata"].get("name") or ""
            raise invalid_object(ctx.info.group, ctx.info.kind, name, [forbidden(requested, text)])


def _requests(spec: Object | None) -> Iterator[str]:
    """Yield the paths of the requests with admin access; kube-apiserver uses those of a claim in templates, too."""
    for position, request in enumerate(((spec or {}).get("devices") or {}).get("requests") or ()):
        if (request.get("exactly") or {}).get("adminAccess"):
            yield f"spec.devices.requests[{position}].adminAccess"


def _results(claim: Object) -> Iterator[str]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    for position, result in enumerate((allocation.get("devices") or {}).get("results") or ()):
        if result.get("adminAccess"):
            yield f"status.allocation.devices.results[{position}].adminAccess"
