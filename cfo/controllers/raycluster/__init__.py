"""Controllers that create and maintain the objects belonging to each RayCluster.

Each of the four controllers has one concern, and none waits for another: the dashboard behind an OAuth proxy on
OpenShift (:mod:`.oauth`), Ingresses on vanilla Kubernetes (:mod:`.ingress`), network policies
(:mod:`.networkpolicy`) and mutual TLS (:mod:`.mtls`). Pure functions compute the desired objects (:mod:`.resources`
and :mod:`.ca`, with the names from :mod:`cfo.api.raycluster`). :mod:`.children` writes them without ever taking
over an object of another owner.
"""

from cfo.api.raycluster.naming import FIELD_MANAGER
from cfo.controllers.raycluster.environment import Environment
from cfo.controllers.raycluster.setup import rules, setup

__all__ = ["FIELD_MANAGER", "Environment", "rules", "setup"]
