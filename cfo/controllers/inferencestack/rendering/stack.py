"""All objects of a stack."""

from __future__ import annotations

from collections.abc import Iterator

from cfo.api.inferencestack.created_resources import created_kinds
from cfo.api.inferencestack.kinds import SCALED_OBJECT
from cfo.api.inferencestack.profiles import Profile
from cfo.api.inferencestack.resolution import ResolvedStack, resolve
from cfo.controllers.inferencestack.rendering.application import application_objects
from cfo.controllers.inferencestack.rendering.facts import OPTIONAL_KINDS, Facts
from cfo.controllers.inferencestack.rendering.gateway import gateway_objects
from cfo.controllers.inferencestack.rendering.pods import new_object
from cfo.runtime import GVK, SERVICE_ACCOUNT, Object, gvk_of


def render(stack: Object, profile: Profile, facts: Facts | None = None) -> list[Object]:
    """Return the objects of ``stack`` with the defaults of ``profile``.

    Objects of kinds that the cluster does not serve (``facts.served``) are left out. ``stack`` must be valid
    (:mod:`cfo.api.inferencestack.validation`).
    """
    facts = facts or Facts()
    return [
        obj
        for obj in _objects(resolve(stack, profile), facts)
        if gvk_of(obj) not in OPTIONAL_KINDS or gvk_of(obj) in facts.served
    ]


def unserved_kinds(stack: Object, profile: Profile, served: frozenset[GVK]) -> list[GVK]:
    """Return the kinds of objects that ``stack`` needs and the cluster does not serve, sorted."""
    if served >= OPTIONAL_KINDS:
        return []
    wanted = created_kinds(resolve(stack, profile)).keys() & OPTIONAL_KINDS
    if (stack.get("spec") or {}).get("suspend"):
        wanted -= {SCALED_OBJECT}  # created once the stack is resumed
    return sorted(wanted - served)


def _objects(stack: ResolvedStack, facts: Facts) -> Iterator[Object]:
    account = stack.service_account
    if account.get("create"):
        yield new_object(
            stack,
            SERVICE_ACCOUNT,
            stack.names.service_account,
            annotations=account.get("annotations"),
            automountServiceAccountToken=bool(account.get("automount")),
        )
    yield from gateway_objects(stack, facts)
    for application in sorted(stack.applications):
        yield from application_objects(stack, application, facts)
