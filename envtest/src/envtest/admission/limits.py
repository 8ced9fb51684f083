"""LimitRanger: defaults for containers that do not say what they need, and limits for those who want too much.

As ``plugin/pkg/admission/limitranger`` of Kubernetes; it looks at new pods and at claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from envtest.context import RequestContext
from envtest.errors import GroupResource, forbidden
from envtest.objects import Object
from envtest.schema.quantity import Quantity
from envtest.storage import Store

from .chain import Plugin
from .lifecycle import described_name
from .resources import Quantities, pod_resources, quantities

__all__ = ["LimitRanger"]

_RANGES: Final = GroupResource("", "limitranges")
_PODS: Final = GroupResource("", "pods")
_CLAIMS: Final = GroupResource("", "persistentvolumeclaims")
_ANNOTATION: Final = "kubernetes.io/limit-ranger"


class LimitRanger(Plugin):
    """Follows the LimitRanges of the namespace."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def _limits(self, ctx: RequestContext) -> Iterator[list[Mapping[str, Any]]]:
        """The limits of each LimitRange that the request is subject to."""
        operations = {_PODS: ("CREATE",), _CLAIMS: ("CREATE", "UPDATE")}.get(ctx.info.resource, ())
        if ctx.subresource or ctx.operation not in operations or not self._store.count(_RANGES):
            return
        for record in self._store.list(_RANGES, ctx.namespace):
            yield record.obj()["spec"].get("limits") or []

    def admit(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Sets the defaults of containers, and notes in an annotation which it set."""
        if ctx.info.resource != _PODS:
            return
        for limits in self._limits(ctx):
            _set_defaults(obj, limits)

    def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Raises StatusError (403) with all that is beyond the limits of the first LimitRange that refuses."""
        judge = _pod_problems if ctx.info.resource == _PODS else _claim_problems
        for limits in self._limits(ctx):
            problems = list(dict.fromkeys(problem for limit in limits for problem in judge(obj, limit)))
            if problems:
                why = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
                raise forbidden(ctx.info.resource, described_name(ctx, obj), why)


def _containers(pod: Object) -> Iterator[tuple[str, dict[str, Any]]]:
    spec = pod.get("spec") or {}
    for container in spec.get("containers") or ():
        yield "container", container
    for container in spec.get("initContainers") or ():
        yield "init container", container


def _set_defaults(pod: Object, limits: list[Mapping[str, Any]]) -> None:
    defaults: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
    for limit in limits:
        if limit.get("type") == "Container":
            defaults["requests"] |= limit.get("defaultRequest") or {}
            defaults["limits"] |= limit.get("default") or {}
    notes: list[str] = []
    for what, container in _containers(pod):
        resources = container.get("resources") or {}
        for field, word in (("requests", "request"), ("limits", "limit")):
            given = resources.get(field) or {}
            missing = {name: text for name, text in defaults[field].items() if name not in given}
            if missing:
                resources[field] = given | missing
                notes.append(f"{', '.join(sorted(missing))} {word} for {what} {container.get('name', '')}")
        container["resources"] = resources
    if notes:
        metadata = pod.setdefault("metadata", {})
        note = "LimitRanger plugin set: " + "; ".join(notes)
        metadata["annotations"] = {**(metadata.get("annotations") or {}), _ANNOTATION: note}


def _pod_problems(pod: Object, limit: Mapping[str, Any]) -> Iterator[str]:
    if limit.get("type") == "Container":
        for _, container in _containers(pod):
            resources = container.get("resources") or {}
            yield from _problems(limit, quantities(resources.get("requests")), quantities(resources.get("limits")))
    elif limit.get("type") == "Pod":
        yield from _problems(limit, pod_resources(pod, "requests"), pod_resources(pod, "limits"))


def _problems(limit: Mapping[str, Any], requests: Quantities, limits: Quantities) -> Iterator[str]:
    kind = limit["type"]
    for name, least in sorted(quantities(limit.get("min")).items()):
        yield from _below(f"minimum {name} usage per {kind} is {least}", least, requests.get(name), limits.get(name))
    for name, most in sorted(quantities(limit.get("max")).items()):
        yield from _above(f"maximum {name} usage per {kind} is {most}", most, requests.get(name), limits.get(name))
    for name, most in sorted(quantities(limit.get("maxLimitRequestRatio")).items()):
        text = f"{name} max limit to request ratio per {kind} is {most}"
        request, allowed = requests.get(name), limits.get(name)
        if request is None or not request.value:
            yield f"{text}, but no request is specified or request is 0"
        elif allowed is None or not allowed.value:
            yield f"{text}, but no limit is specified or limit is 0"
        elif allowed.value / request.value > most.value:
            yield f"{text}, but provided ratio is {float(allowed.value / request.value):f}"


def _below(text: str, least: Quantity, request: Quantity | None, limit: Quantity | None) -> Iterator[str]:
    if request is None:
        yield f"{text}.  No request is specified"
    elif request.value < least.value:
        yield f"{text}, but request is {request}"
    elif limit is not None and limit.value < least.value:
        yield f"{text}, but limit is {limit}"


def _above(text: str, most: Quantity, request: Quantity | None, limit: Quantity | None) -> Iterator[str]:
    if limit is None:
        yield f"{text}.  No limit is specified"
    elif limit.value > most.value:
        yield f"{text}, but limit is {limit}"
    elif request is not None and request.value > most.value:
        yield f"{text}, but request is {request}"


def _claim_problems(claim: Object, limit: Mapping[str, Any]) -> Iterator[str]:
    if limit.get("type") != "PersistentVolumeClaim":
        return
    requests = quantities(((claim.get("spec") or {}).get("resources") or {}).get("requests"))
    for name, least in sorted(quantities(limit.get("min")).items()):
        yield from _below(f"minimum {name} usage per PersistentVolumeClaim is {least}", least, requests.get(name), None)
    for name, most in sorted(quantities(limit.get("max")).items()):
        text = f"maximum {name} usage per PersistentVolumeClaim is {most}"
        request = requests.get(name)
        if request is None:
            yield f"{text}.  No request is specified"
        elif request.value > most.value:
            yield f"{text}, but request is {request}"
