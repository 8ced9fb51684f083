"""Kueue's Workload of an AppWrapper, as created by this operator; pure functions.

The name and content of a Workload, and the changes to pod templates that its admission requires, follow Kueue's job
framework (``pkg/controller/jobframework``, ``pkg/controller/jobs/appwrapper``), so Workloads created here equal those
of Kueue's own integration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import orjson

from cfo.api.appwrapper.inference import pod_sets_of
from cfo.api.appwrapper.names import (
    APPWRAPPER,
    APPWRAPPER_LABEL,
    APPWRAPPER_UID_LABEL,
    FINALIZER,
    QUOTA_FINALIZER,
    QUOTA_RESERVED,
    RESOURCES_DEPLOYED,
    SELECTOR_ANNOTATION,
    has_quota,
    workload_name,
)
from cfo.api.appwrapper.podsets import (
    POD_INDEX_LABEL,
    SUB_GROUP_COUNT,
    SUB_GROUP_INDEX_LABEL,
    PodSetError,
    replicas_of,
)
from cfo.api.appwrapper.quota import QuotaGroup, pods_with_quota
from cfo.api.container_resources import negative_pod_errors
from cfo.api.kueue import PLACEMENT_PREFIX, PREFIX, QUEUE_NAME_LABEL
from cfo.config.appwrapper_settings import FORCEFUL_DELETION
from cfo.controllers.appwrapper.pods import time_or_none
from cfo.controllers.appwrapper.status import is_true
from cfo.runtime import (
    GVK,
    LabelSelector,
    Object,
    Reader,
    annotations_of,
    find_condition,
    has_finalizer,
    is_controlled_by,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
)
from cfo.runtime.objects import new_object, parse_duration, parse_integer, set_controller_owner
from cfo.runtime.objects.field import Path

_JOB_UID_LABEL: Final = "kueue.x-k8s.io/job-uid"
"""Kueue finishes a Workload that has it and no owner, which gives back the quota; users can orphan Workloads."""

MAX_WORKLOAD_BYTES: Final = 1280 << 10
"""The maximum size of a new Workload, of which etcd accepts 1,536 KiB. The rest is for its status.

Kueue evicts a Workload by its status. A template can be part of the template of another pod set, and is then copied
with both, so a Workload can be larger than its AppWrapper.
"""

_PREBUILT: Final = f"{PREFIX}prebuilt-workload-name"
_REQUIRED: Final = f"{PLACEMENT_PREFIX}required-topology"
_PREFERRED: Final = f"{PLACEMENT_PREFIX}preferred-topology"
_UNCONSTRAINED: Final = f"{PLACEMENT_PREFIX}unconstrained-topology"
_SLICE_TOPOLOGY: Final = f"{PLACEMENT_PREFIX}slice-required-topology"
_SLICE_SIZE: Final = f"{PLACEMENT_PREFIX}slice-size"
_GROUP_NAME: Final = f"{PLACEMENT_PREFIX}group-name"
_PLACEMENT_FIELDS: Final = ("required", "preferred", "unconstrained")
"""The fields of a topology request that say where the pods should be."""

_TOPOLOGY_GATE: Final = f"{PREFIX}topology"
_MAX_SLICE_SIZE: Final = 2**31 - 1


class WorkloadPriority(msgspec.Struct, frozen=True):
    """The priority of a Workload: the group, kind and name of its class, and its value; without a name, no class."""

    group: str = ""
    kind: str = ""
    name: str = ""
    value: int = 0


def queue_of(wrapper: Mapping[str, Any]) -> str:
    """Return the name of the LocalQueue of the AppWrapper, or the empty string."""
    return labels_of(wrapper).get(QUEUE_NAME_LABEL, "")


def has_queue(wrapper: Mapping[str, Any]) -> bool:
    """Return whether an AppWrapper names a LocalQueue."""
    return bool(queue_of(wrapper))


def is_terminated(wrapper: Mapping[str, Any]) -> bool:
    """Return whether an AppWrapper is being deleted, and the operator has nothing left to delete of it.

    One without the operator's finalizer may still have components: its user can replace that finalizer by another one.
    """
    if not is_deleting(wrapper) or has_finalizer(wrapper, FINALIZER):
        return False
    conditions = (wrapper.get("status") or {}).get("conditions")
    return not any(is_true(conditions, kind) for kind in (RESOURCES_DEPLOYED, QUOTA_RESERVED))


def has_left(wrapper: Mapping[str, Any], workload: Mapping[str, Any]) -> bool:
    """Return whether an AppWrapper has left the part of the operator that follows its Workload.

    Users can change its labels in any order, and faster than the operator sees that. So only the Workload, which they
    cannot write, says which operator follows it. None does after the AppWrapper has left, whatever labels it has then.
    """
    selector = annotations_of(workload).get(SELECTOR_ANNOTATION, "")
    return not LabelSelector.of(selector).matches(labels_of(wrapper))


def is_of_another_part(wrapper: Object, workload: Mapping[str, Any], wrappers: Reader) -> bool:
    """Return whether another operator follows an AppWrapper and its Workload; ``wrappers`` has those of this one.

    None may follow one that has neither a queue nor quota.
    """
    if wrappers.selects(wrapper) or has_left(wrapper, workload):
        return False
    return has_queue(wrapper) or has_quota(wrapper)


def has_prebuilt_workload(wrapper: Mapping[str, Any]) -> bool:
    """Return whether another client, such as MultiKueue, created the Workload of an AppWrapper, and named it there."""
    return _PREBUILT in labels_of(wrapper) or _PREBUILT in annotations_of(wrapper)


def desired_workload(
    wrapper: Object, gvk: GVK, priority: WorkloadPriority, selector: str = ""
) -> Object:
    """Return the Workload to create, of the version in ``gvk``; ``selector`` is the operator's label selector.

    Raises :class:`~cfo.api.appwrapper.podsets.PodSetError`, also for one that would be too large.
    """
    spec: Object = {
        "active": True,
        "podSets": _pod_sets(wrapper),
        "priority": priority.value,
        "queueName": queue_of(wrapper),
    }
    if priority.name and gvk.version == "v1beta1":
        spec["priorityClassName"] = priority.name
        spec["priorityClassSource"] = f"{priority.group}/{priority.kind.lower()}"
    elif priority.name:
        spec["priorityClassRef"] = {
            "group": priority.group,
            "kind": priority.kind,
            "name": priority.name,
        }
    workload = new_object(
        gvk,
        workload_name(wrapper),
        namespace_of(wrapper),
        labels={APPWRAPPER_UID_LABEL: uid_of(wrapper)},
        annotations=_annotations(wrapper, selector),
        spec=spec,
    )
    workload["metadata"]["finalizers"] = [QUOTA_FINALIZER]
    size = len(orjson.dumps(workload))
    if size > MAX_WORKLOAD_BYTES:
        raise PodSetError(
            f"the Workload would have {size} bytes: at most {MAX_WORKLOAD_BYTES} are allowed, so that its status can "
            "be written"
        )
    return set_controller_owner(workload, wrapper, block_owner_deletion=True)


def protection_patch(wrapper: Mapping[str, Any], workload: Object, selector: str = "") -> Object:
    """Return the patch with which a Workload is protected as a new one is; empty if it is or has ended.

    It may be of an earlier version, or of an operator with another label selector than ``selector``. The finalizer is
    not added to a Workload that is being deleted, because the API server does not allow that, nor to one that is
    finished, because it holds no quota.
    """
    if is_deleting(workload) or is_finished(workload):
        return {}
    if has_finalizer(workload, QUOTA_FINALIZER):
        if annotations_of(workload).get(SELECTOR_ANNOTATION, "") == selector:
            return {}
        return {"metadata": {"annotations": {SELECTOR_ANNOTATION: selector or None}}}
    metadata = workload["metadata"]
    return {
        "metadata": {
            "finalizers": [*(metadata.get("finalizers") or ()), QUOTA_FINALIZER],
            "labels": {APPWRAPPER_UID_LABEL: uid_of(wrapper), _JOB_UID_LABEL: None},
            "annotations": _annotations(wrapper, selector),
        }
    }


def controller_patch(workload: Object) -> Object:
    """Return the patch that makes its AppWrapper the controller of a Workload again; empty if it is.

    Users can orphan the Workload. Kueue lets any job take over a Workload without a controller, and then finishes it. A
    reference to an AppWrapper that no longer exists prevents that as well. All other references are removed: while
    another owner exists, the garbage collector removes those to owners that are deleted.

    Empty also if this operator did not create the Workload for that AppWrapper: tenants cannot write Workloads.
    """
    name = annotations_of(workload).get(APPWRAPPER_LABEL, "")
    uid = labels_of(workload).get(APPWRAPPER_UID_LABEL, "")
    if not name or not uid or not has_finalizer(workload, QUOTA_FINALIZER):
        return {}
    owner: Object = {
        "apiVersion": APPWRAPPER.api_version,
        "kind": APPWRAPPER.kind,
        "metadata": {"name": name, "uid": uid},
    }
    if name_of(workload) != workload_name(owner) or is_controlled_by(workload, owner):
        return {}
    return {
        "metadata": {
            "ownerReferences": [owner_reference(owner)],
            "labels": {_JOB_UID_LABEL: None},
        }
    }


def _annotations(wrapper: Mapping[str, Any], selector: str) -> dict[str, str]:
    """Return what must be known of an AppWrapper and its operator when only its Workload exists."""
    found = {APPWRAPPER_LABEL: name_of(wrapper)}
    if selector:
        found[SELECTOR_ANNOTATION] = selector
    grace = annotations_of(wrapper).get(FORCEFUL_DELETION, "").strip()
    try:
        parse_duration(grace)
    except ValueError:
        return found  # the default applies
    found[FORCEFUL_DELETION] = grace
    return found


def is_finished(workload: Mapping[str, Any]) -> bool:
    """Return whether the Workload is finished, so that Kueue has released its quota."""
    return is_true((workload.get("status") or {}).get("conditions"), "Finished")


def holds_quota(workload: Mapping[str, Any]) -> bool:
    """Return whether Kueue reserves quota for the Workload."""
    admission = (workload.get("status") or {}).get("admission")
    return bool(admission) and not is_finished(workload)


def _components(wrapper: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return (wrapper.get("spec") or {}).get("components") or ()


def _pod_sets(wrapper: Object) -> list[Object]:
    """Return the pod sets of the Workload.

    Raises :class:`~cfo.api.appwrapper.podsets.PodSetError` for a negative request, which the webhook refuses: Kueue
    would subtract it from what the queue has used.
    """
    found: list[Object] = []
    for number, (index, group) in enumerate(_ordered_groups(wrapper)):
        path = Path("spec", "components").index(index).child(f"{group.pod_set['path']}.spec")
        for error in negative_pod_errors(group.template["spec"], path):
            raise PodSetError(str(error))
        labels = labels_of(group.template)
        annotations = annotations_of(group.template)
        metadata: Object = {}
        if labels:
            metadata["labels"] = dict(labels)
        if annotations:
            metadata["annotations"] = dict(annotations)
        pod_set: Object = {
            "name": _pod_set_name(wrapper, number),
            "count": replicas_of(group.pod_set),
            "template": {"metadata": metadata, "spec": group.template["spec"]},
        }
        topology = _topology(group.pod_set, annotations)
        if topology:
            pod_set["topologyRequest"] = topology
        found.append(pod_set)
    return found


def _pod_set_name(wrapper: Mapping[str, Any], number: int) -> str:
    """Return the name of the pod set with this number, from 0, in the order of the Workload."""
    return f"{name_of(wrapper)}-{number}"


def _ordered_groups(wrapper: Mapping[str, Any]) -> list[tuple[int, QuotaGroup]]:
    """Return all pods that need quota, each with the index of its component, in the order of the Workload.

    Submitters of RayJobs are last, so that they do not change the numbers of other pod sets: a Workload that an earlier
    version created does not have them.
    """
    groups: list[tuple[int, QuotaGroup]] = []
    submitters: list[tuple[int, QuotaGroup]] = []
    for index, component in enumerate(_components(wrapper)):
        for group in pods_with_quota(component):
            if group.is_submitter:
                submitters.append((index, group))
            else:
                groups.append((index, group))
    return groups + submitters


def _topology(pod_set: Mapping[str, Any], annotations: Mapping[str, str]) -> Object:
    """Return the topology request of pods with ``annotations``, as ``jobframework/tas.go`` of Kueue builds it.

    Raises :class:`~cfo.api.appwrapper.podsets.PodSetError` if the size of slices is not a positive number.
    """
    pod_set_annotations: Mapping[str, str] = pod_set.get("annotations") or {}
    request = _placement(annotations)
    if _SLICE_TOPOLOGY in annotations and _SLICE_SIZE in annotations:
        request["podSetSliceRequiredTopology"] = annotations[_SLICE_TOPOLOGY]
        request["podSetSliceSize"] = _slice_size(annotations[_SLICE_SIZE])
    if _GROUP_NAME in annotations and ("required" in request or "preferred" in request):
        request["podSetGroupName"] = annotations[_GROUP_NAME]
    if POD_INDEX_LABEL in pod_set_annotations:
        request["podIndexLabel"] = pod_set_annotations[POD_INDEX_LABEL]
    if SUB_GROUP_INDEX_LABEL in pod_set_annotations:
        request["subGroupIndexLabel"] = pod_set_annotations[SUB_GROUP_INDEX_LABEL]
    count = _sub_group_count(pod_set_annotations)
    if count is not None:
        request["subGroupCount"] = count
    return request


def _sub_group_count(annotations: Mapping[str, str]) -> int | None:
    """Return the number of subgroups of a pod set; ``None`` if it is unset or not a number, as in Kueue."""
    try:
        count = parse_integer(annotations.get(SUB_GROUP_COUNT, ""))
    except ValueError:
        return None
    if count < 0:
        return None
    return count


def _placement(annotations: Mapping[str, str]) -> Object:
    """Return the part of a topology request that says where the pods should be; the strictest annotation counts."""
    if _REQUIRED in annotations:
        return {"required": annotations[_REQUIRED]}
    if _PREFERRED in annotations:
        return {"preferred": annotations[_PREFERRED]}
    if _UNCONSTRAINED in annotations:
        return {"unconstrained": annotations[_UNCONSTRAINED] == "true"}
    return {}


def _slice_size(text: str) -> int:
    try:
        size = parse_integer(text)
    except ValueError as error:
        raise PodSetError(f"annotation {_SLICE_SIZE}: {error}") from error
    if not 0 < size <= _MAX_SLICE_SIZE:
        raise PodSetError(
            f"annotation {_SLICE_SIZE}: {size} is not between 1 and {_MAX_SLICE_SIZE}"
        )
    return size


def is_admitted(workload: Mapping[str, Any]) -> bool:
    """Return whether the Workload is admitted and not being evicted, so that the AppWrapper is allowed to run."""
    status = workload.get("status") or {}
    return (
        bool(status.get("admission"))
        and is_true(status.get("conditions"), "Admitted")
        and not eviction(workload)
    )


def eviction(workload: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return reason and message if the Workload is evicted, deactivated, finished or being deleted, otherwise ``None``.

    One that is finished before its AppWrapper has no quota any more.
    """
    conditions = (workload.get("status") or {}).get("conditions")
    if is_true(conditions, "Evicted"):
        condition = find_condition(conditions, "Evicted") or {}
        return condition.get("reason") or "Evicted", condition.get("message") or ""
    if not (workload.get("spec") or {}).get("active", True):
        return "Deactivated", "The workload is deactivated"
    if is_finished(workload):
        return "Finished", "The workload is finished"
    if is_deleting(workload):
        return "Deleted", "The workload is being deleted"
    return None


def evicted_at(workload: Mapping[str, Any]) -> datetime | None:
    """Return since when Kueue evicts the Workload; ``None`` if it does not, or if that is not known."""
    condition = find_condition((workload.get("status") or {}).get("conditions"), "Evicted") or {}
    if condition.get("status") != "True":
        return None
    return time_or_none(condition.get("lastTransitionTime") or "")


def pod_set_infos(
    wrapper: Mapping[str, Any],
    workload: Mapping[str, Any],
    flavor: Callable[[str], Mapping[str, Any] | None],
) -> list[list[Object]]:
    """Return the changes to pod templates that the admission requires, by component and pod set.

    ``flavor`` returns the spec of a ResourceFlavor. Raises :class:`LookupError` when a flavor does not exist, or when
    the admission has no assignment for one of the pod sets.
    """
    admission = workload["status"]["admission"]
    assignments = {item["name"]: item for item in admission["podSetAssignments"]}
    infos = [_empty_infos(component) for component in _components(wrapper)]
    for number, (index, group) in enumerate(_ordered_groups(wrapper)):
        name = _pod_set_name(wrapper, number)
        if name not in assignments:
            if group.is_submitter:
                continue  # the Workload was created by an earlier version
            raise LookupError(f"the admission has no assignment for pod set {name}")
        info = _pod_set_info(workload, assignments[name], flavor)
        if group.position < len(infos[index]):
            infos[index][group.position] = info
        else:  # a submitter that no pod set of the component describes
            infos[index].append(info)
    return infos


def _empty_infos(component: Mapping[str, Any]) -> list[Object]:
    """Return an empty object for each pod set of a component."""
    return [{} for _ in pod_sets_of(component)]


def _pod_set_info(
    workload: Mapping[str, Any],
    assignment: Mapping[str, Any],
    flavor: Callable[[str], Mapping[str, Any] | None],
) -> Object:
    """Return the changes to the pod template of one pod set, which the admission gave ``assignment``."""
    info: Object = {
        "annotations": {"kueue.x-k8s.io/workload": name_of(workload)},
        "labels": {
            "kueue.x-k8s.io/cluster-queue-name": workload["status"]["admission"]["clusterQueue"],
            "kueue.x-k8s.io/local-queue-name": (workload.get("spec") or {}).get("queueName"),
            "kueue.x-k8s.io/podset": assignment["name"],
        },
        "nodeSelector": {},
        "tolerations": [],
    }
    for name in dict.fromkeys((assignment.get("flavors") or {}).values()):
        spec = flavor(name)
        if spec is None:
            raise LookupError(f"ResourceFlavor {name} does not exist")
        scheduling = {
            "nodeSelector": spec.get("nodeLabels"),
            "tolerations": spec.get("tolerations"),
        }
        _merge(info, scheduling)
    for check in workload["status"].get("admissionChecks") or ():
        for update in check.get("podSetUpdates") or ():
            if update.get("name") == assignment["name"]:
                _merge(info, update)
    if assignment.get("topologyAssignment"):
        info["schedulingGates"] = [{"name": _TOPOLOGY_GATE}]
        if not _has_placement(workload, assignment["name"]):
            # Kueue places only pods that have an annotation, even if the topology is that of the flavor.
            info["annotations"][_UNCONSTRAINED] = "true"
    return {key: value for key, value in info.items() if value}


def _has_placement(workload: Mapping[str, Any], pod_set: str) -> bool:
    """Return whether the pod set ``pod_set`` of a Workload says where its pods should be."""
    for candidate in (workload.get("spec") or {}).get("podSets") or ():
        if candidate["name"] == pod_set:
            request = candidate.get("topologyRequest") or {}
            return any(field in request for field in _PLACEMENT_FIELDS)
    return False


def _merge(info: Object, addition: Mapping[str, Any]) -> None:
    """Add the entries of ``addition`` to the same fields of ``info``."""
    for field in ("annotations", "labels", "nodeSelector"):
        info[field] |= addition.get(field) or {}
    new = [
        toleration
        for toleration in addition.get("tolerations") or ()
        if toleration not in info["tolerations"]
    ]
    info["tolerations"] += new


def completion(wrapper: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return reason and message once the AppWrapper has finished and no longer needs quota, otherwise ``None``."""
    status = wrapper.get("status") or {}
    if status.get("phase") == "Succeeded":
        return "Succeeded", "AppWrapper finished successfully"
    if status.get("phase") == "Failed" and not is_true(
        status.get("conditions"), "ResourcesDeployed"
    ):
        return "Failed", "AppWrapper failed"
    return None
