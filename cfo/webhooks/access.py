"""Checks which objects a user is allowed to create.

The operator creates objects with its own permissions. It creates for a user only what the user is allowed to create:
webhooks ask the API server with one SubjectAccessReview for each resource, because a server answers no more in one
request. Answers are remembered for two seconds, for all tokens of a user, because the objects in an AppWrapper, and
those that one user creates at once, need the same ones. A request that fails or exceeds the deadline of the review is a
denial. All reviews together send few requests at the same time (:mod:`.turns`).
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
from cfo.runtime.webhook import AdmissionRequest
from cfo.webhooks.turns import Turns

_MAX_TASKS: Final = 8
"""How many requests one review sends at the same time at most."""

_MAX_NAME: Final = 253
"""The maximum length of a user's name in a message, in characters; there is one message for each kind."""

REMEMBERED_SECONDS: Final = 2.0
"""How long an answer is remembered. A permission that is granted or removed has an effect after this time."""

_MAX_ANSWERS: Final = 1000

_TOKEN_FIELDS: Final = frozenset(
    f"authentication.kubernetes.io/{name}"
    for name in ("credential-id", "node-name", "node-uid", "pod-name", "pod-uid")
)
"""The extra fields of a ServiceAccount's token (``serviceaccount/util.go`` in k8s.io/apiserver).

The authorizers of Kubernetes (RBAC, Node, ABAC) use only the name and the groups of a user. A webhook authorizer gets
all extra fields, so they are sent: a review without them could allow what one with them denies.
"""

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
        unknown: dict[tuple[str, str], _Question] = {}
        for resource in resources:
            key = (resource.group, resource.resource)
            if key in found or key in unknown:
                continue
            if not self._check_permissions:
                found[key] = Access()
                continue
            question = _Question.of(resource, request)
            answer = self._answers.get(question)
            if answer is None:
                unknown[key] = question
            else:
                found[key] = question.access(allowed=answer)

        async def ask(question: _Question) -> None:
            resource = question.resource
            try:
                access = question.access(allowed=await self._is_allowed(question))
            except (APIError, TransportError, UnknownKind, DiscoveryIncomplete) as error:
                access = Access(failure=str(error))
            found[resource.group, resource.resource] = access

        await _for_each(unknown.values(), ask)
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

    async def _is_allowed(self, question: _Question) -> bool:
        """Return the answer of the API server, or a remembered one, when it is the turn of the client and namespace."""
        async with self._turns.turn(question.client, question.namespace):
            answer = self._answers.get(question)  # of a review that had its turn before
            if answer is None:
                answer = await is_allowed(self._client, **question.spec)
                self._answers.add(question, allowed=answer)
            return answer


class _Question(msgspec.Struct, frozen=True):
    """Whether a user is allowed to create a resource in a namespace.

    ``spec`` is that of a SubjectAccessReview, ``digest`` identifies the remembered answer, ``client`` the address that
    sent the review of the object.
    """

    resource: GVR
    namespace: str
    client: str
    user_name: str
    spec: dict[str, Any]
    digest: bytes

    @classmethod
    def of(cls, resource: GVR, request: AdmissionRequest) -> _Question:
        """Return the question about the user of ``request``."""
        user = request.user_info
        attributes = {
            "namespace": request.namespace,
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
        digest = hashlib.sha256(msgspec.json.encode(_without_token(spec))).digest()
        return cls(resource, request.namespace, request.client, user.username, spec, digest)

    def access(self, *, allowed: bool) -> Access:
        """Return the result of the review."""
        if allowed:
            return Access()
        name = printable(self.user_name, _MAX_NAME)
        return Access(
            denial=f"User {name} is not authorized to create {self.resource.resource} in {self.namespace}"
        )


def _without_token(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a review without the fields of the token: a user can have one for each of many pods."""
    extra = spec.get("extra") or {}
    return {**spec, "extra": {key: extra[key] for key in extra if key not in _TOKEN_FIELDS}}


class _Answer(msgspec.Struct, frozen=True):
    """Whether something is allowed; ``until``: the time of a monotonic clock in seconds."""

    allowed: bool
    until: float


class _Answers:
    """The newest answers, by digests of the questions: users can have large identities."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock or SystemClock()
        self._answers: dict[bytes, _Answer] = {}
        """In the order in which they end."""

    def get(self, question: _Question) -> bool | None:
        """Return a remembered answer; ``None`` if there is none."""
        answer = self._answers.get(question.digest)
        if answer is None or self._clock.monotonic() >= answer.until:
            return None
        return answer.allowed

    def add(self, question: _Question, *, allowed: bool) -> None:
        """Remember an answer, and forget the oldest one if there are too many."""
        self._answers.pop(question.digest, None)
        until = self._clock.monotonic() + REMEMBERED_SECONDS
        self._answers[question.digest] = _Answer(allowed, until)
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
