"""Refuses updates through an older version of the API that remove fields which that version does not have.

API servers read the stored object through the schema of the version in the request. So an update through ``v1alpha1``,
such as a new label, removes ``managedBy``, ``tlsOptions`` and others, and a webhook gets the old object without them,
too. Only the stored object shows it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from inspect import isawaitable
from typing import Any

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.api.reading import mapping
from cfo.runtime import Client, Object, key_of
from cfo.runtime.webhook import AdmissionRequest, Denied, Validator, Warnings


class OlderVersions(Validator[Object]):
    """Validates like ``validator``, and checks what an update through an older version removes."""

    def __init__(self, validator: Validator[Object], client: Client) -> None:
        self._validator = validator
        self._client = client

    def validate_create(
        self, obj: Object, request: AdmissionRequest
    ) -> Warnings | Awaitable[Warnings]:
        """Validate the creation of ``obj``."""
        if _is_older(request):
            request.warn(
                f"{request.request_kind.api_version} lacks fields of RayClusters, also such as the operator adds: use "
                f"{RAY_CLUSTER.api_version}"
            )
        return self._validator.validate_create(obj, request)

    async def validate_update(
        self, old: Object, obj: Object, request: AdmissionRequest
    ) -> Warnings:
        """Validate the update of ``old`` to ``obj``. Raises the errors of the read of the stored object."""
        if _is_older(request):
            stored = await self._client.get(RAY_CLUSTER, key_of(old), live=True)
            _check_kept(mapping(stored), old, request)
        warnings = self._validator.validate_update(old, obj, request)
        if isawaitable(warnings):
            return await warnings
        return warnings

    def validate_delete(
        self, obj: Object, request: AdmissionRequest
    ) -> Warnings | Awaitable[Warnings]:
        """Validate the deletion of ``obj``."""
        return self._validator.validate_delete(obj, request)


def _is_older(request: AdmissionRequest) -> bool:
    """Return whether the user's request is for another version than that of the webhook."""
    return request.request_kind.version not in ("", RAY_CLUSTER.version)


def _check_kept(stored: Mapping[str, Any], old: Object, request: AdmissionRequest) -> None:
    """Raise :class:`Denied` if ``stored`` has fields below ``spec`` that ``old`` lacks: the update removes them."""
    removed = mapping(stored.get("spec")).keys() - mapping(old.get("spec")).keys()
    if removed:
        names = ", ".join(f"spec.{name}" for name in sorted(removed))
        raise Denied(
            f"{request.request_kind.api_version} lacks {names} of this RayCluster, which the update would remove: use "
            f"{RAY_CLUSTER.api_version}"
        )
