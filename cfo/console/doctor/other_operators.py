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
from typing import Final

from cfo.api.reading import path, text
from cfo.checks.components import FoundDeployment, find_deployments
from cfo.checks.findings import Finding, Subject, fail, ok, warn
from cfo.config.document import parse, single_document
from cfo.config.loading import MAX_CHARACTERS
from cfo.config.model import LeaderElection, OperatorConfiguration
from cfo.config.section import ConfigurationError
from cfo.console.counts import counted
from cfo.console.doctor.arguments import configuration_name, first_document
from cfo.console.doctor.facts import for_all_objects, is_go_deployment
from cfo.console.lease_holder import is_renewed
from cfo.console.operator_namespaces import (
    bound_namespaces,
    marked_operator,
    namespaces_of_services,
)
from cfo.manifests.names import DEPLOYMENT, PREFIX
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
from cfo.version import CONFIG_MAP_NAME, __version__

_MAX_SHOWN: Final = 10
_MAX_CHARACTERS: Final = 32 << 10
"""The size of another operator's configuration that is parsed, which takes 0.2 s; usual ones have a few KiB.

A tenant can create one in each of its namespaces.
"""
_STALE: Final = timedelta(minutes=1)
_UNREAD: Final = "its configuration cannot be read"
_UNREAD_OR_LARGE: Final = f"{_UNREAD}, or is longer than {_MAX_CHARACTERS} characters"
_REMEDY: Final = (
    "keep one: set the component codeflare of the DataScienceCluster to Removed if it is Open Data Hub's, or delete "
    "the other installation; or give both disjoint watchNamespaces, or labelSelectors, in their ConfigMaps "
    f"{CONFIG_MAP_NAME} (config of a Helm release), and restart both"
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
    is_stopped: bool = False
    """Whether its Deployments, at least one, are scaled to 0 replicas."""
    is_bound: bool = False
    """Whether a ClusterRoleBinding names the operator's ServiceAccount in its namespace."""

    @property
    def is_installed(self) -> bool:
        """Whether an administrator has installed it: no tenant can create what shows it."""
        return self.is_bound or bool(self.webhooks)

    @property
    def is_proven(self) -> bool:
        """Whether it runs, and an administrator has installed it."""
        return self.is_alive and self.is_installed

    @property
    def runs_nothing(self) -> bool:
        """Whether it reconciles nothing until its Deployment is scaled up."""
        return self.is_stopped and not self.is_alive


async def check(subject: Subject) -> Iterable[Finding]:
    """Check whether another CodeFlare operator reconciles the same objects."""
    operators = await _operators(subject.client)
    for where in await _bound_namespaces(subject.client):
        if where in operators:
            operators[where].is_bound = True
    alive = [where for where, operator in _by_evidence(operators) if operator.is_alive]
    own = operators.pop(subject.namespace, OtherOperator())
    for where, other in islice(_by_evidence(operators), _MAX_SHOWN):
        other.configuration = await configuration_of(subject.client, where, _MAX_CHARACTERS)
    if operators and not own.webhooks and not own.signs:
        return missing_findings(operators, subject.namespace)
    checked = _described(subject.namespace, own)
    is_known = subject.config_error is None
    return findings(
        operators,
        subject.configuration,
        checked,
        alive,
        is_known=is_known,
        runs_nothing=own.runs_nothing,
    )


def _by_evidence(operators: Mapping[str, OtherOperator]) -> list[tuple[str, OtherOperator]]:
    """Return the operators with their namespaces; those that an administrator has installed come first, then living.

    Tenants can create Deployments and Leases in any number of namespaces, but only after these in this order.
    """

    def order(found: tuple[str, OtherOperator]) -> tuple[bool, bool, str]:
        where, operator = found
        return not operator.is_installed, not operator.is_alive, where

    return sorted(operators.items(), key=order)


def missing_findings(others: Mapping[str, OtherOperator], namespace: str) -> Iterator[Finding]:
    """Yield a finding for each operator, if nothing shows that there is one in the checked ``namespace``.

    Its remedy names no command with the namespace, because any user can create a Lease or a Deployment.
    """
    for where, other in islice(_by_evidence(others), _MAX_SHOWN):
        yield warn(
            f"a CodeFlare operator is in {_described(where, other)}; none was found in namespace {namespace}",
            "if it is the one to check, name its namespace with --namespace",
        )
    yield from _others_left_out(others)


def findings(
    others: Mapping[str, OtherOperator],
    configuration: OperatorConfiguration,
    checked: str,
    alive: Sequence[str],
    *,
    is_known: bool = True,
    runs_nothing: bool = False,
) -> Iterator[Finding]:
    """Yield a finding for each operator in another namespace.

    ``configuration`` is that of the checked operator (``is_known``: it was read), and ``checked`` describes it.
    ``runs_nothing``: it is scaled to 0 replicas.
    ``alive``: the namespaces of all operators whose Leases are renewed, those to name first. Two operators for the same
    objects are only a warning if one configuration is unknown, or if a tenant can have created all that shows the other
    operator.
    """
    renewing = _listed(alive) or "no namespace"
    remedy = f"alive, by the renewal of its Lease: {renewing}; {_REMEDY}"
    own_part = _part_text(configuration if is_known else None, _UNREAD)
    for namespace, other in islice(_by_evidence(others), _MAX_SHOWN):
        described = _described(namespace, other)
        both = (
            f"the one in {checked} reconciles {own_part}, the one in {described} reconciles "
            f"{_part_text(other.configuration, _UNREAD_OR_LARGE)}"
        )
        if other.webhooks and configuration.webhook.enabled is not False:
            yield fail(
                f"another CodeFlare operator in {described} has webhooks for RayClusters, besides the one in {checked}",
                remedy,
            )
        elif not _overlap(configuration, other.configuration or OperatorConfiguration()):
            yield ok(f"two CodeFlare operators divide the cluster: {both}")
        elif other.runs_nothing or runs_nothing:
            yield warn(
                f"two CodeFlare operators would reconcile the same objects, but one is scaled to 0 replicas: {both}",
                f"do not scale it up while both are installed; {remedy}",
            )
        else:
            is_certain = is_known and other.configuration is not None and other.is_proven
            if is_certain:
                yield fail(f"two CodeFlare operators reconcile the same objects: {both}", remedy)
            else:
                yield warn(
                    f"two CodeFlare operators may reconcile the same objects: {both}", remedy
                )
    yield from _others_left_out(others)
    if not others:
        yield ok("no other CodeFlare operator was found")


def _others_left_out(others: Mapping[str, OtherOperator]) -> Iterator[Finding]:
    """Yield how many of ``others`` have no finding of their own."""
    left_out = len(others) - _MAX_SHOWN
    if left_out > 0:
        name = LeaderElection().resource_name
        yield warn(
            f"not shown: {counted(left_out, 'more namespace')} with a Deployment or a Lease of a CodeFlare operator",
            f"users can create these: kubectl get leases -A --field-selector metadata.name={name}",
        )


def _listed(names: Sequence[str]) -> str:
    """Return the first of ``names``, and how many more there are."""
    more = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
    return ", ".join(names[:_MAX_SHOWN]) + more


def _described(namespace: str, operator: OtherOperator) -> str:
    names = _listed([*operator.webhooks, *operator.signs])
    return f"namespace {namespace} ({names})" if names else f"namespace {namespace}"


def _part_text(configuration: OperatorConfiguration | None, cause: str) -> str:
    """Describe what an operator with ``configuration`` reconciles; ``None``: it is unknown because of ``cause``."""
    if configuration is None:
        return f"objects that are not known, because {cause}"
    names = configuration.watch_namespaces
    part = "all namespaces"
    if names:
        noun = "namespace" if len(names) == 1 else "namespaces"
        part = f"{noun} {_listed(names)}"
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
            for where in namespaces_of_services(configuration):
                operators[where].webhooks.append(name)
            marked = marked_operator(configuration)
            if marked is not None:
                where, url = marked
                operators[where].webhooks.append(f"{name} at {url}")
    running: set[str] = set()
    for deployment in await find_deployments(client, [PREFIX], DEPLOYMENT):
        where = deployment.key.namespace
        operators[where].signs.append(_deployment_text(deployment))
        if deployment.wanted > 0:
            running.add(where)
        operators[where].is_stopped = where not in running
    name = LeaderElection().resource_name
    for where, holder in await client.select(
        LEASE, _current_holder, field_selector=f"metadata.name={name}"
    ):
        operators[where].signs.append(f"Lease {name}, holder {holder}")
        operators[where].is_alive = True
    return dict(operators)


def _deployment_text(deployment: FoundDeployment) -> str:
    """Return the name of a Deployment, with its replicas, which are one operator, and its image."""
    replicas = f"{deployment.ready} of {deployment.wanted} replicas ready"
    if deployment.wanted == 0:
        replicas = "scaled to 0 replicas"
    return f"Deployment {deployment.key.name}, {replicas}, image {text(deployment.image)}"


def _current_holder(lease: Object) -> tuple[str, str] | None:
    """Return the namespace and the holder of a Lease; ``None`` unless it was renewed recently."""
    holder = text(path(lease, "spec", "holderIdentity"))
    if not holder or not is_renewed(lease, _STALE, datetime.now(UTC)):
        return None
    return namespace_of(lease), holder


async def _bound_namespaces(client: Client) -> set[str]:
    """Return :func:`.bound_namespaces`; empty if the user is not allowed to list ClusterRoleBindings."""
    try:
        return bound_namespaces(await client.list(CLUSTER_ROLE_BINDING, live=True))
    except Forbidden:
        return set()


async def configuration_of(
    client: Client, namespace: str, max_characters: int = MAX_CHARACTERS
) -> OperatorConfiguration | None:
    """Return the configuration of the operator in ``namespace``; ``None`` if it cannot be read or is invalid.

    Without a ConfigMap, it is the one with which the Deployment creates it. The Go operator reconciles all objects. A
    document with more than ``max_characters`` is not parsed, and counts as one that cannot be read.
    """
    try:
        key = NamespacedName(namespace, DEPLOYMENT)
        deployment = await client.get(DEPLOYMENT_KIND, key, live=True)
        key = NamespacedName(namespace, configuration_name(deployment))
        found = await client.get(CONFIG_MAP, key, live=True)
        if found is not None:
            _, document = single_document(found.get("data") or {})
        else:
            document = first_document(deployment)
        if len(document) > max_characters:
            return None
        configuration = parse(document).configuration
    except (APIError, ConfigurationError):
        return None
    if is_go_deployment(deployment, __version__):
        return for_all_objects(configuration)
    return configuration
