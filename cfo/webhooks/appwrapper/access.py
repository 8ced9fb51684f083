"""Which of the wrapped kinds exist, and whether the creator of an AppWrapper may create objects of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio

from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import APIError, TransportError, UnknownKind
from cfo.runtime.discovery import DiscoveryIncomplete, Resource
from cfo.runtime.objects import GVK
from cfo.runtime.webhook.admission import UserInfo

__all__ = ["Access", "AccessReviewer"]

_REVIEWS_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Access:
    """What was found out about a kind; ``resource`` is ``None`` when it is not served.

    ``denial`` says what the user may not do, ``failure`` why it could not be found out; empty where all is well.
    """

    resource: Resource | None = None
    denial: str = ""
    failure: str = ""


class AccessReviewer:
    """Asks ``client``'s API server; whether users have rights only with ``ask``."""

    def __init__(self, client: Client, *, ask: bool) -> None:
        self._client = client
        self._ask = ask

    async def review(self, kinds: Iterable[GVK], namespace: str, user: UserInfo) -> Mapping[GVK, Access]:
        """What holds for creating objects of ``kinds`` in ``namespace``; all kinds are asked about at once.

        One question for each kind, however often it is wrapped. What goes wrong is in the answer.
        """
        found: dict[GVK, Access] = {}
        limiter = anyio.CapacityLimiter(_REVIEWS_AT_ONCE)

        async def look(gvk: GVK) -> None:
            try:
                resource = await self._client.mapper.resource(gvk)
                denial = ""
                if self._ask and resource.namespaced:
                    async with limiter:
                        denial = await self._denial(resource, namespace, user)
                found[gvk] = Access(resource, denial)
            except UnknownKind:
                found[gvk] = Access()
            except (APIError, TransportError, DiscoveryIncomplete) as error:
                found[gvk] = Access(failure=str(error))

        async with anyio.create_task_group() as tasks:
            for gvk in set(kinds):
                tasks.start_soon(look, gvk)
        return found

    async def _denial(self, resource: Resource, namespace: str, user: UserInfo) -> str:
        """Why ``user`` may not create a ``resource``, or nothing."""
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
        answer = await self._client.create(review)
        if (answer.get("status") or {}).get("allowed"):
            return ""
        return f"User {user.username} is not authorized to create {resource.plural} in {namespace}"
