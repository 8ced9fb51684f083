"""Turns facts into findings. All functions are pure: the current time and the supported versions are parameters."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from cryptography import x509

from cfo.api.reading import path, text, time_of
from cfo.checks.components import parse_version, tag_of, version_of
from cfo.checks.findings import (
    APPLY,
    CONFIGURATION,
    MIGRATION,
    RESTART_OUTSIDE,
    SERVED_ELSEWHERE,
    Finding,
    fail,
    not_needed,
    ok,
    skip,
    warn,
)
from cfo.config.kuberay import ProfileTable
from cfo.config.model import OperatorConfiguration
from cfo.config.section import ConfigurationError
from cfo.console.doctor.arguments import default_config, manager_container
from cfo.console.doctor.facts import (
    Installation,
    OutsideOperator,
    WebhookConfigurationFacts,
    image_of,
    outside_operator,
    runs_outside,
    started_at,
)
from cfo.console.doctor.installer import helm_release, olm_owner
from cfo.console.doctor.permissions import PermissionFacts
from cfo.manifests.names import DEPLOYMENT, IMAGE_REPOSITORY, MANAGER_BINDING
from cfo.manifests.overlays import CERTIFICATE
from cfo.operator import FIELD_MANAGER, WEBHOOK_SECRET_NAME
from cfo.runtime import NamespacedName, Object, Rule, is_deleting, key_of, name_of, policy_rules
from cfo.runtime.pki import is_trusted, load_certificate, subject_names
from cfo.summaries.conditions import condition_of, conditions_of
from cfo.summaries.problems import completed, has_failed, pod_problems, remedy_for
from cfo.summaries.summary import Problem
from cfo.version import CONFIG_MAP_NAME
from cfo.webhooks.raycluster.injection_plan import Images

_SKEW_WARNING: Final = 5.0
_SKEW_FAILURE: Final = 60.0
_USUAL_READINESS: Final = timedelta(minutes=1)
_EXPIRY_WARNING: Final = timedelta(days=30)
_START_AGAIN: Final = "start the operator again: it registers its own address"
_MAX_RULES: Final = 12
_MAX_NAMESPACES: Final = 5
_MAX_BINDINGS: Final = 20
"""More RoleBindings than the manifests have for one namespace."""
_MAX_PODS: Final = 5
_GO_WEBHOOKS: Final = ("raycluster.ray.openshift.ai", "appwrapper.kb.io")
"""The ends of the names of webhooks that the Go operator also has."""
_CERTIFICATE_IMAGE: Final = "CERT_GENERATOR_IMAGE"


def check_operator(
    installation: Installation, webhooks: Sequence[WebhookConfigurationFacts], now: datetime
) -> Iterator[Finding]:
    """Check the ready replicas; without any, the Lease and ``webhooks`` show where the operator may run instead."""
    deployment = installation.deployment
    outside = outside_operator(installation, now)
    if outside is not None:
        yield _running_outside(installation, outside)
        return
    if deployment is None:
        yield _missing_deployment(installation, webhooks, now)
        return
    wanted = installation.wanted_replicas
    ready = installation.ready_replicas
    if wanted == 0:
        yield fail(
            "is scaled to 0 replicas, and no operator outside the cluster renews the Lease",
            f"scale the Deployment {DEPLOYMENT}, unless the operator runs outside the cluster",
        )
        return
    message = f"{ready} of {wanted} replicas are ready"
    if installation.is_rolling_out:
        message += ", and a rollout is in progress"
    causes = list(_pod_problems(installation, now))
    remedy = "solve the problems of its pods, below"
    if not causes:
        message, remedy = _unknown_cause(message, installation)
    if ready == 0:
        yield fail(message, remedy)
    elif ready < wanted:
        yield warn(message, remedy)
    else:
        yield ok(message)
    for problem in causes:
        finding = fail if ready == 0 else warn
        yield finding(problem.message, problem.remedy)


def _running_outside(installation: Installation, outside: OutsideOperator) -> Finding:
    message = f"runs outside the cluster: {outside.holder} renews the Lease, and"
    if installation.deployment is None:
        return ok(f"{message} there is no Deployment")
    wanted = installation.wanted_replicas
    if wanted == 0:
        return ok(f"{message} the Deployment {DEPLOYMENT} is scaled to 0 replicas")
    # Only one operator may run, so its pods are not repaired.
    return warn(
        f"{message} 0 of {wanted} replicas of the Deployment {DEPLOYMENT} are ready",
        f"only one may run: kubectl -n {installation.namespace} scale deployment {DEPLOYMENT} --replicas 0, or stop "
        "the operator outside the cluster, and run cfo doctor again",
    )


def _unknown_cause(message: str, installation: Installation) -> tuple[str, str]:
    """Return ``message`` with what is known of the pods, none of which has a problem, and a command that shows more."""
    kubectl = f"kubectl -n {installation.namespace}"
    if not installation.pods:
        return f"{message}: it has no pods", f"{kubectl} describe deployment {DEPLOYMENT}"
    if all(started_at(pod) is None for pod in installation.pods):
        names = " ".join(name_of(pod) for pod in installation.pods[:_MAX_PODS])
        return f"{message}: no container of its pods runs yet", f"{kubectl} describe pods {names}"
    return message, f"{kubectl} logs deployment/{DEPLOYMENT}; /readyz names the reason"


def _pod_problems(installation: Installation, now: datetime) -> Iterator[Problem]:
    """Yield why pods of the operator do not run or are not ready, or could not be created."""
    refused = condition_of(conditions_of(installation.deployment or {}), "ReplicaFailure")
    if refused is not None and refused.status == "True":
        events = f"kubectl -n {installation.namespace} get events"
        yield Problem(
            f"pods cannot be created: {refused.message}", remedy_for(refused.message, events)
        )
    pods = [pod for pod in installation.pods if not has_failed(pod)]  # they are replaced
    for problem in pod_problems(pods):
        yield Problem(problem.message, completed(problem.remedy, pods[0]))
    unready = [pod for pod in pods if _is_unready(pod, now)]
    for pod in unready[:_MAX_PODS]:
        kubectl = f"kubectl -n {installation.namespace}"
        port = installation.configuration.health.bind_address.rpartition(":")[2]
        yield Problem(
            f"pod {name_of(pod)} runs, but has not been ready for a minute",
            f"{kubectl} port-forward pod/{name_of(pod)} {port}, and curl 'localhost:{port}/readyz?verbose' names the "
            f"reason; {kubectl} logs {name_of(pod)}",
        )


def _is_unready(pod: Object, now: datetime) -> bool:
    """Return whether ``pod`` runs, and has not been ready for a minute; usually it is within seconds."""
    statuses = path(pod, "status", "containerStatuses") or []
    is_running = all(path(status, "state", "running") for status in statuses)
    ready = condition_of(conditions_of(pod), "Ready")
    if not statuses or not is_running or ready is None or ready.status != "False":
        return False
    since = time_of(ready.since)
    return not is_deleting(pod) and since is not None and since + _USUAL_READINESS <= now


def _missing_deployment(
    installation: Installation, webhooks: Sequence[WebhookConfigurationFacts], now: datetime
) -> Finding:
    if any(fact.is_abandoned(now) for fact in webhooks):
        return fail("ran outside the cluster, and does not run any more", _START_AGAIN)
    namespace = installation.namespace
    if runs_outside(installation, webhooks, now):
        return ok("runs outside the cluster, because the webhooks have a URL")
    with_url = [fact for fact in webhooks if fact.urls]
    message = f"no Deployment {DEPLOYMENT} in namespace {namespace}"
    if not installation.has_namespace:
        message += ", which does not exist"
    named: set[str] = set()
    for fact in webhooks:
        named |= {service.namespace for service in fact.services} - fact.deleted_namespaces
    elsewhere = ", ".join(sorted(named - {namespace}))
    if with_url:
        leases = ", ".join(sorted({fact.lease_namespace for fact in with_url}))
        return fail(
            f"{message}, but the webhooks have the URL of an operator whose Lease is in namespace {leases}",
            "name the operator's namespace with --namespace",
        )
    if elsewhere:
        # The manifests would create a second installation.
        return fail(
            f"{message}, but the webhooks lead to namespace {elsewhere}",
            "name the operator's namespace with --namespace",
        )
    return fail(
        message,
        f"name the operator's namespace with --namespace, or {APPLY}; before the first release, add --image with your "
        "build",
    )


def check_go_volumes(installation: Installation) -> Iterator[Finding]:
    """Check whether the Deployment has a volume of the Go operator, which manifests cannot remove from its owner."""
    template = path(installation.deployment or {}, "spec", "template") or {}
    names = [
        volume["name"]
        for volume in (template.get("spec") or {}).get("volumes") or ()
        if (volume.get("secret") or {}).get("secretName") == WEBHOOK_SECRET_NAME
    ]
    mounts = [
        {"mountPath": mount["mountPath"], "$patch": "delete"}
        for mount in manager_container(template).get("volumeMounts") or ()
        if mount["name"] in names
    ]
    if not names:
        return
    container = {"name": manager_container(template)["name"], "volumeMounts": mounts}
    volumes = [{"name": name, "$patch": "delete"} for name in names]
    patch = {"spec": {"template": {"spec": {"containers": [container], "volumes": volumes}}}}
    yield warn(
        f"the Deployment still has the Go operator's volume {', '.join(names)}: its pods do not start if Secret "
        f"{WEBHOOK_SECRET_NAME} does not exist, which the operator creates only once it runs",
        f"kubectl -n {installation.namespace} patch deployment {DEPLOYMENT} -p {shlex.quote(json.dumps(patch))}",
    )


def check_leader_election(installation: Installation) -> Iterator[Finding]:
    """Check whether more than one replica reconciles, because leader election is disabled."""
    wanted = installation.wanted_replicas
    if wanted > 1 and installation.configuration.leader_election.leader_elect is False:
        yield warn(
            f"each of {wanted} replicas reconciles all objects, because leaderElection.leaderElect is false",
            f"remove leaderElection.leaderElect from {CONFIGURATION}, and restart the operator; or run one replica",
        )


def check_version(
    installation: Installation,
    webhooks: Sequence[WebhookConfigurationFacts] | None,
    version: str,
    *,
    is_go: bool = False,
) -> Iterator[Finding]:
    """Compare the image of the Deployment with its pods, and with this program, whose version is ``version``.

    The Go operator has images of the same name, so only the mark in ``webhooks`` shows whose a tag is; ``None``: they
    were not read.
    ``is_go``: the Deployment is that of the Go operator.
    """
    if installation.deployment is None:
        return  # the check of the operator says so
    image = image_of(installation.deployment["spec"]["template"])
    running = {image_of(pod) for pod in installation.pods} - {""}
    found = version_of(image)
    is_marked = any(fact.is_marked for fact in webhooks or ())
    mark = "this operator has not served webhooks yet"
    if webhooks is None:
        mark = "the webhook configurations, which show whose it is, were not read"
    if running - {image}:
        others = ", ".join(sorted(running - {image}))
        yield warn(f"pods run {others}, not {image}", "wait for the rollout of the Deployment")
    elif is_go and is_marked:
        yield warn(
            f"the Deployment is that of the Go operator, image {image}: after a rollback, or with an image of this one",
            MIGRATION,
        )
    elif is_go:
        yield warn(f"the operator is the Go operator, image {image}, not this one", MIGRATION)
    elif found is None:
        # Usual for an image that is pinned by its digest; nothing else in the cluster shows its version.
        yield not_needed(f"the image {image} has no version in its tag; this program is v{version}")
    elif found != parse_version(version):
        yield warn(
            f"the operator is {tag_of(image)}, this program v{version}",
            "use the same version, because checks and manifests of this program are those of its own version",
        )
    elif image.startswith(f"{IMAGE_REPOSITORY}:") and not is_marked:
        yield skip(
            f"the tag {tag_of(image)} is that of this program, but the Go operator has images of the same name, and "
            f"{mark}",
            "check whose image it is, or build one and install it with that",
        )
    else:
        yield ok(f"the operator is {tag_of(image)}, like this program")


def check_configuration(
    installation: Installation, now: datetime, missing: Mapping[str, Sequence[str]] | None = None
) -> Iterator[Finding]:
    """Check the ConfigMap: whether it is valid, and was not changed after the operator was started.

    ``missing``: the namespaces that do not exist, by the setting that names them.
    """
    if installation.has_lost_configuration(now):
        yield _lost_configuration(installation)
        return
    config_map = installation.config_map
    parsed = installation.parsed
    if config_map is None or parsed is None:
        yield not_needed("there is no ConfigMap; the operator creates it with the defaults")
        return
    where = f"ConfigMap {installation.namespace}/{config_map['metadata']['name']}"
    correct = f"correct {CONFIGURATION}"
    for warning in parsed.warnings:
        yield warn(
            f"{where}: {warning}", f"{correct}; cfo config check --strict finds all warnings"
        )
    if isinstance(parsed, ConfigurationError):
        for problem in parsed.problems:
            yield fail(f"{where}: {problem}", f"{correct}; the operator does not start with it")
        return
    lost = installation.lost_part
    if lost is not None:
        yield fail(
            f"{where}: an additional operator must have watchNamespaces or labelSelector; without, it reconciles the "
            "objects of all operators",
            f"set {_part_text(lost)} in {CONFIGURATION}, and restart the operator",
        )
    lacks_disabled = installation.lacks_disabled_webhooks
    if lacks_disabled:
        yield fail(
            f"{where}: an additional operator must have webhook.enabled: false: it is not allowed to serve the "
            "webhooks, which the first operator serves for the objects of all, and so it is never ready",
            f"set webhook: {{enabled: false}} in {CONFIGURATION}, and restart the operator",
        )
    missing = missing or {}
    for setting, names in missing.items():
        verb = "does" if len(names) == 1 else "do"
        yield warn(
            f"{where}: {setting}: {_namespaces_text(names)} {verb} not exist",
            "correct the name, or create the namespace, which needs no restart",
        )
    changed = _changed_at(config_map)
    starts = [started_at(pod) for pod in installation.pods]
    started = min((start for start in starts if start is not None), default=None)
    remedy = f"kubectl -n {installation.namespace} rollout restart deployment {DEPLOYMENT}"
    outside = outside_operator(installation, now)
    if outside is not None:
        started = outside.since
        remedy = f"restart the operator outside the cluster, {outside.holder}"
    elif installation.is_rolling_out and any(_pod_problems(installation, now)):
        remedy = "solve the problems of the new pods, in the check operator"
    elif installation.is_rolling_out:
        remedy = f"wait for the rollout: kubectl -n {installation.namespace} rollout status deployment {DEPLOYMENT}"
    if changed is not None and started is not None and changed > started:
        yield warn(
            f"{where} was changed at {changed:%Y-%m-%d %H:%M:%S} UTC, after the operator was started",
            remedy,
        )
    elif not parsed.warnings and not missing and lost is None and not lacks_disabled:
        yield ok(f"{where} is valid")


def _lost_configuration(installation: Installation) -> Finding:
    """Return that the ConfigMap was deleted while the operator runs."""
    created = "the defaults"
    if default_config(installation.deployment) is not None:
        created = "those of --default-config"
    return warn(
        f"ConfigMap {installation.namespace}/{installation.config_name} was deleted; the operator keeps its settings "
        f"until it is started again, and then has {created}",
        f"create {CONFIGURATION} again with your settings before the operator is started again; cfo config default "
        "prints the defaults",
    )


def _part_text(part: OperatorConfiguration) -> str:
    """Return the settings that select the objects of an additional operator, as in its ConfigMap."""
    settings: list[str] = []
    if part.watch_namespaces:
        settings.append(f"watchNamespaces: [{', '.join(part.watch_namespaces)}]")
    if part.label_selector:
        settings.append(f"labelSelector: {part.label_selector}")
    return " and ".join(settings) or "the namespaces that it reconciles as watchNamespaces"


def check_webhooks(
    facts: Sequence[WebhookConfigurationFacts],
    now: datetime,
    *,
    namespace: str = "",
    unserved: str = "",
    is_go: bool = False,
    is_outside: bool = False,
) -> Iterator[Finding]:
    """Check the webhook configurations, and whether their Services have endpoints.

    ``namespace`` is that of the operator.
    ``unserved`` is the namespace of the operator if its configuration disables its webhooks. ``is_go``: the Go operator
    is installed, whose configurations lack the webhooks of kinds that only this one has. ``is_outside``: the operator
    runs outside the cluster.
    """
    repair = SERVED_ELSEWHERE if unserved else APPLY
    if not facts:
        yield not_needed("another tool, such as OLM, manages the webhook configurations")
    for fact in facts:
        if not fact.exists:
            yield fail(f"{fact.name} does not exist: nothing is injected or validated", repair)
            continue
        missing = fact.missing
        if is_go:
            missing = tuple(name for name in missing if name.endswith(_GO_WEBHOOKS))
            if missing != fact.missing:
                yield warn(
                    f"{fact.name} has only the webhooks of the Go operator, for RayClusters and AppWrappers",
                    MIGRATION,
                )
        if missing:
            yield fail(f"{fact.name} lacks {', '.join(missing)}", repair)
        yield from _narrowed_findings(fact, "" if is_outside else repair)
        for service, ready in fact.services.items():
            if service.namespace == unserved:
                yield fail(
                    f"{fact.name} leads to Service {service}, but webhook.enabled of its operator is false: "
                    "writes of RayClusters and AppWrappers fail",
                    f"remove webhook.enabled from {CONFIGURATION}, and restart the operator: "
                    f"kubectl rollout restart --namespace {unserved} deployment/{DEPLOYMENT}",
                )
            elif ready is None:
                yield fail(f"{fact.name} leads to Service {service}, which does not exist", repair)
            elif ready == 0:
                yield fail(
                    f"Service {service} leads to no ready pod: writes of RayClusters and AppWrappers fail",
                    _remedy_for_unready(service, namespace, is_outside=is_outside),
                )
        if fact.is_abandoned(now):
            yield fail(
                f"{fact.name} leads to {', '.join(_servers(fact.urls))}, the address of an operator outside the "
                "cluster that does not renew its Lease any more: writes of RayClusters and AppWrappers fail",
                _remedy_for_abandoned([each.name for each in facts if each.is_abandoned(now)]),
            )
            continue
        leads_here = any(service.namespace == unserved for service in fact.services)
        if not missing and not fact.narrowed and not leads_here and all(fact.services.values()):
            targets = [str(service) for service in fact.services]
            targets += _servers(fact.urls)
            yield ok(f"{fact.name} leads to {', '.join(targets) or 'nothing'}")


def _narrowed_findings(fact: WebhookConfigurationFacts, repair: str) -> Iterator[Finding]:
    """Yield the settings with which objects bypass webhooks.

    ``repair`` restores what the manifests name. It is empty if that would start a second operator: then the patch
    restores all, which otherwise only removes what they do not name.
    """
    patched: dict[str, dict[str, Any]] = {}
    for webhook in fact.narrowed:
        if webhook.is_stored or not repair:
            settings = patched.setdefault(webhook.name, {"name": webhook.name})
            settings[webhook.setting] = webhook.wanted
    patch = json.dumps({"webhooks": list(patched.values())})
    command = f"kubectl patch {fact.kind.lower()} {fact.name} -p {shlex.quote(patch)}"
    for webhook in fact.narrowed:
        finding = warn if webhook.is_fixed else fail
        yield finding(
            f"{fact.name}: objects bypass {webhook.name}: {webhook.reason}",
            command if webhook.is_stored or not repair else repair,
        )


def _remedy_for_unready(service: NamespacedName, namespace: str, *, is_outside: bool) -> str:
    """Return what to do if ``service`` has no ready pod; the other parameters are those of :func:`check_webhooks`."""
    if service.namespace != namespace:
        return f"check the operator there: cfo doctor --namespace {shlex.quote(service.namespace)}"
    if is_outside:
        return RESTART_OUTSIDE
    return (
        "see the check operator; if its replicas are ready, compare the selector of the Service with the labels of the "
        "pods"
    )


def _remedy_for_abandoned(names: Sequence[str]) -> str:
    """Return how webhook configurations called ``names`` get a living operator, outside or in the cluster."""
    return (
        f"{_START_AGAIN}; or, to run it in the cluster, delete them, because kubectl apply cannot replace a URL with a "
        "Service: kubectl delete --ignore-not-found mutatingwebhookconfigurations,validatingwebhookconfigurations "
        f"{' '.join(names)}; then {APPLY}"
    )


def _servers(urls: Iterable[str]) -> list[str]:
    """Return the servers in ``urls``, without the paths, each once."""
    servers: set[str] = set()
    for url in urls:
        parts = urlsplit(url)
        servers.add(f"{parts.scheme}://{parts.netloc}")
    return sorted(servers)


def check_certificate(
    secret: NamespacedName,
    pem: bytes | None,
    facts: Sequence[WebhookConfigurationFacts],
    now: datetime,
    *,
    has_cert_manager: bool = False,
) -> Iterator[Finding]:
    """Check the certificate ``pem`` in ``secret``: its names and expiry, and whether the API server trusts it.

    ``has_cert_manager``: whether the API server serves Certificates of cert-manager.
    """
    services: set[NamespacedName] = set()
    for fact in facts:
        services.update(fact.services)
    if not services and any(fact.urls for fact in facts):
        yield not_needed("the webhooks are served outside the cluster")
        return
    namespaces = sorted({service.namespace for service in services})
    if namespaces and secret.namespace not in namespaces:
        other = namespaces[0]
        yield not_needed(
            f"the webhooks lead to namespace {other}, whose certificate cfo doctor --namespace {shlex.quote(other)} "
            "checks"
        )
        return
    restart = "delete the Secret, then the operator creates another certificate and updates the CA bundles"
    if secret.name == CERTIFICATE:
        restart = (
            f"see the Certificate: kubectl -n {secret.namespace} describe certificate {CERTIFICATE}"
        )
    leaf = _load(pem)
    if leaf is None:
        yield _missing_certificate(secret, pem, has_cert_manager=has_cert_manager)
        return
    until = leaf.not_valid_after_utc
    if until <= now:
        yield fail(f"Secret {secret} expired on {until:%Y-%m-%d}", restart)
    elif leaf.not_valid_before_utc > now:
        yield fail(f"Secret {secret} is not valid before {leaf.not_valid_before_utc}", restart)
    elif until - now < _EXPIRY_WARNING:
        yield warn(f"Secret {secret} expires on {until:%Y-%m-%d}, and was not renewed", restart)
    else:
        yield ok(f"Secret {secret} is valid until {until:%Y-%m-%d}")
    names = sorted(subject_names(leaf))
    required = sorted(f"{service.name}.{service.namespace}.svc" for service in services)
    if not set(required) <= set(names):
        message = f"is for {', '.join(names) or 'no name'}, not for {', '.join(required)}"
        yield fail(message, restart)
    untrusting: list[str] = []
    for fact in facts:
        is_trusting = all(is_trusted(bundle, [leaf]) for bundle in fact.bundles)
        if fact.services and not is_trusting:
            untrusting.append(fact.name)
    for name in untrusting:
        yield fail(
            f"{name} does not trust it: the CA bundle is not of its CA",
            "the operator (or cert-manager) sets caBundle; see its log for a missing permission to patch it",
        )
    if facts and not untrusting:
        yield ok("the CA bundles of the webhook configurations trust it")


def _missing_certificate(
    secret: NamespacedName, pem: bytes | None, *, has_cert_manager: bool
) -> Finding:
    """Return that ``secret`` has no certificate, and who should create it."""
    message = f"Secret {secret} does not exist or has no tls.crt"
    if pem:
        message = f"Secret {secret} contains no valid certificate"
    if secret.name == WEBHOOK_SECRET_NAME:
        logs = f"kubectl -n {secret.namespace} logs deployment/{DEPLOYMENT}"
        return fail(
            message, f"see the check of the operator, which creates it; if replicas run, see {logs}"
        )
    if secret.name != CERTIFICATE:
        return fail(
            message, "find out why the tool that mounts it, such as OLM, does not create it"
        )
    if not has_cert_manager:
        return fail(
            f"{message}: cert-manager creates it, but the CRD certificates.cert-manager.io does not exist",
            f"install cert-manager, then {APPLY}",
        )
    return fail(
        f"{message}: cert-manager creates it from the Certificate {secret.namespace}/{CERTIFICATE}",
        f"check that cert-manager runs: kubectl -n {secret.namespace} describe certificate {CERTIFICATE}",
    )


def check_monitoring(
    monitor: Object | None, installation: Installation, *, admits_no_scraper: bool = False
) -> Iterator[Finding]:
    """Check the ServiceMonitor of the component prometheus; ``None``: it does not exist.

    ``admits_no_scraper``: the NetworkPolicy of the manifests admits no namespace to the metrics.
    """
    if monitor is None:
        yield not_needed("the component prometheus is not installed")
        return
    name = f"ServiceMonitor {key_of(monitor)}"
    endpoints = monitor["spec"].get("endpoints") or ()
    uses_http = any(each.get("scheme", "http") == "http" for each in endpoints)
    if installation.configuration.metrics.secure_serving and uses_http:
        yield warn(
            f"{name} scrapes with HTTP, but metrics.secureServing is true: there are no metrics",
            "set scheme: https, a tlsConfig and a token with permission to get /metrics in the ServiceMonitor",
        )
    elif admits_no_scraper:
        yield warn(
            f"{name} exists, but NetworkPolicy {DEPLOYMENT} admits scrapes only from namespaces with the label "
            "metrics=enabled, which none has: there are no metrics, unless another policy admits Prometheus",
            "kubectl label namespace PROMETHEUS metrics=enabled, with the namespace of Prometheus",
        )
    else:
        yield ok(f"{name} exists")


def check_images(installation: Installation, *, is_openshift: bool) -> Iterator[Finding]:
    """Check whether nodes of the cluster can pull the image that creates the certificates of Ray pods."""
    kuberay = installation.configuration.kuberay
    if not kuberay.enabled or not ProfileTable(kuberay).strictest().kuberay.mtls_enabled:
        yield not_needed("mutual TLS is disabled")
    elif installation.deployment is None:
        yield not_needed("no Deployment, so the images are unknown")
    elif is_openshift:
        yield not_needed("the cluster is OpenShift, whose nodes can pull the default images")
    elif _has_variable(installation.deployment, _CERTIFICATE_IMAGE):
        yield ok(f"{_CERTIFICATE_IMAGE} is set")
    else:
        yield warn(
            f"the init container of RayClusters with mutual TLS has the default image {Images().cert_generator}, whose "
            "registry requires a login outside OpenShift",
            f"add a pull secret, or {_set_image(installation)}, with sh, openssl and curl, before you create "
            "RayClusters",
        )


def _set_image(installation: Installation) -> str:
    """Return how the Deployment gets another image for certificates from the tool that has installed it."""
    release = helm_release(installation.deployment)
    owner = olm_owner(installation.deployment)
    if owner is not None:
        return f"set {_CERTIFICATE_IMAGE}=IMAGE with OLM (in a Subscription, spec.config.env)"
    if release is not None:
        return (
            f"add {{name: {_CERTIFICATE_IMAGE}, value: IMAGE}} to env in the values of the Helm release "
            f"{release.name}"
        )
    return f"kubectl -n {installation.namespace} set env deployment/{DEPLOYMENT} {_CERTIFICATE_IMAGE}=IMAGE"


def _has_variable(deployment: Object, name: str) -> bool:
    """Return whether the operator's container has an environment variable, with a value or a source."""
    container = manager_container(deployment["spec"]["template"])
    return any(
        each.get("name") == name and (each.get("value") or each.get("valueFrom"))
        for each in container.get("env") or ()
    )


def check_permissions(
    account: str, facts: PermissionFacts, absent: Collection[str] = ()
) -> Iterator[Finding]:
    """Check the permissions that ``account`` lacks; they are shown as rules, for each component in one finding.

    ``absent``: the namespaces of ``watchNamespaces`` that do not exist.
    """
    is_complete = facts.checked == facts.total
    if not facts.missing and is_complete:
        yield ok(f"{account} has all {facts.checked} permissions")
    denied = {rule.namespace for rules in facts.missing.values() for rule in rules}
    in_absent = denied.intersection(absent)
    if in_absent:
        yield fail(
            f"watchNamespaces: not found, so nothing is reconciled there: {_namespaces_text(sorted(in_absent))}",
            f"create what is missing, then {APPLY}; or remove it from watchNamespaces in "
            f"{CONFIGURATION}, and restart the operator",
        )
    for component, all_rules in facts.missing.items():
        rules = [rule for rule in all_rules if rule.namespace not in in_absent]
        if not rules:
            continue
        role = f"the component {component}" if component else "the base role"
        if component in facts.retained:
            role += ", whose feature is disabled, but its objects still have to be deleted"
        if len(rules) > 1 and len(rules) == facts.needed.get(component):
            extent = f"all of its {len(rules)} permissions"
            if not is_complete:
                extent = f"all {len(rules)} permissions of it that were checked"
            yield fail(f"missing: {role}, with {extent}", APPLY)
        else:
            yield fail(f"missing of {role}: {_rule_texts(rules)}", APPLY)
    if not is_complete:
        has_all = "" if facts.missing else f"; {account} has all of these"
        yield warn(
            f"{facts.checked} of {facts.total} permissions were checked{has_all}",
            f"watch fewer namespaces, or {APPLY}",
        )


def check_configuration_role(account: str, installation: Installation) -> Iterator[Finding]:
    """Report that ``account`` may not read a ConfigMap of another name than the manifests permit."""
    name = installation.config_name
    if name == CONFIG_MAP_NAME:
        return  # a missing permission of the base role
    kubectl = f"kubectl -n {installation.namespace} create"
    quoted = shlex.quote(name)
    role = f"role {quoted} --verb get,list,watch --resource configmaps --resource-name {quoted}"
    subject = shlex.quote(account.removeprefix("system:serviceaccount:"))
    binding = f"rolebinding {quoted} --role {quoted} --serviceaccount {subject}"
    yield fail(
        f"{account} may not read ConfigMap {name} of --config: the manifests permit only {CONFIG_MAP_NAME}",
        f"{kubectl} {role} && {kubectl} {binding}; or run the operator without --config",
    )


def check_unused_bindings(account: str, unused: Collection[NamespacedName]) -> Iterator[Finding]:
    """Check whether ``account`` still has permissions where the operator reconciles nothing by RoleBindings of its own.

    ``unused``: the RoleBindings of the manifests outside ``watchNamespaces``, which an apply does not delete.
    """
    if not unused:
        return
    namespaces = sorted({key.namespace for key in unused})
    first = namespaces[0]
    names = sorted(key.name for key in unused if key.namespace == first)[:_MAX_BINDINGS]
    others = f", and the same in {_namespaces_text(namespaces[1:])}" if len(namespaces) > 1 else ""
    yield warn(
        f"{account} has RoleBindings that it does not need, because watchNamespaces no longer contains their "
        f"{_namespaces_text(namespaces)}",
        # The name of a RoleBinding can be that of an option, such as --all.
        f"kubectl -n {first} delete rolebindings -- {shlex.join(names)}{others}",
    )


def _rule_texts(rules: Sequence[Rule]) -> str:
    """Return ``rules`` as text: those that have the same namespaces together, and at most 12."""
    namespaces: dict[Rule, list[str]] = {}
    for rule in rules:
        anywhere = Rule(rule.group, rule.resources, rule.verbs, rule.resource_names)
        namespaces.setdefault(anywhere, []).append(rule.namespace)
    by_place: dict[tuple[str, ...], list[Rule]] = {}
    for rule, found in namespaces.items():
        by_place.setdefault(tuple(sorted(found)), []).append(rule)
    texts: list[str] = []
    for place, found_rules in sorted(by_place.items()):
        texts += (
            f"{_rule_text(policy)}{_place_text(place)}" for policy in policy_rules(found_rules)
        )
    shown = texts[:_MAX_RULES]
    if len(texts) > len(shown):
        shown.append(f"and {len(texts) - len(shown)} more rules")
    return "; ".join(shown)


def _place_text(namespaces: Sequence[str]) -> str:
    """Return where a permission is missing; empty for the whole cluster."""
    if namespaces == ("",):
        return ""
    return f" in {_namespaces_text(namespaces)}"


def _namespaces_text(namespaces: Sequence[str]) -> str:
    """Return up to five of ``namespaces``, and how many more there are."""
    shown = ", ".join(namespaces[:_MAX_NAMESPACES])
    more = len(namespaces) - _MAX_NAMESPACES
    noun = "namespace" if len(namespaces) == 1 else "namespaces"
    return f"{noun} {shown}" + (f" and {more} more" if more > 0 else "")


def check_binding(namespace: str, bound: Sequence[str]) -> Iterator[Finding]:
    """Check whether the manifests of another installation took the permissions of the one in ``namespace``.

    ``bound``: the namespaces that the ClusterRoleBinding of the manifests names.
    """
    if not bound or namespace in bound:
        return
    other = text(", ".join(bound), 80)
    yield fail(
        f"ClusterRoleBinding {MANAGER_BINDING.name} is for namespace {other}: the manifests were applied for that "
        f"namespace, and the operator in {namespace} lost its permissions",
        f"to keep only the other operator, cfo uninstall --namespace {namespace}; to keep both, apply the manifests "
        f"for {namespace} again, and then those for {other} with --additional",
    )


def check_kubernetes(version: str, supported: str) -> Iterator[Finding]:
    """Check the version of Kubernetes; ``supported`` is a range such as ``1.34 to 1.37``."""
    found = parse_version(version)
    bounds = [parse_version(text) for text in re.findall(r"\d{1,4}\.\d{1,4}", supported)]
    known = [bound[:2] for bound in bounds if bound is not None]
    if found is None or len(known) != 2:
        yield skip(f"the version {version!r} cannot be compared with {supported}")
        return
    oldest, newest = known
    if oldest <= found[:2] <= newest:
        yield ok(f"{version} is supported ({supported})")
    else:
        yield warn(f"{version} is not one of {supported}", "use a supported version")


def check_clock(skew: float | None) -> Iterator[Finding]:
    """Check the difference between the clocks of the API server and of this machine, in seconds."""
    remedy = "synchronize the clocks (NTP): certificates and Leases depend on them"
    if skew is None:
        yield skip("the API server sends no Date")
    elif abs(skew) > _SKEW_FAILURE:
        yield fail(f"the API server's clock differs from this machine's by {skew:+.0f} s", remedy)
    elif abs(skew) > _SKEW_WARNING:
        yield warn(f"the API server's clock differs from this machine's by {skew:+.0f} s", remedy)
    else:
        yield ok("the API server's clock agrees with this machine's")


def _changed_at(config_map: Object) -> datetime | None:
    """Return when another client than an operator changed ``config_map`` last; ``None`` if none did.

    An operator creates the ConfigMap after its start, with the configuration that it uses.
    """
    metadata = config_map["metadata"]
    entries = metadata.get("managedFields") or ()
    if not entries:
        return time_of(metadata.get("creationTimestamp"))
    others = [entry for entry in entries if entry.get("manager") != FIELD_MANAGER]
    times = [time_of(entry.get("time")) for entry in others]
    return max((time for time in times if time is not None), default=None)


def _rule_text(policy: Mapping[str, Any]) -> str:
    group = policy["apiGroups"][0]
    resources = policy["resources"]
    if group:
        resources = [f"{resource}.{group}" for resource in resources]
    text = f"{', '.join(policy['verbs'])} {', '.join(resources)}"
    if policy.get("resourceNames"):
        text += f" named {', '.join(policy['resourceNames'])}"
    return text


def _load(pem: bytes | None) -> x509.Certificate | None:
    if not pem:
        return None
    try:
        return load_certificate(pem)
    except ValueError:
        return None
