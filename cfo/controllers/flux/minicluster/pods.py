"""The pods of a MiniCluster: the template of the Job's pods, and the service pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cfo.api.flux import MINICLUSTER_LABEL
from cfo.controllers.flux.minicluster.names import INDEX_LABEL, JOB_NAME_LABEL, SCRIPTS_PATH, service_pod_name
from cfo.controllers.flux.minicluster.plan import Plan
from cfo.controllers.flux.minicluster.volumes import (
    container_mounts,
    init_mounts,
    pod_volumes,
    user_mounts,
    user_volumes,
)
from cfo.runtime import Object

__all__ = ["desired_service_pod", "pod_template"]


def pod_template(plan: Plan) -> Object:
    """Return the template of the Job's pods."""
    spec = {
        **_common_pod_spec(plan),
        "shareProcessNamespace": bool(plan.spec.get("shareProcessNamespace")),
        "volumes": pod_volumes(plan),
        "initContainers": [_init_container(plan)],
        "containers": [_container(plan, index, item) for index, item in enumerate(plan.containers)],
        **_optional(
            imagePullSecrets=_pull_secrets(plan.containers),
            tolerations=[dict(item) for item in plan.pod.get("tolerations") or ()],
            schedulerName=plan.pod.get("schedulerName"),
            hostPID=plan.pod.get("hostPID"),
            hostIPC=plan.pod.get("hostIPC"),
            overhead=plan.pod.get("resources"),
            affinity=_affinity(plan),
            securityContext=_pod_security_context(plan),
        ),
    }
    metadata = {"name": plan.name, "namespace": plan.namespace, "labels": {**_labels(plan), "hpa-selector": plan.name}}
    return {"metadata": {**metadata, **_optional(annotations=plan.pod.get("annotations"))}, "spec": spec}


def desired_service_pod(plan: Plan) -> Object:
    """Return the pod with the containers of ``spec.services``; they keep the entrypoints of their images."""
    labels = {**_labels(plan), JOB_NAME_LABEL: plan.name, INDEX_LABEL: "services"}
    name = service_pod_name(plan.name)
    spec = {
        **_common_pod_spec(plan),
        "hostname": name,
        "volumes": user_volumes(plan.services),
        "containers": [_service_container(plan, item) for item in plan.services],
        **_optional(imagePullSecrets=_pull_secrets(plan.services)),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": plan.namespace, "labels": labels},
        "spec": spec,
    }


def _labels(plan: Plan) -> dict[str, str]:
    """Return the labels of all pods; those of the operator replace the user's."""
    return {
        **(plan.pod.get("labels") or {}),
        "namespace": plan.namespace,
        "app": "flux-operator",
        "app.kubernetes.io/name": plan.name,
        MINICLUSTER_LABEL: plan.name,
    }


def _common_pod_spec(plan: Plan) -> Object:
    """Return what the service pod and the Job's pods have in common."""
    pod = plan.pod
    return {
        "subdomain": plan.service,
        "setHostnameAsFQDN": False,
        "restartPolicy": pod.get("restartPolicy") or "OnFailure",
        "automountServiceAccountToken": bool(pod.get("automountServiceAccountToken")),
        **_optional(
            serviceAccountName=pod.get("serviceAccountName"),
            nodeSelector=pod.get("nodeSelector"),
            dnsPolicy=pod.get("dnsPolicy"),
            runtimeClassName=pod.get("runtimeClassName"),
        ),
    }


def _init_container(plan: Plan) -> Object:
    view = plan.view
    return {
        "name": plan.view_name,
        "image": plan.view_image,
        "imagePullPolicy": "Always" if view.get("pullAlways") else "IfNotPresent",
        "command": ["/bin/bash", f"{SCRIPTS_PATH}flux-init.sh"],
        "volumeMounts": init_mounts(plan),
        "stdin": True,
        "tty": True,
        **_optional(workingDir=view.get("workingDir"), resources=_resources(view)),
        "securityContext": dict(view.get("securityContext") or {}),
    }


def _container(plan: Plan, index: int, container: Mapping[str, Any]) -> Object:
    """Return a container of the Job's pods. The one that runs Flux is named like the MiniCluster."""
    is_runner = index == plan.runner
    command = ["/bin/bash", f"{SCRIPTS_PATH}{'wait' if is_runner else 'start'}-{index}.sh"]
    keeps_entrypoint = not is_runner and container.get("noWrapEntrypoint")
    return {
        **_base_container(container, plan.name if is_runner else str(container.get("name") or "")),
        **({} if keeps_entrypoint else {"command": command}),
        "volumeMounts": container_mounts(plan, container),
    }


def _service_container(plan: Plan, container: Mapping[str, Any]) -> Object:
    base = _base_container(container, str(container.get("name") or plan.name))
    return {**base, "volumeMounts": user_mounts(container)}


def _base_container(container: Mapping[str, Any], name: str) -> Object:
    hooks = container.get("lifeCycle") or {}
    lifecycle = {
        event: {"exec": {"command": [hooks[key]]}}
        for event, key in (("postStart", "postStartExec"), ("preStop", "preStopExec"))
        if hooks.get(key)
    }
    return {
        "name": name,
        "image": Plan.image_of(container),
        "imagePullPolicy": "Always"
        if container.get("pullAlways")
        else container.get("imagePullPolicy") or "IfNotPresent",
        "stdin": True,
        "tty": True,
        "lifecycle": lifecycle,
        "securityContext": dict(container.get("securityContext") or {}),
        **_optional(
            workingDir=container.get("workingDir"),
            ports=[{"containerPort": int(port), "protocol": "TCP"} for port in container.get("ports") or ()],
            env=_environment(container),
            resources=_resources(container),
        ),
    }


def _environment(container: Mapping[str, Any]) -> list[Object]:
    variables: list[Object] = [
        {"name": name, "value": str(value)} for name, value in sorted((container.get("environment") or {}).items())
    ]
    for name, source in sorted((container.get("secrets") or {}).items()):
        reference = {"name": source.get("name") or "", "key": source.get("key") or ""}
        variables.append({"name": name, "valueFrom": {"secretKeyRef": reference}})
    return variables


def _resources(container: Mapping[str, Any]) -> Object:
    """Return limits and requests; quantities may be numbers in the spec, and are strings in pods."""
    given = container.get("resources") or {}
    return {
        kind: {name: str(amount) for name, amount in given[kind].items()}
        for kind in ("limits", "requests")
        if given.get(kind)
    }


def _pull_secrets(containers: Iterable[Mapping[str, Any]]) -> list[Object]:
    names = (item.get("imagePullSecret") for item in containers)
    return [{"name": name} for name in dict.fromkeys(name for name in names if name)]


def _pod_security_context(plan: Plan) -> Object:
    group = (plan.pod.get("securityContext") or {}).get("fsGroup")
    return {} if group is None else {"fsGroup": group}


def _affinity(plan: Plan) -> Object:
    """Prefer one zone for all pods, and a node for each; require the nodes that the spec demands."""
    if (plan.spec.get("network") or {}).get("disableAffinity"):
        return {}
    own_pods = {"key": "app.kubernetes.io/name", "operator": "In", "values": [plan.name]}

    def preferred(topology: str) -> Object:
        term = {"labelSelector": {"matchExpressions": [own_pods]}, "topologyKey": topology}
        return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}

    affinity: Object = {
        "podAffinity": preferred("topology.kubernetes.io/zone"),
        "podAntiAffinity": preferred("kubernetes.io/hostname"),
    }
    expressions = [
        {"key": key, "operator": "In", "values": list(values or ())}
        for key, values in sorted((plan.pod.get("nodeAffinity") or {}).items())
    ]
    if expressions:
        terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return affinity


def _optional(**fields: Any) -> Object:
    """Return the fields that are set."""
    return {name: value for name, value in fields.items() if value}
