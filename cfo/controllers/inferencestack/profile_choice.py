"""Which profile of defaults a stack is rendered with, and when it gets a newer one.

A new stack gets the newest profile of the operator's major version, and one that Helm created gets that of its chart.
The profile stays, so that an upgrade of the operator restarts nothing, until the stack's ``upgradePolicy`` allows a
newer one: ``OnSpecChange`` with the next change of the spec, ``Automatic`` as soon as the operator has it. Then the
gateway is upgraded, and at most ``maxConcurrentRollouts`` applications at a time. What was upgraded is derived from the
Deployments, so that an upgrade continues after a restart of the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from cfo.api.inferencestack.names import names_of
from cfo.api.inferencestack.profiles import Profile, newest_profile, pinned_profile
from cfo.controllers.inferencestack.rendering import Facts, adopted_profile, render, restarts_pods
from cfo.runtime import DEPLOYMENT, Object, gvk_of, name_of

_ON_SPEC_CHANGE: Final = "OnSpecChange"


@dataclass(frozen=True, slots=True)
class ProfileChoice:
    """The profile to record in the status, and the newer one that is being rolled out (``None``: none)."""

    current: Profile
    target: Profile | None = None


def choose_profile(stack: Object, operator_version: str, deployments: Mapping[str, Object]) -> ProfileChoice:
    """Choose the profile of ``stack``, given its existing Deployments by name. The stack must be valid."""
    newest = newest_profile(operator_version)
    current = pinned_profile(stack)
    if current is None:
        return ProfileChoice(adopted_profile(stack, deployments) or newest)
    if current == newest:
        return ProfileChoice(current)
    policy = (stack.get("spec") or {}).get("upgradePolicy") or _ON_SPEC_CHANGE
    observed = (stack.get("status") or {}).get("observedGeneration")
    has_changed = observed is not None and observed != stack["metadata"].get("generation")
    if policy == "Automatic" or has_changed or _has_begun(stack, current, newest, deployments):
        return ProfileChoice(current, newest)
    return ProfileChoice(current)


def _deployments(stack: Object, profile: Profile, facts: Facts | None = None) -> dict[str, Object]:
    return {name_of(obj): obj for obj in render(stack, profile, facts) if gvk_of(obj) == DEPLOYMENT}


def _has_begun(stack: Object, current: Profile, target: Profile, deployments: Mapping[str, Object]) -> bool:
    """Return whether a Deployment has the pods of ``target``, and not those of ``current``."""
    before, after = _deployments(stack, current), _deployments(stack, target)
    return any(
        restarts_pods(before[name], live) and not restarts_pods(after[name], live)
        for name, live in deployments.items()
        if name in before
    )


def render_with(
    stack: Object,
    choice: ProfileChoice,
    facts: Facts,
    deployments: Mapping[str, Object],
    is_ready: Callable[[str], bool],
) -> tuple[list[Object], Profile]:
    """Render ``stack`` with ``choice``; return the objects, and the profile that all of them have.

    While a newer profile is rolled out, applications whose turn has not come keep the older one. ``is_ready`` returns
    whether the Deployment of this name is ready.
    """
    if choice.target is None:
        return render(stack, choice.current, facts), choice.current
    upgraded = render(stack, choice.target, facts)
    wanted = {name_of(obj): obj for obj in upgraded if gvk_of(obj) == DEPLOYMENT}
    gateway = names_of(stack).gateway
    limit = (stack.get("spec") or {}).get("maxConcurrentRollouts") or 1
    waiting: set[str] = set()
    rolling = 0
    for name, desired in sorted(wanted.items()):
        live = deployments.get(name)
        if name == gateway or live is None:
            continue
        restarts = restarts_pods(desired, live)
        if not restarts and not is_ready(name):
            rolling += 1
        elif restarts:
            waiting.add(name)
    for name in sorted(waiting):
        if rolling < limit:
            waiting.discard(name)
            rolling += 1
    if not waiting:
        return upgraded, choice.target
    before = {(gvk_of(obj), name_of(obj)): obj for obj in render(stack, choice.current, facts)}
    mixed = [before.get((gvk_of(obj), name_of(obj)), obj) if name_of(obj) in waiting else obj for obj in upgraded]
    return mixed, choice.current
