"""The status of a stack and its components: pure functions of what was observed and done.

The conditions ``Initialized``, ``Deployed``, ``ReleaseFailed`` and ``Irreconcilable`` are those of the original
operator, which consoles read. ``Ready`` is for users: the gateway and all applications run their newest revision. Only
the newest revision of a Deployment counts; pods of older revisions are not ready.

``QuotaReserved`` and ``Evicted`` mean the same as in FluxJobs, and exist only for stacks in a queue of Kueue. Kueue
admits each pod on its own, so a stack has its quota when all of its pods have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any, Final

from cfo.api.inferencestack.created_resources import autoscaler_kind
from cfo.api.inferencestack.names import APPLICATION_PREFIX, CONFIG_HASH, RECONCILE_ERROR
from cfo.api.inferencestack.profiles import Profile
from cfo.api.inferencestack.resolution import ResolvedStack, is_enabled, resolve
from cfo.api.kueue import ADMITTED, WAITING
from cfo.controllers.inferencestack.pods import NO_PODS, ComponentPods
from cfo.controllers.inferencestack.rendering.facts import LiveDeployment
from cfo.controllers.inferencestack.rendering.gateway import public_port
from cfo.controllers.pod_status import shortened
from cfo.runtime import GVK, Object, find_condition, name_of, set_condition

_MAX_MESSAGE: Final = 1024
_MAX_NAMED: Final = 5
"""The maximum number of applications that a message names."""

_AUTOSCALERS: Final = {"ScaledObject": "KEDA", "HorizontalPodAutoscaler": "HPA"}
_DETAILS: Final = (
    "profile",
    "url",
    "openai",
    "readyApplications",
    "observedReplicas",
    "replicas",
    "selector",
    "applications",
)
_TYPES: Final = (
    "Ready",
    "Progressing",
    "Degraded",
    "GatewayReady",
    "ApplicationsReady",
    "RoutesReady",
    "ScalingReady",
    "QuotaReserved",
    "Evicted",
    "Initialized",
    "Deployed",
    "ReleaseFailed",
    "Irreconcilable",
    "Paused",
)

_MISSING: Final = "DeploymentMissing"

_QUOTA_TYPES: Final = ("QuotaReserved", "Evicted")
"""The conditions of a stack in a queue."""

_DEPENDENCIES: Final = (
    ("RoutesReady", "HTTPRoute", "GatewayAPINotInstalled", "the cluster does not serve HTTPRoutes"),
    (
        "ScalingReady",
        "ScaledObject",
        "KEDANotInstalled",
        "the cluster does not serve ScaledObjects; the applications keep their number of replicas",
    ),
)
"""Conditions of what depends on other projects: type, kind, and reason and message if the kind is not served."""


class ComponentPhase(StrEnum):
    """The state of the gateway or an application."""

    READY = "Ready"
    IDLE = "Idle"
    PROGRESSING = "Progressing"
    WAITING = "Waiting"
    STALLED = "Stalled"
    FAILED = "Failed"
    SUSPENDED = "Suspended"


@dataclass(frozen=True, slots=True)
class ComponentState:
    """The state of the gateway or an application, with its reason and numbers of pods."""

    state: ComponentPhase
    reason: str
    message: str = ""
    replicas: int = 0
    ready: int = 0
    updated: int = 0
    total: int = 0
    config_hash: str = ""
    """The hash of the configuration of the pods; empty if Helm created them."""
    pods: ComponentPods = NO_PODS

    @property
    def is_ready(self) -> bool:
        """Whether requests can be served; an application without replicas waits for its autoscaler."""
        return self.state in (ComponentPhase.READY, ComponentPhase.IDLE)

    @property
    def lacks_pods(self) -> bool:
        """Whether pods that Kueue must admit do not exist yet."""
        return self.reason == _MISSING or self.pods.queued < self.replicas


def component_state(
    deployment: Object | None, pods: ComponentPods = NO_PODS, *, suspended: bool = False
) -> ComponentState:
    """Return the state of a component with this Deployment (``None``: it does not exist) and these pods."""
    if deployment is None:
        return ComponentState(ComponentPhase.PROGRESSING, _MISSING, "the Deployment does not exist")
    spec: Mapping[str, Any] = deployment.get("spec") or {}
    status: Mapping[str, Any] = deployment.get("status") or {}
    count = spec.get("replicas")
    replicas = 1 if count is None else int(count)
    total = int(status.get("replicas") or 0)
    updated = int(status.get("updatedReplicas") or 0)
    outdated = max(0, total - updated)
    ready = max(0, int(status.get("readyReplicas") or 0) - outdated)

    config_hash = LiveDeployment.of(deployment).template_annotations.get(CONFIG_HASH, "")

    def result(state: ComponentPhase, reason: str, message: str = "") -> ComponentState:
        return ComponentState(
            state, reason, message, replicas, ready, updated, total, config_hash, pods
        )

    if suspended:
        return result(ComponentPhase.SUSPENDED, "Suspended")
    observed = int(status.get("observedGeneration") or 0)
    if observed < int(deployment["metadata"].get("generation") or 0):
        return result(
            ComponentPhase.PROGRESSING,
            "RolloutPending",
            "the Deployment controller has not observed the change",
        )
    if replicas == 0:
        return result(ComponentPhase.IDLE, "ScaledToZero")
    available = int(status.get("availableReplicas") or 0)
    if total == updated == replicas and ready >= replicas and available >= replicas:
        return result(ComponentPhase.READY, "RolloutComplete")
    failure = pods.failure
    conditions = status.get("conditions")
    creation = find_condition(conditions, "ReplicaFailure") or {}
    is_incomplete = creation.get("status") == "True"
    refusal_reason = str(creation.get("reason") or "FailedCreate")
    refusal = str(creation.get("message") or "")
    if pods.waiting and failure is None and not is_incomplete:
        # A Deployment counts the time in the queue as a rollout without progress.
        return result(ComponentPhase.WAITING, WAITING, _waiting_pods(pods, replicas))
    progressing = find_condition(conditions, "Progressing") or {}
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        why = str(progressing.get("message") or "")
        if failure is not None:
            why = f"{failure.reason}: {failure.message}"
        elif is_incomplete:
            why = f"{refusal_reason}: {refusal}"
        return result(ComponentPhase.STALLED, "RolloutStalled", why)
    if failure is not None:
        return result(ComponentPhase.FAILED, failure.reason, failure.message)
    if is_incomplete:
        return result(ComponentPhase.FAILED, refusal_reason, refusal)
    if total > updated:
        return result(
            ComponentPhase.PROGRESSING,
            "RollingOut",
            f"{total - updated} pods of an older revision are running",
        )
    return result(
        ComponentPhase.PROGRESSING, "WaitingForPods", f"{ready} of {replicas} pods are ready"
    )


def _waiting_pods(pods: ComponentPods, replicas: int) -> str:
    return f"{pods.waiting} of {replicas} pods wait for quota in the LocalQueue {pods.queue}"


_BROKEN: Final = (ComponentPhase.FAILED, ComponentPhase.STALLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class StackOutcome:
    """What a reconcile observed and did.

    ``errors`` are those of the validation: then nothing was rendered. ``failures`` are the writes that failed,
    and ``failure_reason`` is the reason of the first.
    ``unserved`` are the kinds that the stack needs and the cluster does not serve. ``problems`` are the messages of
    autoscalers and routes that report a problem, by the type of the condition. ``gateway`` and ``applications`` (by
    name) are the states of the components. ``queue`` is the queue of the stack; empty if it has none.
    """

    profile: Profile | None = None
    operator: Mapping[str, str] = field(default_factory=dict)
    errors: Sequence[str] = ()
    failures: Sequence[str] = ()
    failure_reason: str = RECONCILE_ERROR
    unserved: Sequence[GVK] = ()
    problems: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    gateway: ComponentState | None = None
    applications: Mapping[str, ComponentState] = field(default_factory=dict)
    queue: str = ""
    paused: bool = False


def stack_status(stack: Object, outcome: StackOutcome, now: str) -> Object:
    """Return the status of ``stack``; ``now`` is the time of conditions that change (RFC 3339)."""
    generation = int(stack["metadata"].get("generation") or 0)
    before: Mapping[str, Any] = stack.get("status") or {}
    conditions = [
        dict(condition)
        for condition in before.get("conditions") or ()
        if condition.get("type") in _TYPES
    ]
    current = list(_conditions(outcome, before))
    if not outcome.errors:
        ended = set(_QUOTA_TYPES) - {kind for kind, _, _, _ in current}
        conditions = [condition for condition in conditions if condition["type"] not in ended]
    for kind, value, reason, message in current:
        condition = {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": shortened(message, _MAX_MESSAGE),
        }
        set_condition(conditions, {**condition, "observedGeneration": generation}, now=now)
    if not outcome.paused:
        conditions = [condition for condition in conditions if condition["type"] != "Paused"]
    status: Object = {
        "observedGeneration": generation,
        "conditions": sorted(conditions, key=lambda condition: _TYPES.index(condition["type"])),
        "operator": dict(outcome.operator),
    }
    if outcome.profile is not None and not outcome.errors:
        status |= _details(stack, outcome, outcome.profile)
    else:
        status |= {
            key: before[key] for key in _DETAILS if key in before
        }  # what was written before still runs
        status["deployedRelease"] = {"name": name_of(stack)}
    return status


def _conditions(
    outcome: StackOutcome, before: Mapping[str, Any]
) -> Iterator[tuple[str, str, str, str]]:
    """Yield type, status, reason and message of each condition."""
    if outcome.errors:
        message = "; ".join(outcome.errors)
        yield "Ready", "False", "InvalidSpec", message
        yield "Progressing", "False", "InvalidSpec", "nothing is changed until the spec is valid"
        yield "Degraded", "True", "InvalidSpec", message
        yield "Irreconcilable", "True", "ErrorGettingValues", message
        yield "Initialized", "True", "Initialized", ""
        return
    yield from _components(outcome)
    yield from _features(outcome)
    yield from _quota(outcome, before)
    yield "Initialized", "True", "Initialized", ""
    yield from _release(outcome, before)
    yield "Irreconcilable", "False", "Reconciled", ""
    if outcome.paused:
        yield (
            "Paused",
            "True",
            "PauseReconcileAnnotationTrue",
            "objects are not changed while the stack is paused",
        )


def _components(outcome: StackOutcome) -> Iterator[tuple[str, str, str, str]]:
    gateway = outcome.gateway or ComponentState(ComponentPhase.PROGRESSING, _MISSING)
    states = {
        "gateway": gateway,
        **{f"application {name}": state for name, state in outcome.applications.items()},
    }
    waiting = {name: state for name, state in outcome.applications.items() if not state.is_ready}
    broken = {name: state for name, state in states.items() if state.state in _BROKEN}
    unready = {name: state for name, state in states.items() if not state.is_ready}
    suspended = gateway.state is ComponentPhase.SUSPENDED
    number = f"{len(outcome.applications) - len(waiting)} of {len(outcome.applications)} applications are ready"
    if suspended:
        yield "Ready", "False", "Suspended", "spec.suspend is true"
    elif outcome.failures:
        yield "Ready", "False", outcome.failure_reason, "; ".join(outcome.failures)
    elif unready:
        reason = "GatewayNotReady" if not gateway.is_ready else "ApplicationsNotReady"
        if all(state.state is ComponentPhase.WAITING for state in unready.values()):
            reason = WAITING
        yield "Ready", "False", reason, _named(broken or unready)
    else:
        yield "Ready", "True", "AllReady", f"the gateway is ready, and {number}"
    rolling = {
        name: state for name, state in states.items() if state.state is ComponentPhase.PROGRESSING
    }
    stalled = {
        name: state for name, state in states.items() if state.state is ComponentPhase.STALLED
    }
    queued = {
        name: state for name, state in states.items() if state.state is ComponentPhase.WAITING
    }
    if stalled:
        yield "Progressing", "False", "RolloutStalled", _named(stalled)
    elif rolling:
        yield "Progressing", "True", "RollingOut", _named(rolling)
    elif queued:
        yield "Progressing", "False", WAITING, _named(queued)
    else:
        yield "Progressing", "False", "Failed" if broken else "RolloutComplete", _named(broken)
    if broken:
        yield "Degraded", "True", next(iter(broken.values())).reason, _named(broken)
    elif outcome.failures:
        yield "Degraded", "True", outcome.failure_reason, "; ".join(outcome.failures)
    else:
        yield "Degraded", "False", "AsExpected", ""
    yield "GatewayReady", str(gateway.is_ready), gateway.reason, gateway.message
    if not waiting:
        yield "ApplicationsReady", "True", "AllReady", number
    elif suspended:
        yield "ApplicationsReady", "False", "Suspended", number
    else:
        yield "ApplicationsReady", "False", "ApplicationsNotReady", number


def _features(outcome: StackOutcome) -> Iterator[tuple[str, str, str, str]]:
    unserved = {gvk.kind for gvk in outcome.unserved}
    for condition, kind, reason, message in _DEPENDENCIES:
        if kind in unserved:
            yield condition, "False", reason, message
        elif condition in outcome.problems:
            problem, explanation = outcome.problems[condition]
            yield condition, "False", problem, explanation
        else:
            yield condition, "True", "AsExpected", ""


def _quota(outcome: StackOutcome, before: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Yield whether all pods have quota, and why one lost it; nothing for a stack without a queue."""
    states: dict[str, ComponentState] = {}
    if outcome.gateway is not None:
        states["gateway"] = outcome.gateway
    for name, state in outcome.applications.items():
        states[f"application {name}"] = state
    if not outcome.queue and not any(state.pods.queued for state in states.values()):
        return
    reserved = _quota_reserved(states)
    yield "QuotaReserved", *reserved
    evictions = [each.pods.eviction for each in states.values() if each.pods.eviction is not None]
    known = find_condition(before.get("conditions"), "Evicted")
    if evictions:
        yield "Evicted", "True", evictions[0].reason, evictions[0].message
    elif known is not None and known.get("status") == "True" and reserved[0] == "True":
        yield "Evicted", "False", ADMITTED, "all pods have quota again"
    elif known is not None:
        yield "Evicted", known["status"], known.get("reason") or "", known.get("message") or ""


def _quota_reserved(states: Mapping[str, ComponentState]) -> tuple[str, str, str]:
    """Return status, reason and message of the condition ``QuotaReserved``."""
    if any(state.state is ComponentPhase.SUSPENDED for state in states.values()):
        return "False", "Suspended", "spec.suspend is true"
    if not all(state.pods.are_known for state in states.values()):
        return "Unknown", "PodsNotCached", "the pods are not cached: too many names in nameOverride"
    without_quota = {}
    for name, state in states.items():
        if state.pods.waiting:
            without_quota[name] = _waiting_pods(state.pods, state.replicas)
        elif state.lacks_pods:
            without_quota[name] = "pods do not exist yet"
    if without_quota:
        return "False", WAITING, _joined(without_quota)
    number = sum(state.pods.queued for state in states.values())
    return "True", ADMITTED, f"{number} pods have quota"


def _release(
    outcome: StackOutcome, before: Mapping[str, Any]
) -> Iterator[tuple[str, str, str, str]]:
    deployed = find_condition(before.get("conditions"), "Deployed") or {}
    was_deployed = deployed.get("status") == "True"
    if outcome.failures:
        message = "; ".join(outcome.failures)
        if not was_deployed:
            yield "Deployed", "False", "InstallError", message
        yield "ReleaseFailed", "True", "UpgradeError" if was_deployed else "InstallError", message
        return
    reason = (
        str(deployed.get("reason") or "UpgradeSuccessful") if was_deployed else "InstallSuccessful"
    )
    yield "Deployed", "True", reason, "all objects are written"
    yield "ReleaseFailed", "False", "AsExpected", ""


def _details(stack: Object, outcome: StackOutcome, profile: Profile) -> Object:
    resolved = resolve(stack, profile)
    ready = sum(state.is_ready for state in outcome.applications.values())
    url = _url(resolved)
    return {
        **_scale(resolved, outcome),
        "profile": profile.name,
        "url": url,
        "openai": f"{url}/v1",
        "readyApplications": f"{ready}/{len(outcome.applications)}",
        "deployedRelease": {"name": name_of(stack)},
        "applications": [
            _application(resolved, outcome, name, state)
            for name, state in sorted(outcome.applications.items())
        ],
    }


def _scale(stack: ResolvedStack, outcome: StackOutcome) -> Object:
    """Return what the subresource ``scale`` shows; empty if the stack does not set its number of replicas."""
    replicas = stack.spec.get("replicas")
    if replicas is None or len(outcome.applications) != 1:
        return {}
    ((name, state),) = outcome.applications.items()
    selector = stack.names.selector(f"{APPLICATION_PREFIX}{name}")
    text = ",".join(f"{key}={value}" for key, value in selector.items())
    return {"observedReplicas": replicas, "replicas": state.total, "selector": text}


def _application(
    stack: ResolvedStack, outcome: StackOutcome, name: str, state: ComponentState
) -> Object:
    section = stack.applications.get(name) or {}
    reader = section.get("readerConfig") or {}
    kind = autoscaler_kind(section)
    scales = kind is not None and kind not in outcome.unserved
    result = {
        "name": name,
        "model": _text(reader.get("modelName")),
        "consumerGroup": _text(reader.get("consumerGroup")),
        "state": state.state.value,
        "reason": state.reason,
        "message": shortened(state.message, _MAX_MESSAGE) or None,
        "replicas": state.replicas,
        "readyReplicas": state.ready,
        "updatedReplicas": state.updated,
        "configHash": state.config_hash or None,
        "autoscaler": _AUTOSCALERS.get(kind.kind) if kind is not None and scales else None,
    }
    return {key: value for key, value in result.items() if value is not None}


def _url(stack: ResolvedStack) -> str:
    """Return the URL by which clients reach the gateway: through its Ingress or route, else its Service."""
    ingress: Mapping[str, Any] = stack.gateway.get("ingress") or {}
    hosts: list[str] = []
    scheme = "http"
    if is_enabled(ingress):
        hosts += [rule["host"] for rule in ingress.get("hosts") or () if rule.get("host")]
        if ingress.get("tls"):
            scheme = "https"
    hosts += (stack.gateway.get("httpRoute") or {}).get("hostnames") or []
    if hosts:
        return f"{scheme}://{hosts[0]}"
    port = public_port(stack).get("port") or 80
    suffix = "" if port == 80 else f":{port}"
    return f"http://{stack.names.gateway}.{stack.namespace}.svc{suffix}"


def _text(value: Any) -> str | None:
    return shortened(str(value), _MAX_MESSAGE) if isinstance(value, str | int | float) else None


def _named(states: Mapping[str, ComponentState]) -> str:
    """Return the first of the components with their reasons and messages."""
    texts = {}
    for name, state in states.items():
        texts[name] = state.reason
        if state.message:
            texts[name] += f": {state.message}"
    return _joined(texts)


def _joined(texts: Mapping[str, str]) -> str:
    """Return the first of the components with their texts."""
    parts = [f"{name}: {text}" for name, text in islice(texts.items(), _MAX_NAMED)]
    more = len(texts) - len(parts)
    if more > 0:
        parts.append(f"and {more} more")
    return "; ".join(parts)
