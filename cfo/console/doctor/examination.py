"""Runs the checks: concurrently, each with a time limit, and a failure of one does not affect the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

import anyio

from cfo.api.raycluster.names import ROUTE
from cfo.checks.findings import (
    APPLY,
    CONFIGURATION,
    GO_OPERATOR,
    MIGRATION,
    RESTART_OUTSIDE,
    Finding,
    Subject,
    fail,
    not_needed,
    skip,
)
from cfo.config.missing_namespaces import missing_namespaces
from cfo.config.section import ConfigurationError
from cfo.console.doctor import checks, facts, other_operators
from cfo.console.doctor.installed import SERVICE_MONITOR, InstalledOptions, read_options
from cfo.console.doctor.installer import helm_release, migration_remedy, olm_owner
from cfo.console.doctor.outside_roles import check_outside_roles
from cfo.console.doctor.permissions import (
    may_read_configuration,
    read_bound_namespaces,
    read_permissions,
)
from cfo.console.doctor.report import (
    Findings,
    assuming_defaults,
    with_options,
    with_text,
    without_manifests,
)
from cfo.console.errors import InvalidInput, one_line
from cfo.console.watched_bindings import watched_bindings
from cfo.features import KINDS
from cfo.features.roles import enabled_roles
from cfo.manifests.names import DEPLOYMENT, SERVICE_ACCOUNT
from cfo.manifests.stack import components, platforms
from cfo.operator import METRICS_SERVICE
from cfo.runtime import (
    GVK,
    APIError,
    Client,
    Clock,
    DiscoveryIncomplete,
    Forbidden,
    NamespacedName,
    TransportError,
    UnknownKind,
)
from cfo.runtime.client import Unauthorized
from cfo.version import CONFIG_MAP_NAME, __version__

_TIMEOUT: Final = 20.0
"""Seconds for each check."""
_PARALLEL: Final = 6
_CERTIFICATE: Final = GVK("cert-manager.io", "v1", "Certificate")

_Check = Callable[[], Awaitable[Iterable[Finding]] | Iterable[Finding]]


async def examine(
    client: Client,
    namespace: str,
    config_name: str | None,
    clock: Clock,
    *,
    is_named: bool = False,
) -> Findings:
    """Return the findings for the operator in ``namespace``, in the order of the checks.

    ``config_name``: the name of its ConfigMap; by default that which its Deployment names.
    ``is_named``: the user has named the namespace, so something in it has to be readable; otherwise raises
    :class:`.InvalidInput`. Raises :class:`cfo.runtime.TransportError` and :class:`cfo.runtime.client.Unauthorized` if
    the API server cannot be reached, or does not accept the credentials.
    """
    server = await facts.read_server(client, clock)
    stored = await facts.read_installation(client, namespace, config_name)
    # Only the check of the configuration names webhooks that must be disabled; what they need would mislead.
    installation = stored.with_disabled_webhooks
    # All checks compare Leases with the same time: one that expires meanwhile would count as renewed in some of them.
    now = clock.now()
    unreadable = installation.deployment_error
    if is_named and isinstance(installation.config_error, Forbidden) and unreadable is not None:
        raise InvalidInput(
            f"--namespace: namespace {namespace} cannot be read: {one_line(unreadable)}"
        )
    subject = Subject(
        client,
        namespace,
        installation.configuration,
        installation.config_error,
        dict(components()),
        server.is_embedded,
        facts.is_go_deployment(installation.deployment, __version__),
    )
    owner = olm_owner(installation.deployment)
    unserved = ""
    if installation.configuration.webhook.enabled is False:
        unserved = namespace
    needed: set[str] = set()
    shared: Sequence[facts.WebhookConfigurationFacts] | Exception
    try:
        shared = []
        if owner is None:  # the webhook configurations of OLM have generated names
            with anyio.fail_after(_TIMEOUT):
                shared = await facts.read_webhooks(client, installation)
    except Exception as error:  # noqa: BLE001 - raised again in each check that needs the webhooks
        shared = error

    def webhooks() -> Sequence[facts.WebhookConfigurationFacts]:
        if isinstance(shared, Exception):
            raise shared
        return shared

    errors = (installation.deployment_error, installation.config_error, shared)
    if all(isinstance(error, Forbidden) for error in errors):
        return {
            "operator": [
                skip(
                    f"you are not allowed to read the installation in namespace {namespace}",
                    "ask the administrator to run cfo doctor; your own objects: cfo status",
                )
            ]
        }
    if not is_named and isinstance(shared, Forbidden) and installation.deployment is None:
        return {
            "operator": [
                skip(
                    f"the namespace of the operator is unknown, because you are not allowed to {shared.verb} "
                    f"{shared.resource}; {namespace} has no Deployment {DEPLOYMENT}",
                    "name it with --namespace",
                )
            ]
        }
    seen = () if isinstance(shared, Exception) else shared
    is_go = subject.is_go
    is_outside = facts.runs_outside(installation, seen, now)

    async def operator() -> Iterable[Finding]:
        if installation.deployment_error is not None:
            raise installation.deployment_error
        # Only without a Deployment, the webhooks show where the operator is.
        used = webhooks() if installation.deployment is None else seen
        found = list(checks.check_operator(installation, used, now))
        if not is_go:
            found += checks.check_go_volumes(installation)
            found += checks.check_leader_election(installation)
        return found

    def version() -> Iterable[Finding]:
        if is_outside:
            return [not_needed("the operator runs outside the cluster, so its version is unknown")]
        known = None if isinstance(shared, Exception) else shared
        return checks.check_version(installation, known, __version__, is_go=is_go)

    async def operators() -> Iterable[Finding]:
        if is_go:
            part = facts.for_all_objects(installation.configuration)
            return await other_operators.check(replace(subject, configuration=part))
        return await other_operators.check(subject)

    async def config() -> Iterable[Finding]:
        if installation.config_error is not None:
            raise installation.config_error
        if is_go:
            return [
                not_needed(
                    "the Go operator uses it; cfo config check shows how this operator would read it"
                )
            ]
        name = installation.config_name
        if installation.config_map is None and name != CONFIG_MAP_NAME:
            return [
                fail(
                    f"ConfigMap {namespace}/{name} does not exist: the operator does not start with --config",
                    "create it (cfo config default prints a document with the defaults), or correct --config",
                )
            ]
        missing = await missing_namespaces(client, installation.configuration)
        return checks.check_configuration(stored, now, missing)

    async def trust() -> Iterable[Finding]:
        found = webhooks()
        if is_outside:
            return [not_needed("the operator runs outside the cluster, with its own certificate")]
        if installation.deployment is None and installation.deployment_error is None:
            return [skip("no Deployment, so nothing serves a certificate in the cluster")]
        if installation.configuration.webhook.enabled is False:
            return [not_needed("webhook.enabled is false: another operator serves the webhooks")]
        secret, pem = await facts.read_certificate(client, installation)
        has_cert_manager = await facts.is_served(client, _CERTIFICATE)
        return checks.check_certificate(secret, pem, found, now, has_cert_manager=has_cert_manager)

    async def permissions() -> Iterable[Finding]:
        if installation.deployment_error is not None:
            raise installation.deployment_error
        if is_outside:
            return await check_outside_roles(client, installation)
        if installation.deployment is None:
            return [skip("no Deployment, so no ServiceAccount to check")]
        if is_go:
            return [not_needed("the Go operator has other permissions")]
        pod = installation.deployment["spec"]["template"]["spec"]
        account = str(pod.get("serviceAccountName") or SERVICE_ACCOUNT)
        reviewed = await read_permissions(client, installation.with_part, account)
        user = f"system:serviceaccount:{namespace}:{account}"
        absent: Sequence[str] = ()
        if reviewed.missing:
            missing = await missing_namespaces(client, installation.configuration)
            absent = missing.get("watchNamespaces", ())
        found: list[Finding] = []
        if not await may_read_configuration(client, installation, account):
            found += checks.check_configuration_role(user, installation)
        found += checks.check_permissions(user, reviewed, absent)
        needed.update(name for name in reviewed.missing if name)
        if reviewed.missing:
            bound = []
            if installation.part is None:
                bound = await read_bound_namespaces(client, namespace)
            return [*checks.check_binding(namespace, bound), *found]
        if not isinstance(installation.parsed, ConfigurationError):
            watched = installation.with_part.configuration.watch_namespaces
            bindings: list[NamespacedName] = []
            with suppress(Forbidden):
                bindings = await watched_bindings(client, {namespace})
            unused = [key for key in bindings if key.namespace not in watched]
            found += checks.check_unused_bindings(user, unused)
        return found

    async def monitoring() -> Iterable[Finding]:
        if not await facts.is_served(client, SERVICE_MONITOR):
            return [
                not_needed(
                    "the Prometheus operator, which the component prometheus needs, is not installed"
                )
            ]
        key = NamespacedName(namespace, METRICS_SERVICE)
        monitor = await client.get(SERVICE_MONITOR, key, live=True)
        closed = monitor is not None and await facts.admits_no_scraper(client, namespace)
        return checks.check_monitoring(monitor, installation, admits_no_scraper=closed)

    async def images() -> Iterable[Finding]:
        if installation.deployment_error is not None:
            raise installation.deployment_error
        if is_outside:
            return [not_needed("the operator runs outside the cluster, so its images are unknown")]
        if is_go:
            return [not_needed(GO_OPERATOR)]
        is_openshift = await facts.is_served(client, ROUTE)
        return checks.check_images(installation, is_openshift=is_openshift)

    all_checks: dict[str, _Check] = {
        "kubernetes": lambda: checks.check_kubernetes(
            server.version, dict(platforms())["Kubernetes"]
        ),
        "clock": lambda: checks.check_clock(server.skew),
        "operator": operator,
        "version": version,
        "operators": operators,
        "configuration": config,
        "permissions": permissions,
        "webhooks": lambda: checks.check_webhooks(
            webhooks(),
            now,
            namespace=namespace,
            unserved=unserved,
            is_go=is_go,
            is_outside=is_outside,
        ),
        "certificate": trust,
        "monitoring": monitoring,
        "images": images,
    }
    dependent = ["permissions", "monitoring", "images"]
    for kind in KINDS:
        for name, check in kind.checks().items():
            all_checks[name] = partial(check, subject)
            dependent.append(name)
    findings = await _run(all_checks)
    if isinstance(installation.parsed, ConfigurationError):
        findings = assuming_defaults(findings, dependent, "the ConfigMap is invalid")
    elif installation.has_lost_configuration(now):
        findings = assuming_defaults(findings, dependent, "the ConfigMap was deleted")
    configured = helm_release(installation.config_map)
    if configured is not None:
        place = f"config of the Helm release {configured.name}"
        findings = with_text(findings, CONFIGURATION, place)
    if is_go:
        remedy = migration_remedy(installation.deployment)
        findings = with_text(findings, MIGRATION, remedy)
        return without_manifests(findings, remedy)
    if is_outside:
        return without_manifests(findings, RESTART_OUTSIDE)
    options = InstalledOptions(unread=["components and image"])
    # An error is a finding already.
    with suppress(APIError, TransportError), anyio.move_on_after(_TIMEOUT):
        roles = await enabled_roles(client, installation.configuration)
        needed.update(role.name for role in roles)
        options = await read_options(client, installation)
    if installation.deployment is not None and not options.is_bound:
        findings = with_text(findings, APPLY, f"if an administrator installed it there: {APPLY}")
        return with_options(findings, options.words(namespace, needed), options.unread)
    missing = needed - options.components
    release = helm_release(installation.deployment)
    if owner is not None:
        return with_text(findings, APPLY, owner.repair(missing))
    if release is not None:
        return with_text(findings, APPLY, release.upgrade(missing))
    return with_options(findings, options.words(namespace, needed), options.unread)


async def _run(all_checks: dict[str, _Check]) -> Findings:
    results: dict[str, list[Finding]] = {name: [] for name in all_checks}
    limiter = anyio.CapacityLimiter(_PARALLEL)

    async def run(name: str, check: _Check) -> None:
        async with limiter:
            try:
                with anyio.fail_after(_TIMEOUT):
                    found = check()
                    if isinstance(found, Awaitable):
                        found = await found
                    results[name] = list(dict.fromkeys(found))
            except Exception as error:  # noqa: BLE001 (an object with fields that no server should have stored)
                results[name] = [_failure(error)]

    async with anyio.create_task_group() as tasks:
        for name, check in all_checks.items():
            tasks.start_soon(run, name, check)
    return results


def _failure(error: Exception) -> Finding:
    """Return the finding of a check that raised ``error``. Raises :class:`cfo.runtime.client.Unauthorized`."""
    match error:
        case ExceptionGroup():  # of parallel requests that failed alike
            return _failure(error.exceptions[0])
        case Unauthorized():
            raise error
        case TimeoutError():
            return fail(
                f"no result within {_TIMEOUT:g} s",
                "check the load of the API server, and try again",
            )
        case Forbidden():
            return skip(
                f"not allowed to {error.verb} {error.resource}",
                f"grant it to your user: {error.message}",
            )
        case UnknownKind() | DiscoveryIncomplete():
            return skip(f"cannot be checked: {error}")
        case APIError() | TransportError():
            return fail(f"cannot be checked: {error}", "check the API server, and try again")
    return fail(
        f"cannot be checked: {type(error).__name__}: {error}", "check the objects that it reads"
    )
