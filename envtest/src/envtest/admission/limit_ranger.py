"""LimitRanger: default requests and limits for containers, and checks of minimum, maximum and ratio.

Follows ``plugin/pkg/admission/limitranger`` of Kubernetes; it applies to new pods and to persistent volume claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from envtest.admission.chain import StorePlugin
from envtest.admission.namespace_lifecycle import rejection
from envtest.admission.resources import Quantities, parse_quantities, pod_resources
from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object
from envtest.registry.resource import RequestContext
from envtest.schema.quantity import Quantity

__all__ = ["LimitRanger"]

_RANGES: Final = GroupResource("", "limitranges")
_PODS: Final = GroupResource("", "pods")
_CLAIMS: Final = GroupResource("", "persistentvolumeclaims")
_ANNOTATION: Final = "kubernetes.io/limit-ranger"


class LimitRanger(StorePlugin):
    """The LimitRanger plugin; enforces the LimitRanges of the request's namespace."""

    resources = (_PODS, _CLAIMS)

    def _limits(self, ctx: RequestContext) -> Iterator[list[Mapping[str, Any]]]:
        """Yield the limits of each LimitRange that applies to the request."""
        operations = ("CREATE",) if ctx.info.resource == _PODS else ("CREATE", "UPDATE")
        if ctx.subresource or ctx.operation not in operations or not self._store.count(_RANGES):
            return
        for record in self._store.list(_RANGES, ctx.namespace):
            yield record.obj()["spec"].get("limits") or []

    def admit(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Set the defaults of containers, and list them in an annotation."""
        if ctx.info.resource != _PODS:
            return
        for limits in self._limits(ctx):
            _set_defaults(obj, limits)

    def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Check the limits. Raises StatusError (403) with all violations of the first LimitRange that is violated."""
        find_violations = _pod_violations if ctx.info.resource == _PODS else _claim_violations
        for limits in self._limits(ctx):
            violations = list(
                dict.fromkeys(each for limit in limits for each in find_violations(obj, limit))
            )
            if violations:
                why = violations[0] if len(violations) == 1 else f"[{', '.join(violations)}]"
                raise rejection(ctx, obj, why)


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
    for container_type, container in _containers(pod):
        resources = container.get("resources") or {}
        for field, word in (("requests", "request"), ("limits", "limit")):
            given = resources.get(field) or {}
            missing = {name: text for name, text in defaults[field].items() if name not in given}
            if missing:
                resources[field] = given | missing
                notes.append(
                    f"{', '.join(sorted(missing))} {word} for {container_type} {container.get('name', '')}"
                )
        container["resources"] = resources
    if notes:
        metadata = pod.setdefault("metadata", {})
        note = "LimitRanger plugin set: " + "; ".join(notes)
        metadata["annotations"] = {**(metadata.get("annotations") or {}), _ANNOTATION: note}


def _pod_violations(pod: Object, limit: Mapping[str, Any]) -> Iterator[str]:
    if limit.get("type") == "Container":
        for _, container in _containers(pod):
            resources = container.get("resources") or {}
            yield from _violations(
                limit,
                parse_quantities(resources.get("requests")),
                parse_quantities(resources.get("limits")),
            )
    elif limit.get("type") == "Pod":
        yield from _violations(limit, pod_resources(pod, "requests"), pod_resources(pod, "limits"))


def _violations(
    limit: Mapping[str, Any], requests: Quantities, limits: Quantities
) -> Iterator[str]:
    kind = limit["type"]
    for name, minimum in sorted(parse_quantities(limit.get("min")).items()):
        yield from _below(
            f"minimum {name} usage per {kind} is {minimum}",
            minimum,
            requests.get(name),
            limits.get(name),
        )
    for name, maximum in sorted(parse_quantities(limit.get("max")).items()):
        yield from _above(
            f"maximum {name} usage per {kind} is {maximum}",
            maximum,
            requests.get(name),
            limits.get(name),
        )
    for name, maximum in sorted(parse_quantities(limit.get("maxLimitRequestRatio")).items()):
        text = f"{name} max limit to request ratio per {kind} is {maximum}"
        request = requests.get(name)
        allowed = limits.get(name)
        if request is None or not request.value:
            yield f"{text}, but no request is specified or request is 0"
        elif allowed is None or not allowed.value:
            yield f"{text}, but no limit is specified or limit is 0"
        elif allowed.value / request.value > maximum.value:
            yield f"{text}, but provided ratio is {float(allowed.value / request.value):f}"


def _below(
    text: str, minimum: Quantity, request: Quantity | None, limit: Quantity | None
) -> Iterator[str]:
    if request is None:
        yield f"{text}.  No request is specified"
    elif request.value < minimum.value:
        yield f"{text}, but request is {request}"
    elif limit is not None and limit.value < minimum.value:
        yield f"{text}, but limit is {limit}"


def _above(
    text: str, maximum: Quantity, request: Quantity | None, limit: Quantity | None
) -> Iterator[str]:
    if limit is None:
        yield f"{text}.  No limit is specified"
    elif limit.value > maximum.value:
        yield f"{text}, but limit is {limit}"
    elif request is not None and request.value > maximum.value:
        yield f"{text}, but request is {request}"


def _claim_violations(claim: Object, limit: Mapping[str, Any]) -> Iterator[str]:
    if limit.get("type") != "PersistentVolumeClaim":
        return
    requests = parse_quantities(((claim.get("spec") or {}).get("resources") or {}).get("requests"))
    for name, minimum in sorted(parse_quantities(limit.get("min")).items()):
        yield from _below(
            f"minimum {name} usage per PersistentVolumeClaim is {minimum}",
            minimum,
            requests.get(name),
            None,
        )
    for name, maximum in sorted(parse_quantities(limit.get("max")).items()):
        text = f"maximum {name} usage per PersistentVolumeClaim is {maximum}"
        request = requests.get(name)
        if request is None:
            yield f"{text}.  No request is specified"
        elif request.value > maximum.value:
            yield f"{text}, but request is {request}"
