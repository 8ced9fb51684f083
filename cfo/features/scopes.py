"""Where an operator with ``watchNamespaces`` needs each of its permissions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Final, Self

import msgspec

from cfo.api.gateway import GROUP as GATEWAY_GROUP
from cfo.runtime import Rule

if TYPE_CHECKING:
    from cfo.config.model import OperatorConfiguration
    from cfo.features.contract import OptionalRole

CLUSTER_SCOPED: Final = frozenset(
    {
        ("", "namespaces"),
        ("", "nodes"),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("authentication.k8s.io", "tokenreviews"),
        ("authorization.k8s.io", "subjectaccessreviews"),
        ("certificates.k8s.io", "certificatesigningrequests"),
        ("certificates.k8s.io", "signers"),
        ("config.openshift.io", "authentications"),
        ("config.openshift.io", "ingresses"),
        ("dscinitialization.opendatahub.io", "dscinitializations"),
        ("kueue.x-k8s.io", "clusterqueues"),
        ("kueue.x-k8s.io", "resourceflavors"),
        ("kueue.x-k8s.io", "workloadpriorityclasses"),
        ("networking.k8s.io", "ingressclasses"),
        ("rbac.authorization.k8s.io", "clusterrolebindings"),
        ("rbac.authorization.k8s.io", "clusterroles"),
        ("scheduling.k8s.io", "priorityclasses"),
    }
)
"""Groups and resources of the operator's rules that have no namespace: a RoleBinding never grants them.

The API server answers a review with a namespace from RoleBindings also for these.
"""

_ONLY_FOR_ALL_NAMESPACES: Final = frozenset(
    {
        ("networking.k8s.io", "ingressclasses"),
        ("rbac.authorization.k8s.io", "clusterroles"),
    }
)
"""Groups and resources of the base role that an operator with ``watchNamespaces`` does not read."""

_OWNER_LEASE: Final = ("coordination.k8s.io", "leases", "get")
"""The Lease of another operator that serves the same webhooks is in that operator's namespace."""

_HOSTS: Final = frozenset(
    (group, resource, verb)
    for group, resource in (
        ("networking.k8s.io", "ingresses"),
        (GATEWAY_GROUP, "httproutes"),
        (GATEWAY_GROUP, "tlsroutes"),
    )
    for verb in ("list", "watch")
)
"""With these, the hosts in all other namespaces are read (:data:`cfo.controllers.host_claims.OTHER_NAMESPACES`)."""

_EVENTS: Final = ("events.k8s.io", "events")
"""The operator also reports Events about its Lease and its ConfigMap, which are in its own namespace."""


class Scopes(msgspec.Struct, frozen=True):
    """Where an operator in ``own_namespace`` that reconciles only ``watched`` namespaces needs permissions.

    ``reads_hosts``: whether it can expose dashboards, so that it reads the hosts in all other namespaces.
    ``has_oauth``: whether the dashboards have OAuth proxies, whose ClusterRoleBindings it reads.
    """

    own_namespace: str
    watched: Sequence[str]
    reads_hosts: bool = True
    has_oauth: bool = True

    @classmethod
    def of(cls, configuration: OperatorConfiguration, own_namespace: str) -> Self:
        """Return the scopes for ``configuration``, which has ``watchNamespaces``."""
        kuberay = configuration.kuberay
        reads_hosts = False
        if kuberay.enabled:
            from cfo.controllers.raycluster.dashboard_access import may_expose

            reads_hosts = may_expose(kuberay)
        return cls(
            own_namespace,
            configuration.watch_namespaces,
            reads_hosts=reads_hosts,
            has_oauth=kuberay.ray_dashboard_oauth_enabled,
        )

    def is_used(self, rule: Rule) -> bool:
        """Return whether the operator uses a single permission of the base role."""
        resource = (rule.group, rule.resources[0])
        if resource == ("rbac.authorization.k8s.io", "clusterrolebindings"):
            return self.has_oauth
        return resource not in _ONLY_FOR_ALL_NAMESPACES

    def is_divided(self, rule: Rule) -> bool:
        """Return whether a single permission is needed only in :meth:`namespaces_of`, not in the whole cluster."""
        resource, _, _ = rule.resources[0].partition("/")
        if rule.namespace or (rule.group, resource) in CLUSTER_SCOPED:
            return False
        permission = (rule.group, rule.resources[0], rule.verbs[0])
        if permission == _OWNER_LEASE:
            return False
        return permission not in _HOSTS or not self.reads_hosts

    def namespaces_of(self, rule: Rule) -> list[str]:
        """Return the namespaces in which a divided permission is needed."""
        if is_needed_in_own_namespace(rule) and self.own_namespace not in self.watched:
            return [*self.watched, self.own_namespace]
        return [*self.watched]


def is_needed_in_own_namespace(rule: Rule) -> bool:
    """Return whether the operator needs a divided permission in its own namespace as well."""
    return (rule.group, rule.resources[0]) == _EVENTS


def probes(
    role: OptionalRole, configuration: OperatorConfiguration, own_namespace: str
) -> Iterator[list[Rule]]:
    """Yield permissions of which each list shows that ``role`` is installed for the operator in ``own_namespace``.

    If it needs them only in some namespaces, each list is for one of these: others can be missing, or deleted.
    """
    if not configuration.watch_namespaces:
        yield [*role.probes]
        return
    scopes = Scopes.of(configuration, own_namespace)
    for namespace in configuration.watch_namespaces:
        found: list[Rule] = []
        for rule in role.probes:
            if scopes.is_divided(rule):
                found.append(within(rule, namespace))
            else:
                found.append(rule)
        yield found


def within(rule: Rule, namespace: str) -> Rule:
    """Return the permissions of ``rule`` in ``namespace``."""
    return Rule(rule.group, rule.resources, rule.verbs, rule.resource_names, namespace=namespace)


def single_permissions(rules: Iterable[Rule]) -> Iterator[Rule]:
    """Yield one rule for each resource, verb and name."""
    for rule in rules:
        name_lists = [[name] for name in rule.resource_names] or [[]]
        for resource, verb, names in product(rule.resources, rule.verbs, name_lists):
            yield Rule(rule.group, resource, verb, names, namespace=rule.namespace)
