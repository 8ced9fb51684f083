"""The OAuth proxy before a dashboard: a second container of the head, with the rights and the certificate it needs.

OpenShift makes the certificate (for the proxy's Service), and takes the service account for an OAuth client; both are
made by the controller. Who may get pods in the cluster's namespace may see the dashboard.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from cfo.api.raycluster.naming import names_of
from cfo.runtime.objects import namespace_of
from cfo.webhooks.raycluster.parts import PROXY_CONTAINER, Parts, PodSpec

__all__ = ["proxy_parts", "stand_aside"]

_VOLUME = "proxy-tls-secret"
_TLS_DIRECTORY = "/etc/tls/private"


def proxy_parts(cluster: Mapping[str, Any], image: str) -> Parts:
    """What the head of ``cluster`` gets."""
    names = names_of(cluster)
    viewers = {"/": {"resource": "pods", "namespace": namespace_of(cluster), "verb": "get"}}
    container = {
        "name": PROXY_CONTAINER,
        "image": image,
        "args": [
            "--https-address=:8443",
            "--provider=openshift",
            f"--openshift-service-account={names.proxy_service_account}",
            "--upstream=http://localhost:8265",
            f"--tls-cert={_TLS_DIRECTORY}/tls.crt",
            f"--tls-key={_TLS_DIRECTORY}/tls.key",
            "--cookie-secret=$(COOKIE_SECRET)",
            f"--openshift-delegate-urls={orjson.dumps(viewers).decode()}",
        ],
        "env": [
            {
                "name": "COOKIE_SECRET",
                "valueFrom": {"secretKeyRef": {"name": names.cookie_secret, "key": "cookie_secret"}},
            }
        ],
        "ports": [{"name": PROXY_CONTAINER, "containerPort": 8443, "protocol": "TCP"}],
        "volumeMounts": [{"name": _VOLUME, "mountPath": _TLS_DIRECTORY, "readOnly": True}],
    }
    return Parts(
        containers=(container,),
        volumes=({"name": _VOLUME, "secret": {"secretName": names.proxy_tls_secret}},),
        service_account=names.proxy_service_account,
    )


def stand_aside(pod: PodSpec) -> None:
    """Moves what has the proxy's name from the first place, where KubeRay starts Ray, to the last."""
    containers = pod.get("containers") or []
    if len(containers) > 1 and containers[0].get("name") == PROXY_CONTAINER:
        pod["containers"] = [*containers[1:], containers[0]]
