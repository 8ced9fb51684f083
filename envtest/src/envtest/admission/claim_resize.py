"""The PersistentVolumeClaimResize plugin: claims grow only if their storage class allows it."""

from __future__ import annotations

from typing import Any, Final

from envtest.admission.chain import StorePlugin
from envtest.admission.namespace_lifecycle import rejection
from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object
from envtest.registry.resource import RequestContext
from envtest.schema.quantity import parse_quantity

__all__ = ["PersistentVolumeClaimResize"]

_CLAIMS: Final = GroupResource("", "persistentvolumeclaims")
_STORAGE_CLASSES: Final = GroupResource("storage.k8s.io", "storageclasses")
_LEGACY_CLASS = "volume.beta.kubernetes.io/storage-class"


class PersistentVolumeClaimResize(StorePlugin):
    """Rejects a larger size for a claim that is not bound, or whose storage class does not allow expansion."""

    resources = (_CLAIMS,)

    def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Raises StatusError (403) for a claim that cannot grow."""
        if ctx.subresource or ctx.operation != "UPDATE" or old is None:
            return
        if _size(obj) <= _size(old):
            return
        if (old.get("status") or {}).get("phase") != "Bound":
            why = "Only bound persistent volume claims can be expanded"
        elif not self._can_expand(obj, old):
            why = (
                "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must "
                "support resize"
            )
        else:
            return
        raise rejection(ctx, obj, why)

    def _can_expand(self, obj: Object, old: Object) -> bool:
        name = _class_of(obj)
        if not name or name != _class_of(old):
            return False
        record = self._store.get(_STORAGE_CLASSES, "", name)
        return record is not None and bool(record.obj().get("allowVolumeExpansion"))


def _size(claim: Object) -> Any:
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    return parse_quantity(requests.get("storage", "0")).value


def _class_of(claim: Object) -> str:
    annotations = claim["metadata"].get("annotations") or {}
    return annotations.get(_LEGACY_CLASS) or claim["spec"].get("storageClassName") or ""
