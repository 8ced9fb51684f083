"""What a pod, and the template of one, must be: the rules that pods share with the kinds that make them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cfo.envtest.builtins.texts import config_key, env_name, nonnegative, port_name, port_number
from cfo.envtest.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    key,
    not_found,
    not_supported,
    required,
)
from cfo.envtest.metadata import dns_label, dns_subdomain, label_value, qualified_name
from cfo.envtest.schema.quantity import parse_quantity

__all__ = ["pod_spec_errors", "template_errors"]

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_STANDARD_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")


def template_errors(template: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """The errors of a pod template: metadata and spec."""
    metadata = template.get("metadata") or {}
    for name, value in (metadata.get("labels") or {}).items():
        for problem in qualified_name(name):
            yield invalid(f"{path}.labels", name, problem)
        for problem in label_value(value):
            yield invalid(f"{path}.labels", value, problem)
    for name in metadata.get("annotations") or {}:
        for problem in qualified_name(name.lower()):
            yield invalid(f"{path}.annotations", name, problem)
    yield from pod_spec_errors(template.get("spec") or {}, f"{path}.spec")
    if (template.get("spec") or {}).get("ephemeralContainers"):
        text = "ephemeral containers not allowed in pod template"
        yield forbidden(f"{path}.spec.ephemeralContainers", text)


def pod_spec_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """The errors of a PodSpec."""
    volumes = [volume.get("name") or "" for volume in spec.get("volumes") or ()]
    yield from _volume_errors(spec.get("volumes") or (), f"{path}.volumes")
    containers = spec.get("containers") or ()
    if not containers:
        yield required(f"{path}.containers")
    seen: set[str] = set()
    for name in ("containers", "initContainers"):
        for position, container in enumerate(spec.get(name) or ()):
            yield from _container_errors(container, f"{path}.{name}[{position}]", volumes, seen)
    policy = spec.get("restartPolicy") or ""
    if not policy:
        yield required(f"{path}.restartPolicy")
    elif policy not in _RESTART_POLICIES:
        yield not_supported(f"{path}.restartPolicy", policy, _RESTART_POLICIES)
    dns = spec.get("dnsPolicy")
    if dns and dns not in _DNS_POLICIES:
        yield not_supported(f"{path}.dnsPolicy", dns, _DNS_POLICIES)
    if dns == "None" and not (spec.get("dnsConfig") or {}).get("nameservers"):
        text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        yield required(f"{path}.dnsConfig.nameservers", text)
    yield from _reference_errors(spec, path)
    yield from _toleration_errors(spec.get("tolerations") or (), f"{path}.tolerations")
    for name, value in (spec.get("nodeSelector") or {}).items():
        for problem in qualified_name(name):
            yield invalid(f"{path}.nodeSelector", name, problem)
        for problem in label_value(value):
            yield invalid(f"{path}.nodeSelector", value, problem)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        yield invalid(f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")
    yield from nonnegative(f"{path}.terminationGracePeriodSeconds", spec.get("terminationGracePeriodSeconds"))


def _reference_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for name, rule in (
        ("serviceAccountName", dns_subdomain),
        ("nodeName", dns_subdomain),
        ("priorityClassName", dns_subdomain),
        ("runtimeClassName", dns_subdomain),
        ("hostname", dns_label),
        ("subdomain", dns_label),
    ):
        for problem in rule(spec[name]) if spec.get(name) else ():
            yield invalid(f"{path}.{name}", spec[name], problem)


def _volume_errors(volumes: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for position, volume in enumerate(volumes):
        where, name = f"{path}[{position}]", volume.get("name") or ""
        if not name:
            yield required(f"{where}.name")
        elif problems := dns_label(name):
            for problem in problems:
                yield invalid(f"{where}.name", name, problem)
        elif name in seen:
            yield duplicate(f"{where}.name", name)
        seen.add(name)
        sources = [each for each in volume if each != "name"]
        for extra in sources[1:]:
            yield forbidden(f"{where}.{extra}", "may not specify more than 1 volume type")
        if "secret" in volume and not volume["secret"].get("secretName"):
            yield required(f"{where}.secret.secretName")
        if "configMap" in volume and not volume["configMap"].get("name"):
            yield required(f"{where}.configMap.name")
        claim = volume.get("persistentVolumeClaim")
        if claim is not None and not claim.get("claimName"):
            yield required(f"{where}.persistentVolumeClaim.claimName")
        if "hostPath" in volume and not volume["hostPath"].get("path"):
            yield required(f"{where}.hostPath.path")


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
    policies = ("Always", "IfNotPresent", "Never")
    if container.get("imagePullPolicy") not in policies:
        yield not_supported(f"{path}.imagePullPolicy", container.get("imagePullPolicy") or "", policies)
    if container.get("terminationMessagePolicy") not in ("File", "FallbackToLogsOnError"):
        policy = container.get("terminationMessagePolicy") or ""
        yield not_supported(f"{path}.terminationMessagePolicy", policy, ("FallbackToLogsOnError", "File"))
    yield from _port_errors(container.get("ports") or (), f"{path}.ports")
    yield from _env_errors(container.get("env") or (), f"{path}.env")
    yield from _mount_errors(container.get("volumeMounts") or (), f"{path}.volumeMounts", volumes)
    yield from _resource_errors(container.get("resources") or {}, f"{path}.resources")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            yield from _probe_errors(container[probe], f"{path}.{probe}")


def _port_errors(ports: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    names: set[str] = set()
    for position, port in enumerate(ports):
        where, name, number = f"{path}[{position}]", port.get("name") or "", port.get("containerPort") or 0
        if name:
            problems = port_name(name)
            for problem in problems:
                yield invalid(f"{where}.name", name, problem)
            if not problems and name in names:
                yield duplicate(f"{where}.name", name)
            names.add(name)
        if not number:
            yield required(f"{where}.containerPort")
        else:
            for problem in port_number(number):
                yield invalid(f"{where}.containerPort", number, problem)
        if port.get("hostPort"):
            for problem in port_number(port["hostPort"]):
                yield invalid(f"{where}.hostPort", port["hostPort"], problem)
        if not port.get("protocol"):
            yield required(f"{where}.protocol")
        elif port["protocol"] not in ("TCP", "UDP", "SCTP"):
            yield not_supported(f"{where}.protocol", port["protocol"], ("SCTP", "TCP", "UDP"))


def _env_errors(variables: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    for position, variable in enumerate(variables):
        where, name, source = f"{path}[{position}]", variable.get("name") or "", variable.get("valueFrom")
        if not name:
            yield required(f"{where}.name")
        for problem in env_name(name):
            yield invalid(f"{where}.name", name, problem)
        if source is None:
            continue
        if len(source) == 0:
            text = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
            yield invalid(f"{where}.valueFrom", "", text)
        elif len(source) > 1:
            yield invalid(f"{where}.valueFrom", "", "may not have more than one field specified at a time")
        elif variable.get("value"):
            yield invalid(f"{where}.valueFrom", "", "may not be specified when `value` is not empty")
        for kind in ("configMapKeyRef", "secretKeyRef"):
            if kind in source:
                if not source[kind].get("key"):
                    yield required(f"{where}.valueFrom.{kind}.key")
                else:
                    for problem in config_key(source[kind]["key"]):
                        yield invalid(f"{where}.valueFrom.{kind}.key", source[kind]["key"], problem)


def _mount_errors(mounts: Sequence[Mapping[str, Any]], path: str, volumes: Sequence[str]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for position, mount in enumerate(mounts):
        where, name, target = f"{path}[{position}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield required(f"{where}.name")
        if name not in volumes:
            yield not_found(f"{where}.name", name)
        if not target:
            yield required(f"{where}.mountPath")
        if target in seen:
            yield invalid(f"{where}.mountPath", target, "must be unique")
        seen.add(target)


def _resource_errors(resources: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for kind, quantities in (("limits", limits), ("requests", requests)):
        for name, quantity in quantities.items():
            where = key(f"{path}.{kind}", name)
            yield from _resource_name_errors(name, where)
            if parse_quantity(quantity).value < 0:
                yield invalid(where, quantity, "must be greater than or equal to 0")
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
    handlers = [name for name in _HANDLERS if name in probe]
    if not handlers:
        yield required(path, "must specify a handler type")
    for extra in handlers[1:]:
        yield forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")
    for kind in ("httpGet", "tcpSocket"):
        if kind in probe:
            port = probe[kind].get("port", 0)
            for problem in port_number(port) if isinstance(port, int) else port_name(port):
                yield invalid(f"{path}.{kind}.port", port, problem)
    names = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
    for name in names:
        yield from nonnegative(f"{path}.{name}", probe.get(name))


def _toleration_errors(tolerations: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    for position, toleration in enumerate(tolerations):
        where, operator = f"{path}[{position}]", toleration.get("operator") or ""
        if toleration.get("key"):
            for problem in qualified_name(toleration["key"]):
                yield invalid(f"{where}.key", toleration["key"], problem)
        elif operator != "Exists":
            text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield invalid(f"{where}.operator", operator, text)
        if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid(f"{where}.effect", toleration.get("effect") or "", text)
        if operator in ("", "Equal"):
            for problem in label_value(toleration.get("value") or ""):
                yield invalid(f"{where}.operator", toleration.get("value"), problem)
        elif operator == "Exists":
            if toleration.get("value"):
                text = "value must be empty when `operator` is 'Exists'"
                yield invalid(f"{where}.operator", {**toleration}, text)
        else:
            yield not_supported(f"{where}.operator", operator, ("Equal", "Exists"))
        effect = toleration.get("effect")
        if effect and effect not in _EFFECTS:
            yield not_supported(f"{where}.effect", effect, _EFFECTS)
