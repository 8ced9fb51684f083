"""Templates of the objects that the RayCluster controllers create for a cluster on vanilla Kubernetes.

The kopf operator replaces the names in them. So it creates the same objects as cfo without having any of cfo's code
in its memory.
"""

from __future__ import annotations

import orjson

from cfo.api.raycluster.facts import RayClusterFacts
from cfo.config.kuberay import KubeRayConfiguration
from cfo.controllers.raycluster.dashboard_access import Authentication, dashboard_backend
from cfo.controllers.raycluster.ingress_resources import (
    NGINX_CLASS,
    choose_ingress_class,
    desired_client_ingress,
    desired_dashboard_ingress,
)
from cfo.controllers.raycluster.operator_namespaces import WELL_KNOWN_VANILLA
from cfo.controllers.raycluster.policies import desired_head_policy, desired_workers_policy
from cfo.controllers.raycluster.resources import (
    desired_secret,
)

NAME, NAMESPACE = "name-placeholder", "namespace-placeholder"


def render_templates(config: KubeRayConfiguration) -> bytes:
    """Return a JSON document with the objects and the placeholders in them.

    ``name`` and ``namespace`` are the placeholders, ``children`` the objects to apply, and ``ca_secret`` is a Secret
    without data.
    """
    facts = RayClusterFacts({"metadata": {"name": NAME, "namespace": NAMESPACE}})
    backend = dashboard_backend(facts, Authentication.DISABLED)
    assert backend is not None
    ingress = config.ingress
    default_class, nginx = (
        choose_ingress_class(ingress.class_name, name, None) for name in ("", NGINX_CLASS)
    )
    children = [
        desired_head_policy(facts, config, WELL_KNOWN_VANILLA),
        desired_workers_policy(facts, config),
        desired_dashboard_ingress(
            facts, config.ingress_domain, ingress, backend=backend, ingress_class=default_class
        ),
        desired_client_ingress(facts, config.ingress_domain, ingress, ingress_class=nginx),
    ]
    ca_secret = desired_secret(facts, facts.names.ca_secret, {})
    return orjson.dumps(
        {"name": NAME, "namespace": NAMESPACE, "children": children, "ca_secret": ca_secret}
    )
