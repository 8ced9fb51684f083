"""The summary of an InferenceStack: its gateway and its applications."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import islice
from typing import Any, Final

from msgspec.structs import replace

from cfo.api.inferencestack.kinds import INFERENCE_STACKS, is_operator_version, operator_version_of
from cfo.api.inferencestack.names import (
    DELETING,
    GATEWAY,
    HOST_NOT_FREE,
    NAME_TAKEN,
    RECONCILE_ERROR,
    names_of,
)
from cfo.api.kueue import QUEUE_NAME_LABEL, WAITING
from cfo.api.reading import MAX_MESSAGE, items, mapping, number, path, text
from cfo.runtime import Object, is_deleting, labels_of
from cfo.runtime.objects import parse_integer
from cfo.summaries.conditions import (
    condition_of,
    conditions_of,
    is_true,
    message_of,
    state_of,
    statement_of,
)
from cfo.summaries.kind_view import (
    MAX_CREATED,
    PODS_OF_DEPLOYMENT,
    KindView,
    Related,
    Section,
    labelled_queue,
    new_summary,
    warnings_of,
)
from cfo.summaries.problems import (
    DESCRIBE,
    PodRemedies,
    condition_problems,
    last_occurrence,
    remedy_for,
    seconds_until_overdue,
    taken_remedy,
    unknown_pod_problems,
)
from cfo.summaries.summary import Level, Problem, Summary, SummaryCondition

_MAX_APPLICATIONS: Final = 10
"""The maximum number of applications with a fact of their own."""

_REMEDIES: Final = {
    "InvalidSpec": "correct the spec; the message names the field",
    "GatewayAPINotInstalled": "install the Gateway API, or disable the route",
    "KEDANotInstalled": "ask the administrator to install KEDA, or set replicaCount",
    NAME_TAKEN: taken_remedy("the InferenceStack"),
    HOST_NOT_FREE: "set another host, or ask the administrator for what the message names",
    DELETING: "wait until the object is deleted; if that takes long, check its finalizers",
    RECONCILE_ERROR: "check the operator's permissions, and quotas and webhooks of the namespace",
    "RolloutStalled": "check the pods of the application: kubectl describe pods -n NAMESPACE",
}

_POD_REMEDIES: Final = PodRemedies(security="set securityProfile: restricted in the spec")

_REPEATED: Final = timedelta(minutes=10)
"""In which time kubelet reports again, at the latest, what keeps it from creating containers."""

_MAX_NAMED: Final = 3
"""The maximum number of components that are named for each problem."""

_ANSWERS: Final = {"True": "yes", "False": "no"}

_VERSION_REMEDY: Final = (
    "set the label operatorVersion to the major version of the operator that runs in this cluster"
)


def _summarize(stack: Object, related: Related) -> Summary:
    """Return the summary of an InferenceStack."""
    conditions = conditions_of(stack)
    ready = condition_of(conditions, "Ready")
    state = state_of(ready)
    problems = _problems(stack, conditions, related)
    pending = ""
    # A stack that waits for a queue is not pending, because that can take any time.
    if state not in ("Ready", WAITING):
        pending = f"is {state or 'new'}"
    elif _is_outdated(stack):
        pending = "was changed, and not reconciled since"
    summary = new_summary(
        stack,
        related,
        state,
        _level(stack, conditions),
        problems,
        _facts(stack, conditions),
        ready=_ready(stack, conditions),
        pending=pending,
    )
    # Kueue admits its pods, so a stack that is suspended waits for its user.
    is_suspended = path(stack, "spec", "suspend") is True
    return replace(summary, waits=_waits_for_quota(conditions) and not is_suspended)


def _ready(stack: Object, conditions: tuple[SummaryCondition, ...]) -> str:
    """Return how many of its applications and its gateway are ready, because it serves nothing without its gateway."""
    applications = text(path(stack, "status", "readyApplications"), 20)
    ready, _, wanted = applications.partition("/")
    if condition_of(conditions, "GatewayReady") is None:
        return applications
    ready_gateways = 1 if is_true(conditions, "GatewayReady") else 0
    try:
        return f"{parse_integer(ready) + ready_gateways}/{parse_integer(wanted) + 1}"
    except ValueError:
        return applications


def _level(stack: Object, conditions: tuple[SummaryCondition, ...]) -> Level:
    if is_deleting(stack):
        return Level.PROGRESSING
    if is_true(conditions, "Degraded"):
        return Level.WARNING  # what waits for an image, for example, starts when the image exists
    if path(stack, "spec", "suspend") is True or is_true(conditions, "Paused"):
        return Level.WAITING
    if _waits_for_quota(conditions):
        return Level.WAITING
    if _is_outdated(stack):
        return Level.PROGRESSING
    return Level.OK if is_true(conditions, "Ready") else Level.PROGRESSING


def _is_outdated(stack: Object) -> bool:
    """Return whether the status is that of an older spec."""
    observed = number(path(stack, "status", "observedGeneration"))
    return 0 < observed < number(path(stack, "metadata", "generation"))


def _last_version(stack: Object) -> str:
    """Return the major version of the operator that wrote the status; empty if it is not known."""
    major = text(path(stack, "status", "operator", "major"), 20)
    return major if is_operator_version(major) else ""


def _waits_for_quota(conditions: tuple[SummaryCondition, ...]) -> bool:
    reserved = condition_of(conditions, "QuotaReserved")
    return reserved is not None and reserved.status == "False" and reserved.reason == WAITING


def _facts(stack: Object, conditions: tuple[SummaryCondition, ...]) -> Iterator[tuple[str, str]]:
    yield "url", text(path(stack, "status", "url"))
    yield "openai", text(path(stack, "status", "openai"))
    gateway = condition_of(conditions, "GatewayReady")
    if gateway is not None:
        shown = ": ".join(filter(None, [gateway.reason, gateway.message]))
        if gateway.status == "True":
            shown = "ready"
        yield "gateway", text(shown, MAX_MESSAGE)
    yield "queue", text(labels_of(stack).get(QUEUE_NAME_LABEL), 63)
    if path(stack, "spec", "suspend") is True:
        yield "why", "spec.suspend is true"
    reserved = condition_of(conditions, "QuotaReserved")
    if reserved is not None:
        yield "quota reserved", _ANSWERS.get(reserved.status, "unknown")
        if _waits_for_quota(conditions):
            yield "why", reserved.message
    operator = (text(operator_version_of(stack), 20), _operator(path(stack, "status", "operator")))
    yield "operator", " ".join(part for part in operator if part)
    yield "defaults", text(path(stack, "status", "profile"), 40)
    for application in islice(items(path(stack, "status", "applications")), _MAX_APPLICATIONS):
        yield text(f"app {text(application.get('name'), 63)}", 80), _application(application)


def _operator(operator: object) -> str:
    """Return the version of the operator in its part of the status, in brackets; empty if it is unknown."""
    version = text(path(operator, "version"), 40)
    return f"({version})" if version else ""


def _application(application: Mapping[str, Any]) -> str:
    pods = f"{number(application.get('readyReplicas'))}/{number(application.get('replicas'))}"
    parts = (text(application.get("state"), 40), pods, text(application.get("model"), 120))
    return ", ".join(part for part in parts if part)


def _problems(
    stack: Object, conditions: tuple[SummaryCondition, ...], related: Related
) -> Iterator[Problem]:
    of_components = list(_component_problems(stack, conditions))
    yield from of_components
    yield from _pod_problems(related)
    wrong = {"RoutesReady": "False", "ScalingReady": "False"}
    if not (of_components and _is_about_components(condition_of(conditions, "Degraded"))):
        wrong = {"Degraded": "True", **wrong}
    yield from condition_problems(conditions, wrong, _REMEDIES, DESCRIBE)
    evicted = condition_of(conditions, "Evicted")
    if evicted is not None and evicted.status == "True":
        yield Problem(
            f"Evicted: {message_of(evicted)}",
            "nothing to do: the pods start again when there is quota for them",
        )
    if is_true(conditions, "Ready") and "applications" not in mapping(stack.get("spec")):
        yield Problem(
            "The InferenceStack has no applications, so its gateway serves no model",
            "add spec.applications",
        )
    yield from _claim_problems(stack, conditions, related)


def _is_about_components(degraded: SummaryCondition | None) -> bool:
    """Return whether the condition says what is wrong with the gateway or with applications."""
    if degraded is None:
        return False
    return _is_about_gateway(degraded) or degraded.message.startswith("application ")


def _is_about_gateway(degraded: SummaryCondition) -> bool:
    return degraded.message.startswith(f"{GATEWAY}: ")


def _component_problems(
    stack: Object, conditions: tuple[SummaryCondition, ...]
) -> Iterator[Problem]:
    """Yield what is wrong with the gateway and the applications: each cause once, with the names of the first."""
    found: dict[str, tuple[str, list[str]]] = {}
    for name, why in _broken_components(stack, conditions):
        cause = why
        for separator in (" is forbidden: ", " is invalid: "):  # what comes before names the pod
            _, _, cause = cause.rpartition(separator)
        _, names = found.setdefault(cause, (why, []))
        names.append(name)
    for why, names in found.values():
        more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        remedy = remedy_for(why, _REMEDIES["RolloutStalled"], pods=_POD_REMEDIES)
        yield Problem(f"{', '.join(names[:_MAX_NAMED])}{more}: {why}", remedy)


def _broken_components(
    stack: Object, conditions: tuple[SummaryCondition, ...]
) -> Iterator[tuple[str, str]]:
    """Yield the name of each component that has failed or is stalled, and why."""
    degraded = condition_of(conditions, "Degraded")
    gateway = condition_of(conditions, "GatewayReady")
    # Only the condition of the whole stack shows whether its gateway is broken, or only starting.
    is_degraded = degraded is not None and degraded.status == "True" and _is_about_gateway(degraded)
    if is_degraded and gateway is not None and gateway.status == "False":
        yield GATEWAY, _joined(gateway.reason, gateway.message)
    for application in items(path(stack, "status", "applications")):
        if application.get("state") in ("Failed", "Stalled"):
            message = text(application.get("message"), MAX_MESSAGE)
            why = _joined(text(application.get("reason"), 80), message)
            yield f"application {text(application.get('name'), 63)}", why


def _joined(reason: str, message: str) -> str:
    return f"{reason}: {message}" if message else reason


def _unready_deployments(stack: Object) -> list[tuple[str, str, str]]:
    """Return the Deployments of the gateway and of the first applications that are not ready: all of their pods."""
    conditions = conditions_of(stack)
    if _level(stack, conditions) not in (Level.PROGRESSING, Level.WARNING):
        return []
    names = names_of(stack)
    unready = [] if is_true(conditions, "GatewayReady") else [names.gateway]
    unready += [
        names.application(text(application.get("name"), 63))
        for application in items(path(stack, "status", "applications"))
        if application.get("state") != "Ready"
    ]
    return [(PODS_OF_DEPLOYMENT, name, "") for name in unready[:MAX_CREATED]]


def _pod_problems(related: Related) -> Iterator[Problem]:
    """Yield why containers of pods are not created, unless that was last reported long ago."""
    recent = []
    for event in related.created_events:
        last = last_occurrence(event)
        if last is not None and last + _REPEATED <= related.now:
            continue
        recent.append(event)
    yield from unknown_pod_problems(recent)


def _claim_problems(
    stack: Object, conditions: tuple[SummaryCondition, ...], related: Related
) -> Iterator[Problem]:
    """Yield that no operator reconciles the stack, or several."""
    version = text(operator_version_of(stack), 20)
    last = _last_version(stack)
    version_remedy = f"{_VERSION_REMEDY}; the administrator knows it"
    if last:
        version_remedy = f"{_VERSION_REMEDY}; that of version {last} reconciled it last"
    claimed = condition_of(conditions, "Claimed")
    if claimed is not None and claimed.status == "False":
        remedy = version_remedy
        if claimed.reason == "ClaimedTwice":
            remedy = "ask the administrator to remove all but one of these operators"
        elif running := _running_versions(related):
            remedy = (
                f"set the label operatorVersion to the version of an operator that runs: {running}"
            )
        yield Problem(statement_of(claimed), remedy)
    elif not version:
        yield Problem(
            "No operator reconciles the InferenceStack: the label operatorVersion is missing",
            version_remedy,
        )
    elif last and last != version and not is_deleting(stack):
        yield Problem(
            f"operatorVersion {version}: no operator of this version has reconciled the InferenceStack since the label "
            "was changed",
            f"if this stays, ask the administrator whether an operator of this version runs (cfo doctor); if not, "
            f"{version_remedy}",
        )
    elif (
        not conditions and not is_deleting(stack) and seconds_until_overdue(stack, related.now) == 0
    ):
        yield Problem(
            f"operatorVersion {version}: no operator of this version has written a status",
            f"ask the administrator whether an operator of this version runs (cfo doctor); if not, {version_remedy}",
        )


def _running_versions(related: Related) -> str:
    """Return the versions that the newest Event ``Unclaimed`` names; empty if there is none, or it names others."""
    for warning in warnings_of(related.events):
        if warning.reason == "Unclaimed":
            _, _, named = warning.message.removesuffix(".").rpartition(": ")
            versions = named.split(", ", _MAX_NAMED)
            return named if all(map(is_operator_version, versions)) else ""
    return ""


_SECTION: Final = Section(
    id="inferencestacks",
    kind="InferenceStack",
    type="table",
    position=6,
    title="InferenceStacks",
    empty="No InferenceStacks. Create one with kubectl apply.",
    tile="InferenceStacks",
    facts=(("URL", "url"), ("Queue", "queue")),
)

VIEWS: Final = tuple(
    KindView(
        gvk=gvk,
        summarize=_summarize,
        created=_unready_deployments,
        queue=labelled_queue,
        operator="",
        section=_SECTION,
    )
    for gvk in INFERENCE_STACKS
)
