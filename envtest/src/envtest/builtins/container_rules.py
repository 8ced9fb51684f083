"""Validation of the containers of a pod: containers, init containers and ephemeral containers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from envtest.apimachinery.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_many,
)
from envtest.apimachinery.name_rules import dns_label
from envtest.builtins.container_resources import container_requirement_errors
from envtest.builtins.environment_rules import env_errors, env_from_errors
from envtest.builtins.handler_rules import PROBES, lifecycle_errors, probe_errors
from envtest.builtins.mount_rules import Volumes, device_errors, mount_errors
from envtest.builtins.security_rules import container_security_errors
from envtest.builtins.string_validation import port_name, port_number

__all__ = ["PodContext", "containers_errors", "image_space_errors"]

_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_RESTART_POLICIES: Final = ("Always", "Never", "OnFailure")
_RESTART_ACTIONS = ("Restart", "RestartAllContainers")
_RESTART_RULES: Final = 20
_EXIT_CODES: Final = 255
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_NOT_EPHEMERAL: Final = (
    "ports",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
)
"""The fields of containers that ephemeral containers do not have; also ``resources``, which has a default."""


@dataclass(frozen=True, slots=True)
class PodContext:
    """What the rules of containers need of the pod: its valid volumes, its claims and some fields of its spec."""

    volumes: Volumes
    claims: Collection[str]
    grace: int | None
    restart_policy: str
    host_users: bool


def containers_errors(spec: Mapping[str, Any], path: str, pod: PodContext) -> Iterator[FieldError]:
    """Yield the errors of all containers of a pod; their names are unique among all kinds."""
    names: set[str] = set()
    host_ports: set[str] = set()
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    for position, container in enumerate(spec.get("containers") or ()):
        field_path = f"{path}.containers[{position}]"
        yield from _common_errors(container, field_path, pod, names)
        yield from lifecycle_errors(container, field_path, pod.grace)
        yield from probe_errors(container, field_path, pod.grace)
        yield from _restart_errors(container, field_path)
        yield from _host_port_errors(container, field_path, host_ports)
    for position, container in enumerate(spec.get("initContainers") or ()):
        field_path = f"{path}.initContainers[{position}]"
        yield from _common_errors(container, field_path, pod, names)
        yield from _restart_errors(container, field_path)
        yield from _host_port_errors(container, f"{path}.initContainers[0]", set())
        if container.get("restartPolicy") == "Always":
            yield from lifecycle_errors(container, field_path, pod.grace)
            yield from probe_errors(container, field_path, pod.grace)
        else:
            for name in ("lifecycle", *PROBES):
                if container.get(name) is not None:
                    text = "may not be set for init containers without restartPolicy=Always"
                    yield forbidden(f"{field_path}.{name}", text)
    regular = frozenset(names)
    for position, container in enumerate(spec.get("ephemeralContainers") or ()):
        field_path = f"{path}.ephemeralContainers[{position}]"
        yield from _common_errors(container, field_path, pod, names)
        yield from image_space_errors(container, field_path)
        yield from _ephemeral_errors(container, field_path, regular)


def image_space_errors(container: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield an error if the image begins or ends with white space, which only templates may have."""
    image = container.get("image") or ""
    if image != image.strip():
        yield invalid(f"{path}.image", image, "must not have leading or trailing whitespace")


def _common_errors(
    container: Mapping[str, Any], path: str, pod: PodContext, names: set[str]
) -> Iterator[FieldError]:
    """Yield the errors that all kinds of containers have in common; add the name to ``names``."""
    name = container.get("name") or ""
    if not name:
        yield required(f"{path}.name")
    else:
        for problem in dns_label(name):
            yield invalid(f"{path}.name", name, problem)
    if name and name in names:
        yield duplicate(f"{path}.name", name)
    names.add(name)
    if not container.get("image"):
        yield required(f"{path}.image")
    policy = container.get("terminationMessagePolicy") or ""
    if policy not in ("File", "FallbackToLogsOnError"):
        yield not_supported(
            f"{path}.terminationMessagePolicy", policy, ("FallbackToLogsOnError", "File")
        )
    yield from _port_errors(container.get("ports") or (), f"{path}.ports")
    yield from env_errors(container.get("env") or (), f"{path}.env")
    yield from env_from_errors(container.get("envFrom") or (), f"{path}.envFrom")
    yield from mount_errors(container, f"{path}.volumeMounts", pod.volumes)
    yield from device_errors(container, f"{path}.volumeDevices", pod.volumes)
    pull_policy = container.get("imagePullPolicy") or ""
    if pull_policy not in _PULL_POLICIES:
        yield not_supported(f"{path}.imagePullPolicy", pull_policy, _PULL_POLICIES)
    yield from container_requirement_errors(
        container.get("resources") or {}, f"{path}.resources", pod.claims
    )
    yield from _resize_policy_errors(
        container.get("resizePolicy") or (), f"{path}.resizePolicy", pod
    )
    yield from container_security_errors(container, path, host_users=pod.host_users)


def _resize_policy_errors(
    policies: Sequence[Mapping[str, Any]], path: str, pod: PodContext
) -> Iterator[FieldError]:
    """Yield the errors of the resize policies, which kube-apiserver reports without their position."""
    seen: set[str] = set()
    for position, policy in enumerate(policies):
        resource = policy.get("resourceName") or ""
        restart = policy.get("restartPolicy") or ""
        if resource in seen:
            yield duplicate(f"{path}[{position}]", resource)
        seen.add(resource)
        for value, supported in (
            (resource, ("cpu", "memory")),
            (restart, ("NotRequired", "RestartContainer")),
        ):
            if not value:
                yield required(path)
            elif value not in supported:
                yield not_supported(path, value, supported)
        if pod.restart_policy == "Never" and restart != "NotRequired":
            yield invalid(
                path, restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            )


def _restart_errors(container: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of a container's own restart policy, and of its rules by exit code."""
    policy = container.get("restartPolicy")
    rules = container.get("restartPolicyRules") or ()
    if policy is not None and policy not in _RESTART_POLICIES:
        yield not_supported(f"{path}.restartPolicy", policy, _RESTART_POLICIES)
    if policy is None and rules:
        yield required(
            f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used"
        )
    if len(rules) > _RESTART_RULES:
        yield too_many(f"{path}.restartPolicyRules", len(rules), _RESTART_RULES)
    for position, rule in enumerate(rules):
        field_path = f"{path}.restartPolicyRules[{position}]"
        codes = rule.get("exitCodes")
        if rule.get("action") not in _RESTART_ACTIONS:
            yield not_supported(f"{field_path}.action", rule.get("action") or "", _RESTART_ACTIONS)
        if codes is None:
            yield required(f"{field_path}.exitCodes", "must be specified")
            continue
        if codes.get("operator") not in ("In", "NotIn"):
            yield not_supported(
                f"{field_path}.exitCodes.operator", codes.get("operator") or "", ("In", "NotIn")
            )
        if len(codes.get("values") or ()) > _EXIT_CODES:
            yield too_many(f"{field_path}.exitCodes.values", len(codes["values"]), _EXIT_CODES)


def _ephemeral_errors(
    container: Mapping[str, Any], path: str, others: Collection[str]
) -> Iterator[FieldError]:
    """Yield the errors of an ephemeral container, which lacks fields and can share a container's namespaces."""
    text = "cannot be set for an Ephemeral Container"
    target = container.get("targetContainerName")
    if target and target not in others:
        yield not_found(f"{path}.targetContainerName", target)
    for name in _NOT_EPHEMERAL:
        if container.get(name) is not None:
            yield forbidden(f"{path}.{name}", text)
    if container.get("resources"):
        yield forbidden(f"{path}.resources", text)
    for position, mount in enumerate(container.get("volumeMounts") or ()):
        for name in ("subPath", "subPathExpr"):
            if mount.get(name):
                yield forbidden(f"{path}.volumeMounts[{position}].{name}", text)


def _host_port_errors(
    container: Mapping[str, Any], path: str, used: set[str]
) -> Iterator[FieldError]:
    for position, port in enumerate(container.get("ports") or ()):
        if port.get("hostPort"):
            text = f"{port.get('protocol') or ''}/{port.get('hostIP') or ''}/{port['hostPort']}"
            if text in used:
                yield duplicate(f"{path}.ports[{position}].hostPort", text)
            used.add(text)


def _port_errors(ports: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    names: set[str] = set()
    for position, port in enumerate(ports):
        field_path = f"{path}[{position}]"
        name = port.get("name") or ""
        number = port.get("containerPort") or 0
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
        elif port["protocol"] not in _PROTOCOLS:
            yield not_supported(f"{field_path}.protocol", port["protocol"], _PROTOCOLS)
