"""The ServiceAccount plugin: a pod runs as an existing service account and mounts its token at the standard path.

Follows ``plugin/pkg/admission/serviceaccount`` of Kubernetes.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from envtest.admission.chain import StorePlugin
from envtest.admission.namespace_lifecycle import rejection
from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object
from envtest.registry.resource import RequestContext

__all__ = ["MOUNT_PATH", "ServiceAccountPlugin"]

MOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_PODS: Final = GroupResource("", "pods")
_SERVICE_ACCOUNTS: Final = GroupResource("", "serviceaccounts")
_VOLUME_PREFIX: Final = "kube-api-access-"
_MIRROR: Final = "kubernetes.io/config.mirror"
_NAME_CHARACTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_TOKEN_SECONDS: Final = 3607


class ServiceAccountPlugin(StorePlugin):
    """Sets the service account, the image pull secrets and the token volume of new pods."""

    resources = (_PODS,)

    def admit(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Set the fields. Raises StatusError (403) when the service account does not exist."""
        if ctx.subresource or ctx.operation != "CREATE":
            return
        if _MIRROR in (obj.get("metadata", {}).get("annotations") or {}):
            return
        spec = obj.setdefault("spec", {})
        name = spec.get("serviceAccountName") or "default"
        spec["serviceAccountName"] = name
        spec["serviceAccount"] = name
        account = self._account(ctx, obj, name)
        if _mounts_token(spec, account):
            _mount_token(spec)
        if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
            spec["imagePullSecrets"] = [dict(each) for each in account["imagePullSecrets"]]

    def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Check the account again. Raises StatusError (403) if webhooks set a service account that does not exist."""
        if ctx.subresource or ctx.operation != "CREATE":
            return
        spec = obj.get("spec") or {}
        if _MIRROR in (obj.get("metadata", {}).get("annotations") or {}):
            if spec.get("serviceAccountName"):
                raise rejection(ctx, obj, "a mirror pod may not reference service accounts")
            return
        self._account(ctx, obj, spec.get("serviceAccountName") or "")

    def _account(self, ctx: RequestContext, obj: Object, name: str) -> Object:
        record = self._store.get(_SERVICE_ACCOUNTS, ctx.namespace, name)
        if record is None:
            why = f'error looking up service account {ctx.namespace}/{name}: serviceaccount "{name}" not found'
            raise rejection(ctx, obj, why)
        return record.obj()


def _mounts_token(spec: dict[str, Any], account: Object) -> bool:
    automount = spec.get("automountServiceAccountToken")
    if automount is None:
        automount = account.get("automountServiceAccountToken")
    return automount is not False


def _containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _mount_token(spec: dict[str, Any]) -> None:
    volumes = spec.get("volumes") or []
    name = next(
        (volume["name"] for volume in volumes if volume["name"].startswith(_VOLUME_PREFIX)), ""
    )
    exists = bool(name)
    name = name or _VOLUME_PREFIX + "".join(secrets.choice(_NAME_CHARACTERS) for _ in range(5))
    mounted = False
    for container in _containers(spec):
        mounts = container.get("volumeMounts") or []
        if not any(mount.get("mountPath") == MOUNT_PATH for mount in mounts):
            mounts = [*mounts, {"name": name, "readOnly": True, "mountPath": MOUNT_PATH}]
            container["volumeMounts"] = mounts
            mounted = True
    if mounted and not exists:
        spec["volumes"] = [*volumes, _token_volume(name)]


def _token_volume(name: str) -> dict[str, Any]:
    field_ref = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    certificates = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": _TOKEN_SECONDS, "path": "token"}},
        {"configMap": certificates},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field_ref}]}},
    ]
    return {"name": name, "projected": {"sources": sources, "defaultMode": 420}}
