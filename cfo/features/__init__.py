"""The features of the operator. :data:`FEATURES` is the only list of them; everything else iterates over it.

Each optional feature has a role of its own, which is installed only with the feature, so that an operator without
AppWrappers cannot create pods, for example. The configuration, or the platform, enables a feature; if its role is
missing, the controllers of the feature wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import structlog

from cfo.features import appwrapper, dashboard, flux, inferencestack, raycluster
from cfo.features.contract import Feature
from cfo.runtime import APIError, DiscoveryIncomplete, Object, Rule, TransportError, UnknownKind
from cfo.runtime.client import is_allowed

if TYPE_CHECKING:
    from cfo.config.model import OperatorConfiguration
    from cfo.runtime import Client
    from cfo.summaries.kind_view import KindView

_log = structlog.get_logger("cfo.features")

FEATURES: Final = (
    raycluster.RAY_CLUSTERS,  # before all features that embed RayClusters
    appwrapper.APPWRAPPERS,
    appwrapper.KUEUE,
    flux.FLUX,
    inferencestack.STACKS,
    raycluster.AUTHENTICATION,
    raycluster.OPENSHIFT,
    raycluster.GATEWAY,
    raycluster.NAMESPACES,
    raycluster.CERTIFICATE_REQUESTS,
    dashboard.DASHBOARD,
)

OPTIONAL: Final = tuple(feature for feature in FEATURES if feature.probe is not None)
"""The features with a role of their own, which are components of the manifests."""


async def enabled_features(client: Client, configuration: OperatorConfiguration) -> list[Feature]:
    """Return the optional features that ``configuration`` and the platform enable.

    Raises :class:`cfo.runtime.client.errors.APIError` and :class:`cfo.runtime.TransportError`.
    """
    found = []
    for feature in OPTIONAL:
        if not feature.enabled(configuration):
            continue
        try:
            if feature.platform_kind is not None:
                await client.mapper.resource(feature.platform_kind)
        except (UnknownKind, DiscoveryIncomplete):
            continue  # another platform, or its API server does not respond, and then the controllers retry
        found.append(feature)
    return found


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


async def warn_about_missing_roles(client: Client, features: Iterable[Feature]) -> None:
    """Log a warning for each of ``features`` whose role is not installed, with the component that contains it.

    A failed request is ignored, because the controllers report missing permissions as well.
    """
    for feature in features:
        if feature.probe is None:
            continue
        try:
            is_installed = await is_allowed(client, resourceAttributes=attributes_of(feature.probe))
        except (APIError, TransportError):
            continue
        if not is_installed:
            _log.warning(
                f"The role for {feature.title} is not installed, waiting for it",
                component=feature.name,
                install=f"cfo manifests --with {feature.name}",
            )


def all_views() -> tuple[KindView, ...]:
    """Return how people see the objects of each kind, in the order in which they are shown."""
    return tuple(view for feature in FEATURES for view in feature.views())
