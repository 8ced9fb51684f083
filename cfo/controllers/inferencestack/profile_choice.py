"""Which profile of defaults a stack is rendered with, and when it gets a newer one.

A new stack gets the newest profile of the operator's major version, and one that Helm created gets that of its chart.
The profile stays, so that an upgrade of the operator restarts nothing, until the stack's ``upgradePolicy`` allows a
newer one: ``OnSpecChange`` with the next change of the spec, ``Automatic`` as soon as the operator has it. Then the
gateway is upgraded, and at most ``maxConcurrentRollouts`` applications at a time. What was upgraded is derived from the
Deployments, so that an upgrade continues after a restart of the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from cfo.api.inferencestack.names import CHART_LABEL, names_of
from cfo.api.inferencestack.profiles import (
    Profile,
    newest_profile,
    pinned_profile,
    profiles_of_chart,
)
from cfo.controllers.inferencestack.rendering.facts import Facts, LiveDeployment
from cfo.controllers.inferencestack.rendering.stack import render
from cfo.runtime import DEPLOYMENT, Object, gvk_of, name_of

_ON_SPEC_CHANGE: Final = "OnSpecChange"


def choose_profile(
    stack: Object, operator_version: str, deployments: Mapping[str, Object]
) -> tuple[Profile, Profile | None]:
    """Choose the profile of ``stack``, given its existing Deployments by name. The stack must be valid.

    Returns the profile to record in the status, and the newer one that is being rolled out (``None``: none).
    """
    newest = newest_profile(operator_version)
    current = pinned_profile(stack)
    if current is None:
        return adopted_profile(stack, deployments) or newest, None
    if current == newest:
        return current, None
    policy = (stack.get("spec") or {}).get("upgradePolicy") or _ON_SPEC_CHANGE
    if policy == "Automatic" or _has_changed(stack):
        return current, newest
    if _restarted(render(stack, current), deployments) - _restarted(
        render(stack, newest), deployments
    ):
        return current, newest  # some pods are already those of the newer profile
    return current, None


def _has_changed(stack: Object) -> bool:
    """Return whether the spec has changed since the last reconcile, except for the number in ``spec.replicas``.

    An autoscaler changes that number, which must not restart the pods.
    """
    status: Mapping[str, Any] = stack.get("status") or {}
    observed = status.get("observedGeneration")
    is_scaled = (stack.get("spec") or {}).get("replicas") != status.get("observedReplicas")
    return isinstance(observed, int) and stack["metadata"].get("generation", 0) - observed not in (
        (0, 1) if is_scaled else (0,)
    )


def _restarted(desired: Iterable[Object], deployments: Mapping[str, Object]) -> set[str]:
    """Return the names of the ``deployments`` whose pods restart if ``desired`` is applied."""
    found = [obj for obj in desired if gvk_of(obj) == DEPLOYMENT and name_of(obj) in deployments]
    return {name_of(obj) for obj in found if restarts_pods(obj, deployments[name_of(obj)])}


def render_with(
    stack: Object,
    current: Profile,
    target: Profile | None,
    facts: Facts,
    deployments: Mapping[str, Object],
    is_ready: Callable[[str], bool],
) -> tuple[list[Object], Profile]:
    """Render ``stack`` with the result of :func:`choose_profile`; return the objects, and the profile that all have.

    While a newer profile is rolled out, applications whose turn has not come keep the older one. ``is_ready`` returns
    whether the Deployment of this name is ready.
    """
    if target is None:
        return render(stack, current, facts), current
    upgraded = render(stack, target, facts)
    wanted = {name_of(obj) for obj in upgraded if gvk_of(obj) == DEPLOYMENT}
    limit = (stack.get("spec") or {}).get("maxConcurrentRollouts") or 1
    existing = wanted.intersection(deployments) - {names_of(stack).gateway}
    restarting = sorted(existing & _restarted(upgraded, deployments))
    rolling = sum(not is_ready(name) for name in existing.difference(restarting))
    waiting = restarting[max(limit - rolling, 0) :]
    if not waiting:
        return upgraded, target
    before = {(gvk_of(obj), name_of(obj)): obj for obj in render(stack, current, facts)}
    mixed: list[Object] = []
    for obj in upgraded:
        name = name_of(obj)
        kept = before.get((gvk_of(obj), name)) if name in waiting else None
        mixed.append(kept or obj)
    return mixed, current


def adopted_profile(stack: Object, deployments: Mapping[str, Object]) -> Profile | None:
    """Return the profile with which the existing Deployments of ``stack`` were rendered, by the labels of their pods.

    Of several profiles for a version of the chart, it is the one that restarts the fewest Deployments, or else the
    newest. Returns ``None`` if Helm did not create the gateway, or the version of the chart is not known.
    """
    gateway = deployments.get(names_of(stack).gateway)
    if gateway is None:
        return None
    labels = LiveDeployment.of(gateway).template_labels
    chart = labels.get(CHART_LABEL, "")
    version = labels.get("app.kubernetes.io/version", "")
    facts = Facts(deployments={name: LiveDeployment.of(obj) for name, obj in deployments.items()})

    def restarts(profile: Profile) -> int:
        return len(_restarted(render(stack, profile, facts), deployments))

    return min(profiles_of_chart(chart, version), key=restarts, default=None)


def restarts_pods(desired: Object, live: Object) -> bool:
    """Return whether applying the Deployment ``desired`` to ``live`` changes the pod template.

    Fields that only ``live`` has are ignored: defaults, and fields of other managers. So are the annotations, which
    contain the hash of the configuration.
    """
    wanted = desired["spec"]["template"]
    found = (live.get("spec") or {}).get("template") or {}
    if not _is_contained(wanted["spec"], found.get("spec")):
        return True
    return not _is_contained(wanted["metadata"]["labels"], _template_labels(found))


def _template_labels(template: Mapping[str, Any]) -> Any:
    return (template.get("metadata") or {}).get("labels")


def _is_contained(desired: Any, live: Any) -> bool:
    """Return whether ``live`` has the values of ``desired``; lists have its items in the same order."""
    if isinstance(desired, Mapping):
        if not isinstance(live, Mapping):
            return not desired
        return all(_is_contained(value, live.get(key)) for key, value in desired.items())
    if isinstance(desired, list):
        if not isinstance(live, list):
            return not desired
        remaining = iter(live)
        return all(_reaches(remaining, item) for item in desired)
    return bool(desired == live)


def _reaches(remaining: Iterator[Any], item: Any) -> bool:
    """Return whether one of the remaining items has the values of ``item``; it and those before it are consumed."""
    return any(_is_contained(item, candidate) for candidate in remaining)
