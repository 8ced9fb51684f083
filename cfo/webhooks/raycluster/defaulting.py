"""Defaulting of RayClusters: computes the object to store, and warnings about user input that was replaced."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cfo.api.raycluster.names import VERSION_ANNOTATION, name_warnings
from cfo.runtime import Object, annotations_of, is_deleting, name_of, namespace_of
from cfo.webhooks.raycluster.injection_plan import (
    OAUTH,
    InjectionPlan,
    InjectionSettings,
    InjectionStep,
    StepAction,
    plan_injection,
)
from cfo.webhooks.raycluster.json_types import json_type_errors
from cfo.webhooks.raycluster.pod_additions import PodChange, ray_container_index
from cfo.webhooks.raycluster.proxies import is_proxy_first, move_proxies_to_end


class DefaultingResult(msgspec.Struct, frozen=True):
    """The RayCluster to store, and warnings for the user who sent it."""

    cluster: Object
    warnings: tuple[str, ...] = ()


class _LeftOut(msgspec.Struct):
    """The injected entries that the new pod template of one group lacks, by name.

    ``in_containers`` of ``injected`` ones belong in the list of containers. If it lacks all of them, a manifest without
    them was applied again, as by GitOps every few minutes: an apply replaces this list as a whole.
    """

    names: list[str] = msgspec.field(default_factory=list)
    in_containers: int = 0
    injected: int = 0

    def add(self, change: PodChange) -> None:
        """Add what ``change`` lacked."""
        self.names += change.missing
        if change.field.startswith("containers"):
            self.in_containers += len(change.missing)

    @property
    def is_applied_again(self) -> bool:
        """Whether a manifest was applied, and its user removed nothing."""
        return 0 < self.in_containers == self.injected


def default(cluster: Object, old: Object | None, settings: InjectionSettings) -> DefaultingResult:
    """Return the defaulted ``cluster`` that replaces ``old`` (``None`` if it is new); modifies neither.

    An update of a RayCluster that is being deleted is returned unchanged, and so is a RayCluster with wrong JSON types,
    which validation rejects.
    """
    if old is not None and is_deleting(cluster):
        return DefaultingResult(cluster)
    if json_type_errors(cluster):
        return DefaultingResult(cluster)
    return default_readable(cluster, old, settings)


def default_readable(
    cluster: Object, old: Object | None, settings: InjectionSettings
) -> DefaultingResult:
    """Return the same as :func:`default` for a ``cluster`` whose JSON types have been checked."""
    result = _copied(cluster)
    warnings = list(_set_version(result, old, settings.version))
    if old is None:
        warnings += name_warnings(name_of(cluster), namespace_of(cluster), settings.host_limit)
    plan = plan_injection(result, old, settings, enforces=True)
    if plan.enforcement:
        result["spec"] = plan.facts.cluster["spec"]
    warnings += _setting_warnings(plan, settings)
    left_out: dict[int, _LeftOut] = {}
    for step in plan.steps:
        warnings += _apply(step, left_out.setdefault(step.group.position, _LeftOut()))
    removed: list[str] = []
    for found in left_out.values():
        if not found.is_applied_again:
            removed += found.names
    if removed:
        names = ", ".join(dict.fromkeys(removed))
        warnings.append(f"{names}: injected by the operator, so they are kept")
    return DefaultingResult(result, tuple(warnings))


def _copied(cluster: Object) -> Object:
    """Copy what the injection modifies: metadata, and the groups down to their containers; the rest is shared."""
    result = {**cluster}
    if isinstance(cluster.get("metadata"), dict):
        result["metadata"] = {**cluster["metadata"]}
    if not cluster.get("spec"):
        return result
    spec = {**cluster["spec"]}
    if spec.get("headGroupSpec"):
        spec["headGroupSpec"] = _copied_group(spec["headGroupSpec"])
    if spec.get("workerGroupSpecs"):
        spec["workerGroupSpecs"] = [_copied_group(group) for group in spec["workerGroupSpecs"]]
    result["spec"] = spec
    return result


def _copied_group(group: Object) -> Object:
    result = {**group}
    if group.get("template") is None:
        return result
    template: Object = {**group["template"]}
    result["template"] = template
    if template.get("spec") is None:
        return result
    pod: Object = {**template["spec"]}
    template["spec"] = pod
    if pod.get("containers"):
        pod["containers"] = [{**container} for container in pod["containers"]]
    return result


def _set_version(cluster: Object, old: Object | None, version: str) -> Iterator[str]:
    """Set the version annotation of a new RayCluster; restore it in an old one, whose child names depend on it.

    A manifest without it, with which ``kubectl replace`` removes it, is no reason for a warning.
    """
    annotations = annotations_of(cluster)
    current = annotations.get(VERSION_ANNOTATION)
    wanted = version if old is None else annotations_of(old).get(VERSION_ANNOTATION)
    if current == wanted:
        return
    field = f"metadata.annotations[{VERSION_ANNOTATION}]"
    rule = f"{field}: the operator sets this annotation when a RayCluster is created"
    if current is not None and old is not None:
        yield f"{rule}; it is immutable, so the change was reverted"
    elif current is not None:
        yield f"{rule}; the value {current!r} was replaced"
    result = {key: value for key, value in annotations.items() if key != VERSION_ANNOTATION}
    if wanted is not None:
        result[VERSION_ANNOTATION] = wanted
    metadata = cluster.setdefault("metadata", {})
    if result:
        metadata["annotations"] = result
    else:
        metadata.pop("annotations", None)


def _setting_warnings(plan: InjectionPlan, settings: InjectionSettings) -> Iterator[str]:
    """Yield warnings about the user's settings that the profile changes, or that have no effect."""
    if plan.enforcement is not None:
        for path, reason in plan.enforcement.reasons.items():
            yield f"spec.{'.'.join(path)}: {reason} (profile {settings.profile} of this namespace)"
    for injection, delegation in plan.unconfirmed:
        yield (
            f"{delegation.setting}: the operator's own {injection.name} stays active, because "
            f"kuberay.kubeRayFeatures in the operator's configuration does not contain {delegation.feature}"
        )


def _apply(step: InjectionStep, left_out: _LeftOut) -> Iterator[str]:
    """Apply ``step`` to its group, and yield warnings about user input that was replaced; collect what was missing."""
    match step.action:
        case StepAction.INJECT:
            yield from _inject(step)
        case StepAction.KEEP:
            yield from _keep(step, left_out)
        case StepAction.REMOVE:
            yield from _remove(step)


def _inject(step: InjectionStep) -> Iterator[str]:
    group = step.group
    pod = group.pod
    if not pod.get("containers"):
        return  # the validation rejects it
    if step.injection is OAUTH and is_proxy_first(pod):
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


def _keep(step: InjectionStep, left_out: _LeftOut) -> Iterator[str]:
    group = step.group
    pod = group.pod
    former = step.former_group
    was_proxy_first = former is not None and is_proxy_first(former.pod)
    if step.injection is OAUTH and is_proxy_first(pod) and not was_proxy_first:
        move_proxies_to_end(pod)
        yield (
            f"{group.path('containers', 0)}: KubeRay starts Ray in the first container, "
            "so the injected proxies were moved to the end"
        )
    additions = step.additions
    left_out.injected += len(additions.containers) + len(additions.env) + len(additions.mounts)
    for change in additions.add_to(pod, step.former_additions):
        left_out.add(change)
        if change.names:
            entries = f"{group.path(change.field)}: {', '.join(change.names)}"
            yield f"{entries}: injected by the operator, so the change was reverted"


def _remove(step: InjectionStep) -> Iterator[str]:
    reason = f"{step.actor.value} provides the {step.injection.name} of the RayCluster"
    for change in step.additions.remove_from(step.group.pod):
        entries = f"{step.group.path(change.field)}: {', '.join(change.names)}"
        yield f"{entries}: removed, because {reason}"
