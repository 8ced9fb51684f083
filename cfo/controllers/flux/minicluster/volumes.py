"""The volumes of the pods of a MiniCluster, and where its containers mount them.

Volumes that the spec defines are named by their key. The same key in several containers is one volume; each container
mounts only those that it lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cfo.controllers.flux.minicluster.names import CERTIFICATE_KEY, SCRIPTS_PATH, config_map_name, secret_name
from cfo.controllers.flux.minicluster.plan import Plan
from cfo.controllers.flux.minicluster.scripts import script_files
from cfo.runtime import Object

__all__ = ["container_mounts", "init_mounts", "pod_volumes", "user_mounts", "user_volumes"]

_HOME_VOLUME = "flux-operator-home"
_SOFTWARE_VOLUME = "spack-software"
_EXECUTABLE = 0o777
_DEFAULT_MODE = 0o644


def pod_volumes(plan: Plan) -> list[Object]:
    """Return the volumes of the Job's pods."""
    scripts = [{"key": key, "path": path, "mode": _EXECUTABLE} for key, (path, _) in sorted(script_files(plan).items())]
    sources = [
        {"configMap": {"name": config_map_name(plan.name), "items": scripts}},
        {
            "secret": {
                "name": secret_name(plan.name),
                "items": [{"key": CERTIFICATE_KEY, "path": CERTIFICATE_KEY}],
            }
        },
    ]
    return [
        {"name": _SOFTWARE_VOLUME, "emptyDir": {}},
        {"name": _HOME_VOLUME, "emptyDir": {}},
        {"name": plan.view_name, "emptyDir": {}},
        {
            "name": config_map_name(plan.name),
            "projected": {"sources": sources, "defaultMode": _DEFAULT_MODE},
        },
        *user_volumes(plan.containers),
    ]


def init_mounts(plan: Plan) -> list[Object]:
    """Return the mounts of the init container."""
    return [
        {"name": _HOME_VOLUME, "mountPath": "/home/flux-operator"},
        {"name": plan.view_name, "mountPath": plan.mount_path},
        {"name": config_map_name(plan.name), "mountPath": SCRIPTS_PATH, "readOnly": True},
    ]


def container_mounts(plan: Plan, container: Mapping[str, Any]) -> list[Object]:
    """Return the mounts of a container of the Job's pods."""
    software = {"name": _SOFTWARE_VOLUME, "mountPath": "/opt/software"}
    return [*init_mounts(plan), software, *user_mounts(container)]


def user_volumes(containers: Iterable[Mapping[str, Any]]) -> list[Object]:
    """Return the volumes that ``containers`` define; of several definitions of a key, the first counts."""
    found: dict[str, Object] = {}
    for container in containers:
        for name, volume in sorted((container.get("volumes") or {}).items()):
            found.setdefault(name, {"name": name, **_source(volume)})
    return list(found.values())


def user_mounts(container: Mapping[str, Any]) -> list[Object]:
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
        attributes = volume.get("csiDriverAttributes")
        return {"csi": {"driver": volume["csiDriver"], **({"volumeAttributes": attributes} if attributes else {})}}
    if volume.get("secretName"):
        return {"secret": {"secretName": volume["secretName"]}}
    if volume.get("emptyDir"):
        return {"emptyDir": _empty_dir(volume)}
    if volume.get("hostPath"):
        return {"hostPath": {"path": volume["hostPath"], "type": "Directory"}}
    if volume.get("configMapName"):
        items = [{"key": key, "path": path} for key, path in sorted((volume.get("items") or {}).items())]
        return {"configMap": {"name": volume["configMapName"], **({"items": items} if items else {})}}
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
