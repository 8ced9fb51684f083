"""The namespaces that have an operator according to what only an administrator can create.

Users can create Deployments and Leases with an operator's names in their own namespaces. They can create no
ClusterRoleBindings and no webhook configurations, but controllers bind ServiceAccounts that users name to the role for
the check of tokens: this operator those of its proxies, others those of notebooks. So these bindings do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from cfo.api.reading import items, path, text
from cfo.manifests.names import SERVICE_ACCOUNT
from cfo.runtime import Object
from cfo.runtime.webhook import mark_of

_WEBHOOK_SUFFIX: Final = "raycluster.ray.openshift.ai"
_ROLE_OF_PROXIES: Final = "system:auth-delegator"


def operator_namespaces(
    bindings: Iterable[Object], webhook_configurations: Iterable[Object]
) -> set[str]:
    """Return the namespaces of operators that an administrator has installed; tenants cannot add theirs."""
    found = bound_namespaces(bindings)
    for configuration in webhook_configurations:
        found |= namespaces_of_services(configuration)
        marked = marked_operator(configuration)
        if marked is not None:
            found.add(marked[0])
    return found


def bound_namespaces(bindings: Iterable[Object]) -> set[str]:
    """Return the namespaces whose ServiceAccount of the operator is bound by one of these ClusterRoleBindings."""
    found: set[str] = set()
    for binding in bindings:
        if path(binding, "roleRef", "name") == _ROLE_OF_PROXIES:
            continue
        for account in items(binding.get("subjects")):
            if account.get("kind") == "ServiceAccount" and account.get("name") == SERVICE_ACCOUNT:
                found.add(text(account.get("namespace")))
    return found - {""}


def raycluster_webhooks(configuration: Object) -> Iterator[Mapping[str, Any]]:
    """Yield the webhooks for RayClusters of either operator."""
    for webhook in items(configuration.get("webhooks")):
        if text(webhook.get("name")).endswith(_WEBHOOK_SUFFIX):
            yield webhook


def namespaces_of_services(configuration: Object) -> set[str]:
    """Return the namespaces of the Services that an operator's webhooks for RayClusters lead to."""
    namespaces = {
        text(path(webhook, "clientConfig", "service", "namespace"))
        for webhook in raycluster_webhooks(configuration)
    }
    return namespaces - {""}


def marked_operator(configuration: Object) -> tuple[str, str] | None:
    """Return the namespace and the URL of the operator outside the cluster that serves the webhooks for RayClusters."""
    mark = mark_of(configuration)
    if mark is None:
        return None
    for webhook in raycluster_webhooks(configuration):
        url = text(path(webhook, "clientConfig", "url"))
        if url.startswith(f"{mark.address}/"):
            return mark.lease.namespace, text(mark.address)
    return None
