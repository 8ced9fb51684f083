"""The ``token`` subresource of service accounts: issues tokens, as in ``pkg/registry/core/serviceaccount``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from envtest.apimachinery.errors import (
    GroupResource,
    bad_request,
    conflict,
    invalid_object,
    not_found,
)
from envtest.apimachinery.field_errors import FieldError, invalid
from envtest.apimachinery.objects import Object, format_time
from envtest.auth.tokens import BoundObject, ServiceAccountTokens
from envtest.registry.resource import RequestContext
from envtest.storage.store import Store

__all__ = ["request_token"]

_SERVICE_ACCOUNTS: Final = GroupResource("", "serviceaccounts")
_NODES: Final = GroupResource("", "nodes")
_BINDABLE: Final = {
    "Pod": GroupResource("", "pods"),
    "Secret": GroupResource("", "secrets"),
    "Node": _NODES,
}
"""The kinds of the core group that a token can be bound to."""
_DEFAULT_SECONDS: Final = 3600
_MIN_SECONDS: Final = 600
_MAX_SECONDS: Final = 1 << 32


def request_token(
    store: Store, tokens: ServiceAccountTokens, ctx: RequestContext, obj: Object
) -> Object:
    """Return the TokenRequest with a token for the account of ``ctx`` in its status. Raises StatusError."""
    account = store.get(_SERVICE_ACCOUNTS, ctx.namespace, ctx.name)
    if account is None:
        raise not_found(_SERVICE_ACCOUNTS, ctx.name)
    spec: dict[str, Any] = obj.get("spec") or {}
    requested = (obj.get("metadata") or {}).get("name") or ""
    if requested not in ("", ctx.name):
        error = invalid(
            "metadata.name", requested, "must match the service account name if specified"
        )
        raise invalid_object("authentication.k8s.io", "TokenRequest", ctx.name, [error])
    requested = (obj.get("metadata") or {}).get("namespace") or ""
    if requested not in ("", ctx.namespace):
        error = invalid(
            "metadata.namespace", requested, "must match the service account namespace if specified"
        )
        raise invalid_object("authentication.k8s.io", "TokenRequest", ctx.name, [error])
    requested = (obj.get("metadata") or {}).get("uid") or ""
    if requested not in ("", account.uid):
        why = (
            f"the UID in the token request ({requested}) does not match the UID of the service account "
            f"({account.uid})"
        )
        raise conflict(GroupResource("authentication.k8s.io", "TokenRequest"), ctx.name, why)
    seconds = spec.get("expirationSeconds")
    if seconds is None:
        seconds = _DEFAULT_SECONDS
    errors = _errors(seconds)
    if errors:
        raise invalid_object("authentication.k8s.io", "TokenRequest", "", errors)
    audiences = spec.get("audiences") or list(tokens.audiences)
    bound, node = _bound_objects(store, ctx, spec.get("boundObjectRef"))
    issued = tokens.issue(
        ctx.namespace,
        ctx.name,
        account.uid,
        audiences=audiences,
        seconds=seconds,
        bound=bound,
        node=node,
    )
    metadata = obj.setdefault("metadata", {})
    account_metadata = account.obj()["metadata"]
    metadata["name"] = ctx.name
    metadata["namespace"] = ctx.namespace
    metadata["uid"] = account.uid
    metadata["creationTimestamp"] = account_metadata["creationTimestamp"]
    obj["spec"] = {
        "audiences": audiences,
        "expirationSeconds": seconds,
        "boundObjectRef": spec.get("boundObjectRef"),
    }
    expires = datetime.fromtimestamp(issued.expires, UTC)
    obj["status"] = {"token": issued.token, "expirationTimestamp": format_time(expires)}
    return obj


def _errors(seconds: int) -> list[FieldError]:
    path = "spec.expirationSeconds"
    if seconds < _MIN_SECONDS:
        return [invalid(path, seconds, "may not specify a duration less than 10 minutes")]
    if seconds > _MAX_SECONDS:
        return [invalid(path, seconds, "may not specify a duration larger than 2^32 seconds")]
    return []


def _group_version(api_version: str) -> tuple[str, str]:
    """Return the group and the version of an ``apiVersion``; both are empty if it is malformed."""
    if api_version.count("/") > 1:
        return "", ""
    group, _, version = api_version.rpartition("/")
    return group, version


def _bound_objects(
    store: Store, ctx: RequestContext, reference: dict[str, Any] | None
) -> tuple[BoundObject | None, BoundObject | None]:
    if reference is None:
        return None, None
    api_version = reference.get("apiVersion", "")
    kind = reference.get("kind", "")
    group, version = _group_version(api_version)
    resource = _BINDABLE.get(kind) if group == "" else None  # any version of the group
    if resource is None:
        group_version_kind = f"{group}/{version}, Kind={kind}"
        raise bad_request(f"cannot bind token to object of type {group_version_kind}")
    name = reference.get("name", "")
    if not name:
        raise bad_request("Name parameter required.")
    namespace = "" if kind == "Node" else ctx.namespace
    record = store.get(resource, namespace, name)
    if record is None:
        raise not_found(resource, name)
    wanted_uid = reference.get("uid", "")
    if wanted_uid and wanted_uid != record.uid:
        why = (
            f"the UID in the bound object reference ({wanted_uid}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise conflict(GroupResource("", kind), name, why)
    node = None
    if kind == "Pod":
        spec = record.obj().get("spec") or {}
        if spec.get("serviceAccountName", "") != ctx.name:
            why = (
                f'cannot bind token for serviceaccount "{ctx.name}" to pod running with '
                "different serviceaccount name."
            )
            raise bad_request(why)
        node_record = store.get(_NODES, "", spec.get("nodeName", ""))
        node = (
            BoundObject("node", node_record.name, node_record.uid)
            if node_record is not None
            else None
        )
    return BoundObject(kind.lower(), name, record.uid), node
