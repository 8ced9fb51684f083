"""Plans which entries are injected into, kept in or removed from each group of a RayCluster.

:func:`plan_injection` changes nothing and returns the finished plan. Defaulting applies its steps, and validation
compares the RayCluster with them.

A new RayCluster gets all enabled features. On an update, the injected entries of the old object are kept: a new version
of the operator or other images do not change a pod template, and RayClusters created without the entries never get
them. Only the user's own edit can change them: a new worker group gets the same entries as the head group; the init
container gets the securityContext that fits the changed one of the Ray container; and if another actor provides TLS or
authentication from now on, or no longer does, the operator's entries are removed or injected
(:mod:`cfo.api.raycluster.facts`).

A new RayCluster can contain injected entries already: an export of another one, or this webhook was called before
another webhook that hands the RayCluster to another actor. They are removed if another actor is responsible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final

import msgspec

from cfo.api.raycluster.cluster import PodGroup
from cfo.api.raycluster.enforcement import Enforcement, enforce
from cfo.api.raycluster.facts import Actor, Concern, Delegation, RayClusterFacts
from cfo.config.authentication import AuthenticationConfiguration
from cfo.runtime import Object
from cfo.runtime.objects import merged
from cfo.webhooks.raycluster.json_types import has_json_types
from cfo.webhooks.raycluster.mtls import (
    head_service_replacement,
    known_mtls_additions,
    mtls_additions,
    with_changed_ray_security,
    with_command,
    with_ray_security,
)
from cfo.webhooks.raycluster.pod_additions import PodAdditions
from cfo.webhooks.raycluster.proxies import (
    auth_proxy_additions,
    known_auth_proxy_additions,
    proxy_additions,
)


class Images(msgspec.Struct, frozen=True):
    """The images of the injected containers; the defaults of the first two equal the Go operator's."""

    oauth_proxy: str = (
        "registry.redhat.io/openshift4/ose-oauth-proxy"
        "@sha256:1ea6a01bf3e63cdcf125c6064cbd4a4a270deaf0f157b3eabb78f60556840366"
    )
    cert_generator: str = (
        "registry.redhat.io/ubi9"
        "@sha256:770cf07083e1c85ae69c25181a205b7cdef63c11b794c89b3b487d4670b4c328"
    )
    oauth2_proxy: str = "quay.io/oauth2-proxy/oauth2-proxy:v7.15.3"
    kube_rbac_proxy: str = "quay.io/brancz/kube-rbac-proxy:v0.21.0"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Images:
        """Return the images in the variables ``OAUTH_PROXY_IMAGE``, ``CERT_GENERATOR_IMAGE`` and so on.

        An unset or empty variable means the default.
        """
        given: dict[str, str] = {}
        for name in cls.__struct_fields__:
            image = environment.get(f"{name.upper()}_IMAGE")
            if image:
                given[name] = image
        return cls(**given)


class InjectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings for one admission request.

    ``version`` is the operator's version, written into the version annotation of new RayClusters. ``oauth`` is whether
    dashboards get OpenShift's OAuth proxy: it is configured, and the platform is OpenShift. ``authentication`` is the
    configuration of the proxies that dashboards get instead; ``None`` if they do not. ``mtls`` is whether Ray nodes use
    mutual TLS. ``ingress_domain`` is the domain of the client's host; empty if there is none. ``kuberay_features`` are
    the features of other actors that are known to be active (:mod:`cfo.api.raycluster.facts`).
    ``requests_certificates`` is whether Ray nodes request their certificates from the operator, instead of signing them
    with the key of the CA. ``profile`` is the name of the profile of the namespace, and ``enforced`` is what it
    enforces. ``host_limit`` is how long the names in hosts can be (``DASHBOARD_LIMIT``).
    """

    version: str
    oauth: bool
    mtls: bool
    authentication: AuthenticationConfiguration | None = None
    ingress_domain: str = ""
    kuberay_features: frozenset[str] = frozenset()
    requests_certificates: bool = False
    profile: str = ""
    enforced: frozenset[Concern] = frozenset()
    host_limit: int = 0
    images: Images = msgspec.field(default_factory=Images)


class StepAction(Enum):
    """What one step does with the entries."""

    INJECT = auto()
    KEEP = auto()
    REMOVE = auto()


class Injection(msgspec.Struct, frozen=True):
    """Something that the operator injects into pod templates.

    ``concern`` is what it provides, unless another actor does. ``is_enabled`` returns whether the settings enable it.
    ``additions`` returns the additions to a group; ``None`` if it adds nothing to such a group. ``known_additions``
    returns additions with the names of all entries that are added to such a group with any settings, by which injected
    entries are found. ``adapted`` returns the additions as they fit a pod template; ``None`` if they fit all.
    ``readapted`` returns the entries of an old pod template as they fit the one that replaces it; ``None`` if its user
    cannot change them.
    """

    name: str
    concern: Concern
    is_enabled: Callable[[InjectionSettings], bool]
    additions: Callable[[RayClusterFacts, PodGroup, InjectionSettings], PodAdditions | None]
    known_additions: Callable[[RayClusterFacts, PodGroup, InjectionSettings], PodAdditions | None]
    adapted: Callable[[PodAdditions, Object], PodAdditions] | None = None
    readapted: Callable[[PodAdditions, Object, Object], PodAdditions] | None = None

    def actor(self, facts: RayClusterFacts, settings: InjectionSettings) -> Actor:
        """Return who provides :attr:`concern` for a RayCluster."""
        return facts.actor(self.concern, settings.kuberay_features)

    def is_wanted(self, facts: RayClusterFacts, settings: InjectionSettings) -> bool:
        """Return whether the operator has to inject this into a RayCluster."""
        return self.is_enabled(settings) and self.actor(facts, settings) is Actor.OPERATOR

    def unconfirmed_delegation(
        self, facts: RayClusterFacts, settings: InjectionSettings
    ) -> Delegation | None:
        """Return the setting of a RayCluster that would delegate to another actor if its feature were confirmed."""
        if not self.is_enabled(settings):
            return None
        return facts.unconfirmed_delegation(self.concern, settings.kuberay_features)


def _proxy_additions(
    facts: RayClusterFacts, group: PodGroup, settings: InjectionSettings
) -> PodAdditions | None:
    if not group.is_head:
        return None
    images = settings.images
    if settings.authentication is None:
        return proxy_additions(facts, images.oauth_proxy)
    return auth_proxy_additions(
        facts,
        settings.authentication,
        rbac_image=images.kube_rbac_proxy,
        oauth2_image=images.oauth2_proxy,
    )


def _known_proxy_additions(
    facts: RayClusterFacts, group: PodGroup, settings: InjectionSettings
) -> PodAdditions | None:
    """Return the entries of the proxies that ``group`` has; the settings can have changed since they were injected."""
    if not group.is_head:
        return None
    if facts.has_injected_auth_proxy:
        return known_auth_proxy_additions(facts, group.pod)
    return proxy_additions(facts, settings.images.oauth_proxy)


def _mtls_additions(
    facts: RayClusterFacts, group: PodGroup, settings: InjectionSettings
) -> PodAdditions:
    return mtls_additions(
        facts,
        settings.images.cert_generator,
        settings.ingress_domain,
        is_head=group.is_head,
        requests_certificate=settings.requests_certificates,
    )


def _known_mtls_additions(
    facts: RayClusterFacts, group: PodGroup, settings: InjectionSettings
) -> PodAdditions:
    return known_mtls_additions(facts)


OAUTH: Final = Injection(
    name="OAuth proxy",
    concern=Concern.AUTHENTICATION,
    is_enabled=lambda settings: settings.oauth or settings.authentication is not None,
    additions=_proxy_additions,
    known_additions=_known_proxy_additions,
)
MTLS: Final = Injection(
    name="mTLS",
    concern=Concern.MTLS,
    is_enabled=lambda settings: settings.mtls,
    additions=_mtls_additions,
    known_additions=_known_mtls_additions,
    adapted=with_ray_security,
    readapted=with_changed_ray_security,
)
_INJECTIONS: Final = (OAUTH, MTLS)


class InjectionStep(msgspec.Struct, frozen=True):
    """One step of the plan: the ``additions`` of ``injection`` are injected into, kept in or removed from ``group``.

    ``former_group`` is the group of the old object, and ``former_additions`` are the injected entries in it; both are
    ``None`` for :attr:`StepAction.INJECT`. ``actor`` provides the concern if the entries are removed.
    """

    action: StepAction
    injection: Injection
    group: PodGroup
    additions: PodAdditions
    former_group: PodGroup | None = None
    former_additions: PodAdditions | None = None
    actor: Actor = Actor.OPERATOR


class InjectionPlan(msgspec.Struct, frozen=True):
    """What the operator injects into a RayCluster, keeps in it and removes from it, and the facts that decide this.

    ``facts`` are those of the RayCluster, and ``former`` those of the stored one that it replaces. ``former`` is
    ``None`` if the RayCluster is new, or if the stored one cannot be read; in the latter case there are no ``steps``.
    ``enforcement`` is what the profile of the namespace changes; ``None`` if it enforces nothing. ``unconfirmed`` are
    the settings that delegate to another actor although its feature is not known to be active, unless the stored
    RayCluster has them, too.
    """

    facts: RayClusterFacts
    former: RayClusterFacts | None
    enforcement: Enforcement | None
    unconfirmed: tuple[tuple[Injection, Delegation], ...]
    steps: tuple[InjectionStep, ...]


def plan_injection(
    cluster: Object, old: Object | None, settings: InjectionSettings, *, enforces: bool = False
) -> InjectionPlan:
    """Return the plan for ``cluster``, which replaces ``old`` (``None`` if it is new).

    The JSON types of ``cluster`` have been checked. With ``enforces``, the plan and its facts are those of the
    RayCluster as the profile changes it, otherwise as it is.
    """
    # Users can also write the status, but only the stored status comes from KubeRay.
    stored_status = old.get("status") if old is not None else None
    facts = RayClusterFacts({**cluster, "status": stored_status})
    former = None
    is_readable = old is None or has_json_types(old)
    if old is not None and is_readable:
        former = RayClusterFacts(old)
    enforcement = None
    if settings.enforced:
        # A stored RayCluster that cannot be read counts as equal to the one that replaces it.
        replaced = former if is_readable else facts
        enforcement = enforce(facts, replaced, settings.enforced, settings.kuberay_features)
    if enforces and enforcement:
        spec = merged(facts.cluster.get("spec") or {}, enforcement.patch)
        facts = RayClusterFacts({**facts.cluster, "spec": spec})
    steps: list[InjectionStep] = []
    if is_readable:
        for injection in _INJECTIONS:
            steps += _InjectionPlanner(injection, facts, former, settings).steps()
    return InjectionPlan(
        facts=facts,
        former=former,
        enforcement=enforcement,
        unconfirmed=_unconfirmed_delegations(facts, former, settings),
        steps=tuple(steps),
    )


def _unconfirmed_delegations(
    facts: RayClusterFacts, former: RayClusterFacts | None, settings: InjectionSettings
) -> tuple[tuple[Injection, Delegation], ...]:
    """Return the unconfirmed delegations of a RayCluster that the stored one does not have."""
    found: list[tuple[Injection, Delegation]] = []
    for injection in _INJECTIONS:
        delegation = injection.unconfirmed_delegation(facts, settings)
        if delegation is None:
            continue
        if former is None or injection.unconfirmed_delegation(former, settings) != delegation:
            found.append((injection, delegation))
    return tuple(found)


class _InjectionPlanner:
    """Plans the steps of one injection.

    What depends only on the RayCluster, or only on a group of ``former``, is computed once.
    """

    def __init__(
        self,
        injection: Injection,
        facts: RayClusterFacts,
        former: RayClusterFacts | None,
        settings: InjectionSettings,
    ) -> None:
        self._injection = injection
        self._facts = facts
        self._former = former
        self._settings = settings
        self._actor = injection.actor(facts, settings)
        self._is_wanted = injection.is_wanted(facts, settings)
        self._additions: dict[bool, PodAdditions | None] = {}
        self._found: dict[tuple[bool, str], PodAdditions | None] = {}

    def steps(self) -> list[InjectionStep]:
        """Return the steps, in the order of the groups."""
        former = self._former
        if former is not None and self._injection.is_wanted(former, self._settings):
            found = self._update_steps(former)
        else:
            found = [self._first_step(group) for group in self._facts.groups]
        return [step for step in found if step is not None]

    def _update_steps(self, former: RayClusterFacts) -> list[InjectionStep | None]:
        """Return a step or ``None`` for each group; ``former`` is a RayCluster into which entries were injected."""
        head = former.groups[0]
        rename_head_service = head_service_replacement(former.cluster, self._facts.cluster)
        steps: list[InjectionStep | None] = []
        for group in self._facts.groups:
            former_group = former.groups_by_key.get(group.key)
            # A new group gets what the head group has.
            found = self._found_in(former, former_group or head)
            if found is None:
                steps.append(None)
            elif former_group is None:
                steps.append(self._first_step(group))
            elif self._is_wanted:
                additions = with_command(found, rename_head_service)
                if self._injection.readapted is not None:
                    additions = self._injection.readapted(additions, former_group.pod, group.pod)
                steps.append(
                    InjectionStep(
                        StepAction.KEEP, self._injection, group, additions, former_group, found
                    )
                )
            else:
                steps.append(self._removal(group, former_group, found))
        return steps

    def _first_step(self, group: PodGroup) -> InjectionStep | None:
        """Return the step for a group that has no injected entries to keep."""
        if not self._is_wanted:
            return self._removal_from_new(group)
        additions = self._additions_to(group)
        if additions is None:
            return None
        return InjectionStep(StepAction.INJECT, self._injection, group, additions)

    def _removal_from_new(self, group: PodGroup) -> InjectionStep | None:
        """Return the step that removes injected entries from a new RayCluster that belongs to another actor."""
        if self._former is not None or self._actor is Actor.OPERATOR:
            return None
        additions = self._additions_to(group)
        if additions is None or not additions.were_added_to(group.pod):
            return None
        return self._removal(group, group, additions.found_in(group.pod))

    def _removal(
        self, group: PodGroup, former_group: PodGroup, found: PodAdditions
    ) -> InjectionStep:
        return InjectionStep(
            StepAction.REMOVE, self._injection, group, found, former_group, found, self._actor
        )

    def _additions_to(self, group: PodGroup) -> PodAdditions | None:
        if group.is_head not in self._additions:
            additions = self._injection.additions(self._facts, group, self._settings)
            self._additions[group.is_head] = additions
        common = self._additions[group.is_head]
        if common is None or self._injection.adapted is None:
            return common
        return self._injection.adapted(common, group.pod)

    def _found_in(self, former: RayClusterFacts, former_group: PodGroup) -> PodAdditions | None:
        """Return the entries that were injected into ``former_group`` of ``former``; ``None`` if none were."""
        key = former_group.key
        if key not in self._found:
            known = self._injection.known_additions(former, former_group, self._settings)
            found = None
            if known is not None and known.were_added_to(former_group.pod):
                found = known.found_in(former_group.pod)
            self._found[key] = found
        return self._found[key]
