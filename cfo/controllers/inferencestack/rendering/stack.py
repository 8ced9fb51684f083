"""All objects of a stack, and the profile that renders a Helm release as it is, so that adopting restarts nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cfo.api.inferencestack.names import CHART_LABEL, names_of
from cfo.api.inferencestack.profiles import Profile, profiles_of_chart
from cfo.api.inferencestack.resolution import ResolvedStack, resolve
from cfo.controllers.inferencestack.rendering.application import application_objects
from cfo.controllers.inferencestack.rendering.facts import OPTIONAL_KINDS, Facts, LiveDeployment
from cfo.controllers.inferencestack.rendering.gateway import gateway_objects
from cfo.controllers.inferencestack.rendering.pods import new_object
from cfo.runtime import DEPLOYMENT, GVK, SERVICE_ACCOUNT, Object, gvk_of, name_of


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
    wanted = {gvk_of(obj) for obj in render(stack, profile)}
    return sorted((wanted & OPTIONAL_KINDS) - served)


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


def adopted_profile(stack: Object, deployments: Mapping[str, Object]) -> Profile | None:
    """Return the profile with which the existing Deployments of ``stack`` were rendered, by the labels of their pods.

    Of several profiles for a version of the chart, it is the one that restarts the fewest Deployments, or else the
    newest. Returns ``None`` if Helm did not create the gateway, or the version of the chart is not known.
    """
    gateway = deployments.get(names_of(stack).gateway)
    if gateway is None:
        return None
    labels = LiveDeployment.of(gateway).template_labels
    chart, version = labels.get(CHART_LABEL, ""), labels.get("app.kubernetes.io/version", "")
    candidates = profiles_of_chart(chart, version)
    return min(candidates, key=lambda profile: _restarts(stack, profile, deployments), default=None)


def _restarts(stack: Object, profile: Profile, deployments: Mapping[str, Object]) -> int:
    live = {name: LiveDeployment.of(obj) for name, obj in deployments.items()}
    return sum(
        restarts_pods(obj, deployments[name_of(obj)])
        for obj in render(stack, profile, Facts(deployments=live))
        if gvk_of(obj) == DEPLOYMENT and name_of(obj) in deployments
    )


def restarts_pods(desired: Object, live: Object) -> bool:
    """Return whether applying the Deployment ``desired`` to ``live`` changes the pod template.

    Fields that only ``live`` has are ignored: defaults, and fields of other managers. So are the annotations, which
    contain the hash of the configuration.
    """
    wanted, found = desired["spec"]["template"], (live.get("spec") or {}).get("template") or {}
    labels = wanted["metadata"]["labels"]
    return not (_is_contained(wanted["spec"], found.get("spec")) and _is_contained(labels, _template_labels(found)))


def _template_labels(template: Mapping[str, Any]) -> Any:
    return (template.get("metadata") or {}).get("labels")


def _is_contained(desired: Any, live: Any) -> bool:
    """Return whether ``live`` has the values of ``desired``; lists have its items in the same order."""
    if isinstance(desired, Mapping):
        if not isinstance(live, Mapping):
            return not desired
        return all(_is_contained(value, live.get(key)) for key, value in desired.items())
    if isinstance(desired, list):
        remaining: Iterator[Any] = iter(live if isinstance(live, list) else ())
        return all(any(_is_contained(item, candidate) for candidate in remaining) for item in desired)
    return bool(desired == live)
