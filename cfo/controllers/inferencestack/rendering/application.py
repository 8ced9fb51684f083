"""The objects of an application, with its autoscaler: a ScaledObject of KEDA, or a HorizontalPodAutoscaler.

KEDA asks the gateway, which is an external scaler of type ``external-push``, how many requests are queued in the
application's consumer group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cfo.api.inferencestack.created_resources import autoscaler_kind
from cfo.api.inferencestack.engines import EXTERNAL, TAKEOFF, engine_of
from cfo.api.inferencestack.kinds import PERSISTENT_VOLUME_CLAIM, SCALED_OBJECT
from cfo.api.inferencestack.names import (
    APPLICATION_PREFIX,
    CONFIG_KEY,
    GATEWAY_INTERNAL_PORT,
    RETAINED,
)
from cfo.api.inferencestack.resolution import ResolvedStack, engine_port, merge_env
from cfo.api.quantity import canonical_quantity
from cfo.controllers.inferencestack.rendering.config_file import (
    ConfigAnnotations,
    application_file,
    config_annotations,
)
from cfo.controllers.inferencestack.rendering.facts import (
    OPTIONAL_KINDS,
    AutoscalerFacts,
    Facts,
    decide_replicas,
)
from cfo.controllers.inferencestack.rendering.gateway import ADD_SUFFIX, disruption_budget
from cfo.controllers.inferencestack.rendering.pods import (
    CONFIG_MOUNT,
    MODELS_PATH,
    PodParts,
    container,
    deployment,
    new_object,
    override_env,
)
from cfo.controllers.inferencestack.rendering.vllm import model_pod, model_service
from cfo.runtime import CONFIG_MAP, DEPLOYMENT, GVK, Object

_METRIC_SOURCES = ("containerResource", "external", "object", "pods", "resource")

_MODELS: Final = "models"
_HEADLESS: Final = {"name": "TAKEOFF_HEADLESS", "value": "true"}
_POD_NAME: Final = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}


def _autoscaler(
    stack: ResolvedStack, kind: GVK, name: str, component: str, section: Mapping[str, Any]
) -> Object:
    scaling: Mapping[str, Any] = section["scaling"]
    target = {"apiVersion": DEPLOYMENT.api_version, "kind": DEPLOYMENT.kind, "name": name}
    spec = (
        _scaled_object(stack, section, target)
        if kind == SCALED_OBJECT
        else _horizontal(scaling, target)
    )
    return new_object(stack, kind, name, component, scaling.get("annotations"), spec=spec)


def _scaled_object(stack: ResolvedStack, section: Mapping[str, Any], target: Object) -> Object:
    scaling: Mapping[str, Any] = section["scaling"]
    group = (section.get("readerConfig") or {}).get("consumerGroup")
    value = (scaling.get("metricTarget") or {}).get("value", 10)
    host = f"{stack.names.gateway}.{stack.namespace}.svc.cluster.local"
    trigger = {
        "type": "external-push",
        "metadata": {
            "scalerAddress": f"{host}:{GATEWAY_INTERNAL_PORT}",
            f"target_{group}": str(value),
        },
    }
    spec = {key: item for key, item in (scaling.get("spec") or {}).items() if key != "metricTarget"}
    return {**spec, "triggers": spec.get("triggers") or [trigger], "scaleTargetRef": target}


def _horizontal(scaling: Mapping[str, Any], target: Object) -> Object:
    limits: Mapping[str, Any] = scaling.get("spec") or {}
    return {
        "scaleTargetRef": target,
        "minReplicas": max(1, limits.get("minReplicaCount", 1)),
        "maxReplicas": limits.get("maxReplicaCount", 4),
        "metrics": [_metric(metric) for metric in scaling.get("metrics") or ()],
        "behavior": scaling.get("behavior") or None,
    }


def _metric(metric: Mapping[str, Any]) -> Object:
    """Return a metric with canonical quantities."""
    result = dict(metric)
    for source in _METRIC_SOURCES:
        value = result.get(source)
        target = value.get("target") if isinstance(value, Mapping) else None
        if not isinstance(value, Mapping) or not isinstance(target, Mapping):
            continue
        quantities = {
            key: canonical_quantity(target[key])
            for key in ("averageValue", "value")
            if target.get(key) is not None
        }
        result[source] = {**value, "target": {**target, **quantities}}
    return result


def application_objects(stack: ResolvedStack, application: str, facts: Facts) -> Iterator[Object]:
    """Yield the objects of an application: a Deployment, its ConfigMap or (engine vllm) Service, and more."""
    section = stack.applications[application]
    name = stack.names.application(application)
    component = f"{APPLICATION_PREFIX}{application}"
    suspended = bool(stack.spec.get("suspend"))
    live = facts.deployments.get(name)
    config = ConfigAnnotations({}, {})
    if stack.engine.is_called:
        yield model_service(stack, name, component)
    else:
        content = application_file(stack, application)
        config = config_annotations(content, live, facts.config_maps.get(name))
        yield new_object(
            stack, CONFIG_MAP, name, component, config.metadata, data={CONFIG_KEY: content}
        )
    if section.get("cache"):
        yield _cache_claim(stack, stack.names.cache(application), component, section["cache"])
    kind = autoscaler_kind(section)
    available = kind is not None and (kind not in OPTIONAL_KINDS or kind in facts.served)
    limits: Mapping[str, Any] = (section.get("scaling") or {}).get("spec") or {}
    scaling = (
        AutoscalerFacts(available, limits.get("minReplicaCount", 1)) if kind is not None else None
    )
    replicas = decide_replicas(
        section.get("replicaCount", 1), live, scaling=scaling, suspended=suspended
    )
    pod = _pod(stack, application, section)
    yield deployment(stack, component, section, pod, config=config, replicas=replicas, live=live)
    if kind is not None and available and not suspended:
        yield _autoscaler(stack, kind, name, component, section)
    yield from disruption_budget(stack, name, component, section)


def _pod(stack: ResolvedStack, application: str, section: Mapping[str, Any]) -> PodParts:
    name = stack.names.application(application)
    models: Mapping[str, Any]
    if section.get("cache"):
        models = {
            "name": _MODELS,
            "persistentVolumeClaim": {"claimName": stack.names.cache(application)},
        }
    else:
        models = section["modelsVolume"]
    volumes = [
        {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": section.get("shmSize")}},
        models,
    ]
    mounts = [
        {"name": "dshm", "mountPath": "/dev/shm"},  # noqa: S108 (a mount in the container)
        {"name": models["name"], "mountPath": MODELS_PATH},
    ]
    if stack.engine.is_called:
        return model_pod(stack, name, section, volumes, mounts, _token(section))
    volumes = [{"name": "config", "configMap": {"name": name}}, *volumes]
    mounts = [CONFIG_MOUNT, *mounts]
    if section.get("engine") == "external":
        containers = [_engine(stack, name, section, mounts), _sidecar(stack, name, section)]
    else:
        containers = [_takeoff(stack, name, section, mounts)]
    return PodParts(containers, volumes, list(_permissions(stack, section, models["name"])))


def _permissions(stack: ResolvedStack, section: Mapping[str, Any], volume: str) -> Iterator[Object]:
    """Yield the init container that makes the models volume writable for any user.

    It needs root, and is not needed for a cache if ``fsGroup`` makes the volume writable.
    """
    has_group = (section.get("podSecurityContext") or {}).get("fsGroup") is not None
    if stack.spec.get("securityProfile") == "restricted" or (section.get("cache") and has_group):
        return
    yield {
        "name": "models-cache-manager",
        "image": "busybox",
        "command": ["sh", "-c", "chmod -R 777 /models"],
        "volumeMounts": [{"mountPath": "/models", "name": volume}],
    }


def _env(stack: ResolvedStack, section: Mapping[str, Any]) -> list[Object]:
    required: list[Mapping[str, Any]] = [ADD_SUFFIX, _HEADLESS]
    if stack.profile.has_pod_name:
        required.append(_POD_NAME)
    return merge_env(section.get("env") or (), required, _token(section))


def _token(section: Mapping[str, Any]) -> Iterator[Object]:
    """Yield the variable with the token for Hugging Face, if there is one."""
    token = (section.get("readerConfig") or {}).get("accessTokenSecretRef")
    if token:
        yield {"name": engine_of(section).hub_variable, "valueFrom": {"secretKeyRef": token}}


def _takeoff(
    stack: ResolvedStack, name: str, section: Mapping[str, Any], mounts: list[Object]
) -> Object:
    tag = stack.profile.application_tag
    env = _env(stack, section)
    result = container(stack, name, section, default_tag=tag, env=env, mounts=mounts)
    return _with_liveness_probe(stack, result, TAKEOFF.health, TAKEOFF.port)


def _engine(
    stack: ResolvedStack, name: str, section: Mapping[str, Any], mounts: list[Object]
) -> Object:
    port = engine_port(section)
    env = [*_env(stack, section), {"name": "ENGINE_PORT", "value": str(port)}]
    is_embedding = (section.get("readerConfig") or {}).get("isEmbedding")
    if is_embedding:
        value = "true" if is_embedding is True else str(is_embedding)
        env.append({"name": "IS_EMBEDDING", "value": value})
    own = {**section, "image": section.get("externalEngineImage"), "ports": None}
    tag = stack.profile.engine_tag
    result = container(
        stack, f"{name}-engine", own, default_tag=tag, env=merge_env(env), mounts=mounts
    )
    return _with_liveness_probe(stack, result, EXTERNAL.health, port)


def _with_liveness_probe(stack: ResolvedStack, result: Object, path: str, port: int) -> Object:
    if stack.profile.has_liveness_probe:
        probe = {
            "httpGet": {"path": path, "port": port},
            "initialDelaySeconds": 600,
            "periodSeconds": 10,
        }
        result.setdefault("livenessProbe", probe)
    return result


def _sidecar(stack: ResolvedStack, name: str, section: Mapping[str, Any]) -> Object:
    sidecar: Mapping[str, Any] = section.get("sidecar") or {}
    own = {
        "image": section.get("sidecarImage"),
        **{key: sidecar.get(key) for key in ("resources", "ports")},
    }
    required = [
        {"name": "TAKEOFF_SGLANG_API_URL", "value": f"http://localhost:{engine_port(section)}"},
        _HEADLESS,
    ]
    return container(
        stack,
        f"{name}-sidecar",
        own,
        default_tag=stack.profile.sidecar_tag,
        env=override_env(required, sidecar.get("env") or ()),
        mounts=[CONFIG_MOUNT],
    )


def _cache_claim(
    stack: ResolvedStack, name: str, component: str, cache: Mapping[str, Any]
) -> Object:
    spec = {
        "accessModes": cache.get("accessModes") or ["ReadWriteOnce"],
        "resources": {"requests": {"storage": canonical_quantity(cache["size"])}},
        "storageClassName": cache.get("storageClass"),
    }
    annotations = {RETAINED: "true"} if cache.get("retain", True) else None
    return new_object(stack, PERSISTENT_VOLUME_CLAIM, name, component, annotations, spec=spec)
