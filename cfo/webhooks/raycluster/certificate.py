"""The command by which each node of a cluster makes its own certificate when it starts.

It is run by a shell of the image in ``CERT_GENERATOR_IMAGE``, with the cluster's authority mounted at
:data:`CA_DIRECTORY`, and leaves key and certificate in :data:`TLS_DIRECTORY`. Whoever connects to the head verifies one
of the names in it: workers the address that KubeRay gives them, clients within Kubernetes the head's Service, clients
from outside the host of the client's Route or Ingress.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from cfo.api.raycluster.naming import client_host, head_service_name
from cfo.runtime.objects import namespace_of

__all__ = ["CA_DIRECTORY", "TLS_DIRECTORY", "command", "head_names", "renamed"]

CA_DIRECTORY: Final = "/home/ray/workspace/ca"
TLS_DIRECTORY: Final = "/home/ray/workspace/tls"

# the shell replaces the last two: the head's address as KubeRay tells workers, and the pod's own
_OWN_NAMES: Final = ("127.0.0.1", "localhost", "${FQ_RAY_IP}", "$(awk 'END{print $1}' /etc/hosts)")
_SIGNING: Final = (
    "-CA ca.crt -CAkey ca.key -in server.csr -out server.crt -days 365 -CAcreateserial -extfile domain.ext"
)
_HOST: Final = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")


def head_names(cluster: Mapping[str, Any], domain: str) -> list[str]:
    """The names under which others reach the head of ``cluster``: from outside, below ``domain`` (empty: by none), and
    its Service.

    Each goes into a shell's command, so what is no host name is left out; nothing answers to it anyway.
    """
    names = [client_host(cluster, domain)] if domain else []
    return [name for name in (*names, _service_host(cluster)) if _HOST.fullmatch(name)]


def _service_host(cluster: Mapping[str, Any]) -> str:
    return f"{head_service_name(cluster)}.{namespace_of(cluster)}.svc"


def command(names: Iterable[str]) -> list[str]:
    """Makes a certificate for the node itself and for ``names``."""
    lines = (
        "authorityKeyIdentifier=keyid,issuer",
        "basicConstraints=CA:FALSE",
        "subjectAltName = @alt_names",
        "[alt_names]",
        *(f"DNS.{number} = {name}" for number, name in enumerate((*_OWN_NAMES, *names), start=1)),
    )
    steps = (
        f"cd {TLS_DIRECTORY}",
        "openssl req -nodes -newkey rsa:2048 -keyout server.key -out server.csr -subj '/CN=ray-head'",
        'printf "' + r"\n".join(lines) + '">./domain.ext',
        f"cp {CA_DIRECTORY}/* .",
        f"openssl x509 -req {_SIGNING}",
    )
    return ["sh", "-c", " && ".join(steps)]


def renamed(words: Sequence[str], old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The command ``words`` of ``old``'s head for ``new``, whose head may be told to have a Service of another name."""
    before, after = (_service_host({**cluster, "status": None}) for cluster in (old, new))
    if before == after or not _HOST.fullmatch(after):
        return list(words)
    return [word.replace(f' = {before}"', f' = {after}"') for word in words]
