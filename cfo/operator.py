"""The whole operator on one page: configuration -> manager -> controllers and webhooks.

:func:`load_configuration` reads the ConfigMap (and makes it where there is none), :func:`new_manager` wires what the
configuration asks for, :func:`run` does both and runs it. What cannot work is refused before anything is written
or started: a broken configuration never starts half an operator.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import structlog
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.config import (
    ConfigurationError,
    OperatorConfiguration,
    ParsedConfiguration,
    default_document,
    parse,
    single_document,
)
from cfo.config.model import LeaderElection, MetricsConfiguration, WebhookConfiguration
from cfo.controllers import appwrapper, raycluster
from cfo.runtime.availability import AVAILABILITY_RULES
from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.errors import AlreadyExists, APIError, Forbidden, TransportError
from cfo.runtime.client.transport import Transport
from cfo.runtime.discovery import RESTMapper
from cfo.runtime.events import EVENT_RULES
from cfo.runtime.health import ping
from cfo.runtime.kinds import CONFIG_MAP, MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION
from cfo.runtime.leaderelection import LeaderElectionOptions, leader_election_rules
from cfo.runtime.manager import Manager, ManagerOptions
from cfo.runtime.metrics_server import MetricsTLS
from cfo.runtime.objects import NamespacedName, Object
from cfo.runtime.reconcile import Rule
from cfo.runtime.webhook.options import (
    CertificateFiles,
    RotatedCertificates,
    ServiceReference,
    WebhookOptions,
    WebhookURL,
)
from cfo.runtime.webhook.setup import rules as webhook_rules
from cfo.version import __version__
from cfo.webhooks import appwrapper as appwrapper_webhooks
from cfo.webhooks import raycluster as raycluster_webhooks

__all__ = [
    "CONFIG_MAP_NAME",
    "FIELD_MANAGER",
    "Unreachable",
    "election",
    "load_configuration",
    "new_manager",
    "rules",
    "run",
    "webhook_configurations",
    "webhook_options",
]

CONFIG_MAP_NAME = "codeflare-operator-config"
FIELD_MANAGER = "codeflare-operator"
"""Who writes what no controller does: the finalizer on RayClusters, the ConfigMap. The Go operator's name."""

WEBHOOK_SECRET_NAME = "codeflare-operator-webhook-server-cert"  # noqa: S105 (a name, no password)

_log = structlog.get_logger("cfo.operator")


class Unreachable(Exception):
    """The API server gave no usable answer; the message is one line that names it."""


def rules(namespace: str) -> list[Rule]:
    """All rights that the operator needs when it lives in ``namespace``; manifests are generated from these."""
    return [
        Rule("", "configmaps", ("get",), [CONFIG_MAP_NAME], namespace=namespace),
        Rule("", "configmaps", ("create",), namespace=namespace),
        *AVAILABILITY_RULES,
        *EVENT_RULES,
        *leader_election_rules(LeaderElection().resource_name, namespace),
        *webhook_rules(webhook_options(WebhookConfiguration(), namespace)),
        *raycluster.rules(),
        *appwrapper.rules(),
        *appwrapper_webhooks.rules(),
    ]


async def load_configuration(client: Client, key: NamespacedName) -> ParsedConfiguration:
    """Reads the configuration from the ConfigMap ``key``, and makes that with the defaults if it does not exist.

    It holds exactly one key, of any name, as the Go operator has it. Raises :class:`ConfigurationError` for what
    cannot be used, with the ConfigMap's name in front.
    """
    config_map = await client.get(CONFIG_MAP, key, live=True)
    if config_map is None:
        document = default_document()
        parsed = _checked(key, document)
        try:
            await client.create(
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"namespace": key.namespace, "name": key.name},
                    "data": {"config.yaml": document},
                }
            )
        except AlreadyExists:
            return await load_configuration(client, key)
        _log.info("made the ConfigMap with the default configuration", configmap=str(key))
        return parsed
    try:
        name, document = single_document(config_map.get("data") or {})
    except ConfigurationError as error:
        raise ConfigurationError(f"ConfigMap {key}: {error}") from None
    parsed = _checked(key, document)
    return replace(parsed, warnings=[f"ConfigMap {key}: {name}: {warning}" for warning in parsed.warnings])


def _checked(key: NamespacedName, document: str) -> ParsedConfiguration:
    try:
        parsed = parse(document)
    except ConfigurationError as error:
        raise ConfigurationError(f"ConfigMap {key}: {error}") from None
    return parsed


def election(target: ClientConfig, configuration: LeaderElection, namespace: str) -> LeaderElectionOptions | None:
    """How the leader is elected among the replicas of the operator in ``namespace``; ``None``: there is one alone.

    Unless it is said, there is an election where there can be replicas: in a cluster.
    """
    wanted = target.in_cluster if configuration.leader_elect is None else configuration.leader_elect
    if not wanted:
        return None
    return LeaderElectionOptions(
        name=configuration.resource_name,
        namespace=configuration.resource_namespace or namespace,
        lease_duration=configuration.lease_duration.total_seconds(),
        renew_deadline=configuration.renew_deadline.total_seconds(),
        retry_period=configuration.retry_period.total_seconds(),
        release_on_cancel=configuration.release_on_cancel,
    )


def _metrics_tls(configuration: MetricsConfiguration, namespace: str) -> MetricsTLS | None:
    if not configuration.secure_serving:
        return None
    service = f"codeflare-operator-manager-metrics.{namespace}.svc"
    directory = Path(configuration.cert_dir) if configuration.cert_dir else None
    return MetricsTLS(cert_dir=directory, names=(service, f"{service}.cluster.local", "localhost"))


def webhook_options(
    configuration: WebhookConfiguration, namespace: str, url: WebhookURL | None = None
) -> WebhookOptions:
    """How the operator in ``namespace`` serves its webhooks; ``url``: from outside of the cluster."""
    certificates: RotatedCertificates | CertificateFiles = CertificateFiles(directory=Path(configuration.cert_dir))
    if configuration.rotate_certificates:
        certificates = RotatedCertificates(
            secret=NamespacedName(namespace, WEBHOOK_SECRET_NAME),
            common_name="codeflare",
            organization="openshift.ai",
            key_algorithm="rsa",  # the Go operator reads no other, should somebody go back to it
        )
    return WebhookOptions(
        service=ServiceReference(namespace, configuration.service_name),
        certificates=certificates,
        mutating_configuration=configuration.mutating_configuration_name,
        validating_configuration=configuration.validating_configuration_name,
        bind_address=configuration.bind_address,
        url=url,
        reuse_port=url is not None,
        drain=3.0 if url is None else 1.0,
    )


def webhook_configurations(namespace: str, **annotations: str) -> list[Object]:
    """The webhook configurations of the operator, as manifests bring them.

    ``annotations``: with ``cert-manager.io/inject-ca-from`` cert-manager says whom to trust.
    """
    configuration = OperatorConfiguration()
    options = webhook_options(configuration.webhook, namespace)
    webhooks = new_manager(ClientConfig(server="https://localhost"), configuration, namespace, options).webhooks
    found = [
        webhooks.configuration(kind, name, options.service, annotations=annotations)
        for kind, name in (
            (MUTATING_WEBHOOK_CONFIGURATION, options.mutating_configuration),
            (VALIDATING_WEBHOOK_CONFIGURATION, options.validating_configuration),
        )
    ]
    return [configuration for configuration in found if configuration is not None]


def _provided(configuration: WebhookConfiguration, directory: Path) -> WebhookConfiguration:
    """The webhooks' settings where somebody else brings the certificate and keeps the configurations."""
    return configuration.model_copy(
        update={
            "enabled": True,
            "rotate_certificates": False,
            "cert_dir": str(directory),
            "mutating_configuration_name": "",
            "validating_configuration_name": "",
        }
    )


async def _webhooks_wanted(
    target: ClientConfig, client: Client, configuration: WebhookConfiguration, url: WebhookURL | None
) -> bool:
    """Whether to serve webhooks. Where that is not said: where somebody expects it."""
    if configuration.enabled is not None:
        return configuration.enabled
    if target.in_cluster or url is not None:
        return True
    for kind, name in (
        (MUTATING_WEBHOOK_CONFIGURATION, configuration.mutating_configuration_name),
        (VALIDATING_WEBHOOK_CONFIGURATION, configuration.validating_configuration_name),
    ):
        try:
            if name and await client.get(kind, NamespacedName("", name), live=True) is not None:
                return True
        except Forbidden:
            continue
    _log.warning(
        "serving no webhooks: not in a cluster, without --webhook-url, and there are no configurations of them; "
        "nothing is injected into new RayClusters, so they run without mTLS"
    )
    return False


def new_manager(
    target: ClientConfig, configuration: OperatorConfiguration, namespace: str, webhook: WebhookOptions | None = None
) -> Manager:
    """A manager with all controllers that ``configuration`` asks for; run it.

    ``namespace`` is the operator's own; ``webhook`` says how its webhooks are served (``None``: not at all).
    """
    connection = configuration.client_connection
    limited = connection.qps is not None and connection.qps > 0
    manager = Manager(
        target,
        ManagerOptions(
            field_manager=FIELD_MANAGER,
            field_managers=[raycluster.FIELD_MANAGER, appwrapper.FIELD_MANAGER],
            namespaces=configuration.watch_namespaces or None,
            selectors=dict.fromkeys((RAY_CLUSTER, APPWRAPPER), configuration.label_selector),
            metrics_bind_address=configuration.metrics.bind_address,
            metrics_tls=_metrics_tls(configuration.metrics, namespace),
            health_bind_address=configuration.health.bind_address,
            qps=connection.qps if limited else None,
            burst=connection.burst if limited else None,
            leader_election=election(target, configuration.leader_election, namespace),
            webhook=webhook,
        ),
    )
    manager.health.add_health_check(configuration.health.liveness_endpoint_name or "healthz", ping)
    manager.health.add_ready_check(configuration.health.readiness_endpoint_name or "readyz", ping)
    around = raycluster.setup(manager, configuration.kuberay)
    if webhook is not None:
        raycluster_webhooks.setup(
            manager,
            configuration.kuberay,
            version=f"v{__version__}",
            is_openshift=around.platform.is_openshift,
            ingress_domain=lambda: around.domain.read(manager.client),
            environment=os.environ,
        )
        # also without the controller: the manifests announce it, and what was never judged would run once it is enabled
        appwrapper_webhooks.setup(manager, configuration.appwrapper)
    if configuration.appwrapper.enabled:
        if webhook is None:
            _log.warning("AppWrappers are not judged: whoever may create one may create what this operator may")
        appwrapper.setup(manager, configuration.appwrapper)
    return manager


async def run(
    target: ClientConfig,
    config_map: NamespacedName,
    *,
    webhook_url: WebhookURL | None = None,
    webhook_cert_dir: Path | None = None,
    observe: Callable[[Manager], None] | None = None,
    handle_signals: bool = True,
    task_status: TaskStatus[Manager] = TASK_STATUS_IGNORED,
) -> None:
    """Runs the operator against ``target`` until a signal, or until something crashes.

    ``webhook_url`` serves the webhooks of an operator outside of the cluster. ``webhook_cert_dir``: where cert-manager
    or OLM mounts their certificate; that it is trusted is then no business of ours. ``observe`` gets the manager before
    it starts. Raises :class:`ConfigurationError`, :class:`Unreachable`, and what
    :meth:`cfo.runtime.manager.Manager.run` raises.
    """
    try:
        async with Transport(target) as transport:
            client = Client(transport, RESTMapper(transport), field_manager=FIELD_MANAGER)
            parsed = await load_configuration(client, config_map)
            settings = parsed.configuration.webhook
            if webhook_cert_dir is not None:
                settings = _provided(settings, webhook_cert_dir)
            webhook = None
            if await _webhooks_wanted(target, client, settings, webhook_url):
                webhook = webhook_options(settings, config_map.namespace, webhook_url)
    except (TransportError, APIError) as error:
        where = f" ({target.source})" if target.source else ""
        raise Unreachable(f"cannot read the configuration from {target.server}{where}: {error}") from error
    for warning in parsed.warnings:
        _log.warning(warning)
    manager = new_manager(target, parsed.configuration, config_map.namespace, webhook)
    if observe is not None:
        observe(manager)
    task_status.started(manager)
    await manager.run(handle_signals=handle_signals)
