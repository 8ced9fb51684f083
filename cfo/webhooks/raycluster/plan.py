"""What is done to which group of a RayCluster: the one place where that is decided, for defaulting and validating.

A new cluster gets what the settings ask for. At an update the injected parts are those of the old object: neither
another version of the operator nor another image changes a pod template by itself, and a cluster that was made without
them stays as it is. Beyond that only the user's own edit counts: a new worker group gets what the head has, and when
KubeRay's own TLS or authentication is turned on or off in the RayCluster, ours for that concern goes or comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from cfo.api.raycluster.cluster import uses_kuberay_auth, uses_kuberay_tls
from cfo.runtime.objects import Object
from cfo.webhooks.raycluster.groups import Group, groups_of, shape_errors
from cfo.webhooks.raycluster.mtls import following_head_service, tls_parts
from cfo.webhooks.raycluster.oauth import proxy_parts
from cfo.webhooks.raycluster.parts import Parts
from cfo.webhooks.raycluster.settings import Settings

__all__ = ["MTLS", "OAUTH", "Action", "Concern", "Step", "plan"]


class Action(Enum):
    """What a step does."""

    INJECT = auto()
    KEEP = auto()
    REMOVE = auto()


@dataclass(frozen=True, slots=True)
class Concern:
    """Something that is injected for one purpose.

    ``enabled`` and ``is_kuberays`` say whether the settings ask for it, and whether the RayCluster has KubeRay see to
    it itself; ``parts`` makes what a group gets (``None``: such a group gets nothing).
    """

    name: str
    kuberays_option: str
    enabled: Callable[[Settings], bool]
    is_kuberays: Callable[[Mapping[str, Any]], bool]
    parts: Callable[[Mapping[str, Any], Group, Settings], Parts | None]

    def is_wanted(self, cluster: Mapping[str, Any], settings: Settings) -> bool:
        """Whether ``cluster`` is to have it."""
        return self.enabled(settings) and not self.is_kuberays(cluster)


def _proxy(cluster: Mapping[str, Any], group: Group, settings: Settings) -> Parts | None:
    return proxy_parts(cluster, settings.images.oauth_proxy) if group.is_head else None


def _tls(cluster: Mapping[str, Any], group: Group, settings: Settings) -> Parts:
    return tls_parts(cluster, settings.images.cert_generator, settings.ingress_domain, is_head=group.is_head)


OAUTH: Final = Concern("OAuth proxy", "authOptions", lambda settings: settings.oauth, uses_kuberay_auth, _proxy)
MTLS: Final = Concern("mTLS", "tlsOptions", lambda settings: settings.mtls, uses_kuberay_tls, _tls)


@dataclass(frozen=True, slots=True)
class Step:
    """``parts`` of ``concern`` are put into, kept in or taken out of ``group``.

    To be kept or taken out they were in ``former``, the group as it was, as ``before``.
    """

    action: Action
    concern: Concern
    group: Group
    parts: Parts
    former: Group | None = None
    before: Parts | None = None


def plan(cluster: Object, groups: list[Group], old: Object | None, settings: Settings) -> Iterator[Step]:
    """The steps for ``cluster``, whose groups are ``groups``; ``old`` is what it replaces, ``None`` for a new one."""
    if old is not None and shape_errors(old):
        return
    # what a user writes into the status is not KubeRay's word
    facts = {**cluster, "status": (old or {}).get("status")}
    former = groups_of(old) if old is not None else []
    for concern in (OAUTH, MTLS):
        for group in groups:
            step = _step(concern, facts, group, old, former, settings)
            if step is not None:
                yield step


def _step(
    concern: Concern, cluster: Object, group: Group, old: Object | None, former: list[Group], settings: Settings
) -> Step | None:
    wanted = concern.is_wanted(cluster, settings)
    if old is None or not concern.is_wanted(old, settings):
        parts = concern.parts(cluster, group, settings) if wanted else None
        return Step(Action.INJECT, concern, group, parts) if parts is not None else None
    was = group.counterpart(former)
    model = was or former[0]  # a new group gets what the head has
    had = concern.parts(old, model, settings)
    if had is None or not had.are_in(model.pod):
        return None
    if was is None:
        parts = concern.parts(cluster, group, settings)
        return Step(Action.INJECT, concern, group, parts) if wanted and parts is not None else None
    before = had.found_in(was.pod)
    if not wanted:
        return Step(Action.REMOVE, concern, group, before, was, before)
    return Step(Action.KEEP, concern, group, following_head_service(before, old, cluster), was, before)
