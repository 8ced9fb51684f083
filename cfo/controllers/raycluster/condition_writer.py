"""Writes the conditions that the operator adds to the status of a RayCluster."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from cfo.api.raycluster.conditions import CONDITION_TYPES
from cfo.runtime import (
    Client,
    Clock,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Object,
    find_condition,
    key_of,
    namespace_of,
    rfc3339,
    set_condition,
)
from cfo.runtime.client import apply_status

_log = structlog.get_logger("cfo.controllers.raycluster")


class ConditionWriter:
    """Applies conditions, unless they are stored already; a failure prevents nothing else."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._forbidden: set[str] = set()
        """Namespaces in which a policy, or RBAC, denies it."""

    async def write(self, cluster: Object, desired: Sequence[Object]) -> None:
        """Apply the conditions of one cluster if they changed."""
        stored = (cluster.get("status") or {}).get("conditions") or []
        if namespace_of(cluster) in self._forbidden or _contains(stored, desired):
            return
        conditions = [dict(known) for known in stored if known.get("type") in CONDITION_TYPES]
        for condition in desired:
            set_condition(conditions, condition, now=rfc3339(self._clock.now()))
        try:
            # not forced: it would replace all conditions if the schema does not make them a map
            await apply_status(self._client, cluster, {"conditions": conditions}, force=False)
        except Forbidden as error:
            # Until a restart; everything else works without the conditions. A policy can deny it in one namespace.
            self._forbidden.add(namespace_of(cluster))
            _log.warning(
                "Permission denied, cannot write the conditions of RayClusters",
                namespace=namespace_of(cluster),
                cause=error.message,
            )
        except (Conflict, Invalid, NotFound) as error:
            _log.info("Conditions not written", object=str(key_of(cluster)), error=str(error))


def _contains(stored: Sequence[Object], desired: Sequence[Object]) -> bool:
    for condition in desired:
        known = find_condition(stored, condition["type"]) or {}
        if not condition.items() <= known.items():
            return False
    return True
