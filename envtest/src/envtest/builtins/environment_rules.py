"""Validation of containers' environment, and of references to the pod's fields and resources."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from envtest.apimachinery.field_errors import FieldError, invalid, not_supported_string, required
from envtest.apimachinery.name_rules import dns_label, dns_subdomain, qualified_name
from envtest.builtins.path_rules import backstep_errors
from envtest.builtins.string_validation import config_key, env_name
from envtest.schema.quantity import canonical

__all__ = [
    "VOLUME_FIELD_PATHS",
    "env_errors",
    "env_from_errors",
    "field_ref_errors",
    "resource_ref_errors",
]

_SOURCES: Final = (
    "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
)
_FIELD_PATHS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
VOLUME_FIELD_PATHS: Final = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)
"""The fields that a downward API volume can contain."""
_CONVERTIBLE: Final = frozenset(
    {
        *_FIELD_PATHS,
        *VOLUME_FIELD_PATHS,
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.host",
        "status.phase",
    }
)
"""The field labels that kube-apiserver can convert; only some of them are supported in containers."""
_SUBSCRIPTABLE: Final = ("metadata.annotations", "metadata.labels")
_RESOURCES: Final = tuple(
    f"{kind}.{name}"
    for kind in ("limits", "requests")
    for name in ("cpu", "ephemeral-storage", "memory")
)
_HUGE_PAGES: Final = ("limits.hugepages-", "requests.hugepages-")
_BYTES: Final = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")


def env_errors(variables: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    """Yield the errors of environment variables."""
    for position, variable in enumerate(variables):
        field_path = f"{path}[{position}]"
        name = variable.get("name") or ""
        source = variable.get("valueFrom")
        if not name:
            yield required(f"{field_path}.name")
        for problem in env_name(name):
            yield invalid(f"{field_path}.name", name, problem)
        if source is None:
            continue
        yield from _source_errors(source, f"{field_path}.valueFrom")
        if len(source) == 0:
            yield invalid(f"{field_path}.valueFrom", "", f"must specify one of: {_SOURCES}")
        elif variable.get("value"):
            yield invalid(
                f"{field_path}.valueFrom", "", "may not be specified when `value` is not empty"
            )
        elif len(source) > 1:
            yield invalid(
                f"{field_path}.valueFrom",
                "",
                "may not have more than one field specified at a time",
            )


def env_from_errors(sources: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    """Yield the errors of the config maps and secrets from which all variables are taken."""
    for position, source in enumerate(sources):
        field_path = f"{path}[{position}]"
        for problem in env_name(source.get("prefix") or ""):
            yield invalid(f"{field_path}.prefix", source["prefix"], problem)
        kinds = [kind for kind in ("configMapRef", "secretRef") if kind in source]
        for kind in kinds:
            name = source[kind].get("name") or ""
            if not name:
                yield required(f"{field_path}.{kind}.name")
            else:
                for problem in dns_subdomain(name):
                    yield invalid(f"{field_path}.{kind}.name", name, problem)
        if not kinds:
            yield invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(kinds) > 1:
            yield invalid(path, "", "may not have more than one field specified at a time")


def _source_errors(source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of the source that an environment variable takes its value from."""
    if "fieldRef" in source:
        yield from field_ref_errors(source["fieldRef"], f"{path}.fieldRef", _FIELD_PATHS)
    if "resourceFieldRef" in source:
        yield from resource_ref_errors(source["resourceFieldRef"], f"{path}.resourceFieldRef")
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if kind in source:
            name = source[kind].get("name") or ""
            key = source[kind].get("key") or ""
            for problem in dns_subdomain(name):
                yield invalid(f"{path}.{kind}.name", name, problem)
            if not key:
                yield required(f"{path}.{kind}.key")
            else:
                for problem in config_key(key):
                    yield invalid(f"{path}.{kind}.key", key, problem)
    if "fileKeyRef" in source:
        yield from _file_ref_errors(source["fileKeyRef"], f"{path}.fileKeyRef")


def _file_ref_errors(reference: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of a reference to a variable in a file of a volume."""
    for name in ("key", "volumeName", "path"):
        if not reference.get(name):
            yield required(f"{path}.{name}")
        elif name == "path":
            yield from backstep_errors(reference[name], f"{path}.{name}")
        else:
            problems = env_name(reference[name]) if name == "key" else dns_label(reference[name])
            for problem in problems:
                yield invalid(f"{path}.{name}", reference[name], problem)


def field_ref_errors(
    reference: Mapping[str, Any], path: str, supported: Collection[str]
) -> Iterator[FieldError]:
    """Yield the errors in a reference to a pod's field, which must be one of ``supported`` or a label."""
    field = reference.get("fieldPath") or ""
    if not field:
        yield required(f"{path}.fieldPath")
        return
    name, bracket, subscript = field.partition("['")
    if bracket and subscript.endswith("']") and name in _SUBSCRIPTABLE:
        subscript = subscript.removesuffix("']")
        # case does not matter in keys of annotations (ValidateAnnotations of kube-apiserver)
        if name == "metadata.annotations":
            subscript = subscript.lower()
        for problem in qualified_name(subscript):
            yield invalid(path, subscript, problem)
    elif field not in _CONVERTIBLE:
        text = f"error converting fieldPath: field label not supported: {field}"
        yield invalid(f"{path}.fieldPath", field, text)
    elif field not in supported:
        yield not_supported_string(f"{path}.fieldPath", field, sorted(supported))


def resource_ref_errors(
    reference: Mapping[str, Any], path: str, *, needs_container: bool = False
) -> Iterator[FieldError]:
    """Yield the errors of a reference to a resource of a container, which a volume must name."""
    resource = reference.get("resource") or ""
    if needs_container and not reference.get("containerName"):
        yield required(f"{path}.containerName")
    elif not resource:
        yield required(f"{path}.resource")
    elif resource not in _RESOURCES and not resource.startswith(_HUGE_PAGES):
        yield not_supported_string(f"{path}.resource", resource, _RESOURCES)
    divisor = canonical(reference.get("divisor") or "0")
    if divisor == "0":
        return
    kind = resource.partition(".")[2]
    if kind == "cpu" and divisor not in ("1", "1m"):
        text = "only divisor's values 1m and 1 are supported with the cpu resource"
        yield invalid(f"{path}.divisor", resource, text)
    names = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}
    what = "hugepages" if resource.startswith(_HUGE_PAGES) else names.get(kind)
    if what is not None and divisor not in _BYTES:
        text = f"only divisor's values {', '.join(_BYTES)} are supported with the {what} resource"
        yield invalid(f"{path}.divisor", resource, text)
