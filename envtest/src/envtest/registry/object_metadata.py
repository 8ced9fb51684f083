"""Object metadata: the fields that the server sets, the ones it restores on update, and validation.

The rules follow ``BeforeCreate`` and ``BeforeUpdate`` of apiserver's ``registry/rest`` and ``ValidateObjectMeta`` of
apimachinery.
"""

from __future__ import annotations

import secrets
import uuid
from typing import Any

import orjson

from envtest.apimachinery.errors import bad_request
from envtest.apimachinery.field_errors import (
    FieldError,
    Verbatim,
    forbidden,
    go_quote,
    invalid,
    required,
)
from envtest.apimachinery.name_rules import (
    annotation_errors,
    dns_label,
    dns_subdomain,
    label_errors,
    mask_trailing_dash,
    path_segment,
    qualified_name,
)
from envtest.apimachinery.objects import Object
from envtest.registry.resource import MetadataChecks, RequestContext, ResourceInfo

__all__ = [
    "check_namespace",
    "drop_empty_metadata",
    "fill_for_create",
    "generated_name",
    "restore_for_update",
    "validate_embedded_metadata",
    "validate_metadata",
    "validate_metadata_update",
    "wipe_for_create",
]

_RANDOM = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED_LIMIT = 63 - 5


def drop_empty_metadata(obj: Object) -> None:
    """Remove the metadata that Go's encoder omits: empty maps and lists, nulls and empty strings."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        metadata = {}
        obj["metadata"] = metadata
    for name in [
        name for name, value in metadata.items() if value is None or value in ("", [], {})
    ]:
        del metadata[name]
    if metadata.get("generation") == 0:
        del metadata["generation"]
    annotations = metadata.get("annotations")
    if annotations:
        for name in [name for name, value in annotations.items() if value is None]:
            annotations[name] = ""
    for reference in metadata.get("ownerReferences", ()):
        for name in ("controller", "blockOwnerDeletion"):
            if name in reference and reference[name] is None:
                del reference[name]


def check_namespace(obj: Object, ctx: RequestContext) -> None:
    """Set the object's namespace to the namespace of the request. Raises StatusError (400) if they differ."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        metadata = {}
        obj["metadata"] = metadata
    namespace = metadata.get("namespace") or ""
    if not ctx.info.namespaced:  # kube-apiserver ignores the namespace of a cluster-scoped object
        metadata.pop("namespace", None)
        return
    if not namespace:
        metadata["namespace"] = ctx.namespace
    elif namespace != ctx.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def wipe_for_create(metadata: dict[str, Any]) -> None:
    """Remove the fields that only the server sets."""
    for name in (
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "uid",
        "selfLink",
    ):
        metadata.pop(name, None)


def generated_name(prefix: str) -> str:
    """Return a name for a ``generateName``: the prefix, cut to 58 characters, and five random characters."""
    return prefix[:_GENERATED_LIMIT] + "".join(secrets.choice(_RANDOM) for _ in range(5))


def fill_for_create(metadata: dict[str, Any], ctx: RequestContext) -> None:
    """Set uid, creationTimestamp and, from ``generateName``, the name; remove the selfLink."""
    metadata.pop("selfLink", None)
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = ctx.now
    if metadata.get("generateName") and not metadata.get("name"):
        prefix = metadata["generateName"]
        is_random = ctx.info.strategy.generates_names
        metadata["name"] = generated_name(prefix) if is_random else prefix


def restore_for_update(new: dict[str, Any], old: dict[str, Any]) -> None:
    """Restore the fields that an update can neither remove nor change."""
    if not new.get("uid") and "uid" in old:
        new["uid"] = old["uid"]
    if "creationTimestamp" in old:
        new["creationTimestamp"] = old["creationTimestamp"]
    if old.get("deletionTimestamp"):
        new["deletionTimestamp"] = old["deletionTimestamp"]
    if "deletionGracePeriodSeconds" in old and new.get("deletionGracePeriodSeconds") is None:
        new["deletionGracePeriodSeconds"] = old["deletionGracePeriodSeconds"]
    new.pop("selfLink", None)


def validate_metadata(obj: Object, info: ResourceInfo, path: str = "metadata") -> list[FieldError]:
    """Return the errors of an object's metadata."""
    metadata = obj["metadata"]
    return _validate_names(metadata, info, path) + _content_errors(
        metadata, path, strict=info.strategy.has_qualified_finalizers
    )


def validate_embedded_metadata(metadata: dict[str, Any], path: str) -> list[FieldError]:
    """Return the errors of the metadata of a resource inside another one, which needs neither name nor namespace."""
    errors: list[FieldError] = []
    prefix = metadata.get("generateName") or ""
    name = metadata.get("name") or ""
    namespace = metadata.get("namespace") or ""
    # A random suffix follows the prefix, so that "." and ".." are allowed.
    problems = path_segment(prefix) if prefix not in (".", "..") else []
    errors += [invalid(f"{path}.generateName", prefix, problem) for problem in problems]
    errors += [invalid(f"{path}.name", name, problem) for problem in path_segment(name)]
    problems = dns_label(namespace) if namespace else []
    errors += [invalid(f"{path}.namespace", namespace, problem) for problem in problems]
    if (metadata.get("generation") or 0) < 0:
        errors.append(
            invalid(
                f"{path}.generation", metadata["generation"], "must be greater than or equal to 0"
            )
        )
    return errors + _content_errors(metadata, path, strict=False)


def _content_errors(metadata: dict[str, Any], path: str, *, strict: bool) -> list[FieldError]:
    """Return the errors of everything but the names; ``strict`` requires qualified names of finalizers."""
    errors = label_errors(metadata.get("labels") or {}, f"{path}.labels")
    errors += annotation_errors(metadata.get("annotations") or {}, f"{path}.annotations")
    errors += _validate_owners(metadata.get("ownerReferences") or [], f"{path}.ownerReferences")
    errors += _validate_finalizers(
        metadata.get("finalizers") or [], f"{path}.finalizers", strict=strict
    )
    return errors


def _validate_names(metadata: dict[str, Any], info: ResourceInfo, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    prefix = metadata.get("generateName")
    name = metadata.get("name")
    if prefix:
        problems = info.strategy.validate_name(prefix, prefix=True)
        if problems is None:
            problems = dns_subdomain(mask_trailing_dash(prefix))
        errors += [invalid(f"{path}.generateName", prefix, problem) for problem in problems]
    if not name:
        errors.append(_missing_name(path))
    else:
        problems = info.strategy.validate_name(name)
        if problems is None:
            problems = dns_subdomain(name)
        errors += [invalid(f"{path}.name", name, problem) for problem in problems]
    namespace = metadata.get("namespace")
    if info.namespaced:
        if not namespace:
            errors.append(required(f"{path}.namespace"))
        else:
            errors += [
                invalid(f"{path}.namespace", namespace, problem) for problem in dns_label(namespace)
            ]
    elif namespace:
        errors.append(forbidden(f"{path}.namespace", "not allowed on this type"))
    return errors


def _missing_name(path: str) -> FieldError:
    return required(f"{path}.name", "name or generateName is required")


_OWNER_ORDER = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")


def _printed(reference: dict[str, Any]) -> Verbatim:
    return Verbatim(
        orjson.dumps({name: reference[name] for name in _OWNER_ORDER if name in reference}).decode()
    )


def _validate_owners(owners: list[dict[str, Any]], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    controller = ""
    for reference in owners:
        version = reference.get("apiVersion")
        kind = reference.get("kind")
        name = reference.get("name")
        if not version or version.count("/") > 1:
            errors.append(invalid(f"{path}.apiVersion", version or "", "version must not be empty"))
        if not kind:
            errors.append(invalid(f"{path}.kind", "", "must not be empty"))
        if not name:
            errors.append(invalid(f"{path}.name", "", "must not be empty"))
        if not reference.get("uid"):
            errors.append(invalid(f"{path}.uid", "", "must not be empty"))
        if version == "v1" and kind == "Event":
            errors.append(
                invalid(
                    path, _printed(reference), "/v1, Kind=Event is disallowed from being an owner"
                )
            )
        if reference.get("controller"):
            if controller:
                detail = (
                    'Only one reference can have Controller set to true. Found "true" in references for '
                    f"{controller} and {kind}/{name}"
                )
                errors.append(
                    invalid(path, Verbatim("[" + ",".join(map(_printed, owners)) + "]"), detail)
                )
            controller = controller or f"{kind}/{name}"
    return errors


_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})


def _validate_finalizers(finalizers: list[str], path: str, *, strict: bool) -> list[FieldError]:
    errors = _finalizer_errors(finalizers, path)
    return errors + _unqualified_errors(finalizers, path) if strict else errors


def _unqualified_errors(finalizers: list[str], path: str) -> list[FieldError]:
    text = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        invalid(f"{path}[{index}]", finalizer, text)
        for index, finalizer in enumerate(finalizers)
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS
    ]


def _finalizer_errors(finalizers: list[str], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for finalizer in finalizers:
        errors += [invalid(path, finalizer, problem) for problem in qualified_name(finalizer)]
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        detail = "finalizer orphan and foregroundDeletion cannot be both set"
        errors.append(invalid(path, finalizers, detail))
    return errors


_IMMUTABLE = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


_STRINGS = frozenset({"name", "namespace", "uid"})


def validate_metadata_update(
    new: Object, old: Object, checks: MetadataChecks, *, strict: bool = True, path: str = "metadata"
) -> list[FieldError]:
    """Return the errors of a change of metadata, each as often as kube-apiserver reports it.

    Its generic code checks the new metadata and the change once each; ``checks`` are those of the kind in addition.
    Both require qualified names of finalizers if ``strict``.
    """
    change = _metadata_change_errors(new["metadata"], old["metadata"], path)
    metadata = new["metadata"]
    content = label_errors(metadata.get("labels") or {}, f"{path}.labels")
    content += annotation_errors(metadata.get("annotations") or {}, f"{path}.annotations")
    content += _validate_owners(metadata.get("ownerReferences") or [], f"{path}.ownerReferences")
    finalizers = metadata.get("finalizers") or []
    names = _finalizer_errors(finalizers, f"{path}.finalizers") * (1 + checks.content)
    if strict:
        unqualified = _unqualified_errors(finalizers, f"{path}.finalizers")
        names += unqualified * (checks.content + checks.change)
    repeated = content * (2 + checks.content + checks.change)
    missing = [] if metadata.get("name") else [_missing_name(path)]
    return missing * (1 + checks.content) + change * (1 + checks.change) + repeated + names


def _metadata_change_errors(after: Object, before: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if before.get("deletionTimestamp"):
        existing = before.get("finalizers") or []
        added = sorted(set(after.get("finalizers") or []) - set(existing))
        if added:
            shown = "[]string{" + ", ".join(go_quote(each) for each in added) + "}"
            detail = (
                "no new finalizers can be added if the object is being deleted, found new finalizers "
                + shown
            )
            errors.append(forbidden(f"{path}.finalizers", detail))
    changed = [name for name in _IMMUTABLE if after.get(name) != before.get(name)]
    for name in changed:
        value = after.get(name)
        if value is None and name in _STRINGS:
            value = ""
        errors.append(invalid(f"{path}.{name}", value, "field is immutable"))
    generation = after.get("generation") or 0
    if generation < (before.get("generation") or 0):
        errors.append(invalid(f"{path}.generation", generation, "must not be decremented"))
    return errors
