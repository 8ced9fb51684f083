"""Defaulting of RayClusters: computes the object to store, and warnings about user input that was replaced."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.names import VERSION_ANNOTATION
from cfo.runtime import Object, annotations_of, is_deleting, name_of
from cfo.runtime.objects import merged
from cfo.webhooks.raycluster.injection_plan import (
    MTLS,
    OAUTH,
    Action,
    InjectionSettings,
    InjectionStep,
    Review,
    plan_injection,
    required_changes,
)
from cfo.webhooks.raycluster.json_types import json_type_errors
from cfo.webhooks.raycluster.pod_additions import ray_container_index
from cfo.webhooks.raycluster.proxies import is_proxy_first, move_proxies_to_end

_DNS_1035_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_KUBERAY_NAME_LIMIT: Final = 53
"""KubeRay's ``MaxRayClusterNameLength``. Its ``ValidateRayClusterMetadata`` also requires a DNS-1035 label."""


class DefaultingResult(msgspec.Struct, frozen=True):
    """The RayCluster to store, and warnings for the user who sent it."""

    cluster: Object
    warnings: tuple[str, ...] = ()


def default(cluster: Object, old: Object | None, settings: InjectionSettings) -> DefaultingResult:
    """Return the defaulted ``cluster`` that replaces ``old`` (``None`` if it is new); modifies neither.

    An update of a RayCluster that is being deleted is returned unchanged, and so is a RayCluster with wrong JSON types,
    which validation rejects.
    """
    if (old is not None and is_deleting(cluster)) or json_type_errors(cluster):
        return DefaultingResult(cluster)
    result = _copied(cluster)
    warnings = [*_set_version(result, old, settings.version)]
    if old is None:
        warnings += _name_warnings(name_of(cluster))
    review = Review.of(result, old, settings)
    required = required_changes(review)
    if required:
        result["spec"] = merged(result["spec"], required.patch)
        warnings += (
            f"spec.{'.'.join(path)}: {reason} (profile {settings.profile} of this namespace)"
            for path, reason in required.reasons.items()
        )
        review = replace(
            review, facts=RayClusterFacts({**review.facts.cluster, "spec": result["spec"]})
        )
    warnings += _feature_warnings(review)
    left_out: list[str] = []
    for step in plan_injection(review):
        warnings += _apply(step, left_out)
    if (
        left_out
    ):  # one warning, because who applies an unchanged manifest again leaves out everything
        warnings.append(
            f"{', '.join(dict.fromkeys(left_out))}: injected by the operator, so they are kept"
        )
    return DefaultingResult(result, tuple(warnings))


def _copied(cluster: Object) -> Object:
    """Copy what the injection modifies: metadata, and the groups down to their containers; the rest is shared."""
    result = {**cluster}
    if isinstance(cluster.get("metadata"), dict):
        result["metadata"] = {**cluster["metadata"]}
    if not cluster.get("spec"):
        return result
    spec = result["spec"] = {**cluster["spec"]}
    if spec.get("headGroupSpec"):
        spec["headGroupSpec"] = _copied_group(spec["headGroupSpec"])
    if spec.get("workerGroupSpecs"):
        spec["workerGroupSpecs"] = [_copied_group(group) for group in spec["workerGroupSpecs"]]
    return result


def _copied_group(group: Object) -> Object:
    template: Object = {**(group.get("template") or {})}
    pod: Object = {**(template.get("spec") or {})}
    if pod.get("containers"):
        pod["containers"] = [{**container} for container in pod["containers"]]
    if template.get("spec") is not None:
        template["spec"] = pod
    return {**group, "template": template} if group.get("template") is not None else {**group}


def _set_version(cluster: Object, old: Object | None, version: str) -> Iterator[str]:
    """Set the version annotation of a new RayCluster; restore it in an old one, whose child names depend on it."""
    annotations = annotations_of(cluster)
    current = annotations.get(VERSION_ANNOTATION)
    wanted = version if old is None else annotations_of(old).get(VERSION_ANNOTATION)
    if current == wanted:
        return
    if old is not None or current is not None:
        change = (
            "it is immutable, so the change was reverted"
            if old is not None
            else f"the value {current!r} was replaced"
        )
        field = f"metadata.annotations[{VERSION_ANNOTATION}]"
        yield f"{field}: the operator sets this annotation when a RayCluster is created; {change}"
    rest = {key: value for key, value in annotations.items() if key != VERSION_ANNOTATION}
    if wanted is not None:
        rest[VERSION_ANNOTATION] = wanted
    metadata = cluster.setdefault("metadata", {})
    if rest:
        metadata["annotations"] = rest
    else:
        metadata.pop("annotations", None)


def _name_warnings(name: str) -> Iterator[str]:
    if len(name) > _KUBERAY_NAME_LIMIT:
        yield (
            f"metadata.name: longer than {_KUBERAY_NAME_LIMIT} characters; "
            "KubeRay 1.3 and later ignore RayClusters with such names"
        )
    elif name and not _DNS_1035_LABEL.fullmatch(name):
        yield (
            "metadata.name: is not a DNS-1035 label (a letter, then letters, digits and -); "
            "KubeRay 1.3 and later ignore RayClusters with such names"
        )


def _feature_warnings(review: Review) -> Iterator[str]:
    old, settings = review.old, review.settings
    for feature in (OAUTH, MTLS):
        request = feature.unconfirmed(review.facts, settings)
        if request is None:
            continue
        if (
            old is None
            or json_type_errors(old.cluster)
            or feature.unconfirmed(old, settings) != request
        ):
            yield (
                f"{request.setting}: the operator's own {feature.name} stays active, because "
                f"kuberay.kubeRayFeatures in the operator's configuration does not contain {request.feature}"
            )


def _apply(step: InjectionStep, left_out: list[str]) -> Iterator[str]:
    """Apply ``step`` to its group, and yield warnings about user input that was replaced; collect what was missing."""
    group, pod = step.group, step.group.pod
    match step.action:
        case Action.INJECT:
            if not pod.get("containers"):
                return  # the validation rejects it
            if step.feature is OAUTH and is_proxy_first(pod):
                move_proxies_to_end(pod)
            for change in step.additions.add_to(pod):
                if change.names:
                    entries = f"{group.path(change.field)}: {', '.join(change.names)}"
                    yield f"{entries}: replaced, because the operator injects its own"
            at = ray_container_index(pod)
            if at:
                yield (
                    f"{group.path('containers', 0)}: KubeRay starts Ray in the first container, but the settings "
                    f"for Ray were injected into {pod['containers'][at].get('name')!r}; make it the first container"
                )
        case Action.KEEP:
            former = step.former_group
            if (
                step.feature is OAUTH
                and is_proxy_first(pod)
                and not (former and is_proxy_first(former.pod))
            ):
                move_proxies_to_end(pod)
                yield (
                    f"{group.path('containers', 0)}: KubeRay starts Ray in the first container, "
                    "so the injected proxies were moved to the end"
                )
            for change in step.additions.add_to(pod, step.former_additions):
                left_out.extend(change.missing)
                if change.names:
                    entries = f"{group.path(change.field)}: {', '.join(change.names)}"
                    yield f"{entries}: injected by the operator, so the change was reverted"
        case Action.REMOVE:
            for change in step.additions.remove_from(pod):
                yield (
                    f"{group.path(change.field)}: {', '.join(change.names)}: removed, "
                    f"because {step.actor.value} provides the {step.feature.name} of the RayCluster"
                )
