"""The shell command with which each Ray node requests its certificate from the operator when its pod starts.

It runs in an init container with the image ``CERT_GENERATOR_IMAGE``, which needs ``sh``, ``openssl`` and ``curl``: the
default image is Red Hat's UBI 9. It creates the node's key, which never leaves the pod, and a CertificateSigningRequest
with the pod's own token, and waits until the operator has signed the request. It writes the key, the certificate and
the CA's certificate to :data:`~cfo.webhooks.raycluster.certificate_command.TLS_DIRECTORY`, like the command that signs
with the CA's key.

The operator decides the names in the certificate. The request contains the address that the pod knows, so that a
certificate for the address of an earlier sandbox of the pod is not issued.
"""

from __future__ import annotations

from typing import Final

import orjson

from cfo.api.raycluster.node_certificates import CERTIFICATE_USAGES, SIGNER_NAME
from cfo.webhooks.raycluster.certificate_command import CA_DIRECTORY, TLS_DIRECTORY

__all__ = ["IDENTITY_DIRECTORY", "TIMEOUT_SECONDS", "request_command"]

IDENTITY_DIRECTORY: Final = "/home/ray/workspace/identity"
"""The mount path of the pod's token, and of the CA certificate of the API server."""

TIMEOUT_SECONDS: Final = 300
"""How long the command waits for the certificate; the kubelet then restarts the init container, with a back-off."""

_API: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

# The operator ignores the subject of the request, but OpenSSL requires one.
_CREATE_REQUEST: Final = (
    "openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key -out server.csr "
    '-subj /CN=ray-node -addext "subjectAltName=IP:127.0.0.1,IP:$MY_POD_IP,DNS:localhost" 2>openssl.log'
)

# curl reads the header from its standard input, because other processes can read command lines. kube-apiserver formats
# JSON for curl with line breaks and spaces, others without. OpenSSL creates the key for its owner only, but Ray can run
# as another user than the init container.
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
seconds=0
while [ "$seconds" -lt {TIMEOUT_SECONDS} ]; do
  answer=$(send "$api/$name" 2>/dev/null) ||
    answer=$(send -H 'Content-Type: application/json' --data "$body" "$api")
  certificate=$(printf '%s' "$answer" | sed -n 's/.*"certificate": *"\\([A-Za-z0-9+/=]*\\)".*/\\1/p')
  if [ -n "$certificate" ]; then
    printf '%s' "$certificate" | openssl base64 -d -A >server.crt
    cp {CA_DIRECTORY}/ca.crt . && openssl verify -CAfile ca.crt server.crt
    exit
  fi
  case $answer in
  *'"type":"Denied"'* | *'"type": "Denied"'* | *'"type":"Failed"'* | *'"type": "Failed"'*)
    echo "The operator denied the CertificateSigningRequest $name: $answer" >&2
    exit 1
    ;;
  esac
  sleep 1
  seconds=$((seconds + 1))
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
