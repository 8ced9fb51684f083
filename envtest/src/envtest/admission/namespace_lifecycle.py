"""NamespaceLifecycle: rejects new objects in missing or terminating namespaces, and protects system namespaces."""

from __future__ import annotations

from typing import Final

from envtest.admission.chain import StorePlugin
from envtest.admission.matching import NAMESPACES
from envtest.apimachinery.errors import StatusError, forbidden, not_found
from envtest.apimachinery.objects import Object
from envtest.registry.resource import RequestContext

__all__ = ["NamespaceLifecycle", "display_name", "rejection"]

_PROTECTED: Final = frozenset({"default", "kube-system", "kube-public"})


class NamespaceLifecycle(StorePlugin):
    """The plugin ``k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle``."""

    def admit(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Check the namespace. Raises StatusError: 403, or 404 if the namespace does not exist."""
        if ctx.info.resource == NAMESPACES:
            if ctx.operation == "DELETE" and ctx.name in _PROTECTED:
                raise forbidden(NAMESPACES, ctx.name, "this namespace may not be deleted")
            return
        if (
            not ctx.namespace
            or ctx.operation == "DELETE"
            or ctx.info.plural == "localsubjectaccessreviews"
        ):
            return
        namespace = self._store.get(NAMESPACES, "", ctx.namespace)
        if namespace is None:
            raise not_found(NAMESPACES, ctx.namespace)
        if ctx.operation != "CREATE" or not namespace.deleting:
            return
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {ctx.namespace} is being terminated",
            "field": "metadata.namespace",
        }
        why = f"unable to create new content in namespace {ctx.namespace} because it is being terminated"
        raise forbidden(ctx.info.resource, display_name(ctx, obj), why, causes=[cause])


def display_name(ctx: RequestContext, obj: Object) -> str:
    """Return the object's name in a plugin's error message (``admission.NewForbidden``)."""
    metadata = obj.get("metadata") or {}
    requested = "" if ctx.verb == "deletecollection" else ctx.name
    name: str = requested or metadata.get("name") or metadata.get("generateName") or "Unknown"
    return name


def rejection(ctx: RequestContext, obj: Object, why: str) -> StatusError:
    """Return the error (403) with which a plugin rejects the object of a request."""
    return forbidden(ctx.info.resource, display_name(ctx, obj), why)
