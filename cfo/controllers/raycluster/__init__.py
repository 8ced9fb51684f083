"""What the operator owes every RayCluster, by four controllers.

One concern each, and none waits for another: the dashboard behind an OAuth proxy on OpenShift (:mod:`.oauth`),
Ingresses on vanilla Kubernetes (:mod:`.ingress`), network policies (:mod:`.networkpolicy`), mutual TLS (:mod:`.mtls`).
What is to be is said by pure functions (:mod:`.resources`, :mod:`.ca`, with the names of :mod:`cfo.api.raycluster`);
how it is written, without taking anything from anybody, by :mod:`.children`.
"""

from cfo.api.raycluster.naming import FIELD_MANAGER
from cfo.controllers.raycluster.setup import rules, setup

__all__ = ["FIELD_MANAGER", "rules", "setup"]
