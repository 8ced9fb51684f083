"""Validation of RayClusters.

It rechecks the result of defaulting, because other mutating webhooks may have changed it afterwards: the injected
entries must be the planned ones, and on an update must be unchanged. During an upgrade of the operator, a replica of
the other version may have injected slightly different entries into a new RayCluster; the version annotation shows this,
and then only their names are checked. An update of a RayCluster that is being deleted is not validated, so that its
finalizers can be removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from cfo.api.raycluster.authentication import PROXY_PORT_NAME
from cfo.api.raycluster.cluster import PodGroup, head_pod_spec, is_managed_by_multikueue, pod_path
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.names import VERSION_ANNOTATION
from cfo.runtime import FieldError, Object, annotations_of, is_deleting, name_of
from cfo.runtime.objects.field import MAX_ERRORS, forbidden, invalid, required, too_long
from cfo.webhooks.raycluster.defaulting import default
from cfo.webhooks.raycluster.injection_plan import (
    MTLS,
    OAUTH,
    Action,
    Feature,
    InjectionSettings,
    InjectionStep,
    Review,
    plan_injection,
    required_changes,
)
from cfo.webhooks.raycluster.json_types import count_errors, json_type_errors
from cfo.webhooks.raycluster.pod_additions import (
    PROXY_CONTAINER,
    PROXY_CONTAINERS,
    PodAdditions,
    are_equal_entries,
    mount_key,
    ray_container_index,
)

_MAX_REPLICA_WARNINGS: Final = 10

_NAME_LIMIT: Final = 63
"""KubeRay labels each pod with the name of its RayCluster, and label values have at most 63 characters."""

_NO_INGRESS: Final = "RayCluster with enableIngress set to true is not allowed"
_NO_CONTAINER: Final = "must contain a container that runs Ray"
_ONLY_PROXY: Final = (
    f"must contain a container that runs Ray; the name {PROXY_CONTAINER!r} is "
    "reserved for the injected proxy"
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
        errors.append(too_long("metadata.name", name, _NAME_LIMIT))
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
    return [
        *_version_errors(old, cluster),
        *_manager_errors(old, cluster),
        *_reported(_errors(cluster, old, settings)),
    ]


def _manager_errors(old: Object, cluster: Object) -> list[FieldError]:
    """Return the error if the RayCluster is given to MultiKueue, or taken from it, while its pods may run."""
    if is_managed_by_multikueue(cluster) == is_managed_by_multikueue(old):
        return []
    return [invalid("spec.managedBy", cluster["spec"].get("managedBy"), _MANAGER)]


def _version_errors(old: Object, cluster: Object) -> list[FieldError]:
    current = annotations_of(cluster).get(VERSION_ANNOTATION)
    if current == annotations_of(old).get(VERSION_ANNOTATION):
        return []
    path = f"metadata.annotations[{VERSION_ANNOTATION}]"
    return [invalid(path, current, "the version that the RayCluster was created with is immutable")]


def _reported(errors: Iterator[FieldError]) -> Iterator[FieldError]:
    """Compute no more errors than are reported, and one more, so that the report says that there are more."""
    return islice(errors, MAX_ERRORS + 1)


def _errors(
    cluster: Object, old: Object | None, settings: InjectionSettings
) -> Iterator[FieldError]:
    head = (cluster.get("spec") or {}).get("headGroupSpec") or {}
    if head.get("enableIngress") and "ingressOptions" not in settings.kuberay_features:
        yield invalid("spec.headGroupSpec.enableIngress", head["enableIngress"], _NO_INGRESS)
    review = Review.of(cluster, old, settings)
    required = required_changes(review)
    for path, reason in required.reasons.items() if required is not None else ():
        yield forbidden(
            f"spec.{'.'.join(path)}", f"{reason} (profile {settings.profile} of this namespace)"
        )
    groups = review.facts.groups
    steps: dict[int, list[InjectionStep]] = {}
    for step in plan_injection(review):
        steps.setdefault(step.group.position, []).append(step)
    former = review.former
    old_groups = (
        {group.key: group for group in reversed(former.groups)} if former is not None else {}
    )
    injected = {
        step.feature
        for step in steps.get(groups[0].position, ())
        if step.action is not Action.REMOVE
    }
    if OAUTH in injected:
        yield from _port_errors(cluster, former.cluster if former is not None else None)
    if former is not None:
        yield from _imitation_errors(review, former, injected)
    injected_here = old is None and annotations_of(cluster).get(VERSION_ANNOTATION) in (
        None,
        settings.version,
    )
    for group in groups:
        group_steps = steps.get(group.position, [])
        error = _container_error(group, old_groups.get(group.key), group_steps)
        if error is not None:
            yield error
            continue
        for step in group_steps:
            yield from _step_errors(step, must_be_equal=injected_here or step.action is Action.KEEP)


def _imitation_errors(
    review: Review, old: RayClusterFacts, injected: Collection[Feature]
) -> Iterator[FieldError]:
    """Yield an error for each feature of which a user adds the parts to a head that was created without them.

    The operator would expose what it takes for protected, although running pods do not have these parts. ``injected``
    are the features whose parts the operator injects into the head, or keeps there.
    """
    facts = review.facts
    for feature, is_added, field in (
        (OAUTH, facts.has_injected_auth_proxy and not old.has_injected_auth_proxy, "containers"),
        (MTLS, facts.has_injected_tls and not old.has_injected_tls, "initContainers"),
    ):
        if is_added and feature not in injected and feature.is_enabled(review.settings):
            yield forbidden(pod_path(-1, field), _IMITATION.format(name=feature.name))


def _port_errors(cluster: Object, old: Object | None) -> Iterator[FieldError]:
    """Yield an error if a container of the head other than the proxies has a port with the name of the proxy's port.

    The proxy's Service targets the port by its name, and of several ports of a pod the first one with the name.
    """
    if old is not None and _has_port_of_proxy(old):
        return
    if _has_port_of_proxy(cluster):
        yield forbidden(
            pod_path(-1, "containers"),
            f"the port name {PROXY_PORT_NAME!r} is reserved for the injected proxy",
        )


def _has_port_of_proxy(cluster: Object) -> bool:
    containers = head_pod_spec(cluster).get("containers") or ()
    users = (item for item in containers if item.get("name") not in PROXY_CONTAINERS)
    return any(
        port.get("name") == PROXY_PORT_NAME for item in users for port in item.get("ports") or ()
    )


def _container_error(
    group: PodGroup, before: PodGroup | None, steps: Sequence[InjectionStep]
) -> FieldError | None:
    """Return the error if no container of ``group`` can run Ray, unless this was already the case before the update."""
    message = ""
    if not group.pod.get("containers"):
        message = _NO_CONTAINER if before is None or before.pod.get("containers") else ""
    elif ray_container_index(group.pod) is None and any(
        step.action is not Action.REMOVE for step in steps
    ):
        message = (
            _ONLY_PROXY if before is None or ray_container_index(before.pod) is not None else ""
        )
    return required(group.path("containers"), message) if message else None


def _step_errors(step: InjectionStep, *, must_be_equal: bool) -> Iterator[FieldError]:
    if step.action is Action.REMOVE:
        return
    group, pod, additions = step.group, step.group.pod, step.additions
    not_injected = _NOT_INJECTED if must_be_equal and step.action is Action.INJECT else ""
    lists: list[tuple[tuple[str | int, ...], Sequence[Object], Sequence[Object], str]] = [
        (
            ("containers",),
            additions.containers,
            pod.get("containers") or (),
            "OAuth Proxy container is immutable",
        ),
        (("volumes",), additions.volumes, pod.get("volumes") or (), _volumes_message(step)),
    ]
    at = ray_container_index(pod)
    if at is not None:
        ray = pod["containers"][at]
        message = "RAY_TLS related environment variables are immutable"
        lists.append((("containers", at, "env"), additions.env, ray.get("env") or (), message))
        yield from _mount_errors(group, at, additions, not_injected)
    message = "create-cert Init Container is immutable"
    lists.append(
        (("initContainers",), additions.init_containers, pod.get("initContainers") or (), message)
    )
    for steps, expected, items, message in lists:
        for addition in expected:
            found = [item for item in items if item.get("name") == addition["name"]]
            if not found:
                yield required(group.path(*steps), message)
            elif len(found) > 1 or (must_be_equal and not are_equal_entries(found[0], addition)):
                yield invalid(group.path(*steps), found[-1], f"{message}{not_injected}")
    account = pod.get("serviceAccountName") or ""
    if additions.service_account and account != additions.service_account:
        message = "RayCluster head group service account is immutable"
        yield invalid(group.path("serviceAccountName"), account, message)


def _volumes_message(step: InjectionStep) -> str:
    if step.feature is OAUTH:
        return "OAuth Proxy TLS Secret volume is immutable"
    return "ca-vol and server-cert Secret volumes are immutable"


def _mount_errors(
    group: PodGroup, at: int, additions: PodAdditions, not_injected: str
) -> Iterator[FieldError]:
    message = "ca-vol and server-cert volume mounts are immutable"
    present = {
        mount_key(mount): mount for mount in group.pod["containers"][at].get("volumeMounts") or ()
    }
    for addition in additions.mounts:
        found = present.get(mount_key(addition))
        if found is None:
            yield required(group.path("containers", at, "volumeMounts"), message)
        elif not_injected and not are_equal_entries(found, addition):
            yield invalid(
                group.path("containers", at, "volumeMounts"), found, f"{message}{not_injected}"
            )


# --- Warnings about numbers of workers --------------------------------------------------------------------------------
# KubeRay's CRD and validation accept any integers. Its controller runs ``replicas`` limited to the range from
# ``minReplicas`` (default 0) to ``maxReplicas`` (default unlimited) workers (``GetWorkerGroupDesiredReplicas``).


def replica_warnings(cluster: Object, old: Object | None = None) -> list[str]:
    """Return the warnings about the worker groups of ``cluster``, at most 10, except those that ``old`` also has."""
    known = set(_all_warnings(old)) if old is not None else set[str]()
    return list(
        islice(
            (warning for warning in _all_warnings(cluster) if warning not in known),
            _MAX_REPLICA_WARNINGS,
        )
    )


def _all_warnings(cluster: Object) -> Iterator[str]:
    spec = cluster.get(
        "spec"
    )  # of an old object, which no webhook may have validated, it can have any type
    groups = spec.get("workerGroupSpecs") if isinstance(spec, Mapping) else None
    for index, group in enumerate(groups if isinstance(groups, list) else ()):
        if isinstance(group, Mapping):
            for problem in _problems(group):
                yield f"spec.workerGroupSpecs[{index}]: {problem}"


def _problems(group: Mapping[str, Any]) -> Iterator[str]:
    replicas, least, most = (
        _integer(group.get(key)) for key in ("replicas", "minReplicas", "maxReplicas")
    )
    for name, value in (("minReplicas", least), ("maxReplicas", most)):
        if value is not None and value < 0:
            yield f"{name} is negative: {value}"
    lower = max(least or 0, 0)
    if most is not None and most >= 0 and lower > most:
        yield f"minReplicas ({lower}) is greater than maxReplicas ({most})"
    elif replicas is not None and replicas < lower:
        yield f"replicas is {replicas}, but KubeRay runs minReplicas: {lower}"
    elif replicas is not None and most is not None and replicas > most >= 0:
        yield f"replicas is {replicas}, but KubeRay runs maxReplicas: {most}"


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
