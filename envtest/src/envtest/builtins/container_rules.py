"""Validation of containers: image, ports, variables, mounts, resources, probes, hooks and security context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envtest.builtins.string_validation import (
    INVALID_IP,
    config_key,
    env_name,
    header_name,
    is_ip,
    port_name,
    port_number,
)
from envtest.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    key,
    not_found,
    not_supported,
    required,
)
from envtest.metadata import dns_label, qualified_name
from envtest.schema.quantity import parse_quantity

__all__ = ["containers_errors", "relative_path_errors", "security_errors"]

_ENV_SOURCES = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
_STANDARD_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_FIELD_PATHS = (
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
_CONVERTIBLE = frozenset(
    {*_FIELD_PATHS, "metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName"}
    | {"spec.host", "status.phase"}
)
"""The field labels that kube-apiserver can convert; only some of them are supported in containers."""
_MAX_ID = 2**31 - 1
_SECCOMP = ("Localhost", "RuntimeDefault", "Unconfined")


def containers_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of all containers of a pod."""
    volumes = [volume.get("name") or "" for volume in spec.get("volumes") or ()]
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    seen: set[str] = set()
    used_host_ports: set[str] = set()
    for kind in ("containers", "initContainers"):
        for position, container in enumerate(spec.get(kind) or ()):
            field_path = f"{path}.{kind}[{position}]"
            yield from _container_errors(container, field_path, volumes, seen)
            if kind == "initContainers":
                yield from _init_errors(container, field_path)
            else:
                yield from _host_port_errors(container, field_path, used_host_ports)
            if spec.get("hostNetwork"):
                yield from _host_network_errors(container, field_path)


def _container_errors(
    container: Mapping[str, Any], path: str, volumes: Sequence[str], seen: set[str]
) -> Iterator[FieldError]:
    name = container.get("name") or ""
    if not name:
        yield required(f"{path}.name")
    else:
        for problem in dns_label(name):
            yield invalid(f"{path}.name", name, problem)
        if name in seen:
            yield duplicate(f"{path}.name", name)
    seen.add(name)
    image = container.get("image") or ""
    if not image:
        yield required(f"{path}.image")
    elif image != image.strip():
        yield invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
    for hook in ("postStart", "preStop"):
        handler = (container.get("lifecycle") or {}).get(hook)
        if handler is not None:
            yield from _handler_errors(handler, f"{path}.lifecycle.{hook}", _HOOK_HANDLERS)
    for probe in _PROBES:
        if probe in container:
            yield from _probe_errors(container[probe], f"{path}.{probe}")
    policies = ("Always", "IfNotPresent", "Never")
    if container.get("terminationMessagePolicy") not in ("File", "FallbackToLogsOnError"):
        policy = container.get("terminationMessagePolicy") or ""
        yield not_supported(f"{path}.terminationMessagePolicy", policy, ("FallbackToLogsOnError", "File"))
    yield from _port_errors(container.get("ports") or (), f"{path}.ports")
    yield from _env_errors(container.get("env") or (), f"{path}.env")
    yield from _env_from_errors(container.get("envFrom") or (), f"{path}.envFrom")
    yield from _mount_errors(container.get("volumeMounts") or (), f"{path}.volumeMounts", volumes)
    if container.get("imagePullPolicy") not in policies:
        yield not_supported(f"{path}.imagePullPolicy", container.get("imagePullPolicy") or "", policies)
    yield from resource_errors(container.get("resources") or {}, f"{path}.resources")
    security = container.get("securityContext")
    if security is not None:
        yield from security_errors(security, f"{path}.securityContext")
        if security.get("allowPrivilegeEscalation") is False and security.get("privileged"):
            text = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            yield invalid(f"{path}.securityContext", {**security}, text)


def _init_errors(container: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    policy = container.get("restartPolicy")
    if policy is not None and policy != "Always":
        yield not_supported(f"{path}.restartPolicy", policy, ("Always",))
    if policy == "Always":
        return
    for name in ("lifecycle", *_PROBES):
        if container.get(name) is not None:
            yield forbidden(f"{path}.{name}", "may not be set for init containers without restartPolicy=Always")


def _host_port_errors(container: Mapping[str, Any], path: str, used_host_ports: set[str]) -> Iterator[FieldError]:
    for position, port in enumerate(container.get("ports") or ()):
        if port.get("hostPort"):
            text = f"{port.get('protocol') or ''}/{port.get('hostIP') or ''}/{port['hostPort']}"
            if text in used_host_ports:
                yield duplicate(f"{path}.ports[{position}].hostPort", text)
            used_host_ports.add(text)


def _host_network_errors(container: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for position, port in enumerate(container.get("ports") or ()):
        if port.get("hostPort") and port["hostPort"] != port.get("containerPort"):
            text = "must match `containerPort` when `hostNetwork` is true"
            yield invalid(f"{path}.ports[{position}].hostPort", port["hostPort"], text)


def _port_errors(ports: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    names: set[str] = set()
    for position, port in enumerate(ports):
        field_path, name, number = f"{path}[{position}]", port.get("name") or "", port.get("containerPort") or 0
        if name:
            problems = port_name(name)
            for problem in problems:
                yield invalid(f"{field_path}.name", name, problem)
            if not problems and name in names:
                yield duplicate(f"{field_path}.name", name)
            names.add(name)
        if not number:
            yield required(f"{field_path}.containerPort")
        else:
            for problem in port_number(number):
                yield invalid(f"{field_path}.containerPort", number, problem)
        if port.get("hostPort"):
            for problem in port_number(port["hostPort"]):
                yield invalid(f"{field_path}.hostPort", port["hostPort"], problem)
        if not port.get("protocol"):
            yield required(f"{field_path}.protocol")
        elif port["protocol"] not in ("TCP", "UDP", "SCTP"):
            yield not_supported(f"{field_path}.protocol", port["protocol"], ("SCTP", "TCP", "UDP"))
        if port.get("hostIP") and not is_ip(port["hostIP"]):
            yield invalid(f"{field_path}.hostIP", port["hostIP"], INVALID_IP)


def _env_errors(variables: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    for position, variable in enumerate(variables):
        field_path, name, source = f"{path}[{position}]", variable.get("name") or "", variable.get("valueFrom")
        if not name:
            yield required(f"{field_path}.name")
        for problem in env_name(name):
            yield invalid(f"{field_path}.name", name, problem)
        if source is None:
            continue
        if len(source) == 0:
            text = (
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
            )
            yield invalid(f"{field_path}.valueFrom", "", text)
        elif len(source) > 1:
            yield invalid(f"{field_path}.valueFrom", "", "may not have more than one field specified at a time")
        elif variable.get("value"):
            yield invalid(f"{field_path}.valueFrom", "", "may not be specified when `value` is not empty")
        yield from _source_errors(source, f"{field_path}.valueFrom")


def _source_errors(source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of the source that an environment variable takes its value from."""
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if kind in source:
            if not source[kind].get("name"):
                yield required(f"{path}.{kind}.name")
            if not source[kind].get("key"):
                yield required(f"{path}.{kind}.key")
            else:
                for problem in config_key(source[kind]["key"]):
                    yield invalid(f"{path}.{kind}.key", source[kind]["key"], problem)
    if "fieldRef" in source:
        field = source["fieldRef"].get("fieldPath") or ""
        subscripted = field.startswith(("metadata.labels['", "metadata.annotations['")) and field.endswith("']")
        if not field:
            yield required(f"{path}.fieldRef.fieldPath")
        elif not subscripted and field not in _CONVERTIBLE:
            text = f"error converting fieldPath: field label not supported: {field}"
            yield invalid(f"{path}.fieldRef.fieldPath", field, text)
        elif field not in _FIELD_PATHS and not subscripted:
            yield not_supported(f"{path}.fieldRef.fieldPath", field, _FIELD_PATHS)
    if "resourceFieldRef" in source and not source["resourceFieldRef"].get("resource"):
        yield required(f"{path}.resourceFieldRef.resource")


def _env_from_errors(sources: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    for position, source in enumerate(sources):
        field_path = f"{path}[{position}]"
        for problem in env_name(source.get("prefix") or ""):
            yield invalid(f"{field_path}.prefix", source["prefix"], problem)
        kinds = [kind for kind in ("configMapRef", "secretRef") if kind in source]
        for kind in kinds:
            if not source[kind].get("name"):
                yield required(f"{field_path}.{kind}.name")
        if not kinds:
            yield invalid(field_path, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(kinds) > 1:
            yield invalid(field_path, "", "may not have more than one field specified at a time")


def _mount_errors(mounts: Sequence[Mapping[str, Any]], path: str, volumes: Sequence[str]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for position, mount in enumerate(mounts):
        field_path, name, target = f"{path}[{position}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield required(f"{field_path}.name")
        if name not in volumes:
            yield not_found(f"{field_path}.name", name)
        if not target:
            yield required(f"{field_path}.mountPath")
        if target in seen:
            yield invalid(f"{field_path}.mountPath", target, "must be unique")
        seen.add(target)
        if mount.get("subPath"):
            yield from relative_path_errors(mount["subPath"], f"{field_path}.subPath")
        if mount.get("subPathExpr"):
            if mount.get("subPath"):
                text = "subPathExpr and subPath are mutually exclusive"
                yield invalid(f"{field_path}.subPathExpr", mount["subPathExpr"], text)
            yield from relative_path_errors(mount["subPathExpr"], f"{field_path}.subPathExpr")
        modes = ("Bidirectional", "HostToContainer", "None")
        if mount.get("mountPropagation") is not None and mount["mountPropagation"] not in modes:
            yield not_supported(f"{field_path}.mountPropagation", mount["mountPropagation"], modes)


def relative_path_errors(text: str, path: str) -> Iterator[FieldError]:
    """Yield the errors of a path that must be relative and must not contain ``..``."""
    if text.startswith("/"):
        yield invalid(path, text, "must be a relative path")
    if ".." in text.split("/"):
        yield invalid(path, text, "must not contain '..'")


def resource_errors(resources: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of the limits and requests of a container, or of the overhead of a RuntimeClass."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for kind, quantities in (("limits", limits), ("requests", requests)):
        for name, quantity in quantities.items():
            field_path = key(f"{path}.{kind}", name)
            yield from _resource_name_errors(name, field_path)
            if parse_quantity(quantity).value < 0:
                yield invalid(field_path, quantity, "must be greater than or equal to 0")
    for name, quantity in requests.items():
        if name not in limits:
            continue
        standard = name in _STANDARD_RESOURCES
        if standard and parse_quantity(quantity).value > parse_quantity(limits[name]).value:
            text = f"must be less than or equal to {name} limit of {limits[name]}"
            yield invalid(f"{path}.requests", quantity, text)
        elif not standard and parse_quantity(quantity).value != parse_quantity(limits[name]).value:
            text = f"must be equal to {name} limit of {limits[name]}"
            yield invalid(f"{path}.requests", quantity, text)


def _resource_name_errors(name: str, path: str) -> Iterator[FieldError]:
    for problem in qualified_name(name):
        yield invalid(path, name, problem)
    if "/" in name or name in _STANDARD_RESOURCES or name.startswith("hugepages-"):
        return
    yield invalid(path, name, "must be a standard resource type or fully qualified")
    yield invalid(path, name, "must be a standard resource for containers")


def _probe_errors(probe: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    yield from _handler_errors(probe, path, _HANDLERS)
    names = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
    for name in names:
        if (probe.get(name) or 0) < 0:
            yield invalid(f"{path}.{name}", probe[name], "must be greater than or equal to 0")
    grace = probe.get("terminationGracePeriodSeconds")
    if path.endswith(".readinessProbe"):
        if grace is not None:
            text = "must not be set for readinessProbes"
            yield invalid(f"{path}.terminationGracePeriodSeconds", grace, text)
        return
    if probe.get("successThreshold") != 1:
        yield invalid(f"{path}.successThreshold", probe.get("successThreshold"), "must be 1")
    if grace is not None and grace <= 0:
        yield invalid(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than 0")


def _handler_errors(handler: Mapping[str, Any], path: str, kinds: Sequence[str]) -> Iterator[FieldError]:
    """Yield the errors of the handler of a probe or hook, which has exactly one action."""
    found = [kind for kind in kinds if kind in handler]
    for extra in found[1:]:
        yield forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")
    if not found:
        yield required(path, "must specify a handler type")
        return
    kind, action = found[0], handler[found[0]]
    if kind == "exec" and not action.get("command"):
        yield required(f"{path}.exec.command")
    if kind in ("httpGet", "tcpSocket"):
        port = action.get("port", 0)
        for problem in port_number(port) if isinstance(port, int) else port_name(port):
            yield invalid(f"{path}.{kind}.port", port, problem)
    if kind == "grpc":
        for problem in port_number(action.get("port") or 0):
            yield invalid(f"{path}.grpc.port", action.get("port") or 0, problem)
    if kind == "httpGet":
        if not action.get("path"):
            yield required(f"{path}.httpGet.path")
        if action.get("scheme") not in ("HTTP", "HTTPS"):
            yield not_supported(f"{path}.httpGet.scheme", action.get("scheme"), ("HTTP", "HTTPS"))
        for header in action.get("httpHeaders") or ():
            for problem in header_name(header.get("name") or ""):
                yield invalid(f"{path}.httpGet.httpHeaders", header.get("name") or "", problem)


def security_errors(security: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of the fields that the security contexts of pods and of containers share."""
    for name in ("runAsUser", "runAsGroup", "fsGroup"):
        number = security.get(name)
        if number is not None and not 0 <= number <= _MAX_ID:
            yield invalid(f"{path}.{name}", number, f"must be between 0 and {_MAX_ID}, inclusive")
    profile = security.get("seccompProfile")
    if profile is None:
        return
    kind, file = profile.get("type") or "", profile.get("localhostProfile")
    field_path = f"{path}.seccompProfile"
    if not kind:
        yield required(f"{field_path}.type", "type is required when seccompProfile is set")
    elif kind not in _SECCOMP:
        yield not_supported(f"{field_path}.type", kind, _SECCOMP)
    elif kind == "Localhost":
        if file is None:
            yield required(f"{field_path}.localhostProfile", "must be set when seccomp type is Localhost")
        else:
            yield from relative_path_errors(file, f"{field_path}.localhostProfile")
    elif file is not None:
        yield invalid(f"{field_path}.localhostProfile", file, "can only be set when seccomp type is Localhost")
