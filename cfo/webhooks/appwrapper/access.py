"""Checks whether the wrapped kinds are served, and whether the creator of an AppWrapper is allowed to create them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio

from cfo.runtime import GVK, APIError, Client, DiscoveryIncomplete, TransportError, UnknownKind
from cfo.runtime.client import Resource
from cfo.runtime.webhook import UserInfo

_MAX_CONCURRENT_REVIEWS: Final = 16


@dataclass(frozen=True, slots=True)
class Access:
    """The result of the review of one kind. ``resource`` is ``None`` if the kind is not served.

    ``denial`` is the message if the user lacks permission, ``failure`` the message if the review failed; both are
    empty if the user is allowed to create objects of the kind.
    """

    resource: Resource | None = None
    denial: str = ""
    failure: str = ""


class AccessReviewer:
    """Asks the API server which kinds are served and, with ``check_permissions``, which kinds users can create."""

    def __init__(self, client: Client, *, check_permissions: bool) -> None:
        self._client = client
        self._check_permissions = check_permissions

    async def review(self, kinds: Iterable[GVK], namespace: str, user: UserInfo) -> Mapping[GVK, Access]:
        """Review whether ``user`` is allowed to create objects of ``kinds`` in ``namespace``.

        Sends one SubjectAccessReview for each kind, all concurrently. Failures are reported in the result.
        """
        found: dict[GVK, Access] = {}
        limiter = anyio.CapacityLimiter(_MAX_CONCURRENT_REVIEWS)

        async def review_kind(gvk: GVK) -> None:
            try:
                resource = await self._client.mapper.resource(gvk)
                denial = ""
                if self._check_permissions and resource.namespaced:
                    async with limiter:
                        denial = await self._denial(resource, namespace, user)
                found[gvk] = Access(resource, denial)
            except UnknownKind:
                found[gvk] = Access()
            except (APIError, TransportError, DiscoveryIncomplete) as error:
                found[gvk] = Access(failure=str(error))

        async with anyio.create_task_group() as tasks:
            for gvk in set(kinds):
                tasks.start_soon(review_kind, gvk)
        return found

    async def _denial(self, resource: Resource, namespace: str, user: UserInfo) -> str:
        """Return the denial message if ``user`` is not allowed to create ``resource``; empty if allowed."""
        attributes = {
            "namespace": namespace,
            "verb": "create",
            "group": resource.gvk.group,
            "version": resource.gvk.version,
            "resource": resource.plural,
        }
        spec: dict[str, Any] = {"resourceAttributes": attributes, "user": user.username, "groups": list(user.groups)}
        if user.uid:
            spec["uid"] = user.uid
        if user.extra:
            spec["extra"] = {key: list(values) for key, values in user.extra.items()}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        response = await self._client.create(review)
        if (response.get("status") or {}).get("allowed"):
            return ""
        return f"User {user.username} is not authorized to create {resource.plural} in {namespace}"
