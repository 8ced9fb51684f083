"""What the RayCluster controllers write for a cluster on vanilla Kubernetes, as text with a hole for each name.

A peer fills in the names, as people do who template their manifests: so it writes what cfo writes, and needs nothing
of cfo in its memory.
"""

from __future__ import annotations

import orjson

from cfo.api.raycluster.naming import names_of
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster.operator_namespaces import WELL_KNOWN_VANILLA
from cfo.controllers.raycluster.resources import (
    desired_client_ingress,
    desired_dashboard_ingress,
    desired_head_policy,
    desired_secret,
    desired_workers_policy,
)

__all__ = ["templates"]

NAME, NAMESPACE = "the-name-of-it", "the-namespace-of-it"


def templates(config: KubeRayConfiguration) -> bytes:
    """JSON: ``children``, an ``authority`` Secret without data, ``name`` and ``namespace`` that stand in them."""
    cluster = {"metadata": {"name": NAME, "namespace": NAMESPACE}}
    children = [
        desired_head_policy(cluster, config, WELL_KNOWN_VANILLA),
        desired_workers_policy(cluster),
        desired_dashboard_ingress(cluster, config.ingress_domain, config.ingress),
        desired_client_ingress(cluster, config.ingress_domain, config.ingress),
    ]
    authority = desired_secret(cluster, names_of(cluster).ca_secret, {})
    return orjson.dumps({"name": NAME, "namespace": NAMESPACE, "children": children, "authority": authority})
