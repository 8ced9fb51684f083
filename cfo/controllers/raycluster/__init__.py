"""Controllers that create and maintain the objects belonging to each RayCluster.

Each controller has one responsibility: the proxies that authenticate users of dashboards, and on OpenShift the Routes
to them (:mod:`.oauth`), Ingresses or routes of a Gateway on vanilla Kubernetes (:mod:`.ingress`), network policies
(:mod:`.networkpolicy`, and :mod:`.default_deny` for whole namespaces), mutual TLS (:mod:`.mtls`) and the profiles of
namespaces (:mod:`.enforcement`). If pods request their certificates, :mod:`.node_signer` signs the requests, which
:mod:`.certificate_requesters` allows. No controller acts on what another actor provides
(:mod:`cfo.api.raycluster.responsibility`). Pure functions compute the desired objects (:mod:`.resources`,
:mod:`.ingress_resources`, :mod:`.gateway_resources`, :mod:`.policies` and :mod:`.ca`, with names from
:mod:`cfo.api.raycluster`). :mod:`.children` writes them and never takes over objects of other owners.
"""

from cfo.controllers.raycluster.environment import Environment
from cfo.controllers.raycluster.setup import (
    authentication_rules,
    certificate_request_rules,
    gateway_rules,
    namespace_rules,
    openshift_rules,
    rules,
    setup,
)

__all__ = [
    "Environment",
    "authentication_rules",
    "certificate_request_rules",
    "gateway_rules",
    "namespace_rules",
    "openshift_rules",
    "rules",
    "setup",
]
