"""The strategy of CRDs: defaults, immutable fields and validation.

Messages name fields as kube-apiserver does, by its internal type. There, a schema, subresources or columns that all
versions share are at the top level: ``spec.validation``, ``spec.subresources`` ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envtest.apimachinery.field_errors import (
    FieldError,
    Verbatim,
    duplicate,
    forbidden,
    go_json,
    invalid,
    not_supported_string,
    required,
    too_many,
)
from envtest.apimachinery.name_rules import dns_1035_label, dns_subdomain
from envtest.apimachinery.objects import Object
from envtest.builtins.strategy import BuiltinStrategy
from envtest.builtins.string_validation import webhook_service_errors, webhook_url_errors
from envtest.crd.structural import field_at, schema_errors
from envtest.crd.unrecognized_formats import format_warnings
from envtest.registry.resource import RequestContext
from envtest.schema.schema_node import Schema

__all__ = ["CLEANUP_FINALIZER", "CRDStrategy", "condition_of", "set_condition"]

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_REVIEW_VERSIONS = ("v1", "v1beta1")
_MAX_SELECTABLE = 8


def condition_of(crd: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """Return a condition of the CRD, or ``None``."""
    for condition in crd.get("status", {}).get("conditions") or ():
        if condition.get("type") == kind:
            return dict(condition)
    return None


def set_condition(
    crd: Object, kind: str, *, holds: bool, reason: str, message: str, now: str
) -> None:
    """Set a condition; its transition time changes only with its status."""
    status = crd.setdefault("status", {})
    conditions = status.get("conditions") or []
    new = {
        "type": kind,
        "status": str(holds),
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }
    for position, condition in enumerate(conditions):
        if condition.get("type") == kind:
            if condition.get("status") == new["status"]:
                new["lastTransitionTime"] = condition.get("lastTransitionTime", now)
            conditions[position] = {**condition, **new}
            break
    else:
        conditions.append(new)
    status["conditions"] = conditions


class CRDStrategy(BuiltinStrategy):
    """The strategy of CRDs; see :class:`~envtest.registry.resource.Strategy`."""

    has_qualified_finalizers = False

    allow_unconditional_update = False
    has_spec_generation = True

    def set_defaults(self, obj: Object) -> None:
        """Default the names, the conversion strategy and the stored versions."""
        spec = obj["spec"]
        names = spec["names"]
        if not names.get("singular") and names["kind"]:
            names["singular"] = names["kind"].lower()
        if not names.get("listKind") and names["kind"]:
            names["listKind"] = names["kind"] + "List"
        conversion = spec.setdefault("conversion", {"strategy": "None"})
        service = ((conversion.get("webhook") or {}).get("clientConfig") or {}).get("service")
        if service is not None:
            service.setdefault("port", 443)
        if not obj["status"].get("storedVersions"):
            self._store_version(obj)

    @staticmethod
    def _store_version(obj: Object) -> None:
        """Add the storage version to ``status.storedVersions``."""
        for version in obj["spec"].get("versions") or ():
            if version.get("storage"):
                stored = obj["status"].get("storedVersions") or []
                if version["name"] not in stored:
                    obj["status"]["storedVersions"] = [*stored, version["name"]]
                return

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_create`."""
        super().prepare_create(obj, ctx)
        self._store_version(obj)

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_update`."""
        super().prepare_update(new, old, ctx)
        if ctx.subresource == "status":
            kept = {
                name: value
                for name, value in new["metadata"].items()
                if name in ("managedFields", "resourceVersion")
            }
            new["metadata"].update(old["metadata"])
            new["metadata"].update(kept)
        else:
            self._store_version(new)

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """See :meth:`Strategy.warnings`: warn about formats that are ignored."""
        if ctx.subresource == "status":
            return ()
        return format_warnings(obj["spec"], None if old is None else old["spec"])

    def begin_deletion(self, obj: Object, ctx: RequestContext) -> bool:
        """Add, on the first DELETE, the finalizer under which the CRD's objects are removed."""
        metadata = obj["metadata"]
        if metadata.get("deletionTimestamp"):
            return False
        metadata["deletionTimestamp"] = ctx.now
        finalizers = metadata.get("finalizers") or []
        if CLEANUP_FINALIZER not in finalizers:
            metadata["finalizers"] = [*finalizers, CLEANUP_FINALIZER]
        set_condition(
            obj,
            "Terminating",
            holds=True,
            reason="InstanceDeletionPending",
            message="CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
            now=ctx.now,
        )
        return True

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of a CRD."""
        spec = obj["spec"]
        status = obj["status"]
        if ctx.subresource == "status":
            yield from _name_errors(status.get("acceptedNames") or {}, "status.acceptedNames")
            return
        if old is None and obj["metadata"].get("name"):
            wanted = f"{spec['names'].get('plural') or ''}.{spec.get('group') or ''}"
            for field in ("generateName", "name"):
                name = obj["metadata"].get(field)
                if name and name != wanted:
                    yield invalid(
                        f"metadata.{field}", name, 'must be spec.names.plural+"."+spec.group'
                    )
        yield from self._spec_errors(spec, _unchanged_schemas(spec, old))
        if old is not None:
            yield from _immutable(spec, old)
        yield from _name_errors(status.get("acceptedNames") or {}, "status.acceptedNames")
        yield from _stored_errors(status.get("storedVersions"), spec.get("versions") or ())
        yield from _approval_errors(obj)
        if spec.get("preserveUnknownFields"):
            text = (
                "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema "
                "instead"
            )
            yield invalid("spec.preserveUnknownFields", True, text)

    def _spec_errors(
        self, spec: Mapping[str, Any], unchanged: frozenset[str]
    ) -> Iterator[FieldError]:
        group = spec.get("group") or ""
        versions = spec.get("versions")
        problems = dns_subdomain(group)
        if not group:
            yield required("spec.group")
        elif problems:
            yield invalid("spec.group", group, ",".join(problems))
        elif "." not in group:
            yield invalid("spec.group", group, "should be a domain with at least one dot")
        scope = spec.get("scope") or ""
        if not scope:
            yield required("spec.scope")
        elif scope not in ("Cluster", "Namespaced"):
            yield not_supported_string("spec.scope", scope, ("Cluster", "Namespaced"))
        yield from _version_errors(versions, unchanged)
        names = spec["names"]
        for name in ("plural", "singular", "kind", "listKind"):
            if not names.get(name):
                yield required(f"spec.names.{name}")
        yield from _name_errors(names, "spec.names")
        yield from _shared_content_errors(versions or (), unchanged)
        yield from _conversion_errors(spec.get("conversion") or {}, "spec.conversion")


def _immutable(spec: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    before = old["spec"]
    fields = [("group", spec.get("group"), before.get("group"))]
    fields.append(("names.plural", spec["names"].get("plural"), before["names"].get("plural")))
    established = condition_of(old, "Established")
    if established is not None and established.get("status") == "True":
        fields.append(("scope", spec.get("scope"), before.get("scope")))
        fields.append(("names.kind", spec["names"].get("kind"), before["names"].get("kind")))
    for name, new_value, old_value in fields:
        if new_value != old_value:
            yield invalid(f"spec.{name}", new_value or "", "field is immutable")


def _stored_errors(
    stored: Sequence[str] | None, versions: Sequence[Mapping[str, Any]]
) -> Iterator[FieldError]:
    path = "status.storedVersions"
    if not stored:
        yield invalid(path, stored, "must have at least one stored version")
        return
    names = [version.get("name") for version in versions]
    for version in versions:
        if version.get("storage") and version.get("name") not in stored:
            yield invalid(
                path, list(stored), f"must have the storage version {version.get('name')}"
            )
    for position, name in enumerate(stored):
        if name not in names:
            text = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} and removes "
                f"{name} from status.storedVersions"
            )
            yield invalid(f"{path}[{position}]", name, text)


def _approval_errors(obj: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the errors of CRDs in Kubernetes' own API groups, which need the approval of the community."""
    group = obj["spec"].get("group") or ""
    if not (group in ("k8s.io", "kubernetes.io") or group.endswith((".k8s.io", ".kubernetes.io"))):
        return
    approval = (obj["metadata"].get("annotations") or {}).get("api-approved.kubernetes.io", "")
    path = "metadata.annotations[api-approved.kubernetes.io]"
    if not approval:
        text = (
            'protected groups must have approval annotation "api-approved.kubernetes.io", see '
            "https://github.com/kubernetes/enhancements/pull/1111"
        )
        yield required(path, text)
    elif not approval.startswith(("unapproved", "http://", "https://")):
        text = (
            'protected groups must have approval annotation "api-approved.kubernetes.io" with either a URL or a reason '
            'starting with "unapproved", see https://github.com/kubernetes/enhancements/pull/1111'
        )
        yield invalid(path, approval, text)


def _shared(versions: Sequence[Mapping[str, Any]], name: str) -> bool:
    """Return whether ``name`` is equal in all versions; it is then at the top level of the internal type."""
    return bool(versions) and all(
        version.get(name) == versions[0].get(name) for version in versions
    )


def _shared_parts(versions: Sequence[Mapping[str, Any]]) -> dict[str, bool]:
    """Return for each part of a version whether it is equal in all versions."""
    parts = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
    return {name: _shared(versions, name) for name in parts}


def _unchanged_schemas(spec: Mapping[str, Any], old: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the names of the versions that have the same schema in the stored CRD."""
    if old is None:
        return frozenset()
    before = {
        version.get("name"): _schema_of(version) for version in old["spec"].get("versions") or ()
    }
    return frozenset(
        version["name"]
        for version in spec.get("versions") or ()
        if version.get("name") in before and before[version["name"]] == _schema_of(version)
    )


def _version_errors(
    given: Sequence[Mapping[str, Any]] | None, unchanged: frozenset[str]
) -> Iterator[FieldError]:
    versions = given or ()
    shared = _shared_parts(versions)
    if not (shared["schema"] and versions[0].get("schema") and _schema_of(versions[0]) is not None):
        for position, version in enumerate(versions):
            if _schema_of(version) is None:
                yield required(f"spec.versions[{position}].schema.openAPIV3Schema")
    names: list[str] = []
    for position, version in enumerate(versions):
        path = f"spec.versions[{position}]"
        names.append(version.get("name") or "")
        problems = dns_1035_label(names[-1])
        if problems:
            yield invalid(f"{path}.name", names[-1], ",".join(problems))
        yield from _deprecation_errors(version, f"{path}.deprecationWarning")
        yield from _content_errors(
            version, {name: path for name, same in shared.items() if not same}, versions, unchanged
        )
    if len(set(names)) < len(names):
        yield invalid(
            "spec.versions",
            _internal_versions(versions, shared),
            "must contain unique version names",
        )
    if sum(1 for version in versions if version.get("storage")) != 1:
        shown = _internal_versions(versions, shared) if versions else given
        yield invalid(
            "spec.versions", shown, "must have exactly one version marked as storage version"
        )
    problems = dns_1035_label(names[0]) if names and names[0] else []
    if problems:
        yield invalid("spec.version", names[0], ",".join(problems))


def _shared_content_errors(
    versions: Sequence[Mapping[str, Any]], unchanged: frozenset[str]
) -> Iterator[FieldError]:
    """Yield the errors of the parts that are equal in all versions; kube-apiserver validates them after the names."""
    if versions:
        places = {name: "spec" for name, same in _shared_parts(versions).items() if same}
        yield from _content_errors(versions[0], places, versions, unchanged)


def _schema_of(version: Mapping[str, Any]) -> Mapping[str, Any] | None:
    schema: Mapping[str, Any] | None = (version.get("schema") or {}).get("openAPIV3Schema")
    return schema


def _content_errors(
    version: Mapping[str, Any],
    places: Mapping[str, str],
    versions: Sequence[Mapping[str, Any]],
    unchanged: frozenset[str],
) -> Iterator[FieldError]:
    """Yield the errors of the parts of a version that ``places`` maps to their paths.

    ``unchanged`` are the names of the versions whose schema is stored already.
    """
    schema = _schema_of(version)
    if "schema" in places and schema is not None:
        top = places["schema"] == "spec"
        path = "spec.validation" if top else f"{places['schema']}.schema"
        watched = versions if top else [version]
        has_status = any("status" in (each.get("subresources") or {}) for each in watched)
        yield from schema_errors(
            schema,
            f"{path}.openAPIV3Schema",
            has_status=has_status,
            is_unchanged=version.get("name") in unchanged,
        )
    if "subresources" in places:
        yield from _subresource_errors(
            version.get("subresources") or {}, f"{places['subresources']}.subresources"
        )
    if "additionalPrinterColumns" in places:
        for position, column in enumerate(version.get("additionalPrinterColumns") or ()):
            path = f"{places['additionalPrinterColumns']}.additionalPrinterColumns[{position}]"
            yield from _column_errors(column, path)
    if "selectableFields" in places and version.get("selectableFields"):
        path = f"{places['selectableFields']}.selectableFields"
        yield from _selectable_errors(version["selectableFields"], schema, path)


def _internal_versions(
    versions: Sequence[Mapping[str, Any]], shared: Mapping[str, bool]
) -> Verbatim:
    """Return the versions as Go prints their internal type."""
    fields = (
        ("Name", "name", ""),
        ("Served", "served", False),
        ("Storage", "storage", False),
        ("Deprecated", "deprecated", False),
        ("DeprecationWarning", "deprecationWarning", None),
        ("Schema", "schema", None),
        ("Subresources", "subresources", None),
        ("AdditionalPrinterColumns", "additionalPrinterColumns", None),
        ("SelectableFields", "selectableFields", None),
    )
    texts = []
    for version in versions:
        shown = []
        for go, name, zero in fields:
            # the internal type has what all versions share outside of them
            value = zero if shared.get(name) else version.get(name, zero)
            shown.append(f'"{go}":{go_json(value)}')
        texts.append("{" + ",".join(shown) + "}")
    return Verbatim("[" + ",".join(texts) + "]")


def _deprecation_errors(version: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    warning = version.get("deprecationWarning")
    if warning is None:
        return
    if not version.get("deprecated"):
        yield invalid(path, warning, "can only be set for deprecated versions")
        return
    if len(warning.encode()) > 256:
        yield invalid(path, warning, "must be <= 256 characters long")
    if not warning:
        yield invalid(path, warning, "must not be an empty string")
    for position, character in enumerate(warning):
        if not character.isprintable():
            text = f"must only contain printable UTF-8 characters; non-printable character found at index {position}"
            yield invalid(path, warning, text)
            break


def _subresource_errors(subresources: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    scale = subresources.get("scale")
    if scale is None:
        return
    for name, roots, words in (
        ("specReplicasPath", (".spec.",), ".spec"),
        ("statusReplicasPath", (".status.",), ".status"),
        ("labelSelectorPath", (".spec.", ".status."), "either .spec or .status"),
    ):
        field_path = f"{path}.scale.{name}"
        value = scale.get(name) or ""
        if not value:
            if name != "labelSelectorPath":
                yield required(field_path)
        elif not value.startswith("."):
            yield invalid(field_path, value, "must be a simple json path starting with .")
        elif not value.startswith(roots):
            yield invalid(field_path, value, f"should be a json path under {words}")


def _column_errors(column: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    kind = column.get("type") or ""
    form = column.get("format") or ""
    json_path = column.get("jsonPath") or ""
    if not column.get("name"):
        yield required(f"{path}.name")
    text = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not kind:
        yield required(f"{path}.type", text)
    elif kind not in _COLUMN_TYPES:
        yield invalid(f"{path}.type", kind, text)
    if form and form not in _COLUMN_FORMATS:
        yield invalid(f"{path}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}")
    if not json_path:
        yield required(f"{path}.JSONPath")
    elif not json_path.startswith("."):
        yield invalid(f"{path}.JSONPath", json_path, "must be a simple json path starting with .")


def _selectable_errors(
    fields: Sequence[Mapping[str, Any]], raw: Mapping[str, Any] | None, path: str
) -> Iterator[FieldError]:
    schema = Schema(raw or {})
    seen: set[str] = set()
    for position, field in enumerate(fields):
        field_path = f"{path}[{position}].jsonPath"
        json_path = field.get("jsonPath") or ""
        if not json_path:
            yield required(field_path)
            continue
        node = field_at(schema, json_path, arrays=False)
        if isinstance(node, str):
            yield invalid(field_path, json_path, f"is an invalid path: {node}")
            continue
        if json_path.split(".")[1] == "metadata":
            yield invalid(field_path, json_path, "must not point to fields in metadata")
        if node.type not in ("string", "boolean", "integer"):
            text = (
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats "
                "are allowed."
            )
            yield invalid(field_path, json_path, text)
        if json_path in seen:
            yield duplicate(field_path, json_path)
        seen.add(json_path)
    if len(seen) > _MAX_SELECTABLE:
        yield too_many(path, len(seen), _MAX_SELECTABLE)


def _name_errors(names: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for name in ("plural", "singular"):
        value = names.get(name) or ""
        if value:
            problems = dns_1035_label(value)
            if problems:
                yield invalid(f"{path}.{name}", value, ",".join(problems))
    for name in ("kind", "listKind"):
        value = names.get(name) or ""
        if value:
            problems = dns_1035_label(value.lower())
            if problems:
                text = "may have mixed case, but should otherwise match: " + ",".join(problems)
                yield invalid(f"{path}.{name}", value, text)
    for name in ("shortNames", "categories"):
        for position, value in enumerate(names.get(name) or ()):
            problems = dns_1035_label(value)
            if problems:
                yield invalid(f"{path}.{name}[{position}]", value, ",".join(problems))
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        yield invalid(
            f"{path}.listKind", names["listKind"], "kind and listKind may not be the same"
        )


def _conversion_errors(conversion: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    strategy = conversion.get("strategy") or ""
    webhook = conversion.get("webhook") or {}
    client = webhook.get("clientConfig")
    versions = webhook.get("conversionReviewVersions") or ()
    if not strategy:
        yield required(f"{path}.strategy")
    elif strategy not in ("None", "Webhook"):
        yield not_supported_string(f"{path}.strategy", strategy, ("None", "Webhook"))
    if strategy != "Webhook":
        text = "should not be set when strategy is not set to Webhook"
        if client is not None:
            yield forbidden(f"{path}.webhookClientConfig", text)
        if versions:
            yield forbidden(f"{path}.conversionReviewVersions", text)
        return
    field_path = f"{path}.webhookClientConfig"
    if client is None:
        yield required(field_path, "required when strategy is set to Webhook")
    elif (client.get("url") is None) == (client.get("service") is None):
        yield required(field_path, "exactly one of url or service is required")
    elif client.get("url") is not None:
        yield from webhook_url_errors(f"{field_path}.url", client["url"])
    else:
        yield from webhook_service_errors(f"{field_path}.service", client["service"])
    yield from _review_version_errors(versions, f"{path}.conversionReviewVersions")


def _review_version_errors(versions: Sequence[str], path: str) -> Iterator[FieldError]:
    if not versions:
        yield required(path)
        return
    seen: set[str] = set()
    for position, version in enumerate(versions):
        if version in seen:
            yield invalid(f"{path}[{position}]", version, "duplicate version")
            continue
        seen.add(version)
        for problem in dns_1035_label(version):
            yield invalid(f"{path}[{position}]", version, problem)
    if not seen & set(_REVIEW_VERSIONS):
        yield invalid(
            path, list(versions), f"must include at least one of {', '.join(_REVIEW_VERSIONS)}"
        )
