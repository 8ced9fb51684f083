"""What the objects of gateway and applications have in common: their metadata, and the Deployments with their pods.

Rendered objects are in the form in which the API server stores them, where apply would otherwise see a difference:
canonical quantities, and defaults inside atomic fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cfo.api.inferencestack.names import APPLICATION_PREFIX, CONFIG_KEY, GATEWAY, HELM_LABELS
from cfo.api.inferencestack.queue import GATES
from cfo.api.inferencestack.resolution import ResolvedStack
from cfo.api.quantity import canonical_quantity
from cfo.controllers.inferencestack.rendering.config_file import ConfigAnnotations
from cfo.controllers.inferencestack.rendering.facts import LiveDeployment, Replicas
from cfo.runtime import DEPLOYMENT, GVK, Object
from cfo.runtime.objects import merged

CONFIG_MOUNT: Final = {"name": "config", "mountPath": f"/code/{CONFIG_KEY}", "subPath": CONFIG_KEY}
MODELS_PATH: Final = "/code/models"
_WITHIN_QUOTA: Final = {
    "type": "RollingUpdate",
    "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
}
"""The strategy of Deployments in a queue: a new pod would wait for the quota of the one that it replaces."""

_RESTRICTED_POD: Final = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
_RESTRICTED_CONTAINER: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}


def new_object(
    stack: ResolvedStack,
    gvk: GVK,
    name: str,
    component: str = "",
    annotations: Mapping[str, str] | None = None,
    **fields: Any,
) -> Object:
    """Return an object of ``component`` (empty for those of the whole stack) with further top-level ``fields``.

    It shares no maps or lists with the arguments, and has no ``null`` values.
    """
    metadata: Object = {
        "name": name,
        "namespace": stack.namespace,
        "labels": stack.names.labels(component),
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {
        "apiVersion": gvk.api_version,
        "kind": gvk.kind,
        "metadata": metadata,
        **_copied(fields),
    }


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value


@dataclass(frozen=True, slots=True)
class PodParts:
    """The parts of a pod that gateway and applications have differently."""

    containers: Sequence[Object]
    volumes: Sequence[Mapping[str, Any]]
    init_containers: Sequence[Object] = field(default_factory=list)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the pod's spec."""
    start_seconds: int | None = None
    """How long a start can take without being reported as stalled, if that is not the default of Deployments."""


def _image_reference(image: Mapping[str, Any], default_tag: str) -> str:
    """Return the reference of ``image``: with ``default_tag`` if it has no tag, and no tag if it has a digest."""
    repository = image.get("repository") or ""
    tag = image.get("tag") or default_tag
    return f"{repository}:{tag}" if tag and "@" not in repository else repository


def container(
    stack: ResolvedStack,
    name: str,
    section: Mapping[str, Any],
    *,
    default_tag: str,
    env: Iterable[Mapping[str, Any]],
    mounts: Sequence[Mapping[str, Any]],
) -> Object:
    """Return a container with the settings in ``section`` that are the same for gateway and applications."""
    image: Mapping[str, Any] = section.get("image") or {}
    result: Object = {
        "name": name,
        "image": _image_reference(image, default_tag),
        "imagePullPolicy": image.get("pullPolicy"),
        "securityContext": _secured(stack, section.get("securityContext"), _RESTRICTED_CONTAINER),
        "env": [_variable(variable) for variable in env],
        "resources": _resources(section.get("resources")),
        "volumeMounts": [*mounts, *(section.get("volumeMounts") or ())],
    }
    for field_name in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "ports"):
        result[field_name] = section.get(field_name)
    return {key: value for key, value in result.items() if value}


def deployment(
    stack: ResolvedStack,
    component: str,
    section: Mapping[str, Any],
    pod: PodParts,
    *,
    config: ConfigAnnotations,
    replicas: Replicas,
    live: LiveDeployment | None,
) -> Object:
    """Return the Deployment of ``component`` with the settings in ``section``.

    Labels that Helm set on the pod template are kept with their values, because changing them restarts the pods.
    """
    names = stack.names
    selector = names.selector(component)
    found = live.template_labels if live is not None else {}
    labels = {label: found[label] for label in HELM_LABELS if label in found}
    labels |= section.get("podLabels") or {}
    labels |= stack.queue_labels
    labels |= selector
    annotations = dict(section.get("podAnnotations") or {})
    annotations |= config.template
    metadata = {"labels": labels, "annotations": annotations or None}
    strategy = section.get("strategy")
    if stack.queue_labels and not strategy:
        strategy = _WITHIN_QUOTA
    spec: Object = {
        "selector": {"matchLabels": selector},
        "template": {"metadata": metadata, "spec": _pod_spec(stack, section, pod)},
        "replicas": replicas.count,
        "strategy": strategy or None,
        "progressDeadlineSeconds": pod.start_seconds,
    }
    name = (
        names.gateway
        if component == GATEWAY
        else names.application(component.removeprefix(APPLICATION_PREFIX))
    )
    obj = new_object(stack, DEPLOYMENT, name, component, spec=spec)
    obj["metadata"]["labels"] |= {
        **config.metadata,
        **replicas.labels,
        **stack.queue_labels,
    }  # annotations would change its generation
    return obj


def _pod_spec(stack: ResolvedStack, section: Mapping[str, Any], pod: PodParts) -> Object:
    gates = []
    if stack.queue_labels:
        gates = [dict(gate) for gate in GATES]
    spec: Object = {
        "imagePullSecrets": stack.spec.get("imagePullSecrets"),
        "serviceAccountName": stack.names.service_account,
        "securityContext": _secured(stack, section.get("podSecurityContext"), _RESTRICTED_POD),
        "initContainers": list(pod.init_containers),
        "containers": list(pod.containers),
        "volumes": [volume(item) for item in (*pod.volumes, *(section.get("volumes") or ()))],
        "terminationGracePeriodSeconds": section.get("terminationGracePeriodSeconds"),
        "schedulingGates": gates,
        **pod.settings,
    }
    for field_name in ("nodeSelector", "affinity", "tolerations"):
        spec[field_name] = section.get(field_name)
    return {key: value for key, value in spec.items() if value or value == 0}


def _secured(
    stack: ResolvedStack, context: Mapping[str, Any] | None, restricted: Mapping[str, Any]
) -> Object:
    """Return a security context: with the fields of ``restricted`` that it does not set, if the stack is restricted."""
    if stack.spec.get("securityProfile") != "restricted":
        return dict(context or {})
    return merged(restricted, context or {})


def override_env(
    variables: Iterable[Mapping[str, Any]], overrides: Iterable[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return ``variables`` in their order, replaced by those of ``overrides`` with the same name, then the others."""
    by_name = {variable.get("name"): variable for variable in overrides}
    replaced = [by_name.pop(variable.get("name"), variable) for variable in variables]
    return [*replaced, *by_name.values()]


def _variable(variable: Mapping[str, Any]) -> Object:
    """Return an environment variable as the API server stores it: no empty value, fieldRef with its apiVersion."""
    stored = {key: value for key, value in variable.items() if not (key == "value" and value == "")}
    source = stored.get("valueFrom")
    if isinstance(source, Mapping) and isinstance(reference := source.get("fieldRef"), Mapping):
        stored["valueFrom"] = {**source, "fieldRef": {"apiVersion": "v1", **reference}}
    return stored


def volume(source: Mapping[str, Any]) -> Object:
    """Return a volume with canonical quantities."""
    empty = source.get("emptyDir")
    if not isinstance(empty, Mapping) or empty.get("sizeLimit") is None:
        return dict(source)
    return {**source, "emptyDir": {**empty, "sizeLimit": canonical_quantity(empty["sizeLimit"])}}


def _resources(resources: Mapping[str, Any] | None) -> Object:
    result = dict(resources or {})
    for kind in ("limits", "requests"):
        if isinstance(amounts := result.get(kind), Mapping):
            result[kind] = {name: canonical_quantity(amount) for name, amount in amounts.items()}
    return result
