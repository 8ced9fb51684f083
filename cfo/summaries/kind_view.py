"""How people see the objects of a kind: what status, the live view, the page and the demo want to know about it.

A module for each kind exports its views; programs collect them (:func:`cfo.features.all_views`) and pass them on. No
other module here names a kind.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

from msgspec.structs import replace

from cfo.api.kueue import LOCAL_QUEUES, QUEUE_NAME_LABEL, missing_queue_message
from cfo.api.reading import MALFORMED, MAX_MESSAGE, MAX_TEXT, mapping, number, path, text, time_of
from cfo.runtime import (
    GVK,
    POD,
    NamespacedName,
    Object,
    controller_of,
    gvk_of,
    is_deleting,
    key_of,
    labels_of,
    uid_of,
)
from cfo.runtime.objects import CORE_EVENT
from cfo.summaries.conditions import conditions_of
from cfo.summaries.pod_events import event_message, without_random_names
from cfo.summaries.problems import (
    TERMINATING,
    awaited_finalizers,
    awaited_names,
    completed,
    deletion,
    last_occurrence,
    missing_state,
    pod_phase,
    pod_state,
    slow_deletion,
)
from cfo.summaries.summary import (
    MAX_FACTS,
    MAX_WARNINGS,
    Level,
    Problem,
    Summary,
    SummaryCondition,
    WarningEvent,
    distinct_problems,
)

MAX_PROBLEM: Final = MAX_MESSAGE + MAX_TEXT
"""The maximum length of a problem's message: the message of an Event or a condition, and names before it."""
MAX_PODS: Final = 200
MAX_CHILDREN: Final = 200
MAX_EVENTS: Final = 50
MAX_CREATED: Final = 10
"""The maximum number of each (children: of one kind) that the summary of one object depends on."""

PODS_OF_DEPLOYMENT: Final = "Pods of Deployment"
"""The kind of all pods of a Deployment in :attr:`KindView.created`, with the name of the Deployment."""

_NEVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Related:
    """What belongs to one object, and what else its summary depends on.

    ``children`` are the objects that it owns, by kind, and ``pods`` the pods; a kind that is missing (``None``) cannot
    be read, so nothing is said about it. ``events`` are Warning Events, ``created_events`` those about what was created
    for it (see :class:`KindView`), and ``pod_events`` those about its first pods that wait for their containers.
    ``queue_problem`` says why nothing can admit an object that waits in its LocalQueue, if that is known. ``now`` is
    the time of the summary.
    """

    children: Mapping[GVK, Sequence[Object]] = field(default_factory=dict)
    pods: Sequence[Object] | None = None
    events: Sequence[Object] = ()
    created_events: Sequence[Object] = ()
    pod_events: Sequence[Object] = ()
    queue_problem: Problem | None = None
    now: datetime = _NEVER


def number_of_pods(related: Related) -> str:
    """Return the number of pods and their phases; empty if it is not known."""
    if related.pods is None:
        return ""
    phases = Counter(pod_phase(pod).lower() for pod in related.pods)
    number = str(len(related.pods)) if len(related.pods) < MAX_PODS else f"{MAX_PODS} or more"
    return (
        f"{number} ({', '.join(f'{many} {phase}' for phase, many in sorted(phases.items()))})"
        if phases
        else "0"
    )


def warnings_of(events: Sequence[Mapping[str, Any]]) -> tuple[WarningEvent, ...]:
    """Return what Warning Events say, the newest first, each reason and message once.

    Those that have neither reason nor message are left out.
    """
    found: dict[tuple[str, str], WarningEvent] = {}
    for event in sorted(events, key=lambda event: last_occurrence(event) or _NEVER, reverse=True):
        last = last_occurrence(event)
        warning = WarningEvent(
            reason=text(event.get("reason"), 80),
            message=event_message(event),
            last=last.isoformat(timespec="seconds").replace("+00:00", "Z") if last else "",
            count=max(1, number(event.get("count")), number(path(event, "series", "count"))),
        )
        if warning.reason or warning.message:
            found.setdefault((warning.reason, warning.message), warning)
        if len(found) == MAX_WARNINGS:
            break
    return tuple(found.values())


def unresolved_warnings(
    events: Sequence[Mapping[str, Any]],
    conditions: Iterable[SummaryCondition],
    described: Container[str],
) -> Iterator[WarningEvent]:
    """Yield the Warning Events whose causes may still exist, the newest first.

    The ``conditions`` of the object show whether the causes still exist that they describe too, those of the reasons in
    ``described``. Others count until the status of a condition has changed after them.
    """
    changes = [time_of(condition.since) for condition in conditions]
    last_change = max((time for time in changes if time is not None), default=_NEVER)
    for warning in warnings_of(events):
        last = time_of(warning.last)
        if warning.reason not in described and (last is None or last >= last_change):
            yield warning


PhaseChange = tuple[int, str, str]
"""The time in milliseconds since 1970, the state from then on, and its level."""


@dataclass(frozen=True, slots=True)
class ChildSelection:
    """Objects of another kind that a kind's objects own, with the selection of the operator's own informer."""

    gvk: GVK
    label_selector: str = ""
    metadata_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of the page, with the objects of ``kind``.

    ``type`` is ``table``, ``timeline`` (the phases of each object over time) or ``queues`` (their quotas, and the
    objects of the kind ``jobs`` that wait in them). Sections are in the order of ``position``. ``empty`` is shown if
    there are no objects, unless the section is ``optional``. ``tile`` is the title of its number at the top (empty:
    none). ``ready`` and ``facts`` are columns of a table: the title of the readiness; titles and names of facts.
    """

    id: str
    kind: str
    type: Literal["table", "timeline", "queues"]
    position: int
    title: str
    empty: str
    tile: str = ""
    jobs: str = ""
    ready: str = "Ready"
    facts: tuple[tuple[str, str], ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KindView:
    """How people see the objects of a kind.

    ``summarize`` returns the summary of an object (call :func:`summarize` instead, which never fails). It depends on
    the ``children`` of the object, and on its pods: those whose ``pod_label`` (empty: none) has the value
    ``pod_label_value`` of the object's name.

    ``created`` returns kind, name and uid (empty: not known) of the objects in its namespace that were created for an
    object and create pods, at most ten: their Warning Events say why pods do not exist, which nothing else does. Those
    about pods, or about :data:`PODS_OF_DEPLOYMENT`, say why their containers do not.

    ``queue`` returns the LocalQueue of Kueue in which an object is, or what was created for it; empty if it has none.

    ``short_names`` are other names of the kind for ``cfo status``. ``operator`` is the name of the operator that writes
    the state of new objects; empty if ``summarize`` reports itself that there is none. ``setting`` enables the kind in
    its configuration; empty if none has to. ``prerequisite`` says what else the operator needs before it reconciles the
    kind.

    ``section`` is the section of the page that this kind has, or shares with others of its views. A summary can have
    fields for it in its ``row``: ``quotas`` of a queue (title, used, limit, and both as they are shown), ``queue``
    (namespace/name) and ``position`` (0: unknown) of an object that waits in one, ``certificate`` and ``expires``
    (milliseconds since 1970). ``past_phases`` returns the phases of an object until now, if the page shows them over
    time. ``is_in_operator``: whether the page of an operator has the kind, and not only what people run with their own
    permissions.
    """

    gvk: GVK
    summarize: Callable[[Object, Related], Summary]
    children: tuple[ChildSelection, ...] = ()
    pod_label: str = ""
    pod_label_value: Callable[[str], str] = str
    created: Callable[[Object], Sequence[tuple[str, str, str]]] | None = None
    queue: Callable[[Object, Related], str] | None = None
    short_names: tuple[str, ...] = ()
    operator: str = "the CodeFlare operator"
    setting: str = ""
    prerequisite: str = ""
    section: Section | None = None
    past_phases: Callable[[Summary], Sequence[PhaseChange]] | None = None
    is_in_operator: bool = True


def labelled_queue(obj: Object, related: Related) -> str:
    """Return the LocalQueue in the label of an object; empty if it has none."""
    return labels_of(obj).get(QUEUE_NAME_LABEL, "")


def related_kinds(views: Iterable[KindView]) -> tuple[GVK, ...]:
    """Return the other kinds on which summaries depend: children, LocalQueues, pods and Events.

    Those that can have several versions are in all of them, the newest first.
    """
    views = tuple(views)
    children = dict.fromkeys(child.gvk for view in views for child in view.children)
    queues = LOCAL_QUEUES if any(view.queue is not None for view in views) else ()
    return (*children, *queues, POD, CORE_EVENT)


def one_version_of_each(kinds: Iterable[GVK]) -> list[GVK]:
    """Return ``kinds`` with the first version of each: API servers return the objects of all versions in it."""
    found: dict[tuple[str, str], GVK] = {}
    for gvk in kinds:
        found.setdefault((gvk.group, gvk.kind), gvk)
    return list(found.values())


MAX_SHOWN: Final = 25
"""How many pods, and how many children of each kind, are named at most."""


def related_objects(
    view: KindView, key: NamespacedName, related: Related
) -> dict[str, list[tuple[str, str]]]:
    """Return the pods and children of an object as names and texts, and commands that print more about them."""
    pods = [
        (text(path(pod, "metadata", "name")), pod_state(pod))
        for pod in (related.pods or ())[:MAX_SHOWN]
    ]
    if related.pods and len(related.pods) > MAX_SHOWN:
        pods.append((f"and {len(related.pods) - MAX_SHOWN} more", ""))
    children = [(gvk.kind, _names(objects)) for gvk, objects in related.children.items() if objects]
    commands = []
    if view.pod_label and related.pods != []:
        selector = shlex.quote(f"{view.pod_label}={view.pod_label_value(key.name)}")
        of_pods = f"--namespace {shlex.quote(key.namespace)} --selector {selector}"
        commands.append(("Pods", f"kubectl get pods {of_pods}"))
        commands.append(("Logs", f"kubectl logs {of_pods} --all-containers --prefix --tail 100"))
    return {"Pods": pods, "Children": children, "Commands": commands}


def _names(objects: Sequence[Object]) -> str:
    more = f" and {len(objects) - MAX_SHOWN} more" if len(objects) > MAX_SHOWN else ""
    return ", ".join(text(path(obj, "metadata", "name"), 253) for obj in objects[:MAX_SHOWN]) + more


def summarize(view: KindView, obj: Object, related: Related | None = None) -> Summary:
    """Return the summary of ``obj``.

    An object whose fields have unexpected types has a summary that says so; nothing is raised because of its content.
    """
    related = related or Related()
    try:
        summary = view.summarize(obj, related)
        if view.operator and not summary.conditions and may_become_overdue(summary):
            missing = missing_state(
                obj, view.operator, related.now, view.setting, view.prerequisite
            )
            problems = distinct_problems([*summary.problems, *missing])
            level = Level.WARNING if problems else summary.level
            summary = replace(summary, problems=problems, level=level)
        if related.queue_problem is not None and summary.waits and not _has_ready_parts(summary):
            summary = _with_problem(summary, _completed(related.queue_problem, obj))
    except MALFORMED:
        metadata = mapping(obj.get("metadata"))
        problem = "Fields of the object have types that its API does not have"
        return Summary(
            gvk=view.gvk,
            key=NamespacedName(
                text(metadata.get("namespace"), 63), text(metadata.get("name"), 253)
            ),
            uid=text(metadata.get("uid"), 63),
            state="",
            level=Level.WARNING,
            ready="",
            created=text(metadata.get("creationTimestamp"), 40),
            problems=(Problem(problem, "correct the object"),),
        )
    return summary


def _has_ready_parts(summary: Summary) -> bool:
    """Return whether a part of the object is ready, and so was admitted by its queue."""
    ready, _, _ = summary.ready.partition("/")
    return ready.strip("0") != ""


def _completed(problem: Problem, obj: Object) -> Problem:
    """Return a bounded problem of ``obj`` whose commands work as they are, and whose message each retry repeats."""
    message = without_random_names(text(problem.message, MAX_PROBLEM))
    return Problem(message, completed(problem.remedy, obj))


def _with_problem(summary: Summary, problem: Problem) -> Summary:
    problems = distinct_problems([problem, *summary.problems])
    level = summary.level
    if level is not Level.FAILED:
        level = Level.WARNING
    return replace(summary, problems=problems, level=level)


def with_forbidden(summary: Summary, resources: Sequence[str]) -> Summary:
    """Return ``summary`` with the problem that ``resources`` cannot be read, which would say why it has not started.

    Its level stays, because nothing may be wrong with the object.
    """
    if not resources or summary.level is not Level.PROGRESSING:
        return summary
    names = " and ".join(resources)
    namespace = text(summary.key.namespace, 63)
    problem = Problem(
        f"Why it is not ready is unknown: listing {names} in namespace {namespace} is forbidden",
        f"ask the administrator for the permission to list and watch {names} in this namespace",
    )
    return replace(summary, problems=distinct_problems([*summary.problems, problem]))


_CHANGE_QUEUE: Final = (
    "name a LocalQueue of its namespace (kubectl get localqueues -n NAMESPACE): kubectl label KIND NAME -n NAMESPACE "
    f"--overwrite {QUEUE_NAME_LABEL}=QUEUE; or ask the administrator for this one"
)


def missing_queue(view: KindView, obj: Object, queue: str) -> Problem:
    """Return the problem of ``obj``, which waits for a LocalQueue that does not exist.

    While an object is suspended, its queue can be changed if that is its label.
    """
    remedy = (
        "create the object again with the name of a LocalQueue of its namespace "
        "(kubectl get localqueues -n NAMESPACE), or ask the administrator for this one"
    )
    if view.queue is labelled_queue and path(obj, "spec", "suspend") is True:
        remedy = _CHANGE_QUEUE
    return Problem(missing_queue_message(text(queue, 63)), remedy)


def missing_kueue(queue: str) -> Problem:
    """Return the problem of an object that waits for a LocalQueue in a cluster without Kueue."""
    return Problem(
        f"LocalQueue {text(queue, 63)}: Kueue is not installed, so nothing admits the object",
        "ask the administrator to install Kueue, or create the object again without a queue",
    )


def may_become_overdue(summary: Summary) -> bool:
    """Return whether an operator has yet to write the state of the object, also of one that is suspended."""
    levels = (Level.PROGRESSING, Level.WARNING, Level.WAITING)
    return not summary.state and summary.level in levels


def new_summary(
    obj: Object,
    related: Related,
    state: str,
    level: Level,
    problems: Iterable[Problem],
    facts: Iterable[tuple[str, str]],
    *,
    ready: str = "",
    pending: str = "",
    waits: bool = False,
    row: Mapping[str, Any] | None = None,
    awaited: Sequence[Mapping[str, Any]] = (),
) -> Summary:
    """Return a summary of ``obj``: without facts that are empty and problems that repeat others, and within limits.

    ``waits``: it waits for quota, although its level is another one than :attr:`.Level.WAITING`. An object that is
    being deleted is ``Terminating``, whatever ``state`` and ``level`` are; ``awaited`` are objects that are deleted
    first (see :func:`.slow_deletion`).
    """
    if is_deleting(obj):
        state = TERMINATING
        level = Level.PROGRESSING
        names = awaited_names(awaited) or awaited_finalizers(obj)
        facts = [("deletion", f"waits for {names}" if names else ""), *facts]
        problems = [*slow_deletion(obj, related.pods, related.now, awaited), *problems]
    distinct = distinct_problems(_completed(each, obj) for each in problems)
    return Summary(
        gvk=gvk_of(obj),
        key=key_of(obj),
        uid=uid_of(obj),
        owner=text((controller_of(obj) or {}).get("uid"), 63),
        state=state,
        level=Level.WARNING if distinct and level is not Level.FAILED else level,
        waits=waits or level is Level.WAITING,
        ready=ready,
        pending=deletion(obj, awaited) or pending,
        created=text(path(obj, "metadata", "creationTimestamp"), 40),
        deleted=text(path(obj, "metadata", "deletionTimestamp"), 40),
        facts=tuple((name, value) for name, value in facts if value)[:MAX_FACTS],
        problems=distinct,
        conditions=conditions_of(obj),
        warnings=warnings_of(related.events),
        row=row or {},
    )
