"""The check for further CodeFlare operators: Open Data Hub's, the Go operator, or another cfo.

Two operators that reconcile the same objects overwrite each other's children. What a tenant can create in its own
namespace, a Deployment or a Lease, is only a warning; webhook configurations are the administrator's. Only the API
server is asked, so both operators are found from anywhere: by the Services and the marks in webhook configurations, and
by the Lease that each operator renews, with or without leader election.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final

from cfo.api.reading import items, path, text, time_of
from cfo.checks.components import read_deployments
from cfo.checks.findings import Finding, Subject, fail, ok, warn
from cfo.config.document import parse, single_document
from cfo.config.model import LeaderElection, OperatorConfiguration
from cfo.config.section import ConfigurationError
from cfo.console.doctor.facts import first_configuration
from cfo.manifests.names import DEPLOYMENT, PREFIX, SERVICE_ACCOUNT
from cfo.runtime import (
    CONFIG_MAP,
    APIError,
    Client,
    Forbidden,
    NamespacedName,
    Object,
    namespace_of,
)
from cfo.runtime import DEPLOYMENT as DEPLOYMENT_KIND
from cfo.runtime.objects import (
    CLUSTER_ROLE_BINDING,
    LEASE,
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from cfo.runtime.webhook import mark_of
from cfo.version import CONFIG_MAP_NAME

_WEBHOOK_SUFFIX: Final = "raycluster.ray.openshift.ai"
_MAX_SHOWN: Final = 10
_STALE: Final = timedelta(minutes=1)
_REMEDY: Final = (
    "keep one: set codeflare to Removed in the DataScienceCluster if it is Open Data Hub's, or delete the other "
    f"installation; or give both disjoint watchNamespaces, or labelSelectors, in their ConfigMaps {CONFIG_MAP_NAME}, "
    "and restart both"
)


@dataclass(slots=True)
class OtherOperator:
    """What shows that there is an operator in a namespace: ``webhooks`` and ``signs`` are names for the user.

    ``configuration``: that in its ConfigMap; ``None`` if there is none that can be read, as of other operators.
    """

    webhooks: list[str] = field(default_factory=list)
    signs: list[str] = field(default_factory=list)
    configuration: OperatorConfiguration | None = None
    is_alive: bool = False
    """Whether its Lease is renewed."""
    is_bound: bool = False
    """Whether a ClusterRoleBinding names the operator's ServiceAccount in its namespace."""

    @property
    def is_proven(self) -> bool:
        """Whether it runs, and only an administrator can have installed it."""
        return self.is_alive and (self.is_bound or bool(self.webhooks))


async def check(subject: Subject) -> Iterable[Finding]:
    """Check whether another CodeFlare operator reconciles the same objects."""
    operators = await _operators(subject.client)
    alive = sorted(where for where, operator in operators.items() if operator.is_alive)
    own = operators.pop(subject.namespace, OtherOperator())
    bound = await _bound_namespaces(subject.client)
    for where, other in islice(sorted(operators.items()), _MAX_SHOWN):
        other.configuration = await configuration_of(subject.client, where)
        other.is_bound = where in bound
    if operators and not own.webhooks and not own.signs:
        return missing_findings(operators, subject.namespace)
    checked = _described(subject.namespace, own)
    is_known = subject.config_error is None
    return findings(operators, subject.configuration, checked, alive, is_known=is_known)


def missing_findings(others: Mapping[str, OtherOperator], namespace: str) -> Iterator[Finding]:
    """Yield a finding for each operator, if nothing shows that there is one in the checked ``namespace``.

    Its remedy names no command with the namespace, because any user can create a Lease or a Deployment.
    """
    for where, other in islice(sorted(others.items()), _MAX_SHOWN):
        yield warn(
            f"a CodeFlare operator is in {_described(where, other)}; none was found in namespace {namespace}",
            "if it is the one to check, name its namespace with --namespace",
        )


def findings(
    others: Mapping[str, OtherOperator],
    configuration: OperatorConfiguration,
    checked: str,
    alive: Sequence[str],
    *,
    is_known: bool = True,
) -> Iterator[Finding]:
    """Yield a finding for each operator in another namespace.

    ``configuration`` is that of the checked operator (``is_known``: it was read), and ``checked`` describes it.
    ``alive``: the namespaces of all operators whose Leases are renewed. Two operators for the same objects are only a
    warning if one configuration is unknown, or if a tenant can have created all that shows the other operator.
    """
    renewing = ", ".join(alive[:_MAX_SHOWN]) or "no namespace"
    remedy = f"alive, by the renewal of its Lease: {renewing}; {_REMEDY}"
    own_part = _part_text(configuration if is_known else None)
    for namespace, other in islice(sorted(others.items()), _MAX_SHOWN):
        described = _described(namespace, other)
        both = (
            f"the one in {checked} reconciles {own_part}, the one in {described} reconciles "
            f"{_part_text(other.configuration)}"
        )
        if other.webhooks and configuration.webhook.enabled is not False:
            yield fail(
                f"another CodeFlare operator in {described} has webhooks for RayClusters, besides the one in {checked}",
                remedy,
            )
        elif _overlap(configuration, other.configuration or OperatorConfiguration()):
            is_certain = is_known and other.configuration is not None and other.is_proven
            if is_certain:
                yield fail(f"two CodeFlare operators reconcile the same objects: {both}", remedy)
            else:
                yield warn(
                    f"two CodeFlare operators may reconcile the same objects: {both}", remedy
                )
        else:
            yield ok(f"two CodeFlare operators divide the cluster: {both}")
    if not others:
        yield ok("no other CodeFlare operator was found")


def _described(namespace: str, operator: OtherOperator) -> str:
    names = ", ".join([*operator.webhooks, *operator.signs])
    return f"namespace {namespace} ({names})" if names else f"namespace {namespace}"


def _part_text(configuration: OperatorConfiguration | None) -> str:
    """Describe what an operator with ``configuration`` (``None``: unknown) reconciles."""
    if configuration is None:
        return "objects that are not known, because its configuration cannot be read"
    names = configuration.watch_namespaces
    part = "all namespaces"
    if names:
        more = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
        noun = "namespace" if len(names) == 1 else "namespaces"
        part = f"{noun} {', '.join(names[:_MAX_SHOWN])}{more}"
    if configuration.label_selector:
        part += f" with labels {text(str(configuration.label_selector))}"
    return part


def _overlap(one: OperatorConfiguration, other: OperatorConfiguration) -> bool:
    """Return whether two operators can reconcile the same object; selectors that differ are taken as disjoint."""
    are_divided = bool(one.watch_namespaces and other.watch_namespaces)
    if are_divided and set(one.watch_namespaces).isdisjoint(other.watch_namespaces):
        return False
    return (
        not one.label_selector
        or not other.label_selector
        or one.label_selector == other.label_selector
    )


async def _operators(client: Client) -> dict[str, OtherOperator]:
    """Return all CodeFlare operators by namespace, including the checked one."""
    operators: defaultdict[str, OtherOperator] = defaultdict(OtherOperator)
    for kind in (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION):
        for configuration in await client.list(kind, live=True):
            name = f"{kind.kind} {configuration['metadata']['name']}"
            for where in _namespaces_of_services(configuration):
                operators[where].webhooks.append(name)
            for where, url in _marked_urls(configuration):
                operators[where].webhooks.append(f"{name} at {url}")
    for key, image in await read_deployments(client, [PREFIX], DEPLOYMENT):
        operators[key.namespace].signs.append(f"Deployment {key.name}, image {text(image)}")
    name = LeaderElection().resource_name
    for lease in await client.list(LEASE, field_selector=f"metadata.name={name}", live=True):
        if _is_held(lease):
            holder = text(path(lease, "spec", "holderIdentity"))
            operator = operators[namespace_of(lease)]
            operator.signs.append(f"Lease {name}, holder {holder}")
            operator.is_alive = True
    return dict(operators)


def _is_raycluster_webhook(webhook: Mapping[str, Any]) -> bool:
    return text(webhook.get("name")).endswith(_WEBHOOK_SUFFIX)


def _namespaces_of_services(configuration: Object) -> set[str]:
    """Return the namespaces of the Services that a CodeFlare operator's webhooks for RayClusters lead to."""
    return {
        text(path(webhook, "clientConfig", "service", "namespace"))
        for webhook in items(configuration.get("webhooks"))
        if _is_raycluster_webhook(webhook) and path(webhook, "clientConfig", "service")
    }


def _marked_urls(configuration: Object) -> Iterator[tuple[str, str]]:
    """Yield the namespace and the URL of the operator outside the cluster that serves the webhooks for RayClusters."""
    mark = mark_of(configuration)
    if mark is None:
        return
    for webhook in items(configuration.get("webhooks")):
        url = text(path(webhook, "clientConfig", "url"))
        if _is_raycluster_webhook(webhook) and url.startswith(f"{mark.address}/"):
            yield mark.lease.namespace, text(mark.address)
            return


def _is_held(lease: Object) -> bool:
    renewed = time_of(path(lease, "spec", "renewTime"))
    return (
        bool(path(lease, "spec", "holderIdentity"))
        and renewed is not None
        and datetime.now(UTC) - renewed < _STALE
    )


async def _bound_namespaces(client: Client) -> set[str]:
    """Return the namespaces whose ServiceAccount of the operator is named by a ClusterRoleBinding.

    No tenant can create such a binding. Empty if the user is not allowed to list them.
    """
    found: set[str] = set()
    try:
        bindings = await client.list(CLUSTER_ROLE_BINDING, live=True)
    except Forbidden:
        return found
    for binding in bindings:
        for account in items(binding.get("subjects")):
            if account.get("kind") == "ServiceAccount" and account.get("name") == SERVICE_ACCOUNT:
                found.add(text(account.get("namespace")))
    return found


async def configuration_of(client: Client, namespace: str) -> OperatorConfiguration | None:
    """Return the configuration of the operator in ``namespace``; ``None`` if it cannot be read or is invalid.

    Without a ConfigMap, it is the one with which the Deployment creates it.
    """
    try:
        found = await client.get(CONFIG_MAP, NamespacedName(namespace, CONFIG_MAP_NAME), live=True)
        if found is not None:
            return parse(single_document(found.get("data") or {})[1]).configuration
        key = NamespacedName(namespace, DEPLOYMENT)
        deployment = await client.get(DEPLOYMENT_KIND, key, live=True)
        return first_configuration(deployment).configuration
    except (APIError, ConfigurationError):
        return None
