"""What rendering must know about the cluster: which optional kinds it serves, and what exists of the stack.

Everything else follows from the spec and the profile. A stack is rendered correctly without any facts; they make sure
that nothing restarts or loses its number of replicas while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cfo.api.gateway import HTTP_ROUTE
from cfo.api.inferencestack.kinds import SCALED_OBJECT, SERVICE_MONITOR
from cfo.api.inferencestack.names import CONFIG_KEY
from cfo.runtime import GVK, Object, annotations_of, labels_of

__all__ = ["OPTIONAL_KINDS", "Facts", "LiveConfigMap", "LiveDeployment"]

OPTIONAL_KINDS = frozenset({HTTP_ROUTE, SCALED_OBJECT, SERVICE_MONITOR})
"""The kinds of rendered objects that a cluster might not serve."""


@dataclass(frozen=True, slots=True)
class LiveDeployment:
    """An existing Deployment of the stack.

    ``owns_replicas`` is whether our field manager owns ``spec.replicas`` (through server-side apply): if it does not,
    an autoscaler, Helm or a user has set it.
    """

    replicas: int = 1
    owns_replicas: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    template_labels: Mapping[str, str] = field(default_factory=dict)
    template_annotations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, deployment: Object, *, owns_replicas: bool) -> LiveDeployment:
        """Return the facts about ``deployment``."""
        spec: Mapping[str, Any] = deployment.get("spec") or {}
        metadata: Mapping[str, Any] = (spec.get("template") or {}).get("metadata") or {}
        replicas = spec.get("replicas")
        return cls(
            replicas=1 if replicas is None else int(replicas),
            owns_replicas=owns_replicas,
            labels=labels_of(deployment),
            template_labels=metadata.get("labels") or {},
            template_annotations=metadata.get("annotations") or {},
        )


@dataclass(frozen=True, slots=True)
class LiveConfigMap:
    """An existing ConfigMap of the stack; ``content`` is its configuration file."""

    content: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, config_map: Object) -> LiveConfigMap:
        """Return the facts about ``config_map``."""
        return cls(str((config_map.get("data") or {}).get(CONFIG_KEY) or ""), annotations_of(config_map))


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about one stack. Existing objects are by name; those of other owners must be left out."""

    served: frozenset[GVK] = OPTIONAL_KINDS
    """The kinds of :data:`OPTIONAL_KINDS` that the cluster serves."""
    deployments: Mapping[str, LiveDeployment] = field(default_factory=dict)
    config_maps: Mapping[str, LiveConfigMap] = field(default_factory=dict)
