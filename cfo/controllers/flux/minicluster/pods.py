"""The pods of a MiniCluster with their volumes: the template of the Job's pods, and the service pod.

Volumes that the spec defines are named by their key. The same key in several containers is one volume; each container
mounts only those that it lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cfo.api.flux.facts import resources_of
from cfo.api.flux.names import MINICLUSTER_LABEL
from cfo.controllers.flux.minicluster.plan import (
    CERTIFICATE_KEY,
    INDEX_LABEL,
    JOB_NAME_LABEL,
    SCRIPTS_PATH,
    Plan,
    config_map_name,
    secret_name,
    service_pod_name,
)
from cfo.controllers.flux.minicluster.scripts import script_files
from cfo.runtime import POD, Object
from cfo.runtime.objects import new_object

_HOME_VOLUME = "flux-operator-home"
_SOFTWARE_VOLUME = "spack-software"
_APP_IMAGE = "ghcr.io/rse-ops/accounting:app-latest"
_VIEW_IMAGE = "ghcr.io/converged-computing/flux-view-ubuntu:tag-noble"
_RESTRICTED_FIELDS = ("runAsNonRoot", "runAsUser", "runAsGroup", "seccompProfile")
_EXECUTABLE = 0o777
_DEFAULT_MODE = 0o644


def _pod_volumes(plan: Plan) -> list[Object]:
    scripts = [
        {"key": key, "path": path, "mode": _EXECUTABLE}
        for key, (path, _) in sorted(script_files(plan).items())
    ]
    certificate = [{"key": CERTIFICATE_KEY, "path": CERTIFICATE_KEY}]
    sources = [
        {"configMap": {"name": config_map_name(plan.name), "items": scripts}},
        {"secret": {"name": secret_name(plan.name), "items": certificate}},
    ]
    return [
        {"name": _SOFTWARE_VOLUME, "emptyDir": {}},
        {"name": _HOME_VOLUME, "emptyDir": {}},
        {"name": plan.view_name, "emptyDir": {}},
        {
            "name": config_map_name(plan.name),
            "projected": {"sources": sources, "defaultMode": _DEFAULT_MODE},
        },
        *_user_volumes(plan.containers),
    ]


def _init_mounts(plan: Plan) -> list[Object]:
    return [
        {"name": _HOME_VOLUME, "mountPath": "/home/flux-operator"},
        {"name": plan.view_name, "mountPath": plan.mount_path},
        {"name": config_map_name(plan.name), "mountPath": SCRIPTS_PATH, "readOnly": True},
    ]


def _user_volumes(containers: Iterable[Mapping[str, Any]]) -> list[Object]:
    """Return the volumes that ``containers`` define; of several definitions of a key, the first counts."""
    found: dict[str, Object] = {}
    for container in containers:
        for name, volume in sorted((container.get("volumes") or {}).items()):
            found.setdefault(name, {"name": name, **_source(volume)})
    return list(found.values())


def _user_mounts(container: Mapping[str, Any]) -> list[Object]:
    """Return the mounts of the volumes that ``container`` lists."""
    mounts: list[Object] = []
    for name, volume in sorted((container.get("volumes") or {}).items()):
        mount: Object = {"name": name, "mountPath": _path(volume)}
        if volume.get("readOnly"):
            mount["readOnly"] = True
        mounts.append(mount)
    return mounts


def _source(volume: Mapping[str, Any]) -> Object:
    """Return the source of a volume; the order in which the kinds are tested is the Go operator's."""
    if volume.get("csiDriver"):
        attributes = _optional(volumeAttributes=volume.get("csiDriverAttributes"))
        return {"csi": {"driver": volume["csiDriver"], **attributes}}
    if volume.get("secretName"):
        return {"secret": {"secretName": volume["secretName"]}}
    if volume.get("emptyDir"):
        return {"emptyDir": _empty_dir(volume)}
    if volume.get("hostPath"):
        return {"hostPath": {"path": volume["hostPath"], "type": "Directory"}}
    if volume.get("configMapName"):
        paths = sorted((volume.get("items") or {}).items())
        items = [{"key": key, "path": path} for key, path in paths]
        return {"configMap": {"name": volume["configMapName"], **_optional(items=items)}}
    if volume.get("claimName"):
        return {"persistentVolumeClaim": {"claimName": volume["claimName"]}}
    return {"emptyDir": {}}


def _empty_dir(volume: Mapping[str, Any]) -> Object:
    empty_dir: Object = {}
    if volume.get("emptyDirMedium"):
        medium = str(volume["emptyDirMedium"])
        empty_dir["medium"] = "Memory" if medium.lower() == "memory" else medium
    if volume.get("emptyDirSizeLimit"):
        empty_dir["sizeLimit"] = volume["emptyDirSizeLimit"]
    return empty_dir


def _path(volume: Mapping[str, Any]) -> str:
    """Return where a volume is mounted; one with ``emptyDir: true`` is shared memory."""
    if volume.get("emptyDir") and not volume.get("csiDriver") and not volume.get("secretName"):
        return "/dev/shm"  # noqa: S108 - a path in the user's container
    return str(volume.get("path") or "")


def pod_template(plan: Plan) -> Object:
    """Return the template of the Job's pods."""
    group = (plan.pod.get("securityContext") or {}).get("fsGroup")
    security_context = {} if group is None else {"fsGroup": group}
    spec = {
        **_common_pod_spec(plan),
        "shareProcessNamespace": bool(plan.spec.get("shareProcessNamespace")),
        "volumes": _pod_volumes(plan),
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
            securityContext=security_context,
        ),
    }
    metadata = {
        "name": plan.name,
        "namespace": plan.namespace,
        "labels": {**_labels(plan), "hpa-selector": plan.name},
        **_optional(annotations=plan.pod.get("annotations")),
    }
    return {"metadata": metadata, "spec": spec}


def desired_service_pod(plan: Plan) -> Object:
    """Return the pod with the containers of ``spec.services``; they keep the entrypoints of their images."""
    labels = {**_labels(plan), JOB_NAME_LABEL: plan.name, INDEX_LABEL: "services"}
    name = service_pod_name(plan.name)
    spec = {
        **_common_pod_spec(plan),
        "hostname": name,
        "volumes": _user_volumes(plan.services),
        "containers": [
            {
                **_base_container(item, str(item.get("name") or plan.name)),
                "volumeMounts": _user_mounts(item),
            }
            for item in plan.services
        ],
        **_optional(imagePullSecrets=_pull_secrets(plan.services)),
    }
    return new_object(POD, name, plan.namespace, labels=labels, spec=spec)


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
        "image": view.get("image") or _VIEW_IMAGE,
        "imagePullPolicy": "Always" if view.get("pullAlways") else "IfNotPresent",
        "command": ["/bin/bash", f"{SCRIPTS_PATH}flux-init.sh"],
        "volumeMounts": _init_mounts(plan),
        "stdin": True,
        "tty": True,
        **_optional(workingDir=view.get("workingDir"), resources=resources_of(view)),
        "securityContext": _view_security(plan),
    }


def _view_security(plan: Plan) -> Object:
    """Return the securityContext of the init container.

    If it has none, and the container that runs Flux complies with the Pod Security Standard ``restricted``, so does the
    init container, as the same user. A privilege of the other container is never passed on.
    """
    own = plan.view.get("securityContext")
    if own:
        return dict(own)
    given = plan.containers[plan.runner].get("securityContext") or {}
    dropped = (given.get("capabilities") or {}).get("drop") or ()
    if given.get("allowPrivilegeEscalation") is not False or "ALL" not in dropped:
        return {}
    context: Object = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    for field in _RESTRICTED_FIELDS:
        if field in given:
            context[field] = given[field]
    return context


def _container(plan: Plan, index: int, container: Mapping[str, Any]) -> Object:
    """Return a container of the Job's pods. The one that runs Flux is named like the MiniCluster."""
    is_runner = index == plan.runner
    name = plan.name if is_runner else str(container.get("name") or "")
    script = f"wait-{index}.sh" if is_runner else f"start-{index}.sh"
    rendered = _base_container(container, name)
    if is_runner or not container.get("noWrapEntrypoint"):
        rendered["command"] = ["/bin/bash", f"{SCRIPTS_PATH}{script}"]
    software = {"name": _SOFTWARE_VOLUME, "mountPath": "/opt/software"}
    rendered["volumeMounts"] = [*_init_mounts(plan), software, *_user_mounts(container)]
    return rendered


def _base_container(container: Mapping[str, Any], name: str) -> Object:
    hooks = container.get("lifeCycle") or {}
    lifecycle: Object = {}
    if hooks.get("postStartExec"):
        lifecycle["postStart"] = {"exec": {"command": [hooks["postStartExec"]]}}
    if hooks.get("preStopExec"):
        lifecycle["preStop"] = {"exec": {"command": [hooks["preStopExec"]]}}
    pull_policy = container.get("imagePullPolicy") or "IfNotPresent"
    numbers = [int(number) for number in container.get("ports") or ()]
    return {
        "name": name,
        "image": container.get("image") or _APP_IMAGE,
        "imagePullPolicy": "Always" if container.get("pullAlways") else pull_policy,
        "stdin": True,
        "tty": True,
        "lifecycle": lifecycle,
        "securityContext": dict(container.get("securityContext") or {}),
        **_optional(
            workingDir=container.get("workingDir"),
            ports=[{"containerPort": number, "protocol": "TCP"} for number in numbers],
            env=_environment(container),
            resources=resources_of(container),
        ),
    }


def _environment(container: Mapping[str, Any]) -> list[Object]:
    variables: list[Object] = [
        {"name": name, "value": str(value)}
        for name, value in sorted((container.get("environment") or {}).items())
    ]
    for name, source in sorted((container.get("secrets") or {}).items()):
        reference = {"name": source.get("name") or "", "key": source.get("key") or ""}
        variables.append({"name": name, "valueFrom": {"secretKeyRef": reference}})
    return variables


def _pull_secrets(containers: Iterable[Mapping[str, Any]]) -> list[Object]:
    """Return the pull secrets that containers name, each once."""
    names = dict.fromkeys(container.get("imagePullSecret") for container in containers)
    return [{"name": name} for name in names if name]


def _affinity(plan: Plan) -> Object:
    """Prefer one zone for all pods, and a node for each; require the nodes that the spec demands."""
    if (plan.spec.get("network") or {}).get("disableAffinity"):
        return {}
    own_pods = {"key": "app.kubernetes.io/name", "operator": "In", "values": [plan.name]}

    def preferred(topology: str) -> Object:
        term = {"labelSelector": {"matchExpressions": [own_pods]}, "topologyKey": topology}
        return {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "podAffinityTerm": term}
            ]
        }

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
