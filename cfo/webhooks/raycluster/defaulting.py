"""The mutating webhook: a RayCluster as it is to be stored, and what its user should know about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Final

from cfo.api.raycluster.naming import VERSION_ANNOTATION
from cfo.runtime.field import Path
from cfo.runtime.objects import Object, annotations_of, is_deleting, name_of
from cfo.webhooks.raycluster.groups import groups_of, shape_errors
from cfo.webhooks.raycluster.oauth import stand_aside, stands_first
from cfo.webhooks.raycluster.parts import PROXY_CONTAINER, Change, ray_container
from cfo.webhooks.raycluster.plan import OAUTH, Action, Step, plan
from cfo.webhooks.raycluster.settings import Settings

__all__ = ["Defaulted", "default"]

_DNS_1035_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_KUBERAY_NAME_LIMIT: Final = 53
"""KubeRay's ``MaxRayClusterNameLength``; ``ValidateRayClusterMetadata`` asks for a DNS-1035 label too."""


@dataclass(frozen=True, slots=True)
class Defaulted:
    """The RayCluster, and warnings for whoever sent it."""

    cluster: Object
    warnings: tuple[str, ...] = ()


def default(cluster: Object, old: Object | None, settings: Settings) -> Defaulted:
    """``cluster`` as it is to be stored, in place of ``old`` (``None``: it is new); neither is changed.

    A cluster that is being deleted is left alone, and so is one that cannot be read: it will be refused.
    """
    if is_deleting(cluster) or shape_errors(cluster):
        return Defaulted(cluster)
    made = deepcopy(cluster)
    warnings = [*_mark(made, old, settings.version)]
    if old is None:
        warnings += _name_warnings(name_of(cluster))
    for step in plan(made, groups_of(made), old, settings):
        warnings += _done(step)
    return Defaulted(made, tuple(warnings))


def _mark(cluster: Object, old: Object | None, version: str) -> Iterator[str]:
    """Marks a new cluster with the operator's version. An old one keeps its mark, or has none: its names hang on it."""
    annotations = annotations_of(cluster)
    current = annotations.get(VERSION_ANNOTATION)
    wanted = version if old is None else annotations_of(old).get(VERSION_ANNOTATION)
    if current == wanted:
        return
    if old is not None or current is not None:
        path = Path("metadata", "annotations").key(VERSION_ANNOTATION)
        yield f"{path}: the operator sets this when a RayCluster is created, " + (
            "and nobody may change it: it was put back" if old is not None else f"{current!r} was replaced"
        )
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
        yield f"metadata.name: has more than {_KUBERAY_NAME_LIMIT} characters, and KubeRay 1.3 and later ignore it"
    elif name and not _DNS_1035_LABEL.fullmatch(name):
        yield "metadata.name: is no DNS-1035 label (a letter, then letters, digits, -): KubeRay 1.3 and later ignore it"


def _done(step: Step) -> Iterator[str]:
    """Does ``step``, and warns of what the user wrote and does not get."""
    pod, path = step.group.pod, step.group.pod_path
    match step.action:
        case Action.INJECT:
            if not pod.get("containers"):
                return  # nothing runs there: it is refused
            if step.concern is OAUTH and stands_first(pod):
                stand_aside(pod)
            for change in step.parts.put_into(pod):
                if change.names:
                    yield f"{_named(path, change, change.names)}: gave way to what the operator injects under this name"
            at = ray_container(pod)
            if at:
                yield (
                    f"{path.child('containers').index(0)}: KubeRay starts Ray in the first container, "
                    f"but the settings for Ray went to {pod['containers'][at].get('name')!r}: put that first"
                )
        case Action.KEEP:
            if step.concern is OAUTH and stands_first(pod) and not (step.former and stands_first(step.former.pod)):
                stand_aside(pod)
                yield (
                    f"{path.child('containers').index(0)}: KubeRay starts Ray in the first container, "
                    f"so the injected {PROXY_CONTAINER} was moved behind the others"
                )
            for change in step.parts.put_into(pod, step.before):
                names = (*change.names, *change.absent)
                yield f"{_named(path, change, names)}: injected by the operator, so it was put back"
        case Action.REMOVE:
            for change in step.parts.take_out_of(pod):
                yield (
                    f"{_named(path, change, change.names)}: taken out, "
                    f"because KubeRay's own {step.concern.kuberays_option} are used"
                )


def _named(path: Path, change: Change, names: Iterable[str]) -> str:
    return f"{path.child(change.field)}: {', '.join(names)}"
