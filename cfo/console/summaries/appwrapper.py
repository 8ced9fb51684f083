"""The summary of an AppWrapper: its phase, its components, and why it is not healthy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from cfo.api.appwrapper.names import APPWRAPPER, APPWRAPPER_LABEL, QUEUE_NAME_LABEL, USER_LABEL, Phase
from cfo.console.summaries.kind_view import (
    KindView,
    PhaseChange,
    Related,
    Section,
    new_summary,
    number_of_pods,
    warnings_of,
)
from cfo.console.summaries.pods import pod_problems, slow_deletion
from cfo.console.summaries.reading import (
    condition_of,
    conditions_of,
    items,
    message_of,
    milliseconds,
    number,
    path,
    text,
)
from cfo.console.summaries.summary import Condition, Level, Problem, Summary, WarningEvent
from cfo.runtime import Object, is_deleting, labels_of

_LEVELS: Final = {
    Phase.RUNNING: Level.OK,
    Phase.SUCCEEDED: Level.OK,
    Phase.FAILED: Level.ERROR,
}

_REMEDIES: Final = {
    "CreateFailed": "correct the component; the AppWrapper has to be created again",
    "FailedComponent": "read the log of the component's pods; the AppWrapper is retried until its retry limit",
    "FoundFailedPods": "read the log of the failed pods: kubectl logs",
    "InsufficientPodsReady": "check why pods do not start: kubectl get pods",
    "MissingComponent": "do not delete components of an AppWrapper; delete the AppWrapper instead",
    "AutopilotNoExecute": "none; the AppWrapper moves to other nodes",
    "NotValidated": "serve the operator's webhooks, and create the AppWrapper again: cfo doctor",
}
"""Remedies by the reason of a condition."""


def _summarize(wrapper: Object, related: Related) -> Summary:
    """Return the summary of an AppWrapper."""
    phase = text(path(wrapper, "status", "phase"), 40)
    conditions = conditions_of(wrapper)
    level = _level(wrapper, phase)
    found = [
        *_condition_problems(phase, conditions),
        *_component_problems(wrapper),
        *slow_deletion(wrapper, related.now),
        *(pod_problems(related.pods or ()) if phase != Phase.SUCCEEDED else ()),
    ]
    # the Event about a failure is followed by a condition with the same text and more
    unknown = [
        each for each in warnings_of(related.events) if not any(each.message in problem.message for problem in found)
    ]
    problems = [*found, *(_warning_problems(unknown) if level is not Level.OK else ())]
    deployed, total = _components(wrapper)
    facts = _facts(wrapper, conditions, related)
    return new_summary(wrapper, related, phase, level, problems, facts, ready=f"{deployed}/{total}")


def _level(wrapper: Object, phase: str) -> Level:
    if is_deleting(wrapper):
        return Level.PROGRESSING
    if phase in _LEVELS:
        return _LEVELS[Phase(phase)]
    # Kueue sets spec.suspend as well, until it admits the AppWrapper, which therefore waits and is not idle
    waits = QUEUE_NAME_LABEL in labels_of(wrapper)
    suspended = phase in (Phase.SUSPENDED, Phase.EMPTY) and path(wrapper, "spec", "suspend") is True
    return Level.IDLE if suspended and not waits else Level.PROGRESSING


def _components(wrapper: Object) -> tuple[int, int]:
    """Return how many components exist, and how many there are."""
    total = path(wrapper, "spec", "components")
    deployed = sum(
        any(item.get("type") == "ResourcesDeployed" and item.get("status") == "True" for item in items(conditions))
        for conditions in (
            component.get("conditions") for component in items(path(wrapper, "status", "componentStatus"))
        )
    )
    return deployed, len(total) if isinstance(total, list) else 0


def _facts(wrapper: Object, conditions: tuple[Condition, ...], related: Related) -> Iterator[tuple[str, str]]:
    kinds = Counter(
        text(path(component, "template", "kind"), 63) for component in items(path(wrapper, "spec", "components"))
    )
    yield "components", text(", ".join(f"{many} {kind}" for kind, many in sorted(kinds.items()) if kind))
    yield "queue", text(labels_of(wrapper).get(QUEUE_NAME_LABEL), 63)
    reserved = condition_of(conditions, "QuotaReserved")
    if reserved is not None:
        yield "quota reserved", "yes" if reserved.status == "True" else "no"
    yield "retries", str(number(path(wrapper, "status", "resettingCount")) or "")
    ready = condition_of(conditions, "PodsReady")
    # in other phases, the condition has the numbers of the last run, or none
    is_running = path(wrapper, "status", "phase") == Phase.RUNNING
    yield "pods ready", ready.message if ready is not None and is_running else ""
    yield "pods", number_of_pods(related)
    yield "user", text(labels_of(wrapper).get(USER_LABEL), 63)
    yield "managed by", text(path(wrapper, "spec", "managedBy"), 80)


def _condition_problems(phase: str, conditions: tuple[Condition, ...]) -> Iterator[Problem]:
    unhealthy = condition_of(conditions, "Unhealthy")
    if unhealthy is not None and unhealthy.status == "True" and phase != Phase.SUCCEEDED:
        message = f"{unhealthy.reason}: {unhealthy.message}" if unhealthy.message else unhealthy.reason
        yield Problem(text(message), _REMEDIES.get(unhealthy.reason, "kubectl describe shows the Events"))
    elif phase == Phase.FAILED:
        yield Problem("The AppWrapper has failed", "kubectl describe shows the Events; create it again to retry")
    validated = condition_of(conditions, "Validated")
    if validated is not None and validated.status == "False":
        yield Problem(text(f"Not validated: {message_of(validated)}"), _REMEDIES["NotValidated"])


def _component_problems(wrapper: Object) -> Iterator[Problem]:
    for component in items(path(wrapper, "status", "componentStatus")):
        found = [item for item in items(component.get("conditions")) if item.get("type") == "ResourcesDeployed"]
        reason = text(found[0].get("reason"), 80) if found else ""
        if found and found[0].get("status") == "False" and "Error" in reason:
            name = f"{text(component.get('kind'), 63)} {text(component.get('name'), 80)}".strip()
            yield Problem(
                text(f"{name or 'A component'} cannot be created: {text(found[0].get('message'))}"),
                "correct the component, or ask the administrator for the permission or quota",
            )


def _warning_problems(warnings: Sequence[WarningEvent]) -> Iterator[Problem]:
    for warning in warnings:
        remedy = _REMEDIES.get(warning.reason, "kubectl describe shows all Events of the AppWrapper")
        yield Problem(text(f"{warning.reason}: {warning.message}"), remedy)


_REACHED: Final = (("QuotaReserved", Phase.RESUMING), ("PodsReady", Phase.RUNNING))
"""Conditions of an AppWrapper that are true since a phase began."""


def _past_phases(summary: Summary) -> Sequence[PhaseChange]:
    """Return the phases of an AppWrapper until now, as far as its conditions tell."""
    changes: list[PhaseChange] = [(milliseconds(summary.created), Phase.SUSPENDED.value, Level.IDLE.value)]
    last = changes[0][0]
    for kind, phase in _REACHED:
        reached = (one.since for one in summary.conditions if one.type == kind and one.status == "True")
        since = milliseconds(next(reached, None))
        if since >= last:
            level = Level.OK if phase is Phase.RUNNING else Level.PROGRESSING
            changes.append((since, phase.value, level.value))
            last = since
    if summary.state != changes[-1][1]:
        latest = max((milliseconds(one.since) for one in summary.conditions), default=0)
        changes.append((max(latest, last), summary.state, summary.level.value))
    return changes


VIEWS: Final = (
    KindView(
        gvk=APPWRAPPER,
        summarize=_summarize,
        pod_label=APPWRAPPER_LABEL,
        short_names=("aw",),
        short_title="AppWr",
        section=Section(
            id="appwrappers",
            kind=APPWRAPPER.kind,
            type="timeline",
            position=4,
            title="AppWrappers",
            empty="No AppWrappers.",
            tile="AppWrappers",
        ),
        past_phases=_past_phases,
        final_state=Phase.SUCCEEDED,
    ),
)
