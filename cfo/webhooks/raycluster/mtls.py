"""Mutual TLS between Ray's nodes: each pod makes itself a certificate when it starts, and Ray is told to use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from cfo.api.raycluster.naming import names_of
from cfo.webhooks.raycluster.certificate import CA_DIRECTORY, TLS_DIRECTORY, command, head_names, renamed
from cfo.webhooks.raycluster.parts import Parts

__all__ = ["following_head_service", "tls_parts"]

_CA_VOLUME: Final = "ca-vol"
_CERTIFICATE_VOLUME: Final = "server-cert"

_MOUNTS: Final = (
    {"name": _CA_VOLUME, "mountPath": CA_DIRECTORY, "readOnly": True},
    {"name": _CERTIFICATE_VOLUME, "mountPath": TLS_DIRECTORY},
)
_ENV: Final = (
    {"name": "MY_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    {"name": "RAY_USE_TLS", "value": "1"},
    {"name": "RAY_TLS_SERVER_CERT", "value": f"{TLS_DIRECTORY}/server.crt"},
    {"name": "RAY_TLS_SERVER_KEY", "value": f"{TLS_DIRECTORY}/server.key"},
    {"name": "RAY_TLS_CA_CERT", "value": f"{TLS_DIRECTORY}/ca.crt"},
)


def tls_parts(cluster: Mapping[str, Any], image: str, domain: str, *, is_head: bool) -> Parts:
    """What a pod template of ``cluster`` gets; the head's certificate has more names than a worker's."""
    make_certificate = {
        "name": "create-cert",
        "image": image,
        "command": command(head_names(cluster, domain) if is_head else ()),
        "volumeMounts": [dict(mount) for mount in _MOUNTS],
    }
    volumes = (
        {"name": _CA_VOLUME, "secret": {"secretName": names_of(cluster).ca_secret}},
        {"name": _CERTIFICATE_VOLUME, "emptyDir": {}},
    )
    return Parts(init_containers=(make_certificate,), volumes=volumes, env=_ENV, mounts=_MOUNTS)


def following_head_service(parts: Parts, old: Mapping[str, Any], new: Mapping[str, Any]) -> Parts:
    """The parts of ``old``'s head for ``new``, whose certificate is to carry the name of the Service it asks for."""
    containers = tuple(
        {**item, "command": renamed(item["command"], old, new)} if item.get("command") else item
        for item in parts.init_containers
    )
    return replace(parts, init_containers=containers)
