"""The OAuth proxy before a dashboard: a second container of the head, with the rights and the certificate it needs.

OpenShift makes the certificate (for the proxy's Service), and takes the service account for an OAuth client; both are
made by the controller. Who may get pods in the cluster's namespace may see the dashboard.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from cfo.api.raycluster.naming import names_of
from cfo.runtime.objects import Object, namespace_of
from cfo.webhooks.raycluster.parts import PROXY_CONTAINER, Parts, PodSpec

__all__ = ["proxy_parts", "stand_aside", "stands_first"]

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


def stands_first(pod: Mapping[str, Any]) -> bool:
    """Whether what has the proxy's name stands where KubeRay starts Ray, and something else could."""
    containers: list[Object] = pod.get("containers") or []
    return len(containers) > 1 and containers[0].get("name") == PROXY_CONTAINER


def stand_aside(pod: PodSpec) -> None:
    """Moves the first container to the last place."""
    pod["containers"] = [*pod["containers"][1:], pod["containers"][0]]
