"""Checks which objects a user is allowed to create.

The operator creates objects with its own permissions. It creates for a user only what the user is allowed to create:
webhooks ask the API server with one SubjectAccessReview for each resource, because a server answers no more in one
request. Answers are remembered for two seconds, because the objects in an AppWrapper, and those that one user creates
at once, need the same ones. A request that fails or exceeds the deadline of the review is a denial. All reviews
together send few requests at the same time (:mod:`.turns`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import anyio
import msgspec
from msgspec.structs import replace

from cfo.runtime import (
    GVK,
    APIError,
    Client,
    Clock,
    DiscoveryIncomplete,
    FieldError,
    Rule,
    SystemClock,
    TransportError,
    UnknownKind,
)
from cfo.runtime.client import Resource, is_allowed
from cfo.runtime.objects import GVR
from cfo.runtime.objects.field import Path, forbidden, internal
from cfo.runtime.process import printable
from cfo.runtime.webhook import AdmissionRequest, UserInfo
from cfo.webhooks.turns import Turns

_MAX_TASKS: Final = 8
"""How many requests one review sends at the same time at most."""

_MAX_NAME: Final = 253
"""The maximum length of a user's name in a message, in characters; there is one message for each kind."""

REMEMBERED_SECONDS: Final = 2.0
"""How long an answer is remembered. A permission that is granted or removed has an effect after this time."""

_MAX_ANSWERS: Final = 1000

_Item = TypeVar("_Item")

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

    ``client`` must not read from a cache; ``clock`` measures how long answers are remembered.
    """

    def __init__(
        self, client: Client, *, check_permissions: bool, clock: Clock | None = None
    ) -> None:
        self._client = client
        self._check_permissions = check_permissions
        self._turns = Turns()
        self._answers = _Answers(clock)

    async def review(self, kinds: Iterable[GVK], request: AdmissionRequest) -> Mapping[GVK, Access]:
        """Look up ``kinds``, and review whether the user of ``request`` is allowed to create objects of them.

        Failures are reported in the result.
        """
        found: dict[GVK, Access] = {}

        async def look_up(gvk: GVK) -> None:
            try:
                async with self._turns.turn(request.namespace):
                    found[gvk] = Access(await self._client.mapper.resource(gvk))
            except UnknownKind:
                found[gvk] = Access()
            except (APIError, TransportError, DiscoveryIncomplete) as error:
                found[gvk] = Access(failure=str(error))

        await _for_each(set(kinds), look_up)
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

        Sends one request for each group and resource that was not asked for in this review, up to eight at the same
        time. The result has these keys.
        """
        found: dict[tuple[str, str], Access] = request.memo.setdefault(AccessReviewer, {})

        async def review(resource: GVR) -> None:
            access = Access()
            if self._check_permissions:
                try:
                    denial = await self._denial(resource, request.namespace, request.user_info)
                    access = Access(denial=denial)
                except (APIError, TransportError, UnknownKind, DiscoveryIncomplete) as error:
                    access = Access(failure=str(error))
            found[resource.group, resource.resource] = access

        wanted = {(resource.group, resource.resource): resource for resource in resources}
        await _for_each([wanted[key] for key in wanted.keys() - found.keys()], review)
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
        if await self._is_allowed(spec, namespace):
            return ""
        name = printable(user.username, _MAX_NAME)
        return f"User {name} is not authorized to create {resource.resource} in {namespace}"

    async def _is_allowed(self, spec: Mapping[str, Any], namespace: str) -> bool:
        """Return the answer to a review with ``spec``; of an object in ``namespace``, which may have to wait."""
        question = hashlib.sha256(msgspec.json.encode(spec)).digest()
        answer = self._answers.get(question)
        if answer is not None:
            return answer
        async with self._turns.turn(namespace):
            answer = self._answers.get(question)  # of a review that had its turn before
            if answer is None:
                answer = await is_allowed(self._client, **spec)
                self._answers.add(question, allowed=answer)
            return answer


class _Answer(msgspec.Struct, frozen=True):
    """Whether something is allowed; ``until``: the time of a monotonic clock in seconds."""

    allowed: bool
    until: float


class _Answers:
    """The newest answers to reviews, by digests of the questions: users can have large identities."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock or SystemClock()
        self._answers: dict[bytes, _Answer] = {}
        """In the order in which they end."""

    def get(self, question: bytes) -> bool | None:
        """Return a remembered answer; ``None`` if there is none."""
        answer = self._answers.get(question)
        if answer is None or self._clock.monotonic() >= answer.until:
            return None
        return answer.allowed

    def add(self, question: bytes, *, allowed: bool) -> None:
        """Remember an answer, and forget the oldest one if there are too many."""
        self._answers.pop(question, None)
        self._answers[question] = _Answer(allowed, self._clock.monotonic() + REMEMBERED_SECONDS)
        if len(self._answers) > _MAX_ANSWERS:
            del self._answers[next(iter(self._answers))]


async def _for_each(items: Iterable[_Item], function: Callable[[_Item], Awaitable[None]]) -> None:
    """Call ``function`` for each of ``items``, at most eight at the same time: tasks that only wait take memory."""
    remaining = iter(items)

    async def work() -> None:
        for item in remaining:
            await function(item)

    async with anyio.create_task_group() as tasks:
        for _ in range(_MAX_TASKS):
            tasks.start_soon(work)
