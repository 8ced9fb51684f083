"""Plans which entries are injected into, kept in or removed from each group of a RayCluster.

Defaulting and validation both follow this plan.

A new RayCluster gets all enabled features. On an update, the injected entries of the old object are kept: a new version
of the operator or other images do not change a pod template, and RayClusters created without the entries never get
them. Only the user's own edit can change them: a new worker group gets the same entries as the head group, and if
another actor provides TLS or authentication from now on, or no longer does, the operator's entries are removed or
injected (:mod:`cfo.api.raycluster.facts`).

A new RayCluster can contain injected entries already: an export of another one, or this webhook was called before
another webhook that hands the RayCluster to another actor. They are removed if another actor is responsible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto
from typing import Final

import msgspec

from cfo.api.raycluster.cluster import PodGroup
from cfo.api.raycluster.enforcement import Enforcement, enforce
from cfo.api.raycluster.facts import Actor, Concern, RayClusterFacts, Request
from cfo.config.authentication import AuthenticationConfiguration
from cfo.runtime import Object
from cfo.webhooks.raycluster.json_types import has_json_types
from cfo.webhooks.raycluster.mtls import (
    head_service_replacement,
    known_mtls_additions,
    mtls_additions,
    with_command,
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
        given = {name: environment.get(f"{name.upper()}_IMAGE") for name in cls.__struct_fields__}
        return cls(**{name: image for name, image in given.items() if image})


class InjectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings for one admission request.

    ``version`` is the operator's version, written into the version annotation of new RayClusters. ``oauth`` is whether
    dashboards get OpenShift's OAuth proxy: it is configured, and the platform is OpenShift. ``authentication`` is the
    configuration of the proxies that dashboards get instead; ``None`` if they do not. ``mtls`` is whether Ray nodes use
    mutual TLS. ``ingress_domain`` is the domain of the client's host; empty if there is none. ``kuberay_features`` are
    the features of other actors that are known to be active (:mod:`cfo.api.raycluster.facts`).
    ``requests_certificates`` is whether Ray nodes request their certificates from the operator, instead of signing them
    with the key of the CA.
    ``profile`` is the name of the profile of the namespace, and ``enforced`` is what it enforces.
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
    images: Images = msgspec.field(default_factory=Images)


class Action(Enum):
    """The action of one step."""

    INJECT = auto()
    KEEP = auto()
    REMOVE = auto()


class Feature(msgspec.Struct, frozen=True):
    """A feature that the operator injects into pod templates.

    ``is_enabled`` returns whether the settings enable it. ``concern`` is what it provides, unless another actor does.
    ``additions`` returns the additions to a group; ``None`` if it adds nothing to such a group. ``known_additions``
    returns additions with the names of all entries that the feature adds to such a group with any settings, by which
    injected entries are found.
    """

    name: str
    concern: Concern
    is_enabled: Callable[[InjectionSettings], bool]
    additions: Callable[[RayClusterFacts, PodGroup, InjectionSettings], PodAdditions | None]
    known_additions: Callable[[RayClusterFacts, PodGroup, InjectionSettings], PodAdditions | None]

    def is_wanted(self, facts: RayClusterFacts, settings: InjectionSettings) -> bool:
        """Return whether the operator has to inject the feature into a RayCluster."""
        return self.is_enabled(settings) and self.actor(facts, settings) is Actor.OPERATOR

    def actor(self, facts: RayClusterFacts, settings: InjectionSettings) -> Actor:
        """Return who provides the feature for a RayCluster."""
        return facts.actor(self.concern, settings.kuberay_features)

    def unconfirmed(self, facts: RayClusterFacts, settings: InjectionSettings) -> Request | None:
        """Return the setting of a RayCluster that would request another actor if its feature were confirmed."""
        if not self.is_enabled(settings):
            return None
        return facts.unconfirmed_request(self.concern, settings.kuberay_features)


def _proxy_additions(
    facts: RayClusterFacts, group: PodGroup, settings: InjectionSettings
) -> PodAdditions | None:
    if not group.is_head:
        return None
    if settings.authentication is not None:
        images = settings.images
        return auth_proxy_additions(
            facts,
            settings.authentication,
            rbac_image=images.kube_rbac_proxy,
            oauth2_image=images.oauth2_proxy,
        )
    return proxy_additions(facts, settings.images.oauth_proxy)


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


OAUTH: Final = Feature(
    "OAuth proxy",
    Concern.AUTHENTICATION,
    lambda settings: settings.oauth or settings.authentication is not None,
    _proxy_additions,
    _known_proxy_additions,
)
MTLS: Final = Feature(
    "mTLS",
    Concern.MTLS,
    lambda settings: settings.mtls,
    _mtls_additions,
    lambda facts, group, settings: known_mtls_additions(facts),
)


class InjectionStep(msgspec.Struct, frozen=True):
    """One step of the plan: the ``additions`` of ``feature`` are injected into, kept in or removed from ``group``.

    ``former_group`` is the group of the old object, and ``former_additions`` are the injected entries in it; both are
    ``None`` for :attr:`Action.INJECT`. ``actor`` provides the feature if the entries are removed.
    """

    action: Action
    feature: Feature
    group: PodGroup
    additions: PodAdditions
    former_group: PodGroup | None = None
    former_additions: PodAdditions | None = None
    actor: Actor = Actor.OPERATOR


class Review(msgspec.Struct, frozen=True):
    """The RayCluster of one review, and the stored one that it replaces.

    ``old`` is ``None`` if the RayCluster is new, and ``is_readable`` is ``False`` if the stored one has wrong JSON
    types, which it got without the webhooks. ``settings`` are those of the namespace.
    """

    facts: RayClusterFacts
    old: RayClusterFacts | None
    settings: InjectionSettings
    is_readable: bool = True

    @classmethod
    def of(cls, cluster: Object, old: Object | None, settings: InjectionSettings) -> Review:
        """Return the review of ``cluster``, which replaces ``old``. The JSON types of ``cluster`` have been checked."""
        # Users can also write the status, but only the stored status comes from KubeRay.
        facts = RayClusterFacts({**cluster, "status": (old or {}).get("status")})
        if old is None:
            return cls(facts, None, settings)
        return cls(facts, RayClusterFacts(old), settings, has_json_types(old))

    @property
    def former(self) -> RayClusterFacts | None:
        """The stored RayCluster, unless there is none that can be read."""
        return self.old if self.is_readable else None


def plan_injection(review: Review) -> Iterator[InjectionStep]:
    """Yield the steps for each group of a RayCluster."""
    if not review.is_readable:
        return
    for feature in (OAUTH, MTLS):
        plan = _FeaturePlan(feature, review)
        for group in review.facts.groups:
            step = plan.step(group)
            if step is not None:
                yield step


def required_changes(review: Review) -> Enforcement | None:
    """Return what the profile of the namespace changes in a RayCluster; ``None`` if there is no profile."""
    settings = review.settings
    if not settings.enforced:
        return None
    former = review.old if review.is_readable else review.facts
    return enforce(review.facts, former, settings.enforced, settings.kuberay_features)


class _FeaturePlan:
    """The steps of one feature. What depends only on the RayCluster or on a group of ``old`` is computed once."""

    def __init__(self, feature: Feature, review: Review) -> None:
        facts, old, settings = review.facts, review.old, review.settings
        former_groups = old.groups if old is not None else []
        self._feature = feature
        self._facts = facts
        self._old = old
        self._settings = settings
        self._actor = feature.actor(facts, settings)
        self._wanted = feature.is_wanted(facts, settings)
        self._was_wanted = old is not None and feature.is_wanted(old, settings)
        self._head = former_groups[0] if former_groups else None
        self._former = {
            group.key: group for group in reversed(former_groups)
        }  # of several of one name the first
        self._additions: dict[bool, PodAdditions | None] = {}
        self._command = (
            head_service_replacement(old.cluster, facts.cluster) if old is not None else list
        )
        self._found: dict[tuple[bool, str], PodAdditions | None] = {}

    def step(self, group: PodGroup) -> InjectionStep | None:
        """Return the step for ``group``; ``None`` if the group needs no change."""
        if self._old is None or self._head is None or not self._was_wanted:
            return self._injection(group)
        former_group = self._former.get(group.key)
        found = self._found_in(
            former_group or self._head
        )  # a new group gets what the head group has
        if found is None:
            return None
        if former_group is None:
            return self._injection(group)
        if not self._wanted:
            return InjectionStep(
                Action.REMOVE, self._feature, group, found, former_group, found, self._actor
            )
        additions = with_command(found, self._command)
        return InjectionStep(Action.KEEP, self._feature, group, additions, former_group, found)

    def _injection(self, group: PodGroup) -> InjectionStep | None:
        if not self._wanted:
            return self._removal_from_new(group)
        additions = self._additions_to(group)
        return (
            InjectionStep(Action.INJECT, self._feature, group, additions)
            if additions is not None
            else None
        )

    def _removal_from_new(self, group: PodGroup) -> InjectionStep | None:
        """Return the step that removes injected entries from a new RayCluster that belongs to another actor."""
        if self._old is not None or self._actor is Actor.OPERATOR:
            return None
        additions = self._additions_to(group)
        if additions is None or not additions.were_added_to(group.pod):
            return None
        found = additions.found_in(group.pod)
        return InjectionStep(Action.REMOVE, self._feature, group, found, group, found, self._actor)

    def _additions_to(self, group: PodGroup) -> PodAdditions | None:
        if group.is_head not in self._additions:
            self._additions[group.is_head] = self._feature.additions(
                self._facts, group, self._settings
            )
        return self._additions[group.is_head]

    def _found_in(self, former_group: PodGroup) -> PodAdditions | None:
        """Return the entries that were injected into ``former_group`` of the old object; ``None`` if none were."""
        key = former_group.key
        if key not in self._found:
            assert self._old is not None
            expected = self._feature.known_additions(self._old, former_group, self._settings)
            added = expected is not None and expected.were_added_to(former_group.pod)
            self._found[key] = (
                expected.found_in(former_group.pod) if expected is not None and added else None
            )
        return self._found[key]
