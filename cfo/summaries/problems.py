"""What is wrong with objects of any kind, and with pods: pure functions of their status and Events."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from cfo.api.reading import (
    MAX_MESSAGE,
    elements,
    items,
    mapping,
    number,
    path,
    text,
    time_of,
)
from cfo.api.waiting_reasons import CREATING_REASONS, OOM_KILLED, WAITING_REASONS
from cfo.runtime import Object, controller_of, gvk_of, is_deleting
from cfo.summaries.conditions import (
    condition_of,
    conditions_of,
    is_true,
    message_of,
    statement_of,
)
from cfo.summaries.pod_events import event_message, failures_by_name, start_failures
from cfo.summaries.summary import Problem, SummaryCondition, WarningEvent, statement
from cfo.summaries.unschedulable import scheduling_remedy

_USUAL_DELETION: Final = timedelta(minutes=5)
_USUAL_READINESS: Final = timedelta(minutes=5)

USUAL_START: Final = timedelta(seconds=45)
"""How long an operator needs at most until it has written a state to a new object, also if it is being restarted."""


DESCRIBE: Final = "kubectl describe KIND NAME -n NAMESPACE"
"""Prints conditions and Events of the object. :func:`completed` writes its kind, name and namespace."""

_OBJECT_WORDS: Final = "KIND NAME"
_NAMESPACE_WORDS: Final = "-n NAMESPACE"


def completed(remedy: str, obj: Object) -> str:
    """Return ``remedy`` with commands that work as they are: for the namespace of ``obj``, or ``obj`` itself."""
    if _NAMESPACE_WORDS not in remedy:
        return remedy
    gvk = gvk_of(obj)
    metadata = mapping(obj.get("metadata"))
    resource = f"{gvk.kind.lower()}.{gvk.group}"
    named = f"{resource} {shlex.quote(text(metadata.get('name'), 253))}"
    namespace = f"-n {shlex.quote(text(metadata.get('namespace'), 63))}"
    return remedy.replace(_OBJECT_WORDS, named).replace(_NAMESPACE_WORDS, namespace)


TERMINATING: Final = "Terminating"
"""The state of an object that is being deleted, as kubectl shows it for pods and namespaces."""


def awaited_finalizers(obj: Object) -> str:
    """Return the names of the first finalizers for which the deletion of ``obj`` waits; empty if it has none."""
    finalizers = elements(path(obj, "metadata", "finalizers"))
    return ", ".join(text(item, 80) for item in finalizers[:5])


def awaited_names(awaited: Sequence[Mapping[str, Any]]) -> str:
    """Return the first of the objects with these ``kind`` and ``name``, and how many more there are."""
    return _first_names(
        [f"{text(one.get('kind'), 63)} {text(one.get('name'), 253)}" for one in awaited]
    )


def deletion(obj: Object, awaited: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return that ``obj`` is being deleted, and for which objects or finalizers that waits; empty if it is not.

    ``awaited``: see :func:`slow_deletion`.
    """
    if not is_deleting(obj):
        return ""
    names = awaited_names(awaited) or awaited_finalizers(obj)
    return f"is being deleted, waiting for {names}" if names else "is being deleted"


def seconds_until_slow(obj: Object, now: datetime) -> float:
    """Return in how many seconds the deletion of ``obj`` takes longer than usual; 0 if it does at ``now``.

    Infinity if it is not being deleted, or waits for no finalizer.
    """
    requested = time_of(path(obj, "metadata", "deletionTimestamp"))
    if requested is None or not awaited_finalizers(obj):
        return math.inf
    return max(0.0, (requested - now + _USUAL_DELETION).total_seconds())


def slow_deletion(
    obj: Object,
    pods: Iterable[Mapping[str, Any]] | None,
    now: datetime,
    awaited: Sequence[Mapping[str, Any]] = (),
) -> Iterator[Problem]:
    """Yield a problem if the deletion of ``obj`` was requested five minutes before ``now``, with its ``pods``.

    ``awaited`` have ``apiVersion``, ``kind`` and ``name`` of objects that are deleted before it.
    """
    if seconds_until_slow(obj, now) > 0:
        return
    requested = time_of(path(obj, "metadata", "deletionTimestamp"))
    message = (
        f"Being deleted since {requested:%Y-%m-%d %H:%M} UTC, waiting for {awaited_finalizers(obj)}"
    )
    remedy = "check that the controllers run which own these finalizers"
    if awaited:
        message += f"; objects that are deleted first: {awaited_names(awaited)}"
        first = _show_finalizers(awaited[0])
        remedy = f"see which finalizers keep the first object: {first}; {remedy}"
    names = [text(path(pod, "metadata", "name"), 253) for pod in pods or ()]
    if names:
        message += f"; pods that still exist: {_first_names(names)}"
        remedy += f", and why the pods do not end: kubectl describe pod {_NAMESPACE_WORDS} {shlex.quote(names[0])}"
    yield Problem(message, remedy)


def _first_names(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"{', '.join(names[:_MAX_NAMED])}{more}"


def _show_finalizers(reference: Mapping[str, Any]) -> str:
    """Return the command that prints the finalizers of the object with this ``apiVersion``, ``kind`` and ``name``."""
    group, separator, _ = text(reference.get("apiVersion"), 253).rpartition("/")
    kind = text(reference.get("kind"), 63).lower()
    resource = shlex.quote(f"{kind}.{group}" if separator else kind)
    name = shlex.quote(text(reference.get("name"), 253))
    return (
        f"kubectl get {resource} {name} {_NAMESPACE_WORDS} -o 'jsonpath={{.metadata.finalizers}}'"
    )


def seconds_until_overdue(obj: Mapping[str, Any], now: datetime) -> float:
    """Return in how many seconds an operator should have written a state to ``obj``; 0 if that is overdue at ``now``.

    Infinity if the time of its creation is not known, or in the future.
    """
    created = time_of(path(obj, "metadata", "creationTimestamp"))
    if created is None or created > now + USUAL_START:
        return math.inf
    return max(0.0, (created + USUAL_START - now).total_seconds())


def is_new(obj: Mapping[str, Any], now: datetime) -> bool:
    """Return whether an operator may not have created yet what it creates for ``obj``."""
    return 0 < seconds_until_overdue(obj, now) < math.inf


def missing_state(
    obj: Mapping[str, Any],
    operator: str,
    now: datetime,
    setting: str = "",
    prerequisite: str = "",
) -> Iterator[Problem]:
    """Yield a problem if ``operator`` should have written a state to ``obj``, which has none.

    ``setting`` enables the kind in the operator's configuration; empty if it is always enabled. ``prerequisite`` says
    what else is needed; empty if nothing is.
    """
    # the CodeFlare operator's conditions do not mean that the operator of the kind has seen the object
    has_status = any(key != "conditions" for key in mapping(path(obj, "status")))
    if has_status or is_deleting(obj) or seconds_until_overdue(obj, now) > 0:
        return
    other = text(path(obj, "spec", "managedBy"), 80)
    if other:
        yield Problem(
            f"No controller has written a state since it was created; spec.managedBy is {other}",
            "check that this controller runs, or create the object again without spec.managedBy",
        )
    else:
        remedy = f"check that {operator} runs and may read this namespace: cfo doctor"
        if setting:
            remedy += (
                f"; and that in its configuration {setting} is true (the default is false), and watchNamespaces and "
                "labelSelector include the object"
            )
        if prerequisite:
            remedy += f"; {prerequisite}"
        yield Problem(f"{operator} has not written a state since it was created", remedy)


def has_failed(pod: Mapping[str, Any]) -> bool:
    """Return whether ``pod`` has failed."""
    return bool(path(pod, "status", "phase") == "Failed")


def is_ready_pod(pod: Mapping[str, Any]) -> bool:
    """Return whether ``pod`` is ready or has succeeded."""
    return path(pod, "status", "phase") == "Succeeded" or is_true(conditions_of(pod), "Ready")


def pod_phase(pod: Mapping[str, Any]) -> str:
    """Return the phase of ``pod``, or ``Terminating`` if it still has to end, as kubectl does."""
    phase = text(path(pod, "status", "phase"), 20)
    if path(pod, "metadata", "deletionTimestamp") and phase not in ("Succeeded", "Failed"):
        return TERMINATING
    return phase or "new"


def pod_state(pod: Mapping[str, Any]) -> str:
    """Return the phase of ``pod``, how many of its containers are ready, and how often they were restarted."""
    statuses = list(items(path(pod, "status", "containerStatuses")))
    ready = sum(status.get("ready") is True for status in statuses)
    restarts = sum(number(status.get("restartCount")) for status in statuses)
    parts = [
        pod_phase(pod),
        f"{ready}/{len(statuses)} ready" if statuses else "",
    ]
    return ", ".join(filter(None, [*parts, f"{restarts} restarts" if restarts else ""]))


_READ_LOG: Final = "read the log: kubectl logs"

_DESCRIBE: Final = "see what it lacks, such as a Secret or a volume: kubectl describe pod"

_MAX_NAMED: Final = 3
"""The maximum number of pods that are named for each problem."""


def pod_problems(pods: Iterable[Mapping[str, Any]]) -> Iterator[Problem]:
    """Yield what is wrong with ``pods``: each cause once, with the names of the first pods."""
    yield from _problems_by_cause((pod, _causes(pod)) for pod in pods)


def hung_pods(
    pods: Sequence[Mapping[str, Any]],
    now: datetime,
    events: Iterable[Mapping[str, Any]] = (),
) -> Iterator[Problem]:
    """Yield a problem for what has hung for five minutes before ``now``, so that pods do not start or get ready.

    That is a container that was not created, an init container that has not ended, and one that runs but is not ready.
    Problems at once are a pod of whose node nothing is known, because the node may be down, and one of which
    ``events``, Warning Events about the pods, say why its containers cannot be created.
    """
    failures = start_failures(pods, events)
    yield from _problems_by_cause((pod, _hung_causes(pod, now, failures)) for pod in pods)


def unknown_pod_problems(events: Iterable[Mapping[str, Any]]) -> Iterator[Problem]:
    """Yield why containers of pods that are not known, such as deleted ones, were not created, as ``events`` say."""
    for name, causes in failures_by_name(events).items():
        for cause in causes:
            yield Problem(f"Pod {name}: {cause}", remedy_for(cause, _events_command("Pod", name)))


def seconds_until_hung(pods: Iterable[Mapping[str, Any]], now: datetime) -> float:
    """Return in how many seconds the next container will be one that :func:`hung_pods` reports; infinity if none."""
    remaining = (
        (hang.since - now + _USUAL_READINESS).total_seconds()
        for pod in pods
        for hang in _hangs(pod)
    )
    return min((seconds for seconds in remaining if seconds > 0), default=math.inf)


def _hung_causes(
    pod: Mapping[str, Any], now: datetime, failures: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str]]:
    known = failures.get(text(path(pod, "metadata", "uid"), 63))
    if known:
        for cause in known:
            remedy = remedy_for(cause, _DESCRIBE)
            if remedy in (_CREATE_MISSING, _ADD_KEY):
                remedy += "; kubelet tries again by itself"
            yield cause, remedy
        return
    if _has_lost_node(pod):
        node = text(path(pod, "spec", "nodeName"), 253)
        cause = f"is not ready, although its containers are: node {node} may be down"
        yield cause, f"ask the administrator about the node: kubectl get node {shlex.quote(node)}"
    for hang in _hangs(pod):
        if hang.since + _USUAL_READINESS <= now:
            yield hang.cause, hang.remedy


def _has_lost_node(pod: Mapping[str, Any]) -> bool:
    """Return whether the node controller has marked a pod as not ready, because its kubelet does not report.

    Nothing else does so while all containers are ready, except for readiness gates, which have a reason.
    """
    conditions = conditions_of(pod)
    ready = condition_of(conditions, "Ready")
    is_marked = ready is not None and ready.status == "False" and not ready.reason
    return is_marked and pod_phase(pod) == "Running" and is_true(conditions, "ContainersReady")


class _Hang(NamedTuple):
    """What keeps a pod from getting ready, unless it ends soon, and since when."""

    cause: str
    remedy: str
    since: datetime


def _hangs(pod: Mapping[str, Any]) -> Iterator[_Hang]:
    phase = pod_phase(pod)
    if phase == "Running":
        for container, since in _unready_containers(pod):
            cause = f"container {container} runs, but has not been ready for 5 minutes"
            remedy = f"check its readinessProbe, and {_read_log(container, previous=False)}"
            yield _Hang(cause, remedy, since)
    elif phase == "Pending":
        yield from _starting_hangs(pod)


def _starting_hangs(pod: Mapping[str, Any]) -> Iterator[_Hang]:
    """Yield what a pod with a node waits for: an init container that runs, or the creation of its containers."""
    runs_init = False
    is_initialized = False
    sidecars = {
        text(container.get("name"), 63)
        for container in items(path(pod, "spec", "initContainers"))
        if container.get("restartPolicy") == "Always"
    }
    for status in items(path(pod, "status", "initContainerStatuses")):
        since = time_of(path(status, "state", "running", "startedAt"))
        container = text(status.get("name"), 63)
        is_initialized |= "waiting" not in mapping(status.get("state"))
        if since is not None and container not in sidecars:
            runs_init = True
            cause = f"init container {container} has run for 5 minutes"
            yield _Hang(cause, _read_log(container, previous=False), since)
    scheduled = condition_of(conditions_of(pod), "PodScheduled")
    since = time_of(scheduled.since) if scheduled is not None else None
    if runs_init or since is None or scheduled is None or scheduled.status != "True":
        return
    if any(_causes(pod)):
        return  # such as an image that cannot be pulled: the other containers are created after this one
    awaited = CREATING_REASONS[:1] if is_initialized else CREATING_REASONS
    for field in ("initContainerStatuses", "containerStatuses"):
        for status in items(path(pod, "status", field)):
            if text(path(status, "state", "waiting", "reason"), 80) in awaited:
                yield _Hang("its containers were not created for 5 minutes", _DESCRIBE, since)
                return


def _unready_containers(pod: Mapping[str, Any]) -> Iterator[tuple[str, datetime]]:
    """Yield the containers of a running pod that are not ready although they started, and since when."""
    unready = condition_of(conditions_of(pod), "Ready")
    changed = time_of(unready.since) if unready is not None else None
    for field in ("initContainerStatuses", "containerStatuses"):
        for status in items(path(pod, "status", field)):
            started = time_of(path(status, "state", "running", "startedAt"))
            # A startupProbe that has not succeeded yet has its own limit.
            if (
                started is not None
                and status.get("ready") is False
                and status.get("started") is not False
            ):
                yield text(status.get("name"), 63), max(started, changed or started)


def _problems_by_cause(
    causes_of: Iterable[tuple[Mapping[str, Any], Iterable[tuple[str, str]]]],
) -> Iterator[Problem]:
    """Yield a problem for each cause and remedy that pods have, with the names of the first pods."""
    found: dict[tuple[str, str], list[str]] = {}
    for pod, causes in causes_of:
        name = text(path(pod, "metadata", "name"), 253)
        for cause, remedy in dict.fromkeys(causes):
            found.setdefault((cause, remedy), []).append(name)
    for (cause, remedy), names in found.items():
        if _READ_LOG in remedy or remedy == _DESCRIBE:
            remedy += f" {_NAMESPACE_WORDS} {shlex.quote(names[0])}"
        subject = "Pod" if len(names) == 1 else "Pods"
        yield Problem(f"{subject} {_first_names(names)}: {cause}", remedy)


def _causes(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    scheduled = condition_of(conditions_of(pod), "PodScheduled")
    is_scheduled = scheduled is None or scheduled.status != "False"
    if scheduled is not None and not is_scheduled and scheduled.reason == "Unschedulable":
        cause = f"cannot be scheduled: {message_of(scheduled)}"
        yield cause, scheduling_remedy(scheduled.message)
    for field in ("initContainerStatuses", "containerStatuses"):
        for status in items(path(pod, "status", field)):
            yield from _container_causes(status)


def _container_causes(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    container = text(status.get("name"), 63)
    reason = text(path(status, "state", "waiting", "reason"), 80)
    if reason in WAITING_REASONS:
        cause = f"container {container} waits: {reason}"
        message = text(path(status, "state", "waiting", "message"), MAX_MESSAGE)
        if message:
            cause += f" ({message})"
        yield cause, WAITING_REASONS[reason] or _read_log(container, previous=True)
    states = ["state"]
    # The state before the last restart explains why a container waits; of one that runs, it is over, unless it may
    # need too much memory again before it is ready.
    is_starting = status.get("ready") is False and path(status, "state", "running") is not None
    previous = text(path(status, "lastState", "terminated", "reason"), 80)
    if reason or (is_starting and previous == OOM_KILLED):
        states.append("lastState")
    for state in states:
        ended = path(status, state, "terminated")
        code = number(path(ended, "exitCode"))
        if code and text(path(ended, "reason"), 80) == OOM_KILLED:
            cause = f"container {container} used more memory than its limit"
            yield cause, WAITING_REASONS[OOM_KILLED]
        elif code:
            yield (
                f"container {container} ended with exit code {code}",
                _read_log(container, state == "lastState"),
            )


def _read_log(container: str, previous: bool) -> str:
    return f"{_READ_LOG} -c {shlex.quote(container)}{' --previous' if previous else ''}"


CREATION_REMEDIES: Final = {
    "FailedCreate": "ask the administrator for the quota or permission that the message names, or correct the pods",
}


_RAISE_QUOTA: Final = (
    "request less, delete what is not needed, or ask the administrator to raise the ResourceQuota"
)
_CHANGE_LIMITS: Final = (
    f"set requests and limits within the LimitRange (kubectl get limitrange {_NAMESPACE_WORDS} -o yaml), "
    "or ask the administrator to change it"
)
_LOWER_REQUEST: Final = (
    "set the request to at most the limit of the container; one without a limit gets the default of the LimitRange "
    f"(kubectl get limitrange {_NAMESPACE_WORDS} -o yaml)"
)
_CORRECT_NAME: Final = (
    "correct the name or label that the message names; if the pods are those of a RayCluster, they have the groupName "
    "of their worker group in both"
)
_CREATE_MISSING: Final = (
    "create the Secret, ConfigMap or PersistentVolumeClaim that the message names, or correct its name in the pod "
    "template"
)
_ADD_KEY: Final = "add the key that the message names to the Secret or ConfigMap, or correct it in the pod template"
_CAUSES: Final = (
    (("FailedMount: ", '" not found'), _CREATE_MISSING),
    (("FailedMount: ", "references non-existent "), _ADD_KEY),
    (
        ("Multi-Attach error ",),
        "end the pods on other nodes that use the volume, or use one with the access mode ReadWriteMany",
    ),
    (("metadata.labels: Invalid value",), _CORRECT_NAME),
    (("metadata.name: Invalid value",), _CORRECT_NAME),
    (("exceeded quota",), _RAISE_QUOTA),
    (("maximum ", " usage per "), _CHANGE_LIMITS),
    (("minimum ", " usage per "), _CHANGE_LIMITS),
    ((".requests: Invalid value", "must be less than or equal to ", " limit"), _LOWER_REQUEST),
    ((" max limit to request ratio per ",), _CHANGE_LIMITS),
    (("is forbidden: User ",), "ask the administrator for the permission that the message names"),
    ((f"({OOM_KILLED})",), WAITING_REASONS[OOM_KILLED]),
    (
        ("error looking up service account ", "-oauth-proxy"),
        "do not create it: the operator does; if it does not, see the problems of the RayCluster, and cfo doctor",
    ),
    (
        ("error looking up service account ",),
        "create the ServiceAccount that the message names, or correct its name",
    ),
    *(((f"{reason}: ",), remedy) for reason, remedy in WAITING_REASONS.items() if remedy),
    *(((f"{reason}: ",), remedy) for reason, remedy in CREATION_REMEDIES.items()),
)
"""Parts of messages of the API server, the scheduler and kubelet that identify a cause, with the remedy."""

_UNSCHEDULABLE: Final = ("Unschedulable: ", "Unschedulable (")
"""How conditions begin the message of kube-scheduler."""

_POD_SECURITY: Final = "violates PodSecurity"
_FAILED_QUOTA: Final = "failed quota"

_WITHOUT_RESOURCES: Final = re.compile(r" for: ([a-z0-9,.-]+)")
"""How the API server names containers that lack a resource: ``requests.cpu for: a,b; requests.memory for: a``."""


class PodRemedies(msgspec.Struct, frozen=True):
    """What users of one kind change in its spec if the API server refuses its pods.

    ``security``: to comply with Pod Security. ``resources``: to specify the resources that a quota limits.
    ``injected``: the containers that the operator adds, for which no field of the spec sets resources; and
    ``injected_security``: to let those comply with Pod Security.
    """

    security: str = "set the fields of the securityContext that the message names"
    resources: str = "specify these resources for your containers"
    injected: tuple[str, ...] = ()
    injected_security: str = ""


_ANY_POD: Final = PodRemedies()


def _resources_remedy(message: str, pods: PodRemedies) -> str:
    """Return what to do if a quota limits resources that containers do not specify, which ``message`` names."""
    named = {
        name
        for names in _WITHOUT_RESOURCES.findall(message)
        for name in names.rstrip(".").split(",")
    }
    injected = [name for name in pods.injected if name in named]
    if not injected:
        return (
            f"{pods.resources}; for others that the message names, ask the administrator for a LimitRange with "
            "defaults"
        )
    ask = (
        "ask the administrator for a LimitRange with defaults for these resources in the namespace, because the "
        f"operator adds {', '.join(injected)} without resources"
    )
    if named.issubset(injected):
        return ask
    return f"{pods.resources}; and {ask}"


def remedy_for(message: str, remedy: str, *, pods: PodRemedies = _ANY_POD) -> str:
    """Return what to do about ``message``: what its cause calls for, or ``remedy`` if the cause is not known."""
    if _POD_SECURITY in message:
        is_injected = any(f'"{name}"' in message for name in pods.injected)
        security = pods.injected_security if is_injected else pods.security
        return f"{security}, or ask the administrator to change the Pod Security level of the namespace"
    if _FAILED_QUOTA in message and "must specify " in message:
        return _resources_remedy(message, pods)
    for parts, known in _CAUSES:
        if all(part in message for part in parts):
            return known
    if any(form in message for form in _UNSCHEDULABLE):
        return scheduling_remedy(message)
    return remedy


def last_occurrence(event: Mapping[str, Any]) -> datetime | None:
    """Return when the Event last occurred: both Event APIs have several fields for it."""
    times = (
        path(event, "series", "lastObservedTime"),
        event.get("lastTimestamp") or event.get("deprecatedLastTimestamp"),
        event.get("eventTime"),
        mapping(event.get("metadata")).get("creationTimestamp"),
    )
    return max((time for time in map(time_of, times) if time is not None), default=None)


def created_problems(
    events: Iterable[Mapping[str, Any]],
    pods: Iterable[Object] | None,
    *,
    remedies: PodRemedies = _ANY_POD,
    shown: Iterable[Problem] = (),
) -> Iterator[Problem]:
    """Yield what Warning Events say about objects that were created for another one, each reason once for an object.

    What one of the problems ``shown`` says already is left out. So are Events about an object whose newest pod of
    ``pods`` (``None``: unknown) is younger than they: a refusal that holds is recorded again.
    """
    newest = newest_pods(pods or ())
    known = "\n".join(problem.message for problem in shown)
    found: dict[tuple[str, str, str], str] = {}
    for event in events:
        regarding = path(event, "involvedObject")
        kind = text(path(regarding, "kind"), 63)
        name = text(path(regarding, "name"), 253)
        last = last_occurrence(event)
        youngest = newest.get((kind, name))
        if youngest is not None and last is not None and last < youngest:
            continue
        reason = text(event.get("reason"), 80)
        message = event_message(event)
        if (reason or message) and (not message or message not in known):
            found[kind, name, reason] = message
    for (kind, name, reason), message in found.items():
        remedy = CREATION_REMEDIES.get(reason)
        remedy = remedy or _events_command(kind, name)
        described = f"{kind} {name}: {statement(reason, message)}"
        yield Problem(described, remedy_for(message, remedy, pods=remedies))


def _events_command(kind: str, name: str) -> str:
    """Return the command that prints the Events about an object, which may have been deleted."""
    selector = shlex.quote(f"involvedObject.kind={kind},involvedObject.name={name}")
    return f"kubectl get events {_NAMESPACE_WORDS} --field-selector {selector}"


def taken_remedy(owner: str, annotated: str | None = "") -> str:
    """Return what to do if another object has a name that ``owner``, such as ``the RayCluster``, needs.

    ``annotated``: the object whose controller needs the name, if that is not ``owner``; ``None`` if it does not exist.
    """
    at_once = f", and at once when you change an annotation of {annotated or owner}"
    return (
        f"create {owner} again with another name, or delete the object that the message names if it is yours "
        "(its metadata.ownerReferences name its owner); the operator checks again after seconds, later every 5 "
        f"minutes{'' if annotated is None else at_once}"
    )


def newest_pods(pods: Iterable[Object]) -> dict[tuple[str, str], datetime]:
    """Return when the newest of ``pods`` was created for each object, by kind and name, that controls any."""
    newest: dict[tuple[str, str], datetime] = {}
    for pod in pods:
        controller = controller_of(pod) or {}
        owner = (text(controller.get("kind"), 63), text(controller.get("name"), 253))
        created = time_of(path(pod, "metadata", "creationTimestamp"))
        if created is not None:
            newest[owner] = max(created, newest.get(owner, created))
    return newest


def condition_problems(
    conditions: tuple[SummaryCondition, ...],
    wrong: Mapping[str, str],
    remedies: Mapping[str, str],
    remedy: str,
) -> Iterator[Problem]:
    """Yield a problem for each condition that has the status in ``wrong``, with the remedy for its reason."""
    for kind, status in wrong.items():
        condition = condition_of(conditions, kind)
        if condition is not None and condition.status == status:
            message = message_of(condition)
            known = remedies.get(condition.reason, remedy)
            yield Problem(statement_of(condition), remedy_for(message, known))


def warning_problems(
    warnings: Iterable[WarningEvent],
    remedies: Mapping[str, str],
    remedy: str = DESCRIBE,
    *,
    pods: PodRemedies = _ANY_POD,
) -> Iterator[Problem]:
    """Yield a problem for each of ``warnings``, with the remedy for its reason, or for refused ``pods``."""
    for warning in warnings:
        known = remedies.get(warning.reason, remedy)
        message = warning.message
        described = statement(warning.reason, message)
        yield Problem(described, remedy_for(message, known, pods=pods))
