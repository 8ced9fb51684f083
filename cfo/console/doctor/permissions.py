"""Reads which permissions an operator lacks, by asking the API server about its ServiceAccount.

A permission is one verb on one resource, as a :class:`cfo.runtime.Rule`; its namespace is empty for the whole cluster.
An operator for all namespaces needs each permission there. One with ``watchNamespaces`` needs most of them only in its
namespaces (:mod:`cfo.features.scopes`): those that it has in the whole cluster are asked about once, the others again
in each namespace.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from typing import Any, Final

import anyio

from cfo import operator
from cfo.console.doctor.facts import Installation
from cfo.features.roles import attributes_of, enabled_roles, has_all, retained_roles
from cfo.features.scopes import Scopes, single_permissions, within
from cfo.manifests.additional import own_name
from cfo.manifests.names import MANAGER_BINDING
from cfo.runtime import Client, Forbidden, NamespacedName, Rule
from cfo.runtime.client import is_allowed, service_account
from cfo.runtime.objects import CLUSTER_ROLE_BINDING

_PARALLEL_REVIEWS: Final = 16
_MAX_REVIEWS: Final = 2000


@dataclass(frozen=True, slots=True)
class PermissionFacts:
    """How many permissions were checked, and the missing ones by the component that has them; "" is the base role.

    ``total``: how many permissions are needed. ``retained`` are the components of disabled features, which are needed
    until objects of these are deleted. ``needed``: how many permissions were checked of each component.
    """

    checked: int
    total: int
    missing: Mapping[str, Sequence[Rule]]
    retained: frozenset[str] = frozenset()
    needed: Mapping[str, int] = field(default_factory=dict)


async def read_permissions(
    client: Client, installation: Installation, account: str
) -> PermissionFacts:
    """Return which permissions ``account`` lacks of those that the operator and its features need.

    At most 2,000 permissions are checked: of each component and each namespace equally many.
    ``account``: the name of the ServiceAccount. Requires the permission to create SubjectAccessReviews.
    """
    configuration = installation.configuration
    namespace = installation.namespace
    serves_webhooks = configuration.webhook.enabled is not False
    base_rules = operator.rules(namespace, serves_webhooks=serves_webhooks)
    needed: dict[str, Sequence[Rule]] = {"": base_rules}
    enabled = await enabled_roles(client, configuration)
    for role in enabled:
        needed[role.name] = role.rules()
    retained = await retained_roles(client, enabled, configuration)
    for role in retained:
        needed[role.name] = role.release_rules
    scopes = Scopes.of(configuration, namespace) if configuration.watch_namespaces else None
    components = _components(needed, scopes)
    reviews = _Reviews(client, service_account(namespace, account))
    refused = await reviews.send(_fair_order(components, components))
    if scopes is not None:
        for rule in filter(scopes.is_divided, refused):
            for each in scopes.namespaces_of(rule):
                components[within(rule, each)] = components[rule]
            del components[rule]
    refused = [rule for rule in refused if rule in components]
    left = [rule for rule in components if rule not in reviews.sent]
    refused += await reviews.send(_fair_order(left, components))

    checked = [rule for rule in components if rule in reviews.sent]
    missing: dict[str, list[Rule]] = {}
    for rule in refused:
        missing.setdefault(components[rule], []).append(rule)
    return PermissionFacts(
        checked=len(checked),
        total=len(components),
        missing={name: missing[name] for name in needed if name in missing},
        retained=frozenset(role.name for role in retained),
        needed=Counter(components[rule] for rule in checked),
    )


async def may_read_configuration(client: Client, installation: Installation, account: str) -> bool:
    """Return whether ``account`` may read the ConfigMap that the operator reads."""
    namespace = installation.namespace
    needed = operator.configuration_rules(installation.config_name, namespace)
    return await has_all(client, needed, service_account(namespace, account))


class _Reviews:
    """Sends at most 2,000 reviews about ``user``; ``sent`` are the permissions that were checked."""

    def __init__(self, client: Client, user: Mapping[str, Any]) -> None:
        self._client = client
        self._user = user
        self._limiter = anyio.CapacityLimiter(_PARALLEL_REVIEWS)
        self.sent: set[Rule] = set()

    async def send(self, permissions: Iterable[Rule]) -> list[Rule]:
        """Check ``permissions``, or the first ones of them, and return those that are missing, in their order."""
        chosen = list(islice(permissions, _MAX_REVIEWS - len(self.sent)))
        refused: set[Rule] = set()

        async def review(rule: Rule) -> None:
            async with self._limiter:
                attributes = attributes_of(rule)
                if not await is_allowed(self._client, resourceAttributes=attributes, **self._user):
                    refused.add(rule)

        # The first review is sent alone, so that a missing permission for reviews is reported once.
        if chosen:
            await review(chosen[0])
        async with anyio.create_task_group() as tasks:
            for rule in chosen[1:]:
                tasks.start_soon(review, rule)
        self.sent.update(chosen)
        return [rule for rule in chosen if rule in refused]


async def read_bound_namespaces(client: Client, namespace: str) -> list[str]:
    """Return the namespaces that the ClusterRoleBinding of the manifests names.

    Empty if there is none, if it cannot be read, or if the operator in ``namespace`` is an additional one, which has
    its own.
    """
    own = NamespacedName("", own_name(MANAGER_BINDING.name, namespace))
    try:
        if await client.get(CLUSTER_ROLE_BINDING, own, live=True) is not None:
            return []
        binding = await client.get(CLUSTER_ROLE_BINDING, MANAGER_BINDING, live=True)
    except Forbidden:
        return []
    subjects = (binding or {}).get("subjects") or ()
    return sorted({str(subject.get("namespace")) for subject in subjects})


def _components(needed: Mapping[str, Sequence[Rule]], scopes: Scopes | None) -> dict[Rule, str]:
    """Return the component of each permission; of those in several components, the first one."""
    found: dict[Rule, str] = {}
    for component, rules in needed.items():
        for rule in single_permissions(rules):
            if component or scopes is None or scopes.is_used(rule):
                found.setdefault(rule, component)
    return found


def _fair_order(permissions: Iterable[Rule], components: Mapping[Rule, str]) -> Iterator[Rule]:
    """Yield the first permission of each component and namespace, then the second one of each, and so on."""
    groups: defaultdict[tuple[str, str], list[Rule]] = defaultdict(list)
    for rule in permissions:
        groups[components[rule], rule.namespace].append(rule)
    for row in zip_longest(*groups.values()):
        yield from (rule for rule in row if rule is not None)
