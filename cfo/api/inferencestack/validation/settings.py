"""Whether the settings of gateway and applications can work, with defaults and template merged in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cfo.api.container_resources import resource_errors
from cfo.api.inferencestack.engines import ENGINES, engine_of
from cfo.api.inferencestack.names import COMPONENT_LABEL, INSTANCE_LABEL, NAME_LABEL
from cfo.api.inferencestack.queue import pod_metadata_errors
from cfo.api.inferencestack.resolution import ResolvedStack, is_enabled
from cfo.api.inferencestack.snake_case import is_config_key, snake_case
from cfo.api.inferencestack.validation.engines import engine_errors
from cfo.api.inferencestack.validation.pods import (
    gpu_errors,
    port_errors,
    port_list_errors,
    unique_errors,
    volume_errors,
)
from cfo.api.reserved_hosts import reserved_host_errors
from cfo.runtime import FieldError
from cfo.runtime.objects.field import Path, forbidden, invalid, not_supported, required, too_many

MAX_HOSTS: Final = 100
"""The maximum number of hosts of a stack's Ingress or HTTPRoute: each one is searched among the hosts of all others."""

_COUNTS: Final = {"minReplicaCount": 0, "maxReplicaCount": 1, "idleReplicaCount": 0}
"""The counts in the spec of a ScaledObject, and the minimum of each."""
_MAX_COUNT: Final = 2**31 - 1

APPLICATIONS: Final = Path("spec", "applications")
_GATEWAY: Final = Path("spec", "gateway")
_HANDLERS: Final = ("exec", "grpc", "httpGet", "tcpSocket")
_SELECTOR_LABELS: Final = (COMPONENT_LABEL, NAME_LABEL, INSTANCE_LABEL)
_CHOICES: Final = {
    "upgradePolicy": ("OnSpecChange", "Automatic"),
    "securityProfile": ("restricted",),
}
_ZERO: Final = (0, "0", "0%")


def _scaling_errors(section: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield the errors in the scaling of an application, if it is enabled."""
    scaling: Mapping[str, Any] = section.get("scaling") or {}
    path = path.child("scaling")
    kind = scaling.get("type")
    if kind is not None and kind not in ("KEDA", "HPA"):
        yield not_supported(path.child("type"), kind, ("KEDA", "HPA"))
        return
    if not is_enabled(scaling):
        return
    spec: Mapping[str, Any] = scaling.get("spec") or {}
    errors = list(_count_errors(spec, path.child("spec")))
    yield from errors
    if not errors:
        yield from _range_errors(spec, path.child("spec"), kind)
    if "scaleTargetRef" in spec:
        yield forbidden(
            path.child("spec", "scaleTargetRef"), "the target is the Deployment of the application"
        )
    if kind == "HPA":
        if not scaling.get("metrics"):
            yield required(
                path.child("metrics"), "a HorizontalPodAutoscaler needs at least one metric"
            )
    elif not spec.get("triggers"):
        yield from _trigger_errors(section, path)


def _trigger_errors(section: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield the errors in the generated trigger of KEDA."""
    target: Mapping[str, Any] = section["scaling"].get("metricTarget") or {}
    name = target.get("name")
    value = target.get("value")
    if name is not None and name != "consumerGroupSize":
        yield not_supported(path.child("metricTarget", "name"), name, ("consumerGroupSize",))
    if value is not None and value < 1:
        yield invalid(path.child("metricTarget", "value"), value, "must be at least 1")
    if not (section.get("readerConfig") or {}).get("consumerGroup"):
        at = Path(str(path).removesuffix(".scaling")).child("readerConfig", "consumerGroup")
        yield required(at, "KEDA scales by the queue of the consumer group")


def _count_errors(spec: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    for name, minimum in _COUNTS.items():
        value = spec.get(name)
        if value is None:
            continue
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        if is_integer and minimum <= value <= _MAX_COUNT:
            continue
        shown = value if isinstance(value, str | int | float) else type(value).__name__
        yield invalid(path.child(name), shown, f"must be an integer of at least {minimum}")


def _range_errors(spec: Mapping[str, Any], path: Path, kind: str | None) -> Iterator[FieldError]:
    low = spec.get("minReplicaCount")
    high = spec.get("maxReplicaCount")
    at = path.child("minReplicaCount")
    if low is not None and high is not None and low > high:
        yield invalid(at, low, f"minReplicaCount {low} exceeds maxReplicaCount {high}")
    if kind == "HPA" and low == 0:
        yield invalid(at, low, "a HorizontalPodAutoscaler cannot scale to zero; use KEDA")
    idle = spec.get("idleReplicaCount")
    if idle is not None and low is not None and idle >= low:
        yield invalid(
            path.child("idleReplicaCount"), idle, f"must be less than minReplicaCount {low}"
        )


def settings_errors(stack: ResolvedStack) -> Iterator[FieldError]:
    """Yield the errors in the settings of ``stack``, whose JSON types are correct."""
    for name, values in _CHOICES.items():
        if stack.spec.get(name) is not None and stack.spec[name] not in values:
            yield not_supported(Path("spec", name), stack.spec[name], values)
    rollouts = stack.spec.get("maxConcurrentRollouts")
    if rollouts is not None and rollouts < 1:
        yield invalid(Path("spec", "maxConcurrentRollouts"), rollouts, "must be at least 1")
    for index, secret in enumerate(stack.spec.get("imagePullSecrets") or ()):
        if not secret.get("name"):
            yield required(Path("spec", "imagePullSecrets").index(index).child("name"))
    if stack.spec.get("replicas") is not None and len(stack.applications) != 1:
        yield forbidden(
            Path("spec", "replicas"),
            "only for a stack with exactly one application; use replicaCount",
        )
    if stack.queue_labels:
        yield from pod_metadata_errors(stack.gateway, _GATEWAY)
        for name, section in stack.applications.items():
            yield from pod_metadata_errors(section, APPLICATIONS.key(name))
    yield from engine_errors(stack)
    yield from _gateway_errors(stack)
    template = stack.spec.get("applicationTemplate") or {}
    yield from _env_errors(template, Path("spec", "applicationTemplate"))
    for name, section in stack.applications.items():
        own = (stack.spec.get("applications") or {}).get(name) or {}
        yield from _application_errors(section, own, APPLICATIONS.key(name))


def _gateway_errors(stack: ResolvedStack) -> Iterator[FieldError]:
    gateway = stack.gateway
    yield from _common_errors(gateway, _GATEWAY)
    yield from _env_errors(gateway, _GATEWAY)
    yield from _key_errors(gateway.get("config") or {}, _GATEWAY.child("config"))
    yield from port_errors(gateway.get("config") or {}, "internalPort", _GATEWAY.child("config"))
    yield from volume_errors(gateway, _GATEWAY)
    service_ports = (gateway.get("service") or {}).get("ports")
    if not service_ports:
        yield required(_GATEWAY.child("service", "ports"), "a Service has at least one port")
    yield from port_list_errors(service_ports, "port", _GATEWAY.child("service", "ports"))
    if is_enabled(gateway.get("ingress")) and not gateway["ingress"].get("hosts"):
        yield required(
            _GATEWAY.child("ingress", "hosts"),
            "an Ingress without hosts routes nothing to the gateway",
        )
    yield from _number_errors(gateway.get("ingress"), "hosts", _GATEWAY.child("ingress"))
    yield from reserved_host_errors(gateway.get("ingress"), _GATEWAY.child("ingress"))
    route = gateway.get("httpRoute")
    yield from _number_errors(route, "hostnames", _GATEWAY.child("httpRoute"))
    yield from reserved_host_errors(route, _GATEWAY.child("httpRoute"))
    if route is not None and not route.get("parentRefs"):
        yield required(
            _GATEWAY.child("httpRoute", "parentRefs"), "a route attaches to at least one Gateway"
        )


def _number_errors(
    section: Mapping[str, Any] | None, field: str, path: Path
) -> Iterator[FieldError]:
    """Yield an error if the list ``field`` of ``section`` has more hosts than are allowed."""
    number = len((section or {}).get(field) or ())
    if number > MAX_HOSTS:
        yield too_many(path.child(field), number, MAX_HOSTS)


def _application_errors(
    section: Mapping[str, Any], own: Mapping[str, Any], path: Path
) -> Iterator[FieldError]:
    yield from _common_errors(section, path)
    yield from _env_errors(own, path)
    sidecar = section.get("sidecar") or {}
    yield from _env_errors(sidecar, path.child("sidecar"))
    yield from port_list_errors(
        sidecar.get("ports"), "containerPort", path.child("sidecar", "ports")
    )
    yield from resource_errors(sidecar.get("resources") or {}, path.child("sidecar", "resources"))
    engine = section.get("engine")
    if engine is not None and engine not in ENGINES:
        yield not_supported(path.child("engine"), engine, tuple(ENGINES))
    reader = section.get("readerConfig") or {}
    yield from _key_errors(reader, path.child("readerConfig"))
    yield from port_errors(reader, "enginePort", path.child("readerConfig"))
    reference = reader.get("accessTokenSecretRef")
    if reference is not None:
        for name in ("name", "key"):
            if not reference.get(name):
                yield required(path.child("readerConfig", "accessTokenSecretRef", name))
    yield from volume_errors(section, path)
    if own.get("cache") is not None and own.get("modelsVolume"):
        yield forbidden(path.child("modelsVolume"), "must not be set together with cache")
    yield from _scaling_errors(section, path)
    yield from gpu_errors(section, path)


def _common_errors(section: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    for name in ("replicaCount", "terminationGracePeriodSeconds"):
        value = section.get(name)
        if value is not None and value < 0:
            yield invalid(path.child(name), value, "must not be negative")
    yield from port_list_errors(section.get("ports"), "containerPort", path.child("ports"))
    yield from resource_errors(section.get("resources") or {}, path.child("resources"))
    for label in _SELECTOR_LABELS:
        if label in (section.get("podLabels") or {}):
            yield forbidden(
                path.child("podLabels").key(label),
                "selects the pods of the stack and cannot be changed",
            )
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        handlers = [name for name in _HANDLERS if name in (section.get(probe) or {})]
        if len(handlers) > 1:
            yield forbidden(
                path.child(probe, handlers[1]),
                f"must not be set together with {handlers[0]}; null removes the template's value",
            )
    yield from _strategy_errors(section.get("strategy") or {}, path.child("strategy"))
    budget = section.get("podDisruptionBudget") or {}
    if budget.get("minAvailable") is not None and budget.get("maxUnavailable") is not None:
        yield forbidden(
            path.child("podDisruptionBudget", "maxUnavailable"),
            "must not be set together with minAvailable",
        )


def _strategy_errors(strategy: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    kind = strategy.get("type")
    rolling = strategy.get("rollingUpdate")
    if kind is not None and kind not in ("Recreate", "RollingUpdate"):
        yield not_supported(path.child("type"), kind, ("Recreate", "RollingUpdate"))
    elif kind == "Recreate" and rolling is not None:
        yield forbidden(
            path.child("rollingUpdate"), "may not be specified when strategy `type` is 'Recreate'"
        )
    elif rolling and rolling.get("maxSurge") in _ZERO and rolling.get("maxUnavailable") in _ZERO:
        yield invalid(
            path.child("rollingUpdate", "maxUnavailable"),
            rolling["maxUnavailable"],
            "may not be 0 when `maxSurge` is 0: no pod could ever be replaced",
        )


def _env_errors(section: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, variable in enumerate(section.get("env") or ()):
        yield from unique_errors(variable, "name", path.child("env").index(index), seen)


def image_errors(stack: ResolvedStack) -> Iterator[FieldError]:
    """Yield an error for each image that neither ``stack`` nor its profile names."""
    images = [(_GATEWAY, stack.gateway, "image")]
    for application, section in stack.applications.items():
        path = APPLICATIONS.key(application)
        images += ((path, section, name) for name in engine_of(section).images)
    for path, section, name in images:
        if not (section.get(name) or {}).get("repository"):
            yield required(path.child(name, "repository"), "the stack's profile has no default")


def _key_errors(config: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield the errors in the keys of a configuration: two of them must not be the same in the file."""
    written: dict[str, str] = {}
    for key in config:
        at = path.child(key)
        if not is_config_key(key):
            yield invalid(path.key(key), key, "must consist of letters, digits, '-' and '_'")
            continue
        other = written.setdefault(snake_case(key), key)
        if other != key:
            yield forbidden(at, f"is the same parameter as {other}: {snake_case(key)}")
