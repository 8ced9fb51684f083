"""The metadata of typed resources."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from cfo.runtime.objects.resource.field_types import Int64, Time
from cfo.runtime.objects.resource.model import APIModel

__all__ = ["ObjectMeta", "OwnerReference"]


class OwnerReference(APIModel):
    """A reference to an object that owns this one."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(APIModel):
    """The metadata that every object has (`ObjectMeta`_).

    .. _ObjectMeta: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta/
    """

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: Int64 | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: list[str] = Field(default_factory=list)
    owner_references: list[OwnerReference] = Field(default_factory=list)
    managed_fields: list[dict[str, Any]] = Field(default_factory=list)
