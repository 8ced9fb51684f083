"""The validating webhook: which RayClusters are refused, and why.

What the mutating webhook does is checked here once more, because others may come between: what was injected must still
be there, and at an update exactly as it was. A cluster that is being deleted passes, so that finalizers can go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cfo.api.raycluster.naming import VERSION_ANNOTATION
from cfo.runtime.field import FieldError, Path, invalid, required, too_long
from cfo.runtime.objects import Object, annotations_of, is_deleting, name_of
from cfo.webhooks.raycluster.groups import Group, groups_of, shape_errors
from cfo.webhooks.raycluster.parts import PROXY_CONTAINER, Parts, is_mount, ray_container, same
from cfo.webhooks.raycluster.plan import OAUTH, Action, Step, plan
from cfo.webhooks.raycluster.settings import Settings

__all__ = ["created_errors", "updated_errors"]

_NAME_LIMIT: Final = 63
"""KubeRay labels every pod with the name of its cluster, and a label's value is never longer."""

_NO_INGRESS: Final = "RayCluster with enableIngress set to true is not allowed"
_NO_CONTAINER: Final = "a group needs a container for Ray"
_ONLY_PROXY: Final = (
    f"a group needs a container for Ray; one called {PROXY_CONTAINER!r} is none, that name is the injected proxy's"
)


def created_errors(cluster: Object, settings: Settings) -> list[FieldError]:
    """What is wrong with a new RayCluster."""
    errors = shape_errors(cluster)
    if errors:
        return errors
    name = name_of(cluster)
    if len(name) > _NAME_LIMIT:
        errors.append(too_long(Path("metadata", "name"), name, _NAME_LIMIT))
    return [*errors, *_errors(cluster, None, settings)]


def updated_errors(old: Object, cluster: Object, settings: Settings) -> list[FieldError]:
    """What is wrong with ``cluster`` in the place of ``old``."""
    if is_deleting(cluster):
        return []
    errors = shape_errors(cluster)
    if errors:
        return errors
    path = Path("metadata", "annotations").key(VERSION_ANNOTATION)
    current = annotations_of(cluster).get(VERSION_ANNOTATION)
    if current != annotations_of(old).get(VERSION_ANNOTATION):
        errors.append(invalid(path, current, "the version that a RayCluster was created with is immutable"))
    return [*errors, *_errors(cluster, old, settings)]


def _errors(cluster: Object, old: Object | None, settings: Settings) -> Iterator[FieldError]:
    head = (cluster.get("spec") or {}).get("headGroupSpec") or {}
    if head.get("enableIngress"):
        yield invalid(Path("spec", "headGroupSpec", "enableIngress"), head["enableIngress"], _NO_INGRESS)
    groups = groups_of(cluster)
    steps = list(plan(cluster, groups, old, settings))
    former = groups_of(old) if old is not None and not shape_errors(old) else []
    for group in groups:
        of_group = [step for step in steps if step.group is group]
        error = _container_error(group, group.counterpart(former), of_group)
        if error is not None:
            yield error
            continue
        for step in of_group:
            yield from _step_errors(step)


def _container_error(group: Group, before: Group | None, steps: Sequence[Step]) -> FieldError | None:
    """A group in which Ray cannot run; one that was so before stays editable."""
    path = group.pod_path.child("containers")
    if not group.pod.get("containers"):
        return required(path, _NO_CONTAINER) if before is None or before.pod.get("containers") else None
    if ray_container(group.pod) is None and any(step.action is not Action.REMOVE for step in steps):
        return required(path, _ONLY_PROXY) if before is None or ray_container(before.pod) is not None else None
    return None


def _step_errors(step: Step) -> Iterator[FieldError]:
    if step.action is Action.REMOVE:
        return
    pod, path, parts = step.group.pod, step.group.pod_path, step.parts
    exactly = step.action is Action.KEEP
    lists: list[tuple[Path, Sequence[Object], Sequence[Object], str]] = [
        (path.child("containers"), parts.containers, pod.get("containers") or (), "OAuth Proxy container is immutable"),
        (path.child("volumes"), parts.volumes, pod.get("volumes") or (), _volumes_message(step)),
    ]
    at = ray_container(pod)
    if at is not None:
        ray, ray_path = pod["containers"][at], path.child("containers").index(at)
        message = "RAY_TLS related environment variables are immutable"
        lists.append((ray_path.child("env"), parts.env, ray.get("env") or (), message))
        yield from _mount_errors(ray_path.child("volumeMounts"), parts, ray.get("volumeMounts") or ())
    message = "create-cert Init Container is immutable"
    lists.append((path.child("initContainers"), parts.init_containers, pod.get("initContainers") or (), message))
    for where, wanted, items, message in lists:
        for part in wanted:
            found = [item for item in items if item.get("name") == part["name"]]
            if not found:
                yield required(where, message)
            elif len(found) > 1 or (exactly and not same(found[0], part)):
                yield invalid(where, found[-1], message)
    account = pod.get("serviceAccountName") or ""
    if parts.service_account and account != parts.service_account:
        message = "RayCluster head group service account is immutable"
        yield invalid(path.child("serviceAccountName"), account, message)


def _volumes_message(step: Step) -> str:
    if step.concern is OAUTH:
        return "OAuth Proxy TLS Secret volume is immutable"
    return "ca-vol and server-cert Secret volumes are immutable"


def _mount_errors(path: Path, parts: Parts, mounts: Sequence[Object]) -> Iterator[FieldError]:
    for part in parts.mounts:
        if not any(is_mount(part, mount) for mount in mounts):
            yield required(path, "ca-vol and server-cert volume mounts are immutable")
