"""Mutual TLS between Ray nodes: an init container gets the pod's certificate, and Ray is configured to use it.

The init container signs the certificate with the key of the CA, or requests it from the operator, depending on
``kuberay.ca.issuer``. In the first case, the key is in a volume of its own, which only the init container mounts: code
that runs in Ray must not be able to create certificates. In the second case, no pod mounts the key.

Both commands run in the image ``CERT_GENERATOR_IMAGE``, where the certificate of the RayCluster's CA is mounted at
:data:`CA_DIRECTORY`. They write the node's key and certificate, and the CA's certificate, to :data:`TLS_DIRECTORY`,
which Ray's container mounts as well. Clients of the head verify one of the names in its certificate: workers verify the
address that they get from KubeRay, clients in the Kubernetes cluster verify the name of the head's Service, and
external clients verify the host of the client Route or Ingress.

The command that requests a certificate needs ``sh``, ``openssl`` and ``curl``: the default image is Red Hat's UBI 9. It
creates the node's key, which never leaves the pod, and a CertificateSigningRequest with the pod's own token, and waits
until the operator has signed the request. The operator decides the names in the certificate. The request contains the
address that the pod knows, so that a certificate for the address of an earlier sandbox of the pod is not issued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import orjson
from msgspec.structs import replace

from cfo.api.raycluster.certificates import CERTIFICATE_USAGES, REQUEST_VOLUME, SIGNER_NAME
from cfo.api.raycluster.cluster import CERTIFICATE_CONTAINER, TLS_VARIABLE
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.names import head_host_names, head_service_host
from cfo.runtime import Object
from cfo.runtime.objects import is_host_name
from cfo.webhooks.raycluster.pod_additions import PodAdditions, ray_container_index

CA_DIRECTORY: Final = "/home/ray/workspace/ca"
CA_KEY_DIRECTORY: Final = "/home/ray/workspace/ca-key"
TLS_DIRECTORY: Final = "/home/ray/workspace/tls"
IDENTITY_DIRECTORY: Final = "/home/ray/workspace/identity"
"""The mount path of the pod's token, and of the API server's CA certificate."""

TIMEOUT_SECONDS: Final = 300
"""How long the command waits for the certificate; the kubelet then restarts the init container, with a back-off."""

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

_SECURITY_CONTEXT: Final[Mapping[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What the Pod Security Standard ``restricted`` requires of each container; the user ID is that of the pod."""

_USER_FIELDS: Final = ("runAsNonRoot", "runAsUser", "runAsGroup")

_TOKEN_SECONDS: Final = 3600
"""The lifetime of the token. The init container needs it only for minutes; the kubelet renews it."""

# A token of its own, because pods and service accounts can disable the usual one. Kubernetes maintains the ConfigMap in
# all namespaces.
_IDENTITY_VOLUME: Final = {
    "name": REQUEST_VOLUME,
    "projected": {
        "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": _TOKEN_SECONDS}},
            {
                "configMap": {
                    "name": "kube-root-ca.crt",
                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                }
            },
        ]
    },
}


def mtls_additions(
    facts: RayClusterFacts,
    image: str,
    domain: str,
    *,
    is_head: bool,
    requests_certificate: bool = False,
) -> PodAdditions:
    """Return the additions for a pod template of a RayCluster; the head's certificate has more names than a worker's.

    With ``requests_certificate``, the pod requests its certificate, instead of signing it with the key of the CA.
    """
    init_container: Object = {"name": CERTIFICATE_CONTAINER, "image": image}
    if requests_certificate:
        init_container |= {
            "command": request_command(),
            "env": [dict(_POD_IP)],
            "securityContext": _SECURITY_CONTEXT,
        }
        mount = _IDENTITY_MOUNT
        volume = _IDENTITY_VOLUME
    else:
        host_names: list[str] = []
        if is_head:
            host_names = head_host_names(facts.cluster, domain)
        init_container["command"] = signing_command(host_names)
        mount = _CA_KEY_MOUNT
        volume = _secret_volume(_CA_KEY_VOLUME, facts, "ca.key")
    init_container["volumeMounts"] = [dict(item) for item in (*_MOUNTS, mount)]
    volumes = (
        _secret_volume(_CA_VOLUME, facts, "ca.crt"),
        {"name": _CERTIFICATE_VOLUME, "emptyDir": {}},
        dict(volume),
    )
    return PodAdditions(
        init_containers=(init_container,), volumes=volumes, env=_ENV, mounts=_MOUNTS
    )


def with_ray_security(additions: PodAdditions, pod: Mapping[str, Any]) -> PodAdditions:
    """Return ``additions`` for ``pod``; if its Ray container complies with ``restricted``, so do the init containers.

    Otherwise these have no other securityContext than before, as that of the Go operator. They run as the user of the
    Ray container, so that Ray can read its key.
    """
    context = _context_like_ray(pod)
    if context is None:
        return additions
    return _with_security_context(additions, context)


def with_changed_ray_security(
    additions: PodAdditions, former_pod: Mapping[str, Any], pod: Mapping[str, Any]
) -> PodAdditions:
    """Return the ``additions`` found in ``former_pod`` as they fit ``pod``, in which the user changed fields.

    Only a change of what :func:`with_ray_security` reads changes the init containers, so that an update of anything
    else keeps the pod template as it is.
    """
    context = _context_like_ray(pod)
    if context == _context_like_ray(former_pod):
        return additions
    if context is None and any(map(_requests_certificate, additions.init_containers)):
        context = _SECURITY_CONTEXT
    return _with_security_context(additions, context)


def _requests_certificate(container: Mapping[str, Any]) -> bool:
    """Return whether an injected init container has the command of :func:`request_command`."""
    mounts = container.get("volumeMounts") or ()
    return any(mount.get("name") == REQUEST_VOLUME for mount in mounts)


def _context_like_ray(pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the securityContext of init containers that comply with ``restricted`` if the Ray container does."""
    at = ray_container_index(pod)
    if at is None:
        return None
    given = pod["containers"][at].get("securityContext") or {}
    dropped = (given.get("capabilities") or {}).get("drop") or ()
    if given.get("allowPrivilegeEscalation") is not False or "ALL" not in dropped:
        return None
    context = dict(_SECURITY_CONTEXT)
    for field in _USER_FIELDS:
        if isinstance(given.get(field), int):  # which a bool is, too
            context[field] = given[field]
    return context


def _with_security_context(
    additions: PodAdditions, context: Mapping[str, Any] | None
) -> PodAdditions:
    """Return ``additions`` with ``context`` as the securityContext of the init containers; ``None`` removes it."""
    containers = []
    for container in additions.init_containers:
        changed = {name: value for name, value in container.items() if name != "securityContext"}
        if context is not None:
            changed["securityContext"] = context
        containers.append(changed)
    return replace(additions, init_containers=tuple(containers))


def known_mtls_additions(facts: RayClusterFacts) -> PodAdditions:
    """Return additions with the names of all entries that any setting adds to a pod template of a RayCluster."""
    signing = mtls_additions(facts, "", "", is_head=False)
    requesting = mtls_additions(facts, "", "", is_head=False, requests_certificate=True)
    volumes = list(signing.volumes)
    for volume in requesting.volumes:
        if volume not in volumes:
            volumes.append(volume)
    return replace(signing, volumes=tuple(volumes))


def _secret_volume(name: str, facts: RayClusterFacts, key: str) -> Object:
    """Return a volume with one key of the CA's Secret."""
    items = [{"key": key, "path": key}]
    return {"name": name, "secret": {"secretName": facts.names.ca_secret, "items": items}}


def with_command(
    additions: PodAdditions, command: Callable[[Sequence[str]], list[str]]
) -> PodAdditions:
    """Return ``additions`` with the commands of the init containers converted by ``command``."""
    containers = []
    for container in additions.init_containers:
        if container.get("command"):
            container = {**container, "command": command(container["command"])}
        containers.append(container)
    return replace(additions, init_containers=tuple(containers))


# --- The command that signs with the key of the CA --------------------------------------------------------------------

# The shell expands the last two: the head's address, which KubeRay passes to workers, and the pod's own address.
_NODE_NAMES: Final = ("127.0.0.1", "localhost", "${FQ_RAY_IP}", "$(awk 'END{print $1}' /etc/hosts)")
_SIGN_OPTIONS: Final = (
    f"-CA ca.crt -CAkey {CA_KEY_DIRECTORY}/ca.key -in server.csr -out server.crt -days 365 "
    "-CAcreateserial -extfile domain.ext"
)


def signing_command(names: Iterable[str]) -> list[str]:
    """Return the command that creates a certificate for the names of the node itself and for ``names``."""
    lines = [
        "authorityKeyIdentifier=keyid,issuer",
        "basicConstraints=CA:FALSE",
        "subjectAltName = @alt_names",
        "[alt_names]",
    ]
    all_names = (*_NODE_NAMES, *names)
    lines += (f"DNS.{number} = {name}" for number, name in enumerate(all_names, start=1))
    steps = (
        f"cd {TLS_DIRECTORY}",
        "openssl req -nodes -newkey rsa:2048 -keyout server.key -out server.csr -subj '/CN=ray-head'",
        'printf "' + r"\n".join(lines) + '">./domain.ext',
        f"cp {CA_DIRECTORY}/ca.crt .",
        f"openssl x509 -req {_SIGN_OPTIONS}",
    )
    return ["sh", "-c", " && ".join(steps)]


def head_service_replacement(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> Callable[[Sequence[str]], list[str]]:
    """Return a function that replaces the name of ``old``'s head Service in a command by that of ``new``."""
    # As if KubeRay had not reported a name yet, because the command was created in this state.
    before = head_service_host({**old, "status": None})
    after = head_service_host({**new, "status": None})
    if before == after or not is_host_name(after):
        return list  # a function that copies the command without a change

    def with_new_name(command: Sequence[str]) -> list[str]:
        # The lines that signing_command() writes: DNS.5 = NAME, the last one before the closing quote.
        return [word.replace(f' = {before}"', f' = {after}"') for word in command]

    return with_new_name


# --- The command that requests a certificate --------------------------------------------------------------------------

_API: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

# The operator ignores the subject of the request, but OpenSSL requires one.
_CREATE_REQUEST: Final = (
    "openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key -out server.csr "
    '-subj /CN=ray-node -addext "subjectAltName=IP:127.0.0.1,IP:$MY_POD_IP,DNS:localhost" 2>openssl.log'
)

# - send: curl reads the header from its standard input, because other processes can read command lines.
# - chmod: OpenSSL creates the key for its owner only, but Ray can run as another user than the init container.
# - answer: the request is created only if it does not exist yet.
# - sed, case: kube-apiserver formats JSON for curl with line breaks and spaces, others without.
_SCRIPT: Final = f"""\
cd {TLS_DIRECTORY} || exit 1
host=$KUBERNETES_SERVICE_HOST
case $host in *:*) host="[$host]" ;; esac
api="https://$host:$KUBERNETES_SERVICE_PORT{_API}"
send() {{
  printf 'header = "Authorization: Bearer %s"\\n' "$(cat {IDENTITY_DIRECTORY}/token)" |
    curl -sS -f -K - --noproxy '*' --cacert {IDENTITY_DIRECTORY}/ca.crt --max-time 10 "$@"
}}
{_CREATE_REQUEST} || {{ cat openssl.log >&2; exit 1; }}
chmod a+r server.key
name="ray-node-$(openssl rand -hex 16)"
body='@BODY@'
deadline=$(($(date +%s) + {TIMEOUT_SECONDS}))
while [ "$(date +%s)" -lt "$deadline" ]; do
  answer=$(send "$api/$name" 2>/dev/null) ||
    answer=$(send -H 'Content-Type: application/json' --data "$body" "$api")
  certificate=$(printf '%s' "$answer" | sed -n 's/.*"certificate": *"\\([A-Za-z0-9+/=]*\\)".*/\\1/p')
  if [ -n "$certificate" ]; then
    printf '%s' "$certificate" | openssl base64 -d -A >server.crt
    cp {CA_DIRECTORY}/ca.crt . && openssl verify -CAfile ca.crt server.crt
    exit $?
  fi
  case $answer in
  *'"type":"Denied"'* | *'"type": "Denied"'* | *'"type":"Failed"'* | *'"type": "Failed"'*)
    echo "The operator denied the CertificateSigningRequest $name: $answer" >&2
    exit 1
    ;;
  esac
  sleep 1
done
echo "The operator has not signed the CertificateSigningRequest $name" >&2
exit 1
"""


def request_command() -> list[str]:
    """Return the command; it is the same for all pods."""
    # The script assigns the JSON in single quotes, because JSON has double ones. A value that the shell must expand
    # therefore ends the quotes before it and begins them again after it: body='{"name":"'$name'"}'. No word splitting
    # happens in an assignment, and neither value has a character that JSON escapes.
    request = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "'$name'"},
        "spec": {
            "signerName": SIGNER_NAME,
            "usages": list(CERTIFICATE_USAGES),
            "request": "'$(openssl base64 -A -in server.csr)'",
        },
    }
    return ["sh", "-c", _SCRIPT.replace("@BODY@", orjson.dumps(request).decode())]
