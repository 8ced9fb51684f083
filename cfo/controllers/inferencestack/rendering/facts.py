"""What rendering must know about the cluster, and the number of replicas that follows from it.

Everything else follows from the spec and the profile. A stack is rendered correctly without any facts; they make sure
that nothing restarts or loses its number of replicas while it runs.

While an autoscaler scales an application, its number of replicas is not ours to write. But as long as our field manager
is the only owner of ``spec.replicas``, leaving the field out would reset it to 1; so the current number is repeated
until another manager has changed it. When the autoscaler is switched off, the current number is kept until
``replicaCount`` changes. The same labels remember the number of a suspended Deployment.

A user can create an autoscaler for a Deployment whose scaling is not enabled. Its number is not overwritten either, or
both would change it again and again; ``replicaCount`` is written once when it changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cfo.api.gateway import HTTP_ROUTE
from cfo.api.inferencestack.kinds import SCALED_OBJECT, SERVICE_MONITOR
from cfo.api.inferencestack.names import (
    ADOPTED_CONFIG_HASH,
    AUTOSCALED,
    CONFIG_HASH,
    CONFIG_KEY,
    HELM_LABELS,
    KEPT_FOR_REPLICA_COUNT,
    KEPT_REPLICAS,
    SCALED_BY_OTHERS,
)
from cfo.runtime import GVK, Object, annotations_of, labels_of

OPTIONAL_KINDS = frozenset({HTTP_ROUTE, SCALED_OBJECT, SERVICE_MONITOR})
"""The kinds of rendered objects that a cluster might not serve."""

_MAX_REPLICAS = 2**31 - 1

_MAX_VALUE: Final = 63
"""The maximum length of a label's value."""

_LABELS: Final = (
    ADOPTED_CONFIG_HASH,
    AUTOSCALED,
    KEPT_FOR_REPLICA_COUNT,
    KEPT_REPLICAS,
    SCALED_BY_OTHERS,
)
"""The labels of a Deployment that are read."""


@dataclass(frozen=True, slots=True)
class LiveDeployment:
    """An existing Deployment of the stack.

    ``owns_replicas`` is whether our field manager owns ``spec.replicas`` (through server-side apply): if it does not,
    an autoscaler, Helm or a user has set it. ``is_autoscaled`` is whether an autoscaler has. Of labels and
    annotations, only those are kept that are read, because users can add any number of them.
    """

    replicas: int = 1
    owns_replicas: bool = False
    is_autoscaled: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    template_labels: Mapping[str, str] = field(default_factory=dict)
    template_annotations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, deployment: Object, *, owns_replicas: bool = False, is_autoscaled: bool = False
    ) -> LiveDeployment:
        """Return the facts about ``deployment``."""
        spec: Mapping[str, Any] = deployment.get("spec") or {}
        metadata: Mapping[str, Any] = (spec.get("template") or {}).get("metadata") or {}
        replicas = spec.get("replicas")
        return cls(
            replicas=1 if replicas is None else int(replicas),
            owns_replicas=owns_replicas,
            is_autoscaled=is_autoscaled,
            labels=_selected(labels_of(deployment), _LABELS),
            template_labels=_selected(metadata.get("labels"), HELM_LABELS),
            template_annotations=_selected(metadata.get("annotations"), (CONFIG_HASH,)),
        )


def _selected(values: Mapping[str, str] | None, names: Iterable[str]) -> dict[str, str]:
    """Return those of ``values`` with these names; what is too long for a label is cut."""
    found = values or {}
    return {name: found[name][:_MAX_VALUE] for name in names if name in found}


def config_hash(content: str) -> str:
    """Return the hash of a configuration file, for annotations."""
    return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class StoredConfig:
    """The configuration in an existing ConfigMap: its hash, and the one that was ``recorded`` at the adoption."""

    content_hash: str
    recorded: str = ""

    @classmethod
    def of(cls, config_map: Object) -> StoredConfig:
        """Return the facts about ``config_map``."""
        content = str((config_map.get("data") or {}).get(CONFIG_KEY) or "")
        recorded = annotations_of(config_map).get(ADOPTED_CONFIG_HASH, "")
        return cls(config_hash(content), recorded[:_MAX_VALUE])


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about one stack. Existing objects are by name; those of other owners must be left out."""

    served: frozenset[GVK] = OPTIONAL_KINDS
    """The kinds of :data:`OPTIONAL_KINDS` that the cluster serves."""
    deployments: Mapping[str, LiveDeployment] = field(default_factory=dict)
    config_maps: Mapping[str, StoredConfig] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Replicas:
    """The number of replicas to write (``None``: not to write), and the labels of the Deployment."""

    count: int | None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AutoscalerFacts:
    """The autoscaler of an application that has one: whether its kind is served, and its minimum of replicas."""

    available: bool
    minimum: int = 1


def decide_replicas(
    replica_count: int,
    live: LiveDeployment | None,
    *,
    scaling: AutoscalerFacts | None = None,
    suspended: bool = False,
) -> Replicas:
    """Decide the number of replicas of a Deployment with this ``replicaCount``; ``scaling``: its autoscaler."""
    kept = _kept(live)
    if suspended:
        if live is not None and live.replicas > 0:
            kept = _keep(live.replicas, replica_count)
        return Replicas(0, kept)
    if scaling is not None:
        return _autoscaled(live, scaling, kept)
    if live is not None and AUTOSCALED in live.labels and live.replicas > 0:
        kept = _keep(live.replicas, replica_count)
    elif live is not None and AUTOSCALED not in live.labels and not live.owns_replicas:
        noticed = live.labels.get(SCALED_BY_OTHERS)
        if noticed == str(replica_count) or (noticed is None and live.is_autoscaled):
            return Replicas(None, {SCALED_BY_OTHERS: str(replica_count)})
    if kept.get(KEPT_FOR_REPLICA_COUNT) != str(replica_count) or kept[KEPT_REPLICAS] == str(
        replica_count
    ):
        return Replicas(replica_count)
    return Replicas(int(kept[KEPT_REPLICAS]), kept)


def _autoscaled(
    live: LiveDeployment | None, scaling: AutoscalerFacts, kept: Mapping[str, str]
) -> Replicas:
    minimum = max(1, scaling.minimum)
    marked = {AUTOSCALED: "true"}
    if not scaling.available:
        if live is not None and AUTOSCALED in live.labels and live.replicas > 0:
            return Replicas(live.replicas, marked)
        return Replicas(minimum)
    if live is None:
        return Replicas(None, marked)
    if live.replicas == 0 and kept:  # it was suspended
        return Replicas(int(kept[KEPT_REPLICAS]), marked)
    if live.owns_replicas:
        return Replicas(live.replicas or minimum, marked)
    return Replicas(None, marked)


def _keep(replicas: int, replica_count: int) -> dict[str, str]:
    return {KEPT_REPLICAS: str(replicas), KEPT_FOR_REPLICA_COUNT: str(replica_count)}


def _kept(live: LiveDeployment | None) -> dict[str, str]:
    """Return the labels that remember a number of replicas; empty if there are none or they are not valid."""
    if live is None:
        return {}
    found = {key: live.labels.get(key) or "" for key in (KEPT_REPLICAS, KEPT_FOR_REPLICA_COUNT)}
    is_valid = all(
        value.isascii() and value.isdigit() and len(value) <= 10 for value in found.values()
    )
    return found if is_valid and 0 < int(found[KEPT_REPLICAS]) <= _MAX_REPLICAS else {}
