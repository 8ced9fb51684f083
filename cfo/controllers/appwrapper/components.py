"""The components of an AppWrapper: their names, the objects created for them, and the observed state of these objects.

A component is identified by its kind and name. The AppWrapper owns its object only if the controller reference of the
object has the AppWrapper's uid. A generated name is derived from that uid, the component's index and the time at which
the deployment began, so that a retried creation finds the object of the first attempt.

Before an object is created, settings are injected into its pod templates: the queue's requirements, the label that is
used to count pods, the scheduler, and node affinities that keep pods that request a resource off nodes on which it is
marked. Settings of the user are kept; if the queue requires a different value for the same key, an
:class:`InjectionError` is raised, because both values would be wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from cfo.api.appwrapper.created_components import recorded_uid
from cfo.api.appwrapper.inference import (
    PodNumbers,
    completions_of,
    pod_numbers,
    pod_sets_of,
)
from cfo.api.appwrapper.kinds import RAY_JOB, kind_of
from cfo.api.appwrapper.names import APPWRAPPER_LABEL, RESOURCES_DEPLOYED
from cfo.api.appwrapper.pod_order import PodOrder, pod_order
from cfo.api.appwrapper.podsets import (
    MAX_POD_SET_BYTES,
    SUBMITTER_PATH,
    PodSetError,
    declared_bytes,
    is_submitter,
    pod_template_at,
    replicas_of,
    too_large,
)
from cfo.api.appwrapper.quota import submitter_template
from cfo.api.quantity import is_zero
from cfo.api.reading import elements
from cfo.config.appwrapper import AppWrapperConfiguration, AutopilotConfiguration
from cfo.runtime import (
    GVK,
    NamespacedName,
    Object,
    find_condition,
    gvk_of,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
)
from cfo.runtime.objects import copied
from cfo.runtime.process import printable

CREATION_ERRORED: Final = "ComponentCreationErrored"

_UNKNOWN_FIELD: Final = "unknown field "
_MAX_SHOWN_WARNINGS: Final = 5
_MAX_WARNING_LENGTH: Final = 160

_SUFFIX_LENGTH: Final = 10
_GENERATED_PREFIX_LENGTH: Final = 63 - _SUFFIX_LENGTH


class Component(msgspec.Struct, frozen=True):
    """One component, according to the AppWrapper's spec and status.

    ``deployed`` and ``reason`` are the status and reason of its condition, or empty if there is no condition. ``uid``
    is that of the object that was created, if the status has it.
    ``expected_pods``: how many pods it must have to be ready. ``admitted_pods``: how many may run at a time.
    ``completions``: how many pods must succeed until it is complete, if that is known. ``pod_order``: in which order
    its pods are created.
    """

    index: int
    gvk: GVK
    key: NamespacedName
    pod_sets: tuple[Mapping[str, Any], ...]
    deployed: str = ""
    reason: str = ""
    expected_pods: int = 0
    admitted_pods: int = 0
    completions: int = 0
    uid: str = ""
    pod_order: PodOrder = PodOrder.AT_ONCE

    @property
    def display_name(self) -> str:
        """Kind and name, for messages."""
        return f"{self.gvk.kind} {self.key.name}"

    @property
    def is_created(self) -> bool:
        """Whether the status says that its object was created."""
        return self.deployed in ("True", "Unknown")

    @property
    def may_exist(self) -> bool:
        """Whether its object may exist: it was created, or its creation has not definitely failed."""
        return not (self.deployed == "False" and self.reason != CREATION_ERRORED)


class ComponentObject(msgspec.Struct, frozen=True):
    """The observed state of a component's object.

    ``owned``: the AppWrapper is its controller, by uid. ``failed`` and ``completed`` are reported by the controller of
    the object's kind; ``retries``: that controller replaces failed pods until it reports one of them. ``failure`` is
    why it has failed, as that controller says. ``finalizers`` are the first ones that users or controllers have set.
    """

    uid: str = ""
    owned: bool = True
    deleting: bool = False
    failed: bool = False
    completed: bool = False
    retries: bool = False
    failure: str = ""
    finalizers: tuple[str, ...] = ()


def components_of(wrapper: Mapping[str, Any]) -> list[Component]:
    """Return the components of ``wrapper``, with the kinds and names recorded in its status, if any."""
    namespace = namespace_of(wrapper)
    status = wrapper.get("status") or {}
    statuses: list[Mapping[str, Any]] = status.get("componentStatus") or []
    began = (find_condition(status.get("conditions"), RESOURCES_DEPLOYED) or {}).get(
        "lastTransitionTime"
    ) or ""
    found = []
    for index, component in enumerate((wrapper.get("spec") or {}).get("components") or ()):
        template: Object = component.get("template") or {}
        recorded = statuses[index] if index < len(statuses) else {}
        condition = find_condition(recorded.get("conditions"), RESOURCES_DEPLOYED) or {}
        deployed = condition.get("status") or ""
        # The spec identifies an object that is about to be created; the status identifies an object that was created.
        exists = bool(recorded.get("name")) and deployed in ("True", "Unknown")
        gvk = (
            GVK.parse(recorded.get("apiVersion") or "", recorded["kind"])
            if exists
            else gvk_of(template)
        )
        name = recorded["name"] if exists else _name(wrapper, template, index, began)
        # A status that was too large to be written has none.
        pod_sets = tuple(recorded.get("podSets") or _pod_sets(component))
        numbers = _pod_numbers(template, pod_sets)
        found.append(
            Component(
                index,
                gvk,
                NamespacedName(namespace, name),
                pod_sets,
                deployed,
                condition.get("reason") or "",
                numbers.expected,
                numbers.admitted,
                _completions(template),
                recorded_uid(recorded),
                pod_order(template),
            )
        )
    return found


def _pod_sets(component: Mapping[str, Any]) -> list[Object]:
    try:
        return pod_sets_of(component)
    except PodSetError:
        return []


def _pod_numbers(template: Object, pod_sets: Sequence[Mapping[str, Any]]) -> PodNumbers:
    try:
        return pod_numbers(template, pod_sets)
    except PodSetError:  # admission rejects it
        recorded = sum(map(replicas_of, pod_sets))
        return PodNumbers(recorded, recorded)


def _completions(template: Object) -> int:
    try:
        return completions_of(template)
    except PodSetError:  # admission rejects it
        return 0


def _name(wrapper: Mapping[str, Any], template: Mapping[str, Any], index: int, began: str) -> str:
    name = name_of(template)
    prefix: str = (template.get("metadata") or {}).get("generateName") or ""
    if name or not prefix:
        return name
    text = f"{uid_of(wrapper)}/{index}/{began}"
    return (
        prefix[:_GENERATED_PREFIX_LENGTH]
        + hashlib.sha256(text.encode()).hexdigest()[:_SUFFIX_LENGTH]
    )


def initial_status(wrapper: Mapping[str, Any]) -> list[Object]:
    """Return ``status.componentStatus`` of a new AppWrapper: the pod sets of its components, and no objects.

    Raises :class:`~cfo.api.appwrapper.podsets.PodSetError` if they cannot be determined, or are too large, both of
    which admission rejects.
    """
    components = (wrapper.get("spec") or {}).get("components") or ()
    size = declared_bytes(components)
    if size > MAX_POD_SET_BYTES:
        raise PodSetError(too_large(size))
    return [
        {"apiVersion": "", "kind": "", "name": "", "podSets": copied(pod_sets_of(component))}
        for component in components
    ]


def specified_infos(wrapper: Mapping[str, Any]) -> list[Sequence[Mapping[str, Any]]]:
    """Return ``podSetInfos`` of each component."""
    return [component.get("podSetInfos") or () for component in wrapper["spec"]["components"]]


def desired_object(
    wrapper: Mapping[str, Any],
    component: Component,
    infos: Iterable[Mapping[str, Any]],
    config: AppWrapperConfiguration,
) -> Object:
    """Return the object to create for ``component``, whose pod sets its queue changes as ``infos`` say.

    Raises :class:`InjectionError`.
    """
    specified = wrapper["spec"]["components"][component.index]
    obj: Object = copied(specified.get("template") or {})
    metadata: Object = obj.get("metadata") or {}
    obj["metadata"] = metadata
    namespace = metadata.setdefault("namespace", component.key.namespace) or component.key.namespace
    if namespace != component.key.namespace:
        raise InjectionError(
            f'component namespace "{namespace}" is different from appwrapper namespace "{component.key.namespace}"'
        )
    if not component.key.name:
        raise InjectionError(
            f"component {component.index}: metadata.name or generateName is required"
        )
    metadata |= {"namespace": namespace, "name": component.key.name}
    metadata.pop("generateName", None)
    inject(obj, component.pod_sets, infos, name_of(wrapper), config)
    references = elements(metadata.get("ownerReferences"))
    others = [reference for reference in references if isinstance(reference, dict)]
    metadata["ownerReferences"] = [*others, owner_reference(wrapper, block_owner_deletion=True)]
    return obj


def unknown_fields(warnings: Iterable[str]) -> list[str]:
    """Return the ``warnings`` of the API server about fields that it dropped, such as ``unknown field "spec.x"``."""
    return [warning for warning in warnings if warning.startswith(_UNKNOWN_FIELD)]


def warnings_message(warnings: Sequence[str]) -> str:
    """Return the first of the API server's ``warnings`` in one line, and how many more there are."""
    parts = [printable(warning, _MAX_WARNING_LENGTH) for warning in warnings[:_MAX_SHOWN_WARNINGS]]
    if len(warnings) > _MAX_SHOWN_WARNINGS:
        parts.append(f"{len(warnings) - _MAX_SHOWN_WARNINGS} more")
    return "; ".join(parts)


def recorded_uids(wrapper: Mapping[str, Any]) -> set[str]:
    """Return the uids of the objects that were created for ``wrapper``, including those that were deleted."""
    recorded = (wrapper.get("status") or {}).get("componentStatus") or ()
    return set(filter(None, map(recorded_uid, recorded)))


_SUBMITTER_FIELD: Final = SUBMITTER_PATH.rpartition(".")[2]


class InjectionError(ValueError):
    """The user's and the queue's settings of a component conflict, or a pod set does not refer to a pod template."""


def inject(
    obj: Object,
    pod_sets: Iterable[Mapping[str, Any]],
    infos: Iterable[Mapping[str, Any]],
    wrapper_name: str,
    config: AppWrapperConfiguration,
) -> None:
    """Inject the settings into ``obj``, the object of a component. Raises :class:`InjectionError`."""
    obj["metadata"]["labels"] = {
        APPWRAPPER_LABEL: wrapper_name,
        **(obj["metadata"].get("labels") or {}),
    }
    pod_set_infos = list(infos)
    sets = list(pod_sets)
    gvk = kind_of(obj)
    try:
        if (
            len(pod_set_infos) == len(sets) + 1 and gvk == RAY_JOB
        ):  # the last one is for a submitter without a pod set
            obj["spec"][_SUBMITTER_FIELD] = submitter_template(obj)
            sets.append({"path": SUBMITTER_PATH})
        for index, pod_set in enumerate(sets):
            template = pod_template_at(obj, pod_set.get("path") or "")
            info = pod_set_infos[index] if index < len(pod_set_infos) else {}
            # A failed submitter is replaced by its Job, so it must not count as a failed pod of the AppWrapper.
            label = {} if is_submitter(gvk, pod_set) else {APPWRAPPER_LABEL: wrapper_name}
            _inject_pod_template(template, info, label, config)
    except PodSetError as error:  # only if the AppWrapper was created without admission
        raise InjectionError(str(error)) from error


def _inject_pod_template(
    template: Object,
    info: Mapping[str, Any],
    label: Mapping[str, str],
    config: AppWrapperConfiguration,
) -> None:
    metadata: Object = template.get("metadata") or {}
    template["metadata"] = metadata
    spec: Object = template["spec"]
    _merge(metadata, "annotations", info.get("annotations"))
    _merge(metadata, "labels", {**label, **(info.get("labels") or {})})
    _merge(spec, "nodeSelector", info.get("nodeSelector"))
    if tolerations := info.get("tolerations"):
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *tolerations]
    if gates := info.get("schedulingGates"):
        existing: list[Object] = list(spec.get("schedulingGates") or ())
        names = {gate.get("name") for gate in existing}
        spec["schedulingGates"] = existing + [
            {"name": gate["name"]} for gate in gates if gate["name"] not in names
        ]
    if config.scheduler_name and not spec.get("schedulerName"):
        spec["schedulerName"] = config.scheduler_name
    if config.autopilot.inject_anti_affinities:
        _avoid_marked_nodes(spec, config.autopilot)


def _merge(parent: Object, name: str, additions: Mapping[str, str] | None) -> None:
    if not additions:
        return
    existing: Mapping[str, str] = parent.get(name) or {}
    for key, value in additions.items():
        if existing.get(key, value) != value:
            raise InjectionError(
                f"conflict updating {name}: conflict for key={key}, value1={existing[key]}, value2={value}"
            )
    parent[name] = {**existing, **additions}


def requests_resource(spec: Mapping[str, Any], resource: str) -> bool:
    """Return whether any container of a pod spec requests ``resource``, or has a limit for it, other than zero."""
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind) or ():
            resources = container.get("resources") or {}
            for amounts in (resources.get("limits"), resources.get("requests")):
                if not is_zero((amounts or {}).get(resource) or "0"):
                    return True
    return False


def _avoid_marked_nodes(spec: Object, config: AutopilotConfiguration) -> None:
    required: dict[str, list[str]] = {}
    preferred: dict[str, list[str]] = {}
    for resource, taints in config.resource_taints.items():
        if requests_resource(spec, resource):
            for taint in taints:
                values = preferred if taint.effect == "PreferNoSchedule" else required
                values.setdefault(taint.key, []).append(taint.value)
    if not required and not preferred:
        return
    affinity = _child(spec, "affinity")
    nodes = _child(affinity, "nodeAffinity")
    if required:
        selector = _child(nodes, "requiredDuringSchedulingIgnoredDuringExecution")
        # The terms are alternatives, so the expressions must be in each of them.
        for term in selector.setdefault("nodeSelectorTerms", [{}]):
            term["matchExpressions"] = [*(term.get("matchExpressions") or ()), *_not_in(required)]
    if preferred:
        nodes["preferredDuringSchedulingIgnoredDuringExecution"] = [
            *(nodes.get("preferredDuringSchedulingIgnoredDuringExecution") or ()),
            {
                "weight": config.prefer_no_schedule_weight,
                "preference": {"matchExpressions": _not_in(preferred)},
            },
        ]


def _child(parent: Object, name: str) -> Object:
    """Return the object in the field ``name``, created if it does not exist."""
    child: Object = parent.get(name) or {}
    parent[name] = child
    return child


def _not_in(values_by_key: Mapping[str, list[str]]) -> list[Object]:
    return [
        {"key": key, "operator": "NotIn", "values": list(values)}
        for key, values in values_by_key.items()
    ]
