"""The configuration of sharding."""

from __future__ import annotations

from pydantic import Field, StrictBool, StrictInt

from cfo.config.section import Section

__all__ = ["ShardingConfiguration"]


class ShardingConfiguration(Section):
    """Sharding: all replicas reconcile, each a part of the namespaces."""

    shards: StrictInt = Field(
        default=1,
        ge=1,
        le=256,
        description="Number of shards into which namespaces are divided, several times the number of replicas. All "
        "replicas must have the same number. With 1, only the leader reconciles. Requires leader election.",
    )
    select_on_server: StrictBool = Field(
        default=False,
        description="Whether the API server sends each replica only the objects of its shards, if it has the feature "
        "gate `ShardedListAndWatch` (alpha in Kubernetes 1.36). It distributes namespaces unevenly whose names differ "
        "only at the end.",
    )
