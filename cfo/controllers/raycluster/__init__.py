"""Controllers that create and maintain the objects belonging to each RayCluster.

There are independent controllers, each with one responsibility: the dashboard behind an OAuth proxy on OpenShift
(:mod:`.oauth`), Ingresses or routes on vanilla Kubernetes (:mod:`.ingress`), network policies (:mod:`.networkpolicy`),
mutual TLS (:mod:`.mtls`) and what profiles enforce (:mod:`.enforcement`). None acts on what another actor provides
(:mod:`cfo.api.raycluster.responsibility`). Pure functions compute the desired objects (:mod:`.resources`,
:mod:`.ingress_resources`, :mod:`.gateway_resources` and :mod:`.ca`, with the names from :mod:`cfo.api.raycluster`).
:mod:`.children` writes them and never takes over objects of other owners.
"""

from cfo.api.raycluster.naming import FIELD_MANAGER
from cfo.controllers.raycluster.environment import Environment
from cfo.controllers.raycluster.setup import authentication_rules, gateway_rules, openshift_rules, rules, setup

__all__ = [
    "FIELD_MANAGER",
    "Environment",
    "authentication_rules",
    "gateway_rules",
    "openshift_rules",
    "rules",
    "setup",
]
