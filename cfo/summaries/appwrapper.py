"""The summary of an AppWrapper: its phase, its components, and why it is not healthy."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from cfo.api.appwrapper.created_components import recorded_uid
from cfo.api.appwrapper.inference import completions_of, pod_numbers
from cfo.api.appwrapper.kinds import RAY_SPECS, SERVICES, kind_of
from cfo.api.appwrapper.names import (
    ANNOTATION_PREFIX,
    ANNOTATION_PROBLEM,
    APPWRAPPER,
    APPWRAPPER_LABEL,
    COMPONENT_SUSPENDED,
    DELETING_RESOURCES,
    FINALIZER,
    NOT_CONTROLLED,
    POD_FAILURE_PREFIX,
    RESOURCES_DEPLOYED,
    UNKNOWN_FIELDS,
    USER_LABEL,
    Phase,
    is_managed_here,
)
from cfo.api.appwrapper.paths import value_or_none
from cfo.api.appwrapper.podsets import PodSetError
from cfo.api.appwrapper.waiting_pods import named_pods
from cfo.api.kueue import (
    INADMISSIBLE,
    QUEUE_NAME_LABEL,
    SUSPENDED_WITHOUT_QUEUE,
    WORKLOADS,
    inadmissible_message,
)
from cfo.api.raycluster.spec_warnings import spec_problems
from cfo.api.reading import (
    MAX_MESSAGE,
    elements,
    items,
    mapping,
    milliseconds,
    number,
    path,
    text,
    time_of,
)
from cfo.api.waiting_reasons import OOM_KILLED, WAITING_REASONS
from cfo.runtime import POD, Object, annotations_of, is_deleting, labels_of
from cfo.summaries.conditions import condition_of, conditions_of, is_true, message_of, statement_of
from cfo.summaries.kind_view import (
    MAX_CREATED,
    ChildSelection,
    KindView,
    PhaseChange,
    Related,
    Section,
    labelled_queue,
    new_summary,
    number_of_pods,
    unresolved_warnings,
)
from cfo.summaries.problems import (
    CREATION_REMEDIES,
    DESCRIBE,
    created_problems,
    has_failed,
    hung_pods,
    is_ready_pod,
    last_occurrence,
    pod_problems,
    remedy_for,
    unknown_pod_problems,
    warning_problems,
)
from cfo.summaries.raycluster import POD_REMEDIES
from cfo.summaries.summary import Level, Problem, Summary, SummaryCondition

_LEVELS: Final = {Phase.SUCCEEDED: Level.OK, Phase.FAILED: Level.FAILED}
"""The levels of the phases that are final."""

_KEPT_FOR: Final = f"{ANNOTATION_PREFIX}deletionOnFailureGracePeriodDuration"
_RETRY_LIMIT: Final = f"{ANNOTATION_PREFIX}retryLimit"
_KEEP_PODS: Final = (
    f"to keep the pods of the last attempt for their logs, set the annotation {_KEPT_FOR}: 1h"
)

_RECREATE: Final = "create the AppWrapper again"
_CHANGE_COMPONENT: Final = "to change a component, delete the AppWrapper and create it again"
"""Components are immutable."""

_CORRECT_FIELDS: Final = "correct the names of the fields, and create the AppWrapper again"

_RESUME: Final = (
    f"set that field of the component to false; if the AppWrapper sets it, {_RECREATE} without it"
)
"""What to do if a component is suspended."""

_DEADLINE: Final = "DeadlineExceeded"
"""The reason of a Job or RayJob that was not finished in time, or of its pods."""

_MISSING_PODS: Final = re.compile(r"; [0-9]+ pods missing\b")
"""What the condition says of pods that do not exist, for which no warm-up period matters."""

_SLOW_PODS: Final = (
    f"if pods are only slow, set the annotation {ANNOTATION_PREFIX}warmupGracePeriodDuration"
)

_RECREATE_CORRECTED: Final = "create the AppWrapper again without what the message names"

_REMEDIES: Final = {
    "CreateFailed": "correct the cause that the message names",
    "InsufficientPodsReady": "correct what the pods wait for",
    "MissingComponent": f"{_RECREATE}; to end one, delete the AppWrapper, and not its components",
    "ExcessPods": f"to run more pods than its queue admitted, {_RECREATE} with more in its spec",
    "AutopilotNoExecute": "nothing to do: the AppWrapper moves to other nodes",
    INADMISSIBLE: "ask the administrator for what the message names, or create the AppWrapper again in another queue",
    "WorkloadNameTaken": "delete the Workload that the message names if it is yours, or create the AppWrapper again "
    "with another name",
    "InvalidPodSets": _RECREATE_CORRECTED,
    "InvalidWorkload": _RECREATE_CORRECTED,
    "NotValidated": "serve the operator's webhooks, and create the AppWrapper again: cfo doctor",
}
"""Remedies by the reason of a condition."""

_SCALE_BACK: Final = (
    "scale the component back within a minute to the pods that its queue admitted, or the AppWrapper is reset, at most "
    "three times"
)
"""What else to do about excess pods while they run."""

_MAX_SPEC_PROBLEMS: Final = 3
"""The maximum number of problems that are named in the spec of one RayCluster."""

_MAX_TAKEN: Final = 3
"""The maximum number of components that are named whose names are taken."""

_COMPONENT_REASONS: Final = ("CreateFailed", "InsufficientPodsReady")
"""Reasons of the condition ``Unhealthy`` whose causes the specs of components can be."""

_DESCRIBED_REASONS: Final = frozenset(
    {
        "ComponentCreationErrored",
        "ComponentWarning",
        "MalformedAnnotations",
        "NotValidated",
        "PodsNotReady",
    }
)
"""Reasons of Warning Events whose causes conditions, also of components, describe too as long as they exist."""


def _summarize(wrapper: Object, related: Related) -> Summary:
    """Return the summary of an AppWrapper."""
    if not is_managed_here(wrapper):
        related = replace(related, pods=None)  # MultiKueue runs them in another cluster
    phase = text(path(wrapper, "status", "phase"), 40)
    conditions = conditions_of(wrapper)
    level = _level(wrapper, phase, conditions)
    found = list(_condition_problems(wrapper, phase, conditions, related))
    shown = [problem.message for problem in found]
    found += map(_of_component, _component_problems(wrapper, shown))
    of_pods: list[Problem] = []
    if phase != Phase.SUCCEEDED:
        found += [Problem(sentence, _CORRECT_FIELDS) for sentence in _dropped_fields(wrapper)]
        found = [*map(_of_component, _spec_problems(wrapper)), *found]
        found += _annotation_problems(conditions)
        of_pods += pod_problems(related.pods or ())
    waited_for, of_components = _events_of_pods(conditions, related.created_events)
    if level is Level.PROGRESSING and phase not in _LEVELS:
        events = _causes(of_components, phase, conditions)
        of_pods += created_problems(events, related.pods, remedies=POD_REMEDIES, shown=found)
        of_pods = of_pods or _pod_failure(phase, conditions)
    if phase != Phase.SUCCEEDED:
        explained = list(unknown_pod_problems(waited_for))
        if explained and _waits_for_containers_only(conditions):
            found = [each for each in found if named_pods(each.message) == []]
        of_pods += explained
    if phase != Phase.SUCCEEDED:
        of_pods += hung_pods(related.pods or (), related.now, related.pod_events)
    of_pods = list(map(_of_component, of_pods))
    # What the pods wait for is the cause of a reset; what containers print is a detail of their failure.
    found = [*of_pods, *found] if _has_waited(conditions) else [*found, *of_pods]
    # Each attempt has an Event with other names of pods, of which the newest counts.
    described = _DESCRIBED_REASONS
    workloads = _workloads_of(related)
    if workloads is not None:
        # The Workload shows whether Kueue still cannot admit it, which no condition of the AppWrapper does.
        described |= {INADMISSIBLE}
        if level is Level.WAITING and related.queue_problem is None:
            found += _inadmissible_problems(workloads)
    warnings = list(unresolved_warnings(related.events, conditions, described))
    newest = {each.reason: each for each in reversed(warnings)}.values()
    unknown = [
        each
        for each in newest
        if not any((each.message or each.reason) in problem.message for problem in found)
    ]
    problems = _with_next_attempt(found, phase, conditions)
    if level is not Level.OK:
        problems += warning_problems(unknown, _REMEDIES)
    facts = _facts(wrapper, conditions, related)
    ready = _ready(wrapper, phase, conditions, related)
    return new_summary(
        wrapper,
        related,
        phase,
        level,
        problems,
        facts,
        ready=ready,
        pending=_pending(wrapper, phase, conditions),
        awaited=_remaining_components(wrapper),
    )


def _pending(wrapper: Object, phase: str, conditions: tuple[SummaryCondition, ...]) -> str:
    # A suspended AppWrapper waits for a queue, which can take any time.
    if phase in (Phase.SUCCEEDED, Phase.FAILED, Phase.SUSPENDED):
        return ""
    if phase == Phase.RUNNING and is_true(conditions, "PodsReady") and _runs_services(wrapper):
        return ""
    return f"is {phase or 'new'}"


def _runs_services(wrapper: Object) -> bool:
    """Return whether a component runs until it is deleted, as a Deployment or RayCluster."""
    templates = [
        mapping(component.get("template"))
        for component in items(path(wrapper, "spec", "components"))
    ]
    return any(kind_of(template) in SERVICES for template in templates)


def _awaited_pods(conditions: tuple[SummaryCondition, ...]) -> list[str]:
    """Return names of pods that did not start in the last attempt, and that only their Events explain."""
    unhealthy = condition_of(conditions, "Unhealthy")
    if unhealthy is None or not _has_waited(conditions):
        return []
    return named_pods(unhealthy.message)


def _waits_for_containers_only(conditions: tuple[SummaryCondition, ...]) -> bool:
    """Return whether the last attempt ended only because of pods that their Events explain."""
    unhealthy = condition_of(conditions, "Unhealthy")
    message = unhealthy.message if unhealthy is not None else ""
    is_one_cause = message.count(" waiting pods: ") == 1
    return is_one_cause and not _MISSING_PODS.search(message)


def _events_of_pods(
    conditions: tuple[SummaryCondition, ...], events: Iterable[Object]
) -> tuple[list[Object], list[Object]]:
    """Return the Events about pods of the last attempt, and those about components."""
    names = _awaited_pods(conditions)
    of_pods: list[Object] = []
    of_components: list[Object] = []
    for event in events:
        is_of_pod = path(event, "involvedObject", "kind") == POD.kind
        if is_of_pod and text(path(event, "involvedObject", "name"), 253) in names:
            of_pods.append(event)
        else:
            of_components.append(event)
    return of_pods, of_components


def _created_for(wrapper: Object) -> list[tuple[str, str, str]]:
    """Return kind, name and uid of what was created whose Events count: awaited pods, then the first components."""
    pods = [(POD.kind, name, "") for name in _awaited_pods(conditions_of(wrapper))]
    return [*pods, *_components_of(wrapper)][:MAX_CREATED]


def _components_of(wrapper: Object) -> list[tuple[str, str, str]]:
    """Return kind, name and uid of the components that were created."""
    found = []
    for recorded in items(path(wrapper, "status", "componentStatus")):
        kind = text(recorded.get("kind"), 63)
        name = text(recorded.get("name"), 253)
        uid = recorded_uid(recorded)
        if kind and name and uid:
            found.append((kind, name, uid))
    return found


def _remaining_components(wrapper: Object) -> list[Mapping[str, Any]]:
    """Return the statuses of the components that still exist, if the operator's finalizer waits for them."""
    if FINALIZER not in elements(path(wrapper, "metadata", "finalizers")):
        return []
    return [
        recorded
        for recorded in items(path(wrapper, "status", "componentStatus"))
        if is_true(conditions_of({"status": recorded}), RESOURCES_DEPLOYED)
    ]


def _level(wrapper: Object, phase: str, conditions: tuple[SummaryCondition, ...]) -> Level:
    if is_deleting(wrapper):
        return Level.PROGRESSING
    if phase == Phase.RUNNING:
        ready = condition_of(conditions, "PodsReady")
        return Level.OK if ready is None or ready.status == "True" else Level.PROGRESSING
    if phase in _LEVELS:
        return _LEVELS[Phase(phase)]
    waits = path(wrapper, "spec", "suspend") is True or QUEUE_NAME_LABEL in labels_of(wrapper)
    return Level.WAITING if waits and phase in (Phase.SUSPENDED, Phase.EMPTY) else Level.PROGRESSING


def _ready(
    wrapper: Object, phase: str, conditions: tuple[SummaryCondition, ...], related: Related
) -> str:
    """Return how many of its pods are ready or have succeeded, and how many it needs; empty if that is not known."""
    components = items(path(wrapper, "spec", "components"))
    recorded = items(path(wrapper, "status", "componentStatus"))
    wanted = sum(map(_expected_pods, components, recorded))
    if not wanted:
        return ""
    if phase == Phase.SUCCEEDED or (related.pods is None and is_true(conditions, "PodsReady")):
        return f"{wanted}/{wanted}"
    if related.pods is None and phase == Phase.RUNNING:
        return ""
    # A Job replaces pods that have succeeded until it is complete, and some kinds have one pod more while they update.
    ready = min(sum(map(is_ready_pod, related.pods or ())), wanted)
    return f"{ready}/{wanted}"


def _expected_pods(component: Mapping[str, Any], recorded: Mapping[str, Any]) -> int:
    """Return how many pods a component needs until it has completed; ``recorded`` is its status."""
    try:
        template = dict(mapping(component.get("template")))
        expected = pod_numbers(template, list(items(recorded.get("podSets")))).expected
        return max(expected, completions_of(template))
    except PodSetError:  # admission rejects it
        return 0


def _facts(
    wrapper: Object, conditions: tuple[SummaryCondition, ...], related: Related
) -> Iterator[tuple[str, str]]:
    kinds = Counter(
        text(path(component, "template", "kind"), 63)
        for component in items(path(wrapper, "spec", "components"))
    )
    yield (
        "components",
        text(", ".join(f"{many} {kind}" for kind, many in sorted(kinds.items()) if kind)),
    )
    queue = text(labels_of(wrapper).get(QUEUE_NAME_LABEL), 63)
    is_suspended = path(wrapper, "spec", "suspend") is True
    deleting = condition_of(conditions, DELETING_RESOURCES)
    if deleting is not None and deleting.status == "True" and not is_deleting(wrapper):
        yield "deletion", deleting.message
    if is_suspended and not queue and path(wrapper, "status", "phase") == Phase.SUSPENDED:
        yield "why", SUSPENDED_WITHOUT_QUEUE
    yield "queue", queue
    reserved = condition_of(conditions, "QuotaReserved")
    if reserved is not None:
        yield "quota reserved", "yes" if reserved.status == "True" else "no"
    yield "retries", str(number(path(wrapper, "status", "resettingCount")) or "")
    yield "pods", number_of_pods(related)
    yield "user", text(labels_of(wrapper).get(USER_LABEL), 63)
    yield "managed by", text(path(wrapper, "spec", "managedBy"), 80)
    if path(wrapper, "status", "phase") == Phase.SUCCEEDED:  # no problem any more
        yield "dropped fields", text("; ".join(_dropped_fields(wrapper)))


def _condition_problems(
    wrapper: Object, phase: str, conditions: tuple[SummaryCondition, ...], related: Related
) -> Iterator[Problem]:
    unhealthy = condition_of(conditions, "Unhealthy")
    if unhealthy is not None and unhealthy.status == "True" and phase != Phase.SUCCEEDED:
        remedy = _REMEDIES.get(unhealthy.reason, DESCRIBE)
        if unhealthy.reason in _COMPONENT_REASONS:
            remedy = _component_remedy(_remedy_of(unhealthy.message, remedy))
        if _has_waited(conditions) and not _MISSING_PODS.search(unhealthy.message):
            remedy = f"{remedy}; {_SLOW_PODS}"
        if unhealthy.reason == "ExcessPods" and phase == Phase.RUNNING:
            remedy = f"{_SCALE_BACK}; {remedy}"
        if NOT_CONTROLLED in unhealthy.message:
            remedy = _taken_remedy(_taken_names(wrapper))
        if unhealthy.reason in ("FailedComponent", "FoundFailedPods"):
            remedy = _failure_remedy(wrapper, related, unhealthy.message)
        yield Problem(statement_of(unhealthy), remedy)
    elif phase == Phase.FAILED:
        yield Problem(
            "The AppWrapper has failed",
            f"read its Events: {DESCRIBE}; create it again to retry",
        )
    validated = condition_of(conditions, "Validated")
    if validated is not None and validated.status == "False":
        yield Problem(f"Not validated: {message_of(validated)}", _REMEDIES["NotValidated"])


def _with_next_attempt(
    problems: Sequence[Problem], phase: str, conditions: tuple[SummaryCondition, ...]
) -> list[Problem]:
    """Return ``problems``, of which the first says when the next attempt of an AppWrapper is that is being reset."""
    deployed = condition_of(conditions, "ResourcesDeployed")
    _, _, attempt = (deployed.message if deployed is not None else "").partition(
        "; next attempt at "
    )
    if phase != Phase.RESETTING or not attempt or not problems:
        return list(problems)
    first, *others = problems
    remedy = f"the next attempt is at {attempt}; {first.remedy}"
    return [Problem(first.message, remedy), *others]


def _causes(
    events: Iterable[Object], phase: str, conditions: tuple[SummaryCondition, ...]
) -> Iterator[Object]:
    """Yield the Events about components, without those since a reset began: the deletion of pods fails their Job."""
    unhealthy = condition_of(conditions, "Unhealthy")
    began = time_of(unhealthy.since) if unhealthy is not None and phase == Phase.RESETTING else None
    for event in events:
        last = last_occurrence(event)
        # Events have whole seconds.
        if began is None or last is None or last < began.replace(microsecond=0):
            yield event


def _has_waited(conditions: tuple[SummaryCondition, ...]) -> bool:
    """Return whether the last attempt ended because pods did not start in time."""
    unhealthy = condition_of(conditions, "Unhealthy")
    if unhealthy is None or unhealthy.status != "True":
        return False
    return unhealthy.reason == "InsufficientPodsReady"


def _of_component(problem: Problem) -> Problem:
    """Return a problem of a component, or of its pods, with what to do if the remedy changes the component."""
    return Problem(problem.message, _component_remedy(problem.remedy))


def _component_remedy(remedy: str) -> str:
    return remedy if _RECREATE in remedy else f"{remedy}; {_CHANGE_COMPONENT}"


def _workloads_of(related: Related) -> list[Object] | None:
    """Return the Workloads of an AppWrapper; ``None`` if they cannot be read."""
    known = [related.children[gvk] for gvk in WORKLOADS if gvk in related.children]
    if not known:
        return None
    return [workload for workloads in known for workload in workloads]


def _inadmissible_problems(workloads: Iterable[Object]) -> Iterator[Problem]:
    """Yield why Kueue cannot admit a Workload at all, whatever quota is free."""
    for workload in workloads:
        message = inadmissible_message(workload)
        if message is not None:
            yield Problem(f"{INADMISSIBLE}: {message}", _REMEDIES[INADMISSIBLE])


def _pod_failure(phase: str, conditions: tuple[SummaryCondition, ...]) -> list[Problem]:
    """Return what the operator reported about a pod that runs, for readers who cannot read pods and Events."""
    ready = condition_of(conditions, "PodsReady")
    if phase != Phase.RUNNING or ready is None or not ready.message.startswith(POD_FAILURE_PREFIX):
        return []
    message = ready.message.removeprefix(POD_FAILURE_PREFIX)
    remedy = _remedy_of(message, CREATION_REMEDIES["FailedCreate"])
    return [Problem(message, remedy)]


def _remedy_of(message: str, remedy: str) -> str:
    """Return what to do about ``message`` of a condition, or ``remedy`` if its cause is not known."""
    if f"{COMPONENT_SUSPENDED}: " in message:
        return _RESUME
    return remedy_for(message, remedy, pods=POD_REMEDIES)


def _failure_remedy(wrapper: Object, related: Related, message: str) -> str:
    if _DEADLINE in message:
        return f"increase the component's deadline (activeDeadlineSeconds); {_CHANGE_COMPONENT}"
    failed = [
        text(path(pod, "metadata", "name"), 253) for pod in related.pods or () if has_failed(pod)
    ]
    keep = _KEEP_PODS
    kept_for = text(annotations_of(wrapper).get(_KEPT_FOR), 20)
    if kept_for:
        keep = f"the pods of the last attempt are kept for {kept_for}, as {_KEPT_FOR} says"
    if annotations_of(wrapper).get(_RETRY_LIMIT) != "0":
        keep += f'; with {_RETRY_LIMIT}: "0" there is only one attempt'
    remedies = [keep]
    if failed:
        remedies.insert(0, f"kubectl logs -n NAMESPACE {shlex.quote(min(failed))}")
    if OOM_KILLED in message:
        remedies.insert(0, _component_remedy(WAITING_REASONS[OOM_KILLED]))
    return "; ".join(remedies)


def _annotation_problems(conditions: tuple[SummaryCondition, ...]) -> Iterator[Problem]:
    """Yield which annotations with settings are ignored, wholly or in part."""
    deployed = condition_of(conditions, "ResourcesDeployed")
    _, *ignored = deployed.message.split(ANNOTATION_PROBLEM) if deployed is not None else [""]
    for problem in ignored:
        yield Problem(
            f"{ANNOTATION_PROBLEM.removeprefix('; ')}{problem}",
            "correct or remove the annotation",
        )


def _component_problems(wrapper: Object, shown: Sequence[str]) -> Iterator[Problem]:
    """Yield why components do not exist; causes that the messages ``shown`` contain are left out."""
    for component in items(path(wrapper, "status", "componentStatus")):
        found = [
            item
            for item in items(component.get("conditions"))
            if item.get("type") == "ResourcesDeployed"
        ]
        reason = text(found[0].get("reason"), 80) if found else ""
        if found and found[0].get("status") == "False" and "Error" in reason:
            name = f"{text(component.get('kind'), 63)} {text(component.get('name'), 80)}".strip()
            cause = text(found[0].get("message"), MAX_MESSAGE)
            if cause and any(cause in message for message in shown):
                continue
            message = f"{name or 'A component'} cannot be created: {cause}"
            remedy = "correct the component, or ask the administrator for the permission or quota"
            if NOT_CONTROLLED in cause:
                remedy = _taken_remedy(name)
            yield Problem(message, remedy_for(cause, remedy, pods=POD_REMEDIES))


def _taken_names(wrapper: Object) -> str:
    """Return kind and name of the first components whose names other objects have; empty if that is not known."""
    found = []
    for component in items(path(wrapper, "status", "componentStatus")):
        messages = [text(item.get("message")) for item in items(component.get("conditions"))]
        if any(NOT_CONTROLLED in message for message in messages):
            name = f"{text(component.get('kind'), 63)} {text(component.get('name'), 80)}"
            found.append(name.strip())
    return ", ".join(filter(None, found[:_MAX_TAKEN]))


def _taken_remedy(names: str) -> str:
    return (
        f"delete {names or 'the resource'} if it is yours (its metadata.ownerReferences name its owner), or give the "
        "component another name; then create the AppWrapper again"
    )


def _spec_problems(wrapper: Object) -> Iterator[Problem]:
    """Yield the first problems in the specs of RayClusters, with which some of their pods are missing."""
    for index, component in enumerate(items(path(wrapper, "spec", "components"))):
        template = dict(mapping(component.get("template")))
        field = RAY_SPECS.get(kind_of(template), "")
        if not field:
            continue
        where = f"spec.components[{index}].{field}"
        cluster = {"spec": value_or_none(template, field)}
        for problem in islice(spec_problems(cluster), _MAX_SPEC_PROBLEMS):
            yield Problem(f"{where}{problem.message.removeprefix('spec')}", problem.remedy)


def _dropped_fields(wrapper: Object) -> Iterator[str]:
    """Yield which fields the API server dropped when a component was created, as a sentence for each component."""
    for component in items(path(wrapper, "status", "componentStatus")):
        for condition in items(component.get("conditions")):
            if condition.get("type") == UNKNOWN_FIELDS and condition.get("status") == "True":
                name = f"{text(component.get('kind'), 63)} {text(component.get('name'), 80)}"
                dropped = text(condition.get("message"), MAX_MESSAGE)
                yield f"{name} was created without fields that its kind does not have: {dropped}"


def _began(condition: SummaryCondition, state: str) -> tuple[Phase, Level] | None:
    """Return the phase that began when ``condition`` last changed, in an AppWrapper whose phase is ``state`` now."""
    match condition.type, condition.status:
        case (("QuotaReserved" | "ResourcesDeployed"), "True"):
            return Phase.RESUMING, Level.PROGRESSING
        case "PodsReady", "True":
            return Phase.RUNNING, Level.OK
        case (("PodsReady" | "ResourcesDeployed"), "False") if condition.reason == "Resetting":
            return Phase.RESETTING, Level.WARNING
        case "Unhealthy", "True" if state in (Phase.RESETTING, Phase.RESUMING):
            return Phase.RESETTING, Level.WARNING
    return None


def _past_phases(summary: Summary) -> Sequence[PhaseChange]:
    """Return the phases of an AppWrapper until now, as far as its conditions tell."""
    changes: list[PhaseChange] = [
        (milliseconds(summary.created), Phase.SUSPENDED.value, Level.WAITING.value)
    ]
    for condition in sorted(summary.conditions, key=lambda each: milliseconds(each.since)):
        began = _began(condition, summary.state)
        if began is None:
            continue
        phase, level = began
        since = milliseconds(condition.since)
        if since >= changes[0][0] and phase != changes[-1][1]:
            changes.append((since, phase.value, level.value))
    if summary.state != changes[-1][1]:
        latest = max((milliseconds(one.since) for one in summary.conditions), default=0)
        since = max(milliseconds(summary.deleted) or latest, changes[-1][0])
        changes.append((since, summary.state, summary.level.value))
    return changes


VIEWS: Final = (
    KindView(
        gvk=APPWRAPPER,
        setting="appwrapper.enabled",
        prerequisite="with appwrapper.kueueIntegration, it waits until Kueue is installed",
        summarize=_summarize,
        children=tuple(ChildSelection(gvk) for gvk in WORKLOADS),
        pod_label=APPWRAPPER_LABEL,
        created=_created_for,
        queue=labelled_queue,
        short_names=("aw",),
        section=Section(
            id="appwrappers",
            kind=APPWRAPPER.kind,
            type="timeline",
            position=5,
            title="AppWrappers",
            empty="No AppWrappers. Create one with kubectl apply, around the resources that belong together.",
            tile="AppWrappers",
        ),
        past_phases=_past_phases,
    ),
)
