"""Checks which objects a user is allowed to create.

The operator creates objects with its own permissions. It creates for a user only what the user is allowed to create:
webhooks ask the API server with one SubjectAccessReview for each resource, because a server answers no more in one
request. Answers are remembered for one review only: the objects in an AppWrapper need the same ones. A request that
fails or exceeds the deadline of the review is a denial.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import anyio
import msgspec
from msgspec.structs import replace

from cfo.runtime import (
    GVK,
    APIError,
    Client,
    DiscoveryIncomplete,
    FieldError,
    Rule,
    TransportError,
    UnknownKind,
)
from cfo.runtime.client import Resource, is_allowed
from cfo.runtime.objects import GVR
from cfo.runtime.objects.field import Path, forbidden, internal
from cfo.runtime.process import printable
from cfo.runtime.webhook import AdmissionRequest, UserInfo

_MAX_CONCURRENT_REVIEWS: Final = 16
_MAX_NAME: Final = 253
"""The maximum length of a user's name in a message, in characters; there is one message for each kind."""

RULES: Final = (Rule("authorization.k8s.io", "subjectaccessreviews", ("create",)),)
"""The RBAC rules that an :class:`AccessReviewer` needs."""


class Access(msgspec.Struct, frozen=True):
    """The result of the review of one kind. ``resource`` is ``None`` if the kind is not served, or was not looked up.

    ``denial`` is the message if the user lacks permission, ``failure`` the message if the review failed; both are
    empty if the user is allowed to create objects of the kind.
    """

    resource: Resource | None = None
    denial: str = ""
    failure: str = ""


class AccessReviewer:
    """Asks the API server which kinds are served and, with ``check_permissions``, which objects users can create.

    ``client`` must not read from a cache.
    """

    def __init__(self, client: Client, *, check_permissions: bool) -> None:
        self._client = client
        self._check_permissions = check_permissions

    async def review(self, kinds: Iterable[GVK], request: AdmissionRequest) -> Mapping[GVK, Access]:
        """Look up ``kinds``, and review whether the user of ``request`` is allowed to create objects of them.

        Failures are reported in the result.
        """
        found: dict[GVK, Access] = {}

        async def look_up(gvk: GVK) -> None:
            try:
                found[gvk] = Access(await self._client.mapper.resource(gvk))
            except UnknownKind:
                found[gvk] = Access()
            except (APIError, TransportError, DiscoveryIncomplete) as error:
                found[gvk] = Access(failure=str(error))

        async with anyio.create_task_group() as tasks:
            for gvk in set(kinds):
                tasks.start_soon(look_up, gvk)
        namespaced: dict[GVK, GVR] = {}
        for gvk, access in found.items():
            if access.resource is not None and access.resource.namespaced:
                namespaced[gvk] = access.resource.gvr
        reviewed = await self.review_resources(namespaced.values(), request)
        for gvk, resource in namespaced.items():
            access = reviewed[resource.group, resource.resource]
            if access.failure:
                found[gvk] = access
            else:
                found[gvk] = replace(found[gvk], denial=access.denial)
        return found

    async def review_resources(
        self, resources: Iterable[GVR], request: AdmissionRequest
    ) -> Mapping[tuple[str, str], Access]:
        """Review whether the user of ``request`` is allowed to create ``resources``, which need not be served.

        Sends one request for each group and resource that was not asked for in this review, all concurrently. The
        result has these keys.
        """
        found: dict[tuple[str, str], Access] = request.memo.setdefault(AccessReviewer, {})
        limiter = anyio.CapacityLimiter(_MAX_CONCURRENT_REVIEWS)

        async def review(resource: GVR) -> None:
            access = Access()
            if self._check_permissions:
                try:
                    async with limiter:
                        denial = await self._denial(resource, request.namespace, request.user_info)
                    access = Access(denial=denial)
                except (APIError, TransportError, UnknownKind, DiscoveryIncomplete) as error:
                    access = Access(failure=str(error))
            found[resource.group, resource.resource] = access

        wanted = {(resource.group, resource.resource): resource for resource in resources}
        async with anyio.create_task_group() as tasks:
            for key in wanted.keys() - found.keys():
                tasks.start_soon(review, wanted[key])
        return found

    async def errors(
        self, resources: Mapping[GVR, Path], request: AdmissionRequest
    ) -> list[FieldError]:
        """Return an error for each of ``resources`` that the user of ``request`` is not allowed to create.

        ``resources`` has for each the field of the user's object that makes the operator create it.
        """
        reviewed = await self.review_resources(resources, request)
        found = []
        for resource, path in resources.items():
            access = reviewed[resource.group, resource.resource]
            if access.failure:
                found.append(internal(path, access.failure))
            elif access.denial:
                found.append(
                    forbidden(path, f"{access.denial}, which the operator creates for this object")
                )
        return found

    async def _denial(self, resource: GVR, namespace: str, user: UserInfo) -> str:
        """Return the denial message if ``user`` is not allowed to create ``resource``; empty if allowed."""
        attributes = {
            "namespace": namespace,
            "verb": "create",
            "group": resource.group,
            "version": resource.version,
            "resource": resource.resource,
        }
        spec: dict[str, Any] = {
            "resourceAttributes": attributes,
            "user": user.username,
            "groups": list(user.groups),
        }
        if user.uid:
            spec["uid"] = user.uid
        if user.extra:
            spec["extra"] = {key: list(values) for key, values in user.extra.items()}
        if await is_allowed(self._client, **spec):
            return ""
        name = printable(user.username, _MAX_NAME)
        return f"User {name} is not authorized to create {resource.resource} in {namespace}"
