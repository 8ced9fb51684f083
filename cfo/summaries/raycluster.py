"""The summary of a RayCluster: its state is KubeRay's, the rest is what this operator adds to it.

State and conditions: ``raycluster_types.go`` of KubeRay 1.7.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

from cfo.api.gateway import HTTP_ROUTE, TLS_ROUTES, route_problems
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.api.raycluster import addresses
from cfo.api.raycluster.certificates import CA_LIFETIME, recorded_renewal
from cfo.api.raycluster.cluster import (
    CERTIFICATE_CONTAINER,
    POD_CLUSTER_LABEL,
    PROXY_CONTAINER,
    RBAC_PROXY_CONTAINER,
)
from cfo.api.raycluster.conditions import (
    CONDITION_TYPES,
    HEAD_SERVICE_NAME_INVALID,
    HOST_TOO_LONG,
    LASTING_REASONS,
    MISSING_ROLE,
    MUTUAL_TLS,
    NOT_INJECTED,
)
from cfo.api.raycluster.facts import Actor, Concern, RayClusterFacts
from cfo.api.raycluster.names import CLUSTER_LABEL, RAY_CLUSTER, ignored_name, label_value
from cfo.api.raycluster.pod_differences import (
    differences,
    groups_of,
    has_other_image,
    is_replaced_by_kuberay,
)
from cfo.api.raycluster.spec_warnings import adjusted_replicas, refused_requests, spec_problems
from cfo.api.reading import (
    MALFORMED,
    MAX_MESSAGE,
    items,
    mapping,
    milliseconds,
    number,
    path,
    text,
    time_of,
)
from cfo.api.waiting_reasons import WAITING_REASONS
from cfo.runtime import (
    NETWORK_POLICY,
    SECRET,
    Object,
    controller_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
)
from cfo.summaries.conditions import condition_of, conditions_of, message_of, statement_of
from cfo.summaries.kind_view import (
    ChildSelection,
    KindView,
    Related,
    Section,
    labelled_queue,
    new_summary,
    number_of_pods,
    warnings_of,
)
from cfo.summaries.problems import (
    DESCRIBE,
    PodRemedies,
    hung_pods,
    is_new,
    last_occurrence,
    missing_state,
    newest_pods,
    pod_problems,
    remedy_for,
    taken_remedy,
    warning_problems,
)
from cfo.summaries.summary import Level, Problem, Summary, SummaryCondition, WarningEvent

_RENEWAL_TOLERANCE: Final = timedelta(days=8)
"""The operator checks a CA at least every seven days."""

_EXPOSURE_REMEDIES: Final = {
    "AuthenticationProxyMissing": "create the RayCluster again: existing pod templates are not changed",
    "OAuthUnavailable": "set kuberay.authentication, or rayDashboardOAuthEnabled: false, in the configuration; outside "
    "OpenShift also kuberay.ingressDomain",
    "OIDCSecretMissing": "create the Secret with the OIDC client",
    "IngressDomainMissing": "set kuberay.ingressDomain in the operator's configuration",
    "IngressTLSUnavailable": "set kuberay.ingress.className, kuberay.ingress.annotations or kuberay.gateway",
    "BackendTLSUnavailable": "install BackendTLSPolicy of the Gateway API",
    "GatewayAPIUnavailable": "install the CRDs of the Gateway API, or unset kuberay.gateway",
    MISSING_ROLE: "install the role that the message names",
    "ProfileNotMet": "create the RayCluster again: existing pod templates are not changed",
    "RayTokenDisabled": "remove RAY_AUTH_MODE from the pod template",
    "RayTokenNotRequired": "restart the head pod, so that Ray requires its token",
    "RayTokenUnverified": "make it possible for the operator to read the head pod: cfo doctor",
}
"""Reasons why a dashboard is not exposed, with the remedy."""

POD_REMEDIES: Final = PodRemedies(
    injected=(CERTIFICATE_CONTAINER, RBAC_PROXY_CONTAINER, PROXY_CONTAINER),
    injected_security=(
        "set the fields of the securityContext that the message names in the Ray container, from which create-cert "
        "gets them"
    ),
)
"""What users of RayClusters change if their pods are refused, also of those in AppWrappers."""

LASTING_REMEDIES: Final = {
    **_EXPOSURE_REMEDIES,
    "CertificateRequestsDisabled": "recreate the RayCluster, or restore kuberay.ca.issuer",
    "FailedToReconcile": "correct the RayCluster, or ask the administrator for what the message names",
    HEAD_SERVICE_NAME_INVALID: "create the RayCluster again with another name of the head's Service, or without one",
    HOST_TOO_LONG: "create the RayCluster again with a shorter name: with its namespace, at most 48 characters",
    "HostShared": "remove the host from the other object, or ask the administrator to",
    "HostTaken": "change the host of the other object if it is yours, or create the RayCluster again with another name",
    "NameTaken": taken_remedy("the RayCluster"),
    "PortRefused": "choose other ports for the head",
}
"""The remedy for each of :data:`~cfo.api.raycluster.conditions.LASTING_REASONS`."""

_REMEDIES: Final = {
    **LASTING_REMEDIES,
    "CertificateRequestDenied": "recreate the pod; see docs/raycluster.md about certificates",
    "UntrustedContentReplaced": "recreate the pods that use the content that was replaced; nothing else is necessary",
}

_LIMITS: Final = ("KubeRayFeatureUnconfirmed", "RayClientNotExposed")
"""Reasons of Warning Events that say what the configuration excludes: no problems of a RayCluster that runs."""

_MAX_NAMED: Final = 3
"""The maximum number of pods, fields and problems of a spec that are named."""

_CA_REPLACED: Final = "CertificateAuthorityReplaced"

_CREATION_FAILURES: Final = ("FailedToCreateHeadPod", "FailedToCreateWorkerPod")
"""Reasons of KubeRay's Warning Events about pods, which it records again in each attempt."""


def _summarize(cluster: Object, related: Related) -> Summary:
    """Return the summary of a RayCluster."""
    facts = RayClusterFacts(cluster)
    # The actor of every concern, because no feature is known to be active.
    actor = facts.actor(Concern.EXPOSURE, ())
    state = text(path(cluster, "status", "state"), 40)
    level = _level(facts, state)
    warnings = _unresolved_warnings(facts, related, level)
    # What keeps pods from being created comes first: the dashboard, for example, is missing because of it.
    refused = [each for each in warnings if each.reason in _CREATION_FAILURES]
    others = [each for each in warnings if each.reason not in _CREATION_FAILURES]
    problems = [
        *_spec_problems(cluster),
        *_status_problems(cluster, state),
        *_warning_problems(facts, refused),
    ]
    # MultiKueue writes no state while the RayCluster waits in its queue
    is_due = level is Level.PROGRESSING or not facts.is_managed_by_multikueue
    if not state and is_due:
        problems += missing_state(cluster, "KubeRay", related.now)
    if level is Level.PROGRESSING and not problems:
        problems += _lack_of_pods(cluster, related, state)
    if level is not Level.WAITING:
        problems += _pod_problems(cluster, related)
        problems += hung_pods(related.pods or (), related.now, related.pod_events)
        problems += _ended_problems(cluster, related)
    if level is Level.OK and state == "ready":
        problems += _protection_problems(cluster, related, actor)
    problems += _route_problems(related.children)
    problems += _certificate_problems(facts, related, actor)
    problems += _lasting_problems(cluster)
    problems += _warning_problems(facts, others)
    ignored = ignored_name(name_of(cluster))
    if ignored and not state and not is_deleting(cluster):
        problems = [_ignored_problem(ignored)]  # nothing else matters
    row: dict[str, Any] = {}
    expiry = milliseconds(_ca_expiry(facts, related))
    if expiry:
        row = {"expires": expiry, "certificate": "CA of the RayCluster"}
    return new_summary(
        cluster,
        related,
        state,
        level,
        problems,
        _facts(facts, related, actor),
        ready=_ready(cluster),
        pending=_pending(facts, related, actor),
        row=row,
    )


def _spec_problems(cluster: Object) -> Iterator[Problem]:
    """Yield the first problems of the spec."""
    for problem in islice(spec_problems(cluster), _MAX_NAMED):
        yield Problem(problem.message, problem.remedy)


def _ignored_problem(why: str) -> Problem:
    return Problem(
        f"KubeRay ignores the RayCluster, because its name is {why.removeprefix('is ')}",
        "create the RayCluster again with another name",
    )


def _level(facts: RayClusterFacts, state: str) -> Level:
    if is_deleting(facts.cluster):
        return Level.PROGRESSING
    if state == "failed":
        return Level.FAILED
    if facts.is_suspended and state in ("suspended", ""):
        return Level.WAITING
    if facts.is_suspended or state == "suspended":
        return Level.PROGRESSING
    return Level.OK if state == "ready" else Level.PROGRESSING


def _pod_problems(cluster: Object, related: Related) -> Iterator[Problem]:
    """Yield what is wrong with the pods, and which are older than the spec: KubeRay replaces them only on request."""
    pods = related.pods or ()
    if is_replaced_by_kuberay(cluster):
        yield from pod_problems(pods)
        return
    groups = groups_of(cluster)
    current: list[Object] = []
    broken: list[Object] = []
    running: list[Object] = []
    fields_of_all: dict[str, None] = {}
    for pod in pods:
        found = _outdated_fields(cluster, groups, pod)
        fields_of_all.update(dict.fromkeys(found))
        if not found:
            current.append(pod)
        elif any(pod_problems([pod])):
            broken.append(pod)
        else:
            running.append(pod)
    advice = _change_remedy(cluster)
    for problem in pod_problems(current):
        yield Problem(problem.message, f"{problem.remedy}{advice}")
    owner = text((controller_of(cluster) or {}).get("kind"), 63) or RAY_CLUSTER.kind
    fields = _joined(list(fields_of_all))
    correction = _correction(cluster)
    for problem in pod_problems(broken):
        yield Problem(
            problem.message,
            f"the spec has changed since the pod was created ({fields}), but KubeRay does not replace pods: "
            f"{correction}{_deletion_command(broken)}, or create the {owner} again",
        )
    if running:
        verb = "Pod is" if len(running) == 1 else "Pods are"
        yield Problem(
            f"{verb} older than the spec: {_joined(list(map(name_of, running)))} (changed since: {fields})",
            "KubeRay does not replace pods when the spec changes; this ends what runs in them: "
            f"{correction}{_deletion_command(running)}, or create the {owner} again",
        )


def _lack_of_pods(cluster: Object, related: Related, state: str) -> Iterator[Problem]:
    """Yield a problem if KubeRay, which reports no state yet, should have created pods, and none exists."""
    is_known_to_have_none = related.pods is not None and not related.pods
    if state or not is_known_to_have_none or is_deleting(cluster) or is_new(cluster, related.now):
        return
    yield Problem(
        "No pod of the RayCluster exists",
        "check that KubeRay runs and may create pods in this namespace; the Events of the RayCluster and the log of "
        f"KubeRay say more: {DESCRIBE}",
    )


def _outdated_fields(
    cluster: Object, groups: Mapping[str, Mapping[str, Any]], pod: Object
) -> list[str]:
    """Return the fields in which a pod that has not ended differs from the spec."""
    if is_deleting(cluster) or is_deleting(pod) or path(pod, "spec") is None:
        return []
    if path(pod, "status", "phase") in ("Succeeded", "Failed"):
        return []
    waiting = _waiting_containers(pod)
    images = [
        f"image of container {name}" for name in waiting if has_other_image(groups, pod, name)
    ]
    return [*images, *differences(cluster, groups, pod)]


def _waiting_containers(pod: Object) -> Iterator[str]:
    """Yield the names of the containers that cannot start."""
    for field in ("initContainerStatuses", "containerStatuses"):
        for status in items(path(pod, "status", field)):
            if text(path(status, "state", "waiting", "reason"), 80) in WAITING_REASONS:
                yield text(status.get("name"), 63)


def _change_remedy(cluster: Object) -> str:
    """Return what else is necessary if a remedy changes the spec; empty if its owner replaces the RayCluster."""
    if controller_of(cluster) is not None:
        return ""
    return "; after a change of the spec, delete the pods, because KubeRay does not replace them"


def _correction(cluster: Object) -> str:
    """Return what to correct before pods are deleted, which the API server would refuse to create; empty if nothing."""
    refused = next(refused_requests(cluster), "")
    return f"first correct {refused}, with which no pod is created; then " if refused else ""


def _deletion_command(pods: Sequence[Object]) -> str:
    namespace = shlex.quote(namespace_of(pods[0]))
    names = " ".join(shlex.quote(name_of(pod)) for pod in pods[:_MAX_NAMED])
    more = f" (and {len(pods) - _MAX_NAMED} more)" if len(pods) > _MAX_NAMED else ""
    return f"kubectl delete pod -n {namespace} {names}{more}"


def _joined(words: Sequence[str]) -> str:
    more = f" and {len(words) - _MAX_NAMED} more" if len(words) > _MAX_NAMED else ""
    return text(", ".join(words[:_MAX_NAMED]), MAX_MESSAGE) + more


def _ended_problems(cluster: Object, related: Related) -> Iterator[Problem]:
    """Yield a problem if there are pods and all have ended: pods of a RayCluster run until it is deleted."""
    if is_deleting(cluster):
        return
    ended = [path(pod, "status", "phase") in ("Succeeded", "Failed") for pod in related.pods or ()]
    if ended and all(ended):
        yield Problem(
            "All pods have ended, so no Ray node runs",
            "check that KubeRay runs, which replaces pods that end, and that the containers start Ray; "
            "or delete the RayCluster",
        )


def _ready(cluster: Object) -> str:
    """Return the number of ready and of desired workers, as kubectl shows them."""
    status = mapping(path(cluster, "status"))
    if "desiredWorkerReplicas" not in status and "availableWorkerReplicas" not in status:
        return ""
    available = number(status.get("readyWorkerReplicas", status.get("availableWorkerReplicas")))
    return f"{available}/{number(status.get('desiredWorkerReplicas'))}"


def _route_problems(children: addresses.Children) -> Iterator[Problem]:
    """Yield what Gateways report about the routes of a RayCluster."""
    remedy = "check allowedRoutes and the listeners of the Gateway"
    for kind in (HTTP_ROUTE, *TLS_ROUTES):
        for route in children.get(kind, ()):
            with suppress(*MALFORMED):
                for problem in islice(route_problems(route), 3):
                    message = f"The {problem.parent} does not accept the {route.get('kind')}: {problem.message}"
                    yield Problem(message, remedy)


def _facts(facts: RayClusterFacts, related: Related, actor: Actor) -> Iterator[tuple[str, str]]:
    cluster = facts.cluster
    expiry = _ca_expiry(facts, related)
    if addresses.is_known(related.children):
        yield (
            "dashboard",
            addresses.dashboard_url(facts, related.children) or _not_exposed(facts, actor),
        )
        yield (
            "ray client",
            addresses.client_address(facts, related.children) or _not_exposed(facts, actor),
        )
    yield "why", _why_suspended(facts)
    yield "authentication", addresses.authentication(facts, actor)
    yield "mTLS", _mtls(facts, actor)
    if expiry is not None:
        yield "CA expires", f"{expiry:%Y-%m-%d} (renewed from {expiry - CA_LIFETIME / 3:%Y-%m-%d})"
    yield "network policies", _policies(related, actor)
    yield "resources", _resources(cluster)
    yield "workers", _joined(list(islice(adjusted_replicas(cluster), _MAX_NAMED)))
    yield "pods", number_of_pods(related)
    owner = controller_of(cluster) or {}
    yield "owner", text(f"{owner.get('kind')} {owner.get('name')}") if owner else ""
    yield "queue", text(labels_of(cluster).get(QUEUE_NAME_LABEL), 63)
    yield "managed by", text(path(cluster, "spec", "managedBy"), 80)


def _not_exposed(facts: RayClusterFacts, actor: Actor) -> str:
    """Return why there is no address; empty while the RayCluster is suspended, because then there cannot be one."""
    if actor is not Actor.OPERATOR:
        return f"by {actor.value}"
    return "" if facts.is_suspended else "not exposed"


def _why_suspended(facts: RayClusterFacts) -> str:
    """Return what a suspended RayCluster waits for; empty for others."""
    if not facts.is_suspended:
        return ""
    queue = text(labels_of(facts.cluster).get(QUEUE_NAME_LABEL), 63)
    if queue:
        return f"waits for quota in the LocalQueue {queue}"
    return "spec.suspend is true"


def _mtls(facts: RayClusterFacts, actor: Actor) -> str:
    if actor is not Actor.OPERATOR:
        return f"by {actor.value}"
    if facts.has_injected_tls:
        return "by the operator"
    return "requested of KubeRay" if facts.uses_kuberay_tls else "no"


def _policies(related: Related, actor: Actor) -> str:
    if actor is not Actor.OPERATOR:
        return f"by {actor.value}"
    policies = related.children.get(NETWORK_POLICY)
    if policies is None:
        return ""
    return f"{len(policies)} by the operator" if policies else "none"


def _resources(cluster: Object) -> str:
    status = mapping(path(cluster, "status"))
    names = (
        ("desiredCPU", "CPU"),
        ("desiredMemory", "memory"),
        ("desiredGPU", "GPU"),
        ("desiredTPU", "TPU"),
    )
    amounts = ((text(status.get(field), 20), name) for field, name in names)
    return ", ".join(f"{amount} {name}" for amount, name in amounts if amount and amount != "0")


def _ca_secret(facts: RayClusterFacts, related: Related) -> Object | None:
    name = facts.names.ca_secret
    return next(
        (secret for secret in related.children.get(SECRET, ()) if name_of(secret) == name), None
    )


def _ca_expiry(facts: RayClusterFacts, related: Related) -> datetime | None:
    secret = _ca_secret(facts, related)
    renewal = recorded_renewal(secret) if secret is not None else None
    return renewal + CA_LIFETIME / 3 if renewal is not None else None


def _status_problems(cluster: Object, state: str) -> Iterator[Problem]:
    reason = text(path(cluster, "status", "reason"), MAX_MESSAGE)
    if state == "failed" or reason:
        yield Problem(
            f"KubeRay reports: {reason or 'failed'}",
            f"correct the RayCluster; its Events: {DESCRIBE}",
        )
    failure = condition_of(conditions_of(cluster), "ReplicaFailure")
    if failure is not None and failure.status == "True":
        message = message_of(failure)
        remedy = "correct the pod template, or ask the administrator for what the message names"
        yield Problem(
            f"KubeRay cannot create pods: {message}",
            remedy_for(message, remedy, pods=POD_REMEDIES),
        )


def _protection_problems(cluster: Object, related: Related, actor: Actor) -> Iterator[Problem]:
    """Yield what should protect a running RayCluster, and is missing."""
    mutual_tls = condition_of(conditions_of(cluster), MUTUAL_TLS)
    if mutual_tls is not None and mutual_tls.reason == NOT_INJECTED:
        yield Problem(
            "No mutual TLS protects the RayCluster, because it was created while the operator's webhook was not called "
            "or mutual TLS was disabled",
            "create the RayCluster again: existing pod templates are not changed",
        )
    policies = related.children.get(NETWORK_POLICY)
    if policies is not None and not policies and actor is Actor.OPERATOR:
        yield Problem(
            "No NetworkPolicy protects the RayCluster",
            "check that the operator runs, that its watchNamespaces and labelSelector include the RayCluster, and that "
            "no other object has the name of the policy: cfo doctor",
        )


def _certificate_problems(
    facts: RayClusterFacts, related: Related, actor: Actor
) -> Iterator[Problem]:
    if SECRET not in related.children or actor is not Actor.OPERATOR or not facts.has_injected_tls:
        return
    if facts.is_suspended or is_deleting(facts.cluster):
        return
    secret = _ca_secret(facts, related)
    if secret is None:
        if is_new(facts.cluster, related.now):
            return
        yield Problem(
            f"The Secret {facts.names.ca_secret} with the CA is missing, so new pods cannot start",
            "check that the operator runs, that its watchNamespaces and labelSelector include the RayCluster, and that "
            "kuberay.mTLSEnabled is true: cfo doctor",
        )
        return
    renewal = recorded_renewal(secret)
    if renewal is not None and related.now > renewal + _RENEWAL_TOLERANCE:
        yield Problem(
            f"The CA was due for renewal on {renewal:%Y-%m-%d}",
            "check that the operator runs, and read its log",
        )


def _own_conditions(cluster: Object) -> Iterator[SummaryCondition]:
    """Yield the conditions that this operator writes."""
    for condition in conditions_of(cluster):
        if condition.type in CONDITION_TYPES:
            yield condition


def _lasting_problems(cluster: Object) -> Iterator[Problem]:
    """Yield the problems that the conditions of this operator have as their reasons.

    Of a RayCluster that is being deleted, only a missing role is one, because the deletion can wait for it.
    """
    reasons = LASTING_REASONS
    if is_deleting(cluster):
        reasons = frozenset({MISSING_ROLE})
    for condition in _own_conditions(cluster):
        if condition.reason in reasons:
            yield Problem(statement_of(condition), LASTING_REMEDIES[condition.reason])


def _unresolved_warnings(
    facts: RayClusterFacts, related: Related, level: Level
) -> list[WarningEvent]:
    """Return the Warning Events that are not resolved.

    The age of those with a lasting reason does not matter: the conditions of the operator show whether their cause
    still exists, or, if there are none, those about the exposure count while the dashboard is not exposed. The
    conditions of a RayCluster that is being deleted are not written any more, so a missing role counts then. Pods that
    could not be created count until one was, and a replaced CA until all pods are younger. Others count while the
    cluster is not well, or if they occurred after it became ready.
    """
    is_exposed = bool(addresses.dashboard_url(facts, related.children))
    reasons = {condition.reason for condition in _own_conditions(facts.cluster)}
    since = _ready_since(facts.cluster)
    newest_pod = newest_pods(related.pods or ()).get((RAY_CLUSTER.kind, facts.names.cluster))
    unresolved = []
    latest = {
        text(event.get("reason"), 80): last_occurrence(event) for event in reversed(related.events)
    }
    for warning in warnings_of(related.events):
        last = time_of(warning.last) or latest.get(warning.reason)
        is_allowed = warning.reason in _LIMITS and level is Level.OK
        is_superseded = warning.reason in _CREATION_FAILURES and _is_before(last, newest_pod)
        if warning.reason == MISSING_ROLE and is_deleting(facts.cluster):
            is_unresolved = MISSING_ROLE not in reasons
        elif warning.reason in LASTING_REASONS and reasons:
            is_unresolved = False
        elif warning.reason == _CA_REPLACED and related.pods is not None and last is not None:
            is_unresolved = not all(_is_younger(pod, last) for pod in related.pods)
        elif warning.reason in _EXPOSURE_REMEDIES:
            is_unresolved = not is_exposed
        elif warning.reason in LASTING_REASONS:
            is_unresolved = True
        elif warning.reason == "RouteNotAccepted" and HTTP_ROUTE in related.children:
            is_unresolved = False  # the status of the route has it
        elif is_allowed or is_superseded:
            is_unresolved = False
        elif level is not Level.OK or since is None:
            is_unresolved = True
        else:
            is_unresolved = last is not None and last > since
        if is_unresolved:
            unresolved.append(warning)
    return unresolved


def _warning_problems(
    facts: RayClusterFacts, warnings: Iterable[WarningEvent]
) -> Iterator[Problem]:
    remedies = {**_REMEDIES, _CA_REPLACED: _restart_remedy(facts)}
    return warning_problems(warnings, remedies, pods=POD_REMEDIES)


def _restart_remedy(facts: RayClusterFacts) -> str:
    """Return how to replace all pods, so that they use the new CA."""
    namespace = shlex.quote(namespace_of(facts.cluster))
    selector = shlex.quote(f"{POD_CLUSTER_LABEL}={label_value(facts.names.cluster)}")
    return (
        "restart all pods, head and workers, so that they use the new CA: "
        f"kubectl delete pod -n {namespace} -l {selector}"
    )


def _is_younger(pod: Object, time: datetime) -> bool:
    created = time_of(path(pod, "metadata", "creationTimestamp"))
    return created is not None and created > time


def _is_before(time: datetime | None, other: datetime | None) -> bool:
    return time is not None and other is not None and time < other


def _ready_since(cluster: Mapping[str, Any]) -> datetime | None:
    return time_of(path(cluster, "status", "stateTransitionTimes", "ready"))


def _pending(facts: RayClusterFacts, related: Related, actor: Actor) -> str:
    """Return which objects of the operator are missing, as far as it is known."""
    if actor is not Actor.OPERATOR or facts.is_suspended:
        return ""
    names = facts.names
    missing: list[str] = []
    policies = related.children.get(NETWORK_POLICY)
    if policies is not None:
        found = set(map(name_of, policies))
        expected = [names.head_policy, names.workers_policy]
        missing += [f"NetworkPolicy {name}" for name in expected if name not in found]
    if addresses.is_known(related.children):
        if not addresses.dashboard_url(facts, related.children):
            missing.append("an address of the dashboard")
        if not addresses.client_address(facts, related.children):
            missing.append("an address of the client")
    needs_secret = SECRET in related.children and facts.has_injected_tls
    if needs_secret and _ca_secret(facts, related) is None:
        missing.append(f"Secret {names.ca_secret}")
    return f"is missing {', '.join(missing)}" if missing else ""


VIEWS: Final = (
    KindView(
        gvk=RAY_CLUSTER,
        operator="",
        summarize=_summarize,
        children=(
            *(ChildSelection(gvk, CLUSTER_LABEL) for gvk in addresses.KINDS),
            ChildSelection(NETWORK_POLICY),
            ChildSelection(SECRET, CLUSTER_LABEL, metadata_only=True),
        ),
        pod_label=POD_CLUSTER_LABEL,
        pod_label_value=label_value,
        queue=labelled_queue,
        section=Section(
            id="rayclusters",
            kind=RAY_CLUSTER.kind,
            type="table",
            position=1,
            title="RayClusters",
            empty="No RayClusters. Create one with codeflare-sdk, or with kubectl apply.",
            tile="RayClusters",
            ready="Workers",
            facts=(("Dashboard", "dashboard"), ("mTLS", "mTLS")),
        ),
    ),
)
