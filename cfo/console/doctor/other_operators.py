"""The check for further CodeFlare operators: Open Data Hub's, the Go operator, or another cfo.

Two operators that reconcile the same objects overwrite each other's children. What a tenant can create in its own
namespace, a Deployment or a Lease, is only a warning; webhook configurations are the administrator's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

from cfo.api.reading import items, path, text, time_of
from cfo.checks.components import read_deployments
from cfo.checks.findings import Finding, Subject, fail, ok, warn
from cfo.config.document import parse, single_document
from cfo.config.model import LeaderElection, OperatorConfiguration
from cfo.config.section import ConfigurationError
from cfo.manifests.names import DEPLOYMENT, PREFIX
from cfo.runtime import CONFIG_MAP, APIError, Client, NamespacedName, Object, namespace_of
from cfo.runtime.objects import (
    LEASE,
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from cfo.version import CONFIG_MAP_NAME

_WEBHOOK_SUFFIX: Final = "raycluster.ray.openshift.ai"
_MAX_SHOWN: Final = 10
_STALE: Final = timedelta(minutes=1)
_REMEDY: Final = (
    "keep one: set codeflare to Removed in the DataScienceCluster if it is Open Data Hub's, or delete the other "
    "installation; or give both disjoint watchNamespaces"
)


@dataclass(slots=True)
class OtherOperator:
    """What shows that there is an operator in another namespace: ``webhooks`` and ``signs`` are names for the user.

    ``configuration``: that in its ConfigMap; ``None`` if there is none that can be read, as of other operators.
    """

    webhooks: list[str] = field(default_factory=list)
    signs: list[str] = field(default_factory=list)
    configuration: OperatorConfiguration | None = None


async def check(subject: Subject) -> Iterable[Finding]:
    """Check whether another CodeFlare operator reconciles the same objects."""
    return findings(await _others(subject.client, subject.namespace), subject.configuration)


def findings(
    others: Mapping[str, OtherOperator], configuration: OperatorConfiguration
) -> Iterator[Finding]:
    """Yield a finding for each operator in another namespace; ``configuration`` is that of the checked one."""
    for namespace, other in islice(sorted(others.items()), _MAX_SHOWN):
        where = f"another CodeFlare operator in namespace {namespace} ({', '.join([*other.webhooks, *other.signs])})"
        if other.webhooks:
            yield fail(f"{where} has webhooks for RayClusters", _REMEDY)
        elif _overlap(configuration, other.configuration or OperatorConfiguration()):
            yield warn(f"{where} reconciles the same namespaces", _REMEDY)
        else:
            yield ok(f"{where} reconciles other namespaces or labels")
    if not others:
        yield ok("no other CodeFlare operator was found")


def _overlap(one: OperatorConfiguration, other: OperatorConfiguration) -> bool:
    """Return whether two operators can reconcile the same object; selectors that differ are taken as disjoint."""
    if one.watch_namespaces and other.watch_namespaces:
        return not set(one.watch_namespaces).isdisjoint(other.watch_namespaces)
    return (
        not one.label_selector
        or not other.label_selector
        or one.label_selector == other.label_selector
    )


async def _others(client: Client, namespace: str) -> dict[str, OtherOperator]:
    others: dict[str, OtherOperator] = {}
    for kind in (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION):
        for configuration in await client.list(kind, live=True):
            for where in _namespaces_of_services(configuration) - {namespace}:
                found = others.setdefault(where, OtherOperator()).webhooks
                found.append(f"{kind.kind} {configuration['metadata']['name']}")
    for key, image in await read_deployments(client, [PREFIX], DEPLOYMENT):
        if key.namespace != namespace:
            signs = others.setdefault(key.namespace, OtherOperator()).signs
            signs.append(f"Deployment {key.name}, image {text(image)}")
    name = LeaderElection().resource_name
    for lease in await client.list(LEASE, field_selector=f"metadata.name={name}", live=True):
        if namespace_of(lease) != namespace and _is_held(lease):
            others.setdefault(namespace_of(lease), OtherOperator()).signs.append(f"Lease {name}")
    for where, other in islice(sorted(others.items()), _MAX_SHOWN):
        other.configuration = await _configuration(client, where)
    return others


def _namespaces_of_services(configuration: Object) -> set[str]:
    """Return the namespaces of the Services that a CodeFlare operator's webhooks for RayClusters lead to."""
    return {
        text(path(webhook, "clientConfig", "service", "namespace"))
        for webhook in items(configuration.get("webhooks"))
        if text(webhook.get("name")).endswith(_WEBHOOK_SUFFIX)
        and path(webhook, "clientConfig", "service")
    }


def _is_held(lease: Object) -> bool:
    renewed = time_of(path(lease, "spec", "renewTime"))
    return (
        bool(path(lease, "spec", "holderIdentity"))
        and renewed is not None
        and datetime.now(UTC) - renewed < _STALE
    )


async def _configuration(client: Client, namespace: str) -> OperatorConfiguration | None:
    try:
        found = await client.get(CONFIG_MAP, NamespacedName(namespace, CONFIG_MAP_NAME), live=True)
        return parse(single_document((found or {}).get("data") or {})[1]).configuration
    except (APIError, ConfigurationError):
        return None
