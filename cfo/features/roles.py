"""The optional roles that a configuration needs, and whether they are installed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import structlog

from cfo.config.part import Part
from cfo.features import OPTIONAL_ROLES
from cfo.features.contract import OptionalRole
from cfo.features.scopes import probes
from cfo.runtime import (
    APIError,
    DiscoveryIncomplete,
    Object,
    Rule,
    TransportError,
    UnknownKind,
    labels_of,
)
from cfo.runtime.client import is_allowed

if TYPE_CHECKING:
    from cfo.config.model import OperatorConfiguration
    from cfo.runtime import Client

_log = structlog.get_logger("cfo.features")


async def enabled_roles(client: Client, configuration: OperatorConfiguration) -> list[OptionalRole]:
    """Return the optional roles that ``configuration`` and the platform enable.

    Raises :class:`cfo.runtime.client.errors.APIError` and :class:`cfo.runtime.TransportError`.
    """
    found = []
    for role in OPTIONAL_ROLES:
        if not role.is_enabled(configuration):
            continue
        try:
            if role.platform_kind is not None:
                await client.mapper.resource(role.platform_kind)
        except (UnknownKind, DiscoveryIncomplete):
            continue  # another platform, or its API server does not respond, and then the controllers retry
        found.append(role)
    return found


async def retained_roles(
    client: Client, enabled: Sequence[OptionalRole], configuration: OperatorConfiguration
) -> list[OptionalRole]:
    """Return the roles that are not ``enabled``, but without which existing objects cannot be deleted.

    Those of other namespaces than the ``watchNamespaces`` of ``configuration`` belong to another operator.
    Raises :class:`cfo.runtime.client.errors.APIError` and :class:`cfo.runtime.TransportError`.
    """
    found = []
    part = Part.of(configuration, "")
    for role in OPTIONAL_ROLES:
        retained = role.retained
        if retained is None or role in enabled:
            continue
        objects = await client.list(retained.gvk, label_selector=retained.label, live=True)
        namespaces = {labels_of(obj).get(retained.namespace_label, "") for obj in objects}
        if any(map(part.has_namespace, namespaces)):
            found.append(role)
    return found


async def warn_about_missing_roles(
    client: Client,
    roles: Iterable[OptionalRole],
    configuration: OperatorConfiguration,
    namespace: str,
) -> None:
    """Log a warning for each of ``roles`` that is not installed, with the component that contains it.

    ``cfo doctor`` prints the command that installs it: that depends on the options with which the operator in
    ``namespace`` was installed.

    A failed request is ignored, because the controllers report missing permissions as well.
    """
    for role in roles:
        try:
            is_present = await is_installed(client, role, configuration, namespace)
        except (APIError, TransportError):
            continue
        if not is_present:
            _log.warning(
                f"The role for {role.title} is not installed, waiting for it",
                component=role.name,
                remedy=f"cfo doctor --namespace {namespace} prints the command that installs it",
            )


async def is_installed(
    client: Client,
    role: OptionalRole,
    configuration: OperatorConfiguration,
    namespace: str,
    user: Mapping[str, Any] | None = None,
) -> bool:
    """Return whether the operator in ``namespace`` has ``role``, in at least one of its namespaces.

    ``user``: as :func:`cfo.runtime.client.service_account` returns it; by default, this process.
    """
    for permissions in probes(role, configuration, namespace):
        if await has_all(client, permissions, user):
            return True
    return False


async def has_all(
    client: Client, permissions: Iterable[Rule], user: Mapping[str, Any] | None = None
) -> bool:
    """Return whether ``user``, or this process, has the first permission of each rule.

    ``user``: as :func:`cfo.runtime.client.service_account` returns it.
    """
    for rule in permissions:
        attributes = attributes_of(rule)
        if not await is_allowed(client, resourceAttributes=attributes, **(user or {})):
            return False
    return True


def attributes_of(rule: Rule) -> Object:
    """Return the attributes of the first permission in ``rule``, for a review."""
    resource, _, subresource = rule.resources[0].partition("/")
    return {
        "group": rule.group,
        "resource": resource,
        "subresource": subresource,
        "verb": rule.verbs[0],
        "namespace": rule.namespace,
        "name": rule.resource_names[0] if rule.resource_names else "",
    }
