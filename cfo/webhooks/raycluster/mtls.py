"""Mutual TLS between Ray nodes: an init container creates the pod's certificate, and Ray is configured to use it.

The key of the CA is in a volume of its own, which only the init container mounts: code that runs in Ray must not be
able to create certificates. RayClusters that were created before keep one volume with both (:mod:`.injection_plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from cfo.api.raycluster.cluster import CERTIFICATE_CONTAINER, TLS_VARIABLE
from cfo.api.raycluster.naming import names_of
from cfo.runtime import Object
from cfo.webhooks.raycluster.certificate_command import (
    CA_DIRECTORY,
    CA_KEY_DIRECTORY,
    TLS_DIRECTORY,
    certificate_command,
    head_host_names,
)
from cfo.webhooks.raycluster.pod_additions import PodAdditions

__all__ = ["mtls_additions", "with_command"]

_CA_VOLUME: Final = "ca-vol"
_CA_KEY_VOLUME: Final = "ca-key-vol"
_CERTIFICATE_VOLUME: Final = "server-cert"

_MOUNTS: Final = (
    {"name": _CA_VOLUME, "mountPath": CA_DIRECTORY, "readOnly": True},
    {"name": _CERTIFICATE_VOLUME, "mountPath": TLS_DIRECTORY},
)
_CA_KEY_MOUNT: Final = {"name": _CA_KEY_VOLUME, "mountPath": CA_KEY_DIRECTORY, "readOnly": True}
_ENV: Final = (
    {"name": "MY_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    TLS_VARIABLE,
    {"name": "RAY_TLS_SERVER_CERT", "value": f"{TLS_DIRECTORY}/server.crt"},
    {"name": "RAY_TLS_SERVER_KEY", "value": f"{TLS_DIRECTORY}/server.key"},
    {"name": "RAY_TLS_CA_CERT", "value": f"{TLS_DIRECTORY}/ca.crt"},
)


def mtls_additions(cluster: Mapping[str, Any], image: str, domain: str, *, is_head: bool) -> PodAdditions:
    """Return the additions for a pod template of ``cluster``; the head's certificate has more names than a worker's."""
    create_certificate = {
        "name": CERTIFICATE_CONTAINER,
        "image": image,
        "command": certificate_command(head_host_names(cluster, domain) if is_head else ()),
        "volumeMounts": [dict(mount) for mount in (*_MOUNTS, _CA_KEY_MOUNT)],
    }
    volumes = (
        _secret_volume(_CA_VOLUME, cluster, "ca.crt"),
        {"name": _CERTIFICATE_VOLUME, "emptyDir": {}},
        _secret_volume(_CA_KEY_VOLUME, cluster, "ca.key"),
    )
    return PodAdditions(init_containers=(create_certificate,), volumes=volumes, env=_ENV, mounts=_MOUNTS)


def _secret_volume(name: str, cluster: Mapping[str, Any], key: str) -> Object:
    """Return a volume with one key of the CA's Secret."""
    items = [{"key": key, "path": key}]
    return {"name": name, "secret": {"secretName": names_of(cluster).ca_secret, "items": items}}


def with_command(additions: PodAdditions, command: Callable[[Sequence[str]], list[str]]) -> PodAdditions:
    """Return ``additions`` with the commands of the init containers converted by ``command``."""
    containers = tuple(
        {**item, "command": command(item["command"])} if item.get("command") else item
        for item in additions.init_containers
    )
    return replace(additions, init_containers=containers)
