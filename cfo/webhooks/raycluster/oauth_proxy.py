"""The OAuth proxy in front of the dashboard: a container in the head pod, with its service account and certificate.

OpenShift issues the certificate for the proxy's Service, and treats the service account as an OAuth client; the
controller creates both the Service and the service account. Only users who are allowed to get pods in the RayCluster's
namespace get access to the dashboard: ``--openshift-sar`` requires this of browser logins, and
``--openshift-delegate-urls`` of bearer tokens. RayClusters that were created before the former was added keep their
proxy, which lets in every user who can log in to OpenShift.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.ports import DASHBOARD_PORT
from cfo.runtime import Object
from cfo.webhooks.raycluster.pod_additions import PROXY_CONTAINER, PROXY_CONTAINERS, PodAdditions, PodSpec

__all__ = ["is_proxy_first", "move_proxies_to_end", "proxy_additions"]

_VOLUME = "proxy-tls-secret"
_TLS_DIRECTORY = "/etc/tls/private"


def proxy_additions(facts: RayClusterFacts, image: str) -> PodAdditions:
    """Return the additions for the head's pod template of a RayCluster."""
    names = facts.names
    required_access = {"resource": "pods", "namespace": names.namespace, "verb": "get"}
    container = {
        "name": PROXY_CONTAINER,
        "image": image,
        "args": [
            "--https-address=:8443",
            "--provider=openshift",
            f"--openshift-service-account={names.proxy_service_account}",
            f"--upstream=http://localhost:{facts.ports.dashboard or DASHBOARD_PORT}",
            f"--tls-cert={_TLS_DIRECTORY}/tls.crt",
            f"--tls-key={_TLS_DIRECTORY}/tls.key",
            "--cookie-secret=$(COOKIE_SECRET)",
            f"--openshift-delegate-urls={orjson.dumps({'/': required_access}).decode()}",
            f"--openshift-sar={orjson.dumps(required_access).decode()}",
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
    return PodAdditions(
        containers=(container,),
        volumes=({"name": _VOLUME, "secret": {"secretName": names.proxy_tls_secret}},),
        service_account=names.proxy_service_account,
    )


def is_proxy_first(pod: Mapping[str, Any]) -> bool:
    """Return whether the first of several containers, in which KubeRay starts Ray, has the name of a proxy."""
    containers: list[Object] = pod.get("containers") or []
    return len(containers) > 1 and containers[0].get("name") in PROXY_CONTAINERS


def move_proxies_to_end(pod: PodSpec) -> None:
    """Move the first containers behind all others, as far as they have names of proxies."""
    containers = pod["containers"]
    count = next((at for at, item in enumerate(containers) if item.get("name") not in PROXY_CONTAINERS), 0)
    pod["containers"] = [*containers[count:], *containers[:count]]
