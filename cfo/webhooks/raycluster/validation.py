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
from typing import Any, Final

import msgspec

from cfo.api.raycluster.cluster import (
    PROXY_CONTAINER,
    PodGroup,
    head_pod_spec,
    is_managed_by_multikueue,
    pod_path,
)
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.names import (
    HEAD_SERVICE_NAME,
    HEAD_SERVICE_NAME_RULE,
    VERSION_ANNOTATION,
    invalid_head_service_name,
)
from cfo.api.raycluster.ports import PROXY_PORT_NAME
from cfo.api.reading import mapping
from cfo.runtime import FieldError, Object, annotations_of, is_deleting, name_of
from cfo.runtime.objects.field import MAX_ERRORS, forbidden, invalid, required, too_long
from cfo.webhooks.raycluster.defaulting import default_readable
from cfo.webhooks.raycluster.injection_plan import (
    MTLS,
    OAUTH,
    Injection,
    InjectionPlan,
    InjectionSettings,
    InjectionStep,
    StepAction,
    plan_injection,
)
from cfo.webhooks.raycluster.json_types import count_errors, json_type_errors
from cfo.webhooks.raycluster.pod_additions import (
    PodAdditions,
    are_equal_entries,
    first_difference,
    mount_key,
    ray_container_index,
)

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
    " from the injected one: another webhook changed it, or the settings changed; then try again"
)


def create_errors(cluster: Object, settings: InjectionSettings) -> list[FieldError]:
    """Return the errors in a new RayCluster."""
    return json_type_errors(cluster) or _create_errors(cluster, settings)


def submission_errors(cluster: Object, settings: InjectionSettings) -> list[FieldError]:
    """Return the errors with which a new RayCluster would be refused after defaulting, as a user submits it."""
    errors = json_type_errors(cluster)
    if errors:
        return errors
    defaulted = default_readable(cluster, None, settings).cluster
    return count_errors(defaulted) or _create_errors(defaulted, settings)


def _create_errors(cluster: Object, settings: InjectionSettings) -> list[FieldError]:
    """Return the errors in a new RayCluster whose JSON types have been checked."""
    errors: list[FieldError] = []
    name = name_of(cluster)
    if len(name) > _NAME_LIMIT:
        errors.append(too_long("metadata.name", name, _NAME_LIMIT))
    errors += _reported(_errors(cluster, None, settings))
    return errors


def update_errors(old: Object, cluster: Object, settings: InjectionSettings) -> list[FieldError]:
    """Return the errors in the update of ``old`` to ``cluster``."""
    if is_deleting(cluster):
        return []
    errors = json_type_errors(cluster)
    if errors:
        # Clusters that were stored without the webhooks can have these errors. Their metadata can still be changed,
        # also by the operator, and Kueue can suspend them.
        if _without_suspend(cluster) == _without_suspend(old):
            return _version_errors(old, cluster)
        return errors
    return [
        *_version_errors(old, cluster),
        *_manager_errors(old, cluster),
        *_reported(_errors(cluster, old, settings)),
    ]


def _without_suspend(cluster: Object) -> Object:
    spec = mapping(cluster.get("spec"))
    return {name: value for name, value in spec.items() if name != "suspend"}


def _manager_errors(old: Object, cluster: Object) -> list[FieldError]:
    """Return the error if the RayCluster is given to MultiKueue, or taken from it, while its pods may run."""
    if is_managed_by_multikueue(cluster) == is_managed_by_multikueue(old):
        return []
    spec = cluster.get("spec") or {}
    return [invalid("spec.managedBy", spec.get("managedBy"), _MANAGER)]


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
    yield from _ingress_errors(cluster, old, settings)
    yield from _head_service_errors(cluster, old)
    plan = plan_injection(cluster, old, settings)
    yield from _enforcement_errors(plan, settings)
    steps: dict[int, list[InjectionStep]] = {}
    for step in plan.steps:
        steps.setdefault(step.group.position, []).append(step)
    head = plan.facts.groups[0]
    injected = {
        step.injection: step.additions
        for step in steps.get(head.position, ())
        if step.action is not StepAction.REMOVE
    }
    if OAUTH in injected:
        proxies = {container["name"] for container in injected[OAUTH].containers}
        yield from _port_errors(cluster, plan.former, proxies)
    if plan.former is not None:
        yield from _imitation_errors(plan, plan.former, injected, settings)
    version = annotations_of(cluster).get(VERSION_ANNOTATION)
    is_injected_here = old is None and version in (None, settings.version)
    for group in plan.facts.groups:
        group_steps = steps.get(group.position, [])
        error = _container_error(group, _former_group(plan, group), group_steps)
        if error is not None:
            yield error
            continue
        for step in group_steps:
            must_be_equal = is_injected_here or step.action is StepAction.KEEP
            yield from _step_errors(step, must_be_equal=must_be_equal)


def _ingress_errors(
    cluster: Object, old: Object | None, settings: InjectionSettings
) -> Iterator[FieldError]:
    """Yield the error if a RayCluster enables KubeRay's Ingress, which the configuration does not.

    One that was stored with it, without the webhook or with another configuration, is not refused: otherwise KubeRay,
    its autoscaler and the operator itself could not change it, either.
    """
    if "ingressOptions" in settings.kuberay_features:
        return
    value = _enabled_ingress(cluster)
    if value and not (old is not None and _enabled_ingress(old)):
        yield invalid("spec.headGroupSpec.enableIngress", value, _NO_INGRESS)


def _enabled_ingress(cluster: Object) -> Any:
    """Return the value with which a RayCluster enables KubeRay's Ingress; one that is false if it does not."""
    return mapping(mapping(cluster.get("spec")).get("headGroupSpec")).get("enableIngress")


def _head_service_errors(cluster: Object, old: Object | None) -> Iterator[FieldError]:
    """Yield the error if no Service can have the name that is set for the head's; one that was stored can stay."""
    name = invalid_head_service_name(cluster)
    if name is None or (old is not None and invalid_head_service_name(old) == name):
        return
    yield invalid(".".join(HEAD_SERVICE_NAME), name, HEAD_SERVICE_NAME_RULE)


def _enforcement_errors(plan: InjectionPlan, settings: InjectionSettings) -> Iterator[FieldError]:
    if plan.enforcement is None:
        return
    for path, reason in plan.enforcement.reasons.items():
        yield forbidden(
            f"spec.{'.'.join(path)}", f"{reason} (profile {settings.profile} of this namespace)"
        )


def _former_group(plan: InjectionPlan, group: PodGroup) -> PodGroup | None:
    """Return the group of the stored RayCluster that ``group`` replaces."""
    if plan.former is None:
        return None
    return plan.former.groups_by_key.get(group.key)


def _imitation_errors(
    plan: InjectionPlan,
    former: RayClusterFacts,
    injected: Collection[Injection],
    settings: InjectionSettings,
) -> Iterator[FieldError]:
    """Yield an error for each injection whose parts a user adds to a head that was created without them.

    The operator would expose what it takes for protected, although running pods do not have these parts. ``injected``
    are those whose parts the operator injects into the head, or keeps there.
    """
    facts = plan.facts
    adds_proxy = facts.has_injected_auth_proxy and not former.has_injected_auth_proxy
    adds_tls = facts.has_injected_tls and not former.has_injected_tls
    additions = ((OAUTH, adds_proxy, "containers"), (MTLS, adds_tls, "initContainers"))
    for injection, is_added, field in additions:
        if is_added and injection not in injected and injection.is_enabled(settings):
            yield forbidden(pod_path(-1, field), _IMITATION.format(name=injection.name))


def _port_errors(
    cluster: Object, former: RayClusterFacts | None, proxies: Collection[str]
) -> Iterator[FieldError]:
    """Yield an error if a container in the head that is none of ``proxies`` has a port that is named like theirs.

    The proxy's Service targets the port by its name, and of several ports of a pod the first one with the name.
    """
    if former is not None and _has_port_of_proxy(former.cluster, proxies):
        return
    if _has_port_of_proxy(cluster, proxies):
        yield forbidden(
            pod_path(-1, "containers"),
            f"the port name {PROXY_PORT_NAME!r} is reserved for the injected proxy",
        )


def _has_port_of_proxy(cluster: Object, proxies: Collection[str]) -> bool:
    for container in head_pod_spec(cluster).get("containers") or ():
        if container.get("name") in proxies:
            continue
        if any(port.get("name") == PROXY_PORT_NAME for port in container.get("ports") or ()):
            return True
    return False


def _container_error(
    group: PodGroup, former: PodGroup | None, steps: Sequence[InjectionStep]
) -> FieldError | None:
    """Return the error if no container of ``group`` can run Ray, unless this was already the case before the update."""
    if not group.pod.get("containers"):
        if former is not None and not former.pod.get("containers"):
            return None
        return required(group.path("containers"), _NO_CONTAINER)
    if ray_container_index(group.pod) is not None:
        return None
    if all(step.action is StepAction.REMOVE for step in steps):
        return None
    if former is not None and ray_container_index(former.pod) is None:
        return None
    return required(group.path("containers"), _ONLY_PROXY)


class _InjectedList(msgspec.Struct, frozen=True):
    """A list of a pod template: the entries that it must contain, its entries, and the message of an error.

    ``steps`` lead from the pod spec to the list; its path is only built for an error.
    """

    steps: tuple[str | int, ...]
    expected: Sequence[Object]
    entries: Sequence[Object]
    message: str


def _step_errors(step: InjectionStep, *, must_be_equal: bool) -> Iterator[FieldError]:
    """Yield the entries of a pod template that differ from the plan; unless ``must_be_equal``, only names count."""
    if step.action is StepAction.REMOVE:
        return
    group = step.group
    pod = group.pod
    additions = step.additions
    must_be_injected = must_be_equal and step.action is StepAction.INJECT
    hint = _NOT_INJECTED if must_be_injected else ""
    at = ray_container_index(pod)
    if at is not None:
        yield from _mount_errors(group, at, additions, hint, must_be_equal=must_be_equal)
    for checked in _injected_lists(step, at):
        for addition in checked.expected:
            found = [item for item in checked.entries if item.get("name") == addition["name"]]
            if not found:
                yield required(group.path(*checked.steps), checked.message)
                continue
            if len(found) > 1:
                problem = "its name is duplicated"
            elif must_be_equal and not are_equal_entries(found[0], addition):
                problem = f"{first_difference(found[0], addition)} differs{hint}"
            else:
                continue
            message = f"{checked.message}: {problem}"
            yield invalid(group.path(*checked.steps), addition["name"], message)
    account = pod.get("serviceAccountName") or ""
    if additions.service_account and account != additions.service_account:
        message = "RayCluster head group service account is immutable"
        yield invalid(group.path("serviceAccountName"), account, message)


def _injected_lists(step: InjectionStep, ray_container: int | None) -> Iterator[_InjectedList]:
    """Yield the lists whose entries are identified by name; ``ray_container`` is the index of Ray's container."""
    pod = step.group.pod
    additions = step.additions
    yield _InjectedList(
        ("containers",),
        additions.containers,
        pod.get("containers") or (),
        "OAuth Proxy container is immutable",
    )
    volumes_message = "ca-vol and server-cert Secret volumes are immutable"
    if step.injection is OAUTH:
        volumes_message = "OAuth Proxy TLS Secret volume is immutable"
    yield _InjectedList(
        ("volumes",),
        additions.volumes,
        pod.get("volumes") or (),
        volumes_message,
    )
    if ray_container is not None:
        yield _InjectedList(
            ("containers", ray_container, "env"),
            additions.env,
            pod["containers"][ray_container].get("env") or (),
            "RAY_TLS related environment variables are immutable",
        )
    yield _InjectedList(
        ("initContainers",),
        additions.init_containers,
        pod.get("initContainers") or (),
        "create-cert Init Container is immutable",
    )


def _mount_errors(
    group: PodGroup, at: int, additions: PodAdditions, hint: str, *, must_be_equal: bool
) -> Iterator[FieldError]:
    """Yield the mounts that are missing in the container ``at``; with ``must_be_equal`` also those that differ.

    ``hint`` is added to the messages about the latter.
    """
    message = "ca-vol and server-cert volume mounts are immutable"
    mounts = group.pod["containers"][at].get("volumeMounts") or ()
    present = {mount_key(mount): mount for mount in mounts}
    for addition in additions.mounts:
        found = present.get(mount_key(addition))
        is_changed = must_be_equal and found is not None and not are_equal_entries(found, addition)
        if found is not None and not is_changed:
            continue
        path = group.path("containers", at, "volumeMounts")
        if found is None:
            yield required(path, message)
        else:
            problem = f"{first_difference(found, addition)} differs{hint}"
            yield invalid(path, addition["name"], f"{message}: {problem}")
