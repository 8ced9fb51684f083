"""The shell command with which each Ray node creates its own certificate when its pod starts.

It runs in an init container with the image ``CERT_GENERATOR_IMAGE``, where the certificate of the RayCluster's CA is
mounted at :data:`CA_DIRECTORY` and the CA's key at :data:`CA_KEY_DIRECTORY`. It writes the node's key and certificate,
and the CA's certificate, to :data:`TLS_DIRECTORY`, which Ray's container mounts as well. Clients of the head verify one
of the names in its certificate: workers verify the address that they get from KubeRay, clients in the Kubernetes
cluster verify the name of the head's Service, and external clients verify the host of the client Route or Ingress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from cfo.api.raycluster.node_certificates import head_service_host, is_host_name

__all__ = [
    "CA_DIRECTORY",
    "CA_KEY_DIRECTORY",
    "TLS_DIRECTORY",
    "certificate_command",
    "head_service_replacement",
]

CA_DIRECTORY: Final = "/home/ray/workspace/ca"
CA_KEY_DIRECTORY: Final = "/home/ray/workspace/ca-key"
TLS_DIRECTORY: Final = "/home/ray/workspace/tls"

# The shell expands the last two: the head's address, which KubeRay passes to workers, and the pod's own address.
_NODE_NAMES: Final = ("127.0.0.1", "localhost", "${FQ_RAY_IP}", "$(awk 'END{print $1}' /etc/hosts)")
_SIGN_OPTIONS: Final = (
    f"-CA ca.crt -CAkey {CA_KEY_DIRECTORY}/ca.key -in server.csr -out server.crt -days 365 "
    "-CAcreateserial -extfile domain.ext"
)


def certificate_command(names: Iterable[str]) -> list[str]:
    """Return the command that creates a certificate for the names of the node itself and for ``names``."""
    lines = (
        "authorityKeyIdentifier=keyid,issuer",
        "basicConstraints=CA:FALSE",
        "subjectAltName = @alt_names",
        "[alt_names]",
        *(f"DNS.{number} = {name}" for number, name in enumerate((*_NODE_NAMES, *names), start=1)),
    )
    steps = (
        f"cd {TLS_DIRECTORY}",
        "openssl req -nodes -newkey rsa:2048 -keyout server.key -out server.csr -subj '/CN=ray-head'",
        'printf "' + r"\n".join(lines) + '">./domain.ext',
        f"cp {CA_DIRECTORY}/ca.crt .",
        f"openssl x509 -req {_SIGN_OPTIONS}",
    )
    return ["sh", "-c", " && ".join(steps)]


def head_service_replacement(old: Mapping[str, Any], new: Mapping[str, Any]) -> Callable[[Sequence[str]], list[str]]:
    """Return a function that replaces the name of the head Service of ``old`` in a command by that of ``new``."""
    before, after = (head_service_host({**cluster, "status": None}) for cluster in (old, new))
    if before == after or not is_host_name(after):
        return list
    return lambda command: [word.replace(f' = {before}"', f' = {after}"') for word in command]
