"""Mutual TLS between Ray nodes: an init container gets the pod's certificate, and Ray is configured to use it.

The init container signs the certificate with the key of the CA, or requests it from the operator, depending on
``kuberay.ca.issuer``. In the first case, the key is in a volume of its own, which only the init container mounts: code
that runs in Ray must not be able to create certificates. In the second case, no pod mounts the key. RayClusters keep
the entries with which they were created (:mod:`.injection_plan`); the oldest have one volume with certificate and key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from cfo.api.raycluster.cluster import CERTIFICATE_CONTAINER, TLS_VARIABLE
from cfo.api.raycluster.naming import names_of
from cfo.api.raycluster.node_certificates import REQUEST_VOLUME, head_host_names
from cfo.runtime import Object
from cfo.webhooks.raycluster.certificate_command import (
    CA_DIRECTORY,
    CA_KEY_DIRECTORY,
    TLS_DIRECTORY,
    certificate_command,
)
from cfo.webhooks.raycluster.pod_additions import PodAdditions
from cfo.webhooks.raycluster.request_command import IDENTITY_DIRECTORY, request_command

__all__ = ["known_mtls_additions", "mtls_additions", "with_command"]

_CA_VOLUME: Final = "ca-vol"
_CA_KEY_VOLUME: Final = "ca-key-vol"
_CERTIFICATE_VOLUME: Final = "server-cert"

_MOUNTS: Final = (
    {"name": _CA_VOLUME, "mountPath": CA_DIRECTORY, "readOnly": True},
    {"name": _CERTIFICATE_VOLUME, "mountPath": TLS_DIRECTORY},
)
_CA_KEY_MOUNT: Final = {"name": _CA_KEY_VOLUME, "mountPath": CA_KEY_DIRECTORY, "readOnly": True}
_IDENTITY_MOUNT: Final = {"name": REQUEST_VOLUME, "mountPath": IDENTITY_DIRECTORY, "readOnly": True}
_POD_IP: Final = {"name": "MY_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
_ENV: Final = (
    _POD_IP,
    TLS_VARIABLE,
    {"name": "RAY_TLS_SERVER_CERT", "value": f"{TLS_DIRECTORY}/server.crt"},
    {"name": "RAY_TLS_SERVER_KEY", "value": f"{TLS_DIRECTORY}/server.key"},
    {"name": "RAY_TLS_CA_CERT", "value": f"{TLS_DIRECTORY}/ca.crt"},
)

_TOKEN_SECONDS: Final = 3600
"""The lifetime of the token, which the kubelet renews: the init container needs it for minutes."""

# A token of its own, because pods and service accounts can disable the usual one. Kubernetes maintains the ConfigMap in
# all namespaces.
_IDENTITY_VOLUME: Final = {
    "name": REQUEST_VOLUME,
    "projected": {
        "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": _TOKEN_SECONDS}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        ]
    },
}


def mtls_additions(
    cluster: Mapping[str, Any], image: str, domain: str, *, is_head: bool, requests_certificate: bool = False
) -> PodAdditions:
    """Return the additions for a pod template of ``cluster``; the head's certificate has more names than a worker's.

    With ``requests_certificate``, the pod requests its certificate, instead of signing it with the key of the CA.
    """
    certificate: Object = {"name": CERTIFICATE_CONTAINER, "image": image}
    if requests_certificate:
        certificate |= {"command": request_command(), "env": [dict(_POD_IP)]}
        mount, volume = _IDENTITY_MOUNT, _IDENTITY_VOLUME
    else:
        certificate["command"] = certificate_command(head_host_names(cluster, domain) if is_head else ())
        mount, volume = _CA_KEY_MOUNT, _secret_volume(_CA_KEY_VOLUME, cluster, "ca.key")
    certificate["volumeMounts"] = [dict(item) for item in (*_MOUNTS, mount)]
    volumes = (
        _secret_volume(_CA_VOLUME, cluster, "ca.crt"),
        {"name": _CERTIFICATE_VOLUME, "emptyDir": {}},
        dict(volume),
    )
    return PodAdditions(init_containers=(certificate,), volumes=volumes, env=_ENV, mounts=_MOUNTS)


def known_mtls_additions(cluster: Mapping[str, Any]) -> PodAdditions:
    """Return additions with the names of all entries that any setting adds to a pod template of ``cluster``."""
    one, other = (
        mtls_additions(cluster, "", "", is_head=False, requests_certificate=requests) for requests in (False, True)
    )
    return replace(one, volumes=(*one.volumes, *(item for item in other.volumes if item not in one.volumes)))


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
