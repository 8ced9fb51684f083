"""Mutual TLS between Ray nodes: an init container creates the pod's certificate, and Ray is configured to use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from cfo.api.raycluster.cluster import CERTIFICATE_CONTAINER, TLS_VARIABLE
from cfo.api.raycluster.naming import names_of
from cfo.webhooks.raycluster.certificate_command import (
    CA_DIRECTORY,
    TLS_DIRECTORY,
    certificate_command,
    head_host_names,
)
from cfo.webhooks.raycluster.pod_additions import PodAdditions

__all__ = ["mtls_additions", "with_command"]

_CA_VOLUME: Final = "ca-vol"
_CERTIFICATE_VOLUME: Final = "server-cert"

_MOUNTS: Final = (
    {"name": _CA_VOLUME, "mountPath": CA_DIRECTORY, "readOnly": True},
    {"name": _CERTIFICATE_VOLUME, "mountPath": TLS_DIRECTORY},
)
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
        "volumeMounts": [dict(mount) for mount in _MOUNTS],
    }
    volumes = (
        {"name": _CA_VOLUME, "secret": {"secretName": names_of(cluster).ca_secret}},
        {"name": _CERTIFICATE_VOLUME, "emptyDir": {}},
    )
    return PodAdditions(init_containers=(create_certificate,), volumes=volumes, env=_ENV, mounts=_MOUNTS)


def with_command(additions: PodAdditions, command: Callable[[Sequence[str]], list[str]]) -> PodAdditions:
    """Return ``additions`` with the commands of the init containers converted by ``command``."""
    containers = tuple(
        {**item, "command": command(item["command"])} if item.get("command") else item
        for item in additions.init_containers
    )
    return replace(additions, init_containers=containers)
