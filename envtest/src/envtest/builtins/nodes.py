"""The strategy of v1 Node."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_network
from typing import Any, ClassVar, Final

from envtest.apimachinery.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    go_quote,
    internal,
    invalid,
    not_supported,
    required,
)
from envtest.apimachinery.name_rules import label_value, qualified_name
from envtest.apimachinery.objects import Object
from envtest.builtins.go_rendering import TAINT, internal_fields
from envtest.builtins.ip_rules import cidr_errors, is_network
from envtest.builtins.resource_names import quantity_errors
from envtest.builtins.strategy import BuiltinStrategy
from envtest.registry.resource import RequestContext
from envtest.schema.shaping import copy_json

__all__ = ["NodeStrategy", "is_dual_stack", "taint_errors"]

_FEATURE: Final = re.compile(r"[A-Z][A-Za-z0-9]*(?:/[A-Za-z][A-Za-z0-9]*)*")
_MAX_FEATURE: Final = 253
_NO_FEATURE: Final = (
    "must start with an UpperCamelCase segment, with subsequent segments separated by '/' "
    "(e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
)
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class NodeStrategy(BuiltinStrategy):
    """Strategy of v1 Node."""

    _NOT_READY: ClassVar = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """See :meth:`Strategy.warnings`: about a field that nothing reads."""
        if not obj["spec"].get("externalID"):
            return ()
        return ["spec.externalID: this field is deprecated, and is unused by Kubernetes"]

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """Taint the node as not ready. The status is kept: nodes are created with theirs."""
        spec = obj["spec"]
        spec.pop("configSource", None)
        taints = spec.get("taints") or []
        if not any(each.get("key") == self._NOT_READY["key"] for each in taints):
            spec["taints"] = [*taints, dict(self._NOT_READY)]

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_update`: the kubelet is no longer configured through its Node."""
        super().prepare_update(new, old, ctx)
        if "configSource" not in old["spec"]:
            new["spec"].pop("configSource", None)

    def set_defaults(self, obj: Object) -> None:
        """Make the whole capacity allocatable, and keep ``podCIDR`` and ``podCIDRs`` consistent."""
        status = obj["status"]
        spec = obj["spec"]
        if status.get("capacity") and not status.get("allocatable"):
            status["allocatable"] = copy_json(status["capacity"])
        if spec.get("podCIDR") and (
            not spec.get("podCIDRs") or spec["podCIDRs"][0] != spec["podCIDR"]
        ):
            spec["podCIDRs"] = [spec["podCIDR"]]
        elif spec.get("podCIDRs") and not spec.get("podCIDR"):
            spec["podCIDR"] = spec["podCIDRs"][0]

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of a node; an update reports those of taints and resources twice, as kube-apiserver does."""
        if ctx.subresource != "status":
            yield from _content_errors(obj)
            yield from _network_errors(obj["spec"].get("podCIDRs") or ())
        if old is not None:
            yield from _content_errors(obj)
            yield from _change_errors(obj, old)


def _content_errors(node: Object) -> Iterator[FieldError]:
    yield from taint_errors(node["spec"].get("taints") or (), "metadata.taints")
    for part in ("capacity", "allocatable"):
        for name, quantity in (node["status"].get(part) or {}).items():
            yield from quantity_errors(name, quantity, f"status.{part}.{name}")
    yield from _feature_errors(node["status"].get("declaredFeatures") or ())


def _feature_errors(features: Sequence[str]) -> Iterator[FieldError]:
    """Yield the errors in the features that a kubelet declares."""
    for position, feature in enumerate(features):
        path = f"status.declaredFeatures[{position}]"
        if position and feature == features[position - 1]:
            yield duplicate(path, feature)
        elif position and feature < features[position - 1]:
            yield invalid(path, feature, "list must be sorted alphabetically")
        problem = ""
        if len(feature.encode()) > _MAX_FEATURE:
            problem = f"must be no more than {_MAX_FEATURE} characters"
        elif not _FEATURE.fullmatch(feature):
            problem = _NO_FEATURE
        if problem:
            yield invalid(path, feature, f"invalid feature name {go_quote(feature)}: {problem}")


def taint_errors(taints: Sequence[Mapping[str, Any]], where: str) -> Iterator[FieldError]:
    """Yield the errors of taints at the path ``where``."""
    seen: set[tuple[Any, Any]] = set()
    for position, taint in enumerate(taints):
        path = f"{where}[{position}]"
        effect = taint.get("effect") or ""
        for problem in qualified_name(taint.get("key") or ""):
            yield invalid(f"{path}.key", taint.get("key") or "", problem)
        problems = label_value(taint.get("value") or "")
        if problems:
            yield invalid(f"{path}.value", taint.get("value"), ";".join(problems))
        if not effect:
            yield required(f"{path}.effect")
        elif effect not in _EFFECTS:
            yield not_supported(f"{path}.effect", effect, _EFFECTS)
        identity = (taint.get("key"), effect)
        if identity in seen:
            text = "taints must be unique by key and effect pair"
            yield duplicate(path, internal_fields(TAINT, taint))._replace(detail=text)
        seen.add(identity)


def is_dual_stack(networks: Sequence[str]) -> bool:
    """Return whether networks in CIDR notation are of both IP families; networks that are not valid are of none."""
    families = set()
    for text in networks:
        try:
            families.add(ip_network(text, strict=False).version)
        except ValueError:
            continue
    return len(families) > 1


def _network_errors(networks: Sequence[str]) -> Iterator[FieldError]:
    """Yield the errors in the networks for the node's pods, one of each IP family."""
    for position, text in enumerate(networks):
        yield from cidr_errors(f"spec.podCIDRs[{position}]", text)
    if len(networks) < 2:
        return
    wrong = [position for position, text in enumerate(networks) if not is_network(text)]
    if wrong:
        text = f"failed to check with dual stack with error:invalid CIDR[{wrong[0]}]: <nil>"
        cause = f"(invalid CIDR address: {networks[wrong[0]]})"
        yield internal("spec.podCIDRs", f"invalid PodCIDRs. {text} {cause}")
    if not is_dual_stack(networks) or len(networks) > 2:
        yield invalid(
            "spec.podCIDRs", [*networks], "may specify no more than one CIDR for each IP family"
        )


def _change_errors(new: Object, old: Object) -> Iterator[FieldError]:
    addresses: set[tuple[Any, Any]] = set()
    for position, each in enumerate(new["status"].get("addresses") or ()):
        address = (each.get("type"), each.get("address"))
        if address in addresses:
            yield duplicate(
                f"status.addresses[{position}]", internal_fields("Type! Address!", each)
            )
        addresses.add(address)
    before = old["spec"].get("podCIDRs") or []
    after = new["spec"].get("podCIDRs") or []
    if before and after != before:
        yield forbidden(
            "spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid'
        )
    provider = old["spec"].get("providerID")
    if provider and new["spec"].get("providerID") != provider:
        yield forbidden(
            "spec.providerID", 'node updates may not change providerID except from "" to valid'
        )
    if old["spec"].get("externalID") != new["spec"].get("externalID"):
        yield forbidden("spec.externalID", "may not be updated")
