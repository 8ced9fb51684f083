"""NamespaceLifecycle: nothing new in a namespace that is absent or going, and some namespaces never go."""

from __future__ import annotations

from typing import Final

from envtest.context import RequestContext
from envtest.errors import forbidden, not_found
from envtest.objects import Object
from envtest.storage import Store

from .chain import Plugin
from .matching import NAMESPACES

__all__ = ["NamespaceLifecycle", "described_name"]

_IMMORTAL: Final = frozenset({"default", "kube-system", "kube-public"})


class NamespaceLifecycle(Plugin):
    """As ``k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle``."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def admit(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Raises StatusError: 403 or, for an absent namespace, 404."""
        if ctx.info.resource == NAMESPACES:
            if ctx.operation == "DELETE" and ctx.name in _IMMORTAL:
                raise forbidden(NAMESPACES, ctx.name, "this namespace may not be deleted")
            return
        if not ctx.namespace or ctx.operation == "DELETE" or ctx.info.plural == "localsubjectaccessreviews":
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
        raise forbidden(ctx.info.resource, described_name(ctx, obj), why, causes=[cause])


def described_name(ctx: RequestContext, obj: Object) -> str:
    """The name by which a plugin's refusal calls the object (``admission.NewForbidden``)."""
    metadata = obj.get("metadata") or {}
    name: str = ctx.name or metadata.get("name") or metadata.get("generateName") or "Unknown"
    return name
