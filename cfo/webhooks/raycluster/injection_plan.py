"""Plans which entries are injected into, kept in or removed from each group of a RayCluster.

Defaulting and validation both follow this plan.

A new RayCluster gets all enabled features. On an update, the injected entries of the old object are kept: a new version
of the operator or other images do not change a pod template, and RayClusters created without the entries never get
them. Only the user's own edit can change them: a new worker group gets the same entries as the head group, and if the
user enables or disables KubeRay's own TLS or authentication, the operator's entries are removed or injected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from cfo.api.raycluster.cluster import uses_kuberay_auth, uses_kuberay_tls
from cfo.runtime import Object
from cfo.webhooks.raycluster.injection_settings import InjectionSettings
from cfo.webhooks.raycluster.json_types import json_type_errors
from cfo.webhooks.raycluster.mtls import mtls_additions, with_head_service_of
from cfo.webhooks.raycluster.oauth_proxy import proxy_additions
from cfo.webhooks.raycluster.pod_additions import PodAdditions
from cfo.webhooks.raycluster.pod_groups import PodGroup, pod_groups_of

__all__ = ["MTLS", "OAUTH", "Action", "Feature", "InjectionStep", "plan_injection"]


class Action(Enum):
    """The action of one step."""

    INJECT = auto()
    KEEP = auto()
    REMOVE = auto()


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature that the operator injects into pod templates.

    ``is_enabled`` returns whether the settings enable it. ``is_done_by_kuberay`` returns whether the RayCluster uses
    KubeRay's own implementation, which the RayCluster's field ``kuberay_field`` enables. ``additions`` returns the
    additions to a group; ``None`` if it adds nothing to such a group.
    """

    name: str
    kuberay_field: str
    is_enabled: Callable[[InjectionSettings], bool]
    is_done_by_kuberay: Callable[[Mapping[str, Any]], bool]
    additions: Callable[[Mapping[str, Any], PodGroup, InjectionSettings], PodAdditions | None]

    def is_wanted(self, cluster: Mapping[str, Any], settings: InjectionSettings) -> bool:
        """Return whether the operator has to inject the feature into ``cluster``."""
        return self.is_enabled(settings) and not self.is_done_by_kuberay(cluster)


def _proxy_additions(cluster: Mapping[str, Any], group: PodGroup, settings: InjectionSettings) -> PodAdditions | None:
    return proxy_additions(cluster, settings.images.oauth_proxy) if group.is_head else None


def _mtls_additions(cluster: Mapping[str, Any], group: PodGroup, settings: InjectionSettings) -> PodAdditions:
    return mtls_additions(cluster, settings.images.cert_generator, settings.ingress_domain, is_head=group.is_head)


OAUTH: Final = Feature(
    "OAuth proxy", "authOptions", lambda settings: settings.oauth, uses_kuberay_auth, _proxy_additions
)
MTLS: Final = Feature("mTLS", "tlsOptions", lambda settings: settings.mtls, uses_kuberay_tls, _mtls_additions)


@dataclass(frozen=True, slots=True)
class InjectionStep:
    """One step of the plan: the ``additions`` of ``feature`` are injected into, kept in or removed from ``group``.

    ``former_group`` is the group of the old object, and ``former_additions`` are the injected entries in it; both are
    ``None`` for :attr:`Action.INJECT`.
    """

    action: Action
    feature: Feature
    group: PodGroup
    additions: PodAdditions
    former_group: PodGroup | None = None
    former_additions: PodAdditions | None = None


def plan_injection(
    cluster: Object, groups: list[PodGroup], old: Object | None, settings: InjectionSettings
) -> Iterator[InjectionStep]:
    """Yield the steps for ``cluster``, whose groups are ``groups``; ``old`` is ``None`` for a new RayCluster."""
    if old is not None and json_type_errors(old):
        return
    # Users can also write the status, but only the stored status comes from KubeRay.
    with_stored_status = {**cluster, "status": (old or {}).get("status")}
    former_groups = pod_groups_of(old) if old is not None else []
    for feature in (OAUTH, MTLS):
        for group in groups:
            step = _step(feature, with_stored_status, group, old, former_groups, settings)
            if step is not None:
                yield step


def _step(
    feature: Feature,
    cluster: Object,
    group: PodGroup,
    old: Object | None,
    former_groups: list[PodGroup],
    settings: InjectionSettings,
) -> InjectionStep | None:
    wanted = feature.is_wanted(cluster, settings)
    if old is None or not feature.is_wanted(old, settings):
        additions = feature.additions(cluster, group, settings) if wanted else None
        return InjectionStep(Action.INJECT, feature, group, additions) if additions is not None else None
    former_group = group.counterpart(former_groups)
    reference = former_group or former_groups[0]  # a new group gets the same entries as the head group
    expected = feature.additions(old, reference, settings)
    if expected is None or not expected.were_added_to(reference.pod):
        return None
    if former_group is None:
        additions = feature.additions(cluster, group, settings)
        return InjectionStep(Action.INJECT, feature, group, additions) if wanted and additions is not None else None
    found = expected.found_in(former_group.pod)
    if not wanted:
        return InjectionStep(Action.REMOVE, feature, group, found, former_group, found)
    return InjectionStep(Action.KEEP, feature, group, with_head_service_of(found, old, cluster), former_group, found)
