"""Validation of RayClusters.

It rechecks the result of defaulting, because other mutating webhooks may have changed it afterwards: the injected
entries must be the planned ones, and on an update must be unchanged. During an upgrade of the operator, a replica of
the other version may have injected slightly different entries into a new RayCluster; the version annotation shows this,
and then only their names are checked. An update of a RayCluster that is being deleted is not validated, so that its
finalizers can be removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Final

from cfo.api.raycluster.authentication import PROXY_PORT_NAME, has_injected_auth_proxy
from cfo.api.raycluster.cluster import has_injected_tls, head_pod_spec
from cfo.api.raycluster.naming import VERSION_ANNOTATION
from cfo.api.raycluster.responsibility import is_managed_by_multikueue
from cfo.runtime import FieldError, Object, annotations_of, is_deleting, name_of
from cfo.runtime.objects.field import MAX_ERRORS, Path, forbidden, invalid, required, too_long
from cfo.webhooks.raycluster.defaulting import default
from cfo.webhooks.raycluster.injection_plan import (
    MTLS,
    OAUTH,
    Action,
    Feature,
    InjectionStep,
    plan_injection,
    required_changes,
)
from cfo.webhooks.raycluster.injection_settings import InjectionSettings
from cfo.webhooks.raycluster.json_types import has_json_types, json_type_errors
from cfo.webhooks.raycluster.limits import count_errors
from cfo.webhooks.raycluster.pod_additions import (
    PROXY_CONTAINER,
    PROXY_CONTAINERS,
    PodAdditions,
    are_equal_entries,
    mount_key,
    ray_container_index,
)
from cfo.webhooks.raycluster.pod_groups import HEAD_GROUP, PodGroup, pod_groups_by_key, pod_groups_of

__all__ = ["create_errors", "submission_errors", "update_errors"]

_NAME_LIMIT: Final = 63
"""KubeRay labels each pod with the name of its RayCluster, and label values have at most 63 characters."""

_NO_INGRESS: Final = "RayCluster with enableIngress set to true is not allowed"
_NO_CONTAINER: Final = "must contain a container that runs Ray"
_ONLY_PROXY: Final = (
    f"must contain a container that runs Ray; the name {PROXY_CONTAINER!r} is reserved for the injected proxy"
)


_IMITATION: Final = (
    "the RayCluster was created without the operator's parts of the {name}, and they cannot be added later; create the "
    "RayCluster again"
)
_MANAGER: Final = "the managedBy field is immutable"
"""KubeRay's message. The rule of its CRD does not apply when the field is added or removed."""

_NOT_INJECTED: Final = (
    ": it differs from the injected one. Another webhook changed it, or the operator's settings changed at this "
    "moment; in the latter case try again"
)


def create_errors(cluster: Object, settings: InjectionSettings) -> list[FieldError]:
    """Return the errors in a new RayCluster."""
    errors = json_type_errors(cluster)
    if errors:
        return errors
    name = name_of(cluster)
    if len(name) > _NAME_LIMIT:
        errors.append(too_long(Path("metadata", "name"), name, _NAME_LIMIT))
    return [*errors, *_reported(_errors(cluster, None, settings))]


def submission_errors(cluster: Object, settings: InjectionSettings) -> list[FieldError]:
    """Return the errors with which a new RayCluster would be refused after defaulting, as a user submits it."""
    return create_errors(default(cluster, None, settings).cluster, settings)


def update_errors(old: Object, cluster: Object, settings: InjectionSettings) -> list[FieldError]:
    """Return the errors in the update of ``old`` to ``cluster``."""
    if is_deleting(cluster):
        return []
    errors = json_type_errors(cluster)
    if errors:
        # Clusters that were stored without the webhooks can exceed the limits; their metadata can still be changed.
        if cluster.get("spec") == old.get("spec") and count_errors(cluster):
            return _version_errors(old, cluster)
        return errors
    return [*_version_errors(old, cluster), *_manager_errors(old, cluster), *_reported(_errors(cluster, old, settings))]


def _manager_errors(old: Object, cluster: Object) -> list[FieldError]:
    """Return the error if the RayCluster is given to MultiKueue, or taken from it, while its pods may run."""
    if is_managed_by_multikueue(cluster) == is_managed_by_multikueue(old):
        return []
    return [invalid(Path("spec", "managedBy"), cluster["spec"].get("managedBy"), _MANAGER)]


def _version_errors(old: Object, cluster: Object) -> list[FieldError]:
    current = annotations_of(cluster).get(VERSION_ANNOTATION)
    if current == annotations_of(old).get(VERSION_ANNOTATION):
        return []
    path = Path("metadata", "annotations").key(VERSION_ANNOTATION)
    return [invalid(path, current, "the version that the RayCluster was created with is immutable")]


def _reported(errors: Iterator[FieldError]) -> Iterator[FieldError]:
    """Compute no more errors than are reported, and one more, so that the report says that there are more."""
    return islice(errors, MAX_ERRORS + 1)


def _errors(cluster: Object, old: Object | None, settings: InjectionSettings) -> Iterator[FieldError]:
    head = (cluster.get("spec") or {}).get("headGroupSpec") or {}
    if head.get("enableIngress") and "ingressOptions" not in settings.kuberay_features:
        yield invalid(Path("spec", "headGroupSpec", "enableIngress"), head["enableIngress"], _NO_INGRESS)
    for path, reason in required_changes(cluster, old, settings).reasons.items():
        yield forbidden(Path("spec", *path), f"{reason} (profile {settings.profile} of this namespace)")
    groups = pod_groups_of(cluster)
    steps: dict[Path, list[InjectionStep]] = {}
    for step in plan_injection(cluster, groups, old, settings):
        steps.setdefault(step.group.path, []).append(step)
    old_groups = pod_groups_by_key(pod_groups_of(old) if old is not None and has_json_types(old) else ())
    injected = {step.feature for step in steps.get(HEAD_GROUP, ()) if step.action is not Action.REMOVE}
    former = old if old is not None and has_json_types(old) else None
    if OAUTH in injected:
        yield from _port_errors(cluster, former)
    if former is not None:
        yield from _imitation_errors(cluster, former, settings, injected)
    injected_here = old is None and annotations_of(cluster).get(VERSION_ANNOTATION) in (None, settings.version)
    for group in groups:
        group_steps = steps.get(group.path, [])
        error = _container_error(group, old_groups.get(group.key), group_steps)
        if error is not None:
            yield error
            continue
        for step in group_steps:
            yield from _step_errors(step, must_be_equal=injected_here or step.action is Action.KEEP)


def _imitation_errors(
    cluster: Object, old: Object, settings: InjectionSettings, injected: Collection[Feature]
) -> Iterator[FieldError]:
    """Yield an error for each feature of which a user adds the parts to a head that was created without them.

    The operator would expose what it takes for protected, although running pods do not have these parts. ``injected``
    are the features whose parts the operator injects into the head, or keeps there.
    """
    for feature, is_present, field in (
        (OAUTH, has_injected_auth_proxy, "containers"),
        (MTLS, has_injected_tls, "initContainers"),
    ):
        if feature in injected or not feature.is_enabled(settings):
            continue
        if is_present(cluster) and not is_present(old):
            yield forbidden(HEAD_GROUP.child("template", "spec", field), _IMITATION.format(name=feature.name))


def _port_errors(cluster: Object, old: Object | None) -> Iterator[FieldError]:
    """Yield an error if a container of the head other than the proxies has a port with the name of the proxy's port.

    The proxy's Service targets the port by its name, and of several ports of a pod the first one with the name.
    """
    if old is not None and _has_port_of_proxy(old):
        return
    if _has_port_of_proxy(cluster):
        path = HEAD_GROUP.child("template", "spec", "containers")
        yield forbidden(path, f"the port name {PROXY_PORT_NAME!r} is reserved for the injected proxy")


def _has_port_of_proxy(cluster: Object) -> bool:
    containers = head_pod_spec(cluster).get("containers") or ()
    users = (item for item in containers if item.get("name") not in PROXY_CONTAINERS)
    return any(port.get("name") == PROXY_PORT_NAME for item in users for port in item.get("ports") or ())


def _container_error(group: PodGroup, before: PodGroup | None, steps: Sequence[InjectionStep]) -> FieldError | None:
    """Return the error if no container of ``group`` can run Ray, unless this was already the case before the update."""
    path = group.pod_path.child("containers")
    if not group.pod.get("containers"):
        return required(path, _NO_CONTAINER) if before is None or before.pod.get("containers") else None
    if ray_container_index(group.pod) is None and any(step.action is not Action.REMOVE for step in steps):
        return required(path, _ONLY_PROXY) if before is None or ray_container_index(before.pod) is not None else None
    return None


def _step_errors(step: InjectionStep, *, must_be_equal: bool) -> Iterator[FieldError]:
    if step.action is Action.REMOVE:
        return
    pod, path, additions = step.group.pod, step.group.pod_path, step.additions
    not_injected = _NOT_INJECTED if must_be_equal and step.action is Action.INJECT else ""
    lists: list[tuple[Path, Sequence[Object], Sequence[Object], str]] = [
        (
            path.child("containers"),
            additions.containers,
            pod.get("containers") or (),
            "OAuth Proxy container is immutable",
        ),
        (path.child("volumes"), additions.volumes, pod.get("volumes") or (), _volumes_message(step)),
    ]
    at = ray_container_index(pod)
    if at is not None:
        ray, ray_path = pod["containers"][at], path.child("containers").index(at)
        message = "RAY_TLS related environment variables are immutable"
        lists.append((ray_path.child("env"), additions.env, ray.get("env") or (), message))
        yield from _mount_errors(ray_path.child("volumeMounts"), additions, ray.get("volumeMounts") or (), not_injected)
    message = "create-cert Init Container is immutable"
    lists.append((path.child("initContainers"), additions.init_containers, pod.get("initContainers") or (), message))
    for list_path, expected, items, message in lists:
        for addition in expected:
            found = [item for item in items if item.get("name") == addition["name"]]
            if not found:
                yield required(list_path, message)
            elif len(found) > 1 or (must_be_equal and not are_equal_entries(found[0], addition)):
                yield invalid(list_path, found[-1], f"{message}{not_injected}")
    account = pod.get("serviceAccountName") or ""
    if additions.service_account and account != additions.service_account:
        message = "RayCluster head group service account is immutable"
        yield invalid(path.child("serviceAccountName"), account, message)


def _volumes_message(step: InjectionStep) -> str:
    if step.feature is OAUTH:
        return "OAuth Proxy TLS Secret volume is immutable"
    return "ca-vol and server-cert Secret volumes are immutable"


def _mount_errors(
    path: Path, additions: PodAdditions, mounts: Sequence[Object], not_injected: str
) -> Iterator[FieldError]:
    message = "ca-vol and server-cert volume mounts are immutable"
    present = {mount_key(mount): mount for mount in mounts}
    for addition in additions.mounts:
        found = present.get(mount_key(addition))
        if found is None:
            yield required(path, message)
        elif not_injected and not are_equal_entries(found, addition):
            yield invalid(path, found, f"{message}{not_injected}")
