"""Wires the operator: configuration, manager, controllers and webhooks.

:func:`read_configuration` reads the ConfigMap, :func:`new_manager` creates a manager with the enabled controllers, and
:func:`run` calls both and runs the manager. An invalid configuration is rejected before anything is written or started,
so the operator never starts partially. A missing ConfigMap is created after all checks: an operator that is refused,
because another one serves the webhooks, leaves nothing behind.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

import structlog
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from msgspec import structs
from prometheus_client import Info

from cfo.config.document import ParsedConfiguration, default_document, parse, single_document
from cfo.config.endpoints import MetricsConfiguration, WebhookConfiguration
from cfo.config.missing_namespaces import missing_namespaces
from cfo.config.model import LeaderElection, OperatorConfiguration
from cfo.config.section import ConfigurationError
from cfo.config.watch import ConfigurationWatch, configuration_watch_rules
from cfo.config.webhook_watch import WebhookConfigurationWatch
from cfo.features import FEATURES, KINDS
from cfo.features.contract import Context, Kind
from cfo.features.roles import enabled_roles, warn_about_missing_roles
from cfo.runtime import (
    CONFIG_MAP,
    EVENT_RULES,
    NAMESPACE,
    AlreadyExists,
    APIError,
    Client,
    ClientConfig,
    Forbidden,
    LeaderElectionOptions,
    Manager,
    ManagerOptions,
    NamespacedName,
    Object,
    RESTMapper,
    Rule,
    Transport,
    TransportError,
    leader_election_rules,
)
from cfo.runtime.controller import AVAILABILITY_RULES, RunnableFailed
from cfo.runtime.manager import AnotherHolder, Heartbeat, MetricsTLS, default_identity
from cfo.runtime.objects import new_object
from cfo.runtime.process import (
    AddressUnavailable,
    Clock,
    SystemClock,
    bind_socket,
    parse_bind_address,
    ping,
)
from cfo.runtime.webhook import (
    AnotherOperator,
    CertificateFiles,
    OwnerProbe,
    RotatedCertificates,
    ServiceReference,
    WebhookOptions,
    WebhookURL,
    address_of,
    described_owner,
    has_ready_pods,
    holder_suffix,
    owner_of,
    served_elsewhere,
    webhook_rules,
)
from cfo.version import CONFIG_MAP_NAME, __version__

FIELD_MANAGER = "codeflare-operator"
"""The field manager of writes outside the controllers (the ConfigMap) and of finalizers.

It is the same as the Go operator's.
"""

_NAMESPACE_BYTES: Final = 64 * 1024 * 1024
"""How many bytes the cache holds at most for one namespace.

It is enough for some 5,000 RayClusters, with the objects that belong to them, in one namespace.
"""

_DRAIN_SECONDS: Final = 3.0
"""How long a stopping webhook server serves open connections: until all API servers call another replica."""

_DRAIN_SECONDS_WITH_URL: Final = 1.0
"""The same for an operator outside the cluster, whose successor listens on the same port."""

_KUBERNETES_NAMESPACE: Final = "kube-system"
"""The namespace in which Kubernetes' own controllers run."""

_KUEUE_NAMESPACES: Final = ("kueue-system", "openshift-kueue-operator")
"""The usual namespaces of Kueue, which suspends objects."""

_MAX_NAMED: Final = 10
"""How many names one line of the log has at most."""

_ONE_OPERATOR = (
    "only one CodeFlare operator may reconcile an object: scale the Deployment of the other one to 0 replicas, delete "
    "it (Open Data Hub's by setting codeflare to Removed in the DataScienceCluster), or delete this one"
)

METRICS_SERVICE: Final = "codeflare-operator-manager-metrics"
"""The Service for the operator's metrics, which is also the value of their label ``job``."""

WEBHOOK_SECRET_NAME = "codeflare-operator-webhook-server-cert"  # noqa: S105 (a name, not a password)

_log = structlog.get_logger("cfo.operator")


class ConfigurationUnavailable(Exception):
    """Raised when the configuration cannot be read from the API server; the message is one line.

    It has the address, or the ConfigMap.
    """


class AddressInUse(Exception):
    """Raised if another process has an address of the operator, or its webhooks; the message says what to change."""

    @classmethod
    def of_server(
        cls,
        cause: AddressUnavailable,
        config_map: NamespacedName,
        webhook_url: WebhookURL | None,
        *,
        has_config_map: bool = True,
    ) -> Self:
        """Return the error for a server that cannot listen on its address."""
        if cause.server == "webhook" and webhook_url is not None:
            return cls(f"--webhook-url: {cause.strerror}; choose another port")
        setting = f"{cause.server}.bindAddress in ConfigMap {config_map}"
        remedy = "set another port there"
        if not has_config_map:
            remedy = "create it (cfo config default prints the document), with another port"
        if cause.server != "webhook":
            remedy += ', or "0" to disable the server'
        return cls(f"{setting}: {cause.strerror}; {remedy}")

    @classmethod
    def of_operator(cls, conflict: str, config_map: NamespacedName) -> Self:
        """Return the error for an operator without webhooks; ``conflict`` says what shows another one."""
        return cls(
            f"another operator: {conflict}; {_ONE_OPERATOR}, or, if this one is an additional operator, set "
            f"labelSelector or watchNamespaces in ConfigMap {config_map} (--config selects another ConfigMap)"
        )

    @classmethod
    def of_lease(cls, conflict: str) -> Self:
        """Return the error for a Lease that another process renews; ``conflict`` names both."""
        return cls(
            f"another operator: {conflict}; only one CodeFlare operator may reconcile an object: stop the other one "
            "(scale its Deployment to 0 replicas), or, if this one is an additional operator, set NAMESPACE to a "
            "namespace of its own"
        )

    @classmethod
    def of_webhooks(
        cls, conflict: str, options: WebhookOptions, config_map: NamespacedName
    ) -> Self:
        """Return the error for webhooks that another operator serves; ``conflict`` names it."""
        subject = "--webhook-url" if options.url else "webhooks"
        return cls(
            f"{subject}: {conflict}; {_ONE_OPERATOR}, or, if this one is an additional operator, set webhook.enabled: "
            f"false, and labelSelector or watchNamespaces, in ConfigMap {config_map} (--config selects another "
            "ConfigMap)"
        )


def rules(namespace: str, *, serves_webhooks: bool = True) -> list[Rule]:
    """Return the RBAC rules that an operator in ``namespace`` always needs; manifests are generated from these.

    Optional roles (:data:`cfo.features.OPTIONAL_ROLES`) have further rules. An operator that does not serve the
    webhooks neither writes webhook configurations nor has a Secret with their certificates.
    """
    found = [
        *configuration_rules(CONFIG_MAP_NAME, namespace),
        Rule("", "configmaps", ("create",), namespace=namespace),
        *AVAILABILITY_RULES,
        *EVENT_RULES,
        *leader_election_rules(LeaderElection().resource_name, namespace),
        # metrics.secureServing authenticates scrapes
        Rule("authentication.k8s.io", "tokenreviews", "create"),
    ]
    if serves_webhooks:
        found += webhook_rules(webhook_options(WebhookConfiguration(), namespace))
    for kind in KINDS:
        found += kind.base_rules(namespace)
    return found


def configuration_rules(config_map: str, namespace: str) -> list[Rule]:
    """Return the RBAC rules for reading the configuration from ``config_map``; manifests have only the default name."""
    return [
        Rule("", "configmaps", ("get",), [config_map], namespace=namespace),
        *configuration_watch_rules(config_map, namespace),
    ]


async def read_configuration(client: Client, key: NamespacedName) -> ParsedConfiguration | None:
    """Read the configuration from the ConfigMap ``key``; ``None`` if it does not exist, so that the defaults apply.

    Only the ConfigMap with the default name may be missing: another name was given on purpose, and can be misspelled.
    The ConfigMap has exactly one key, of any name, as in the Go operator. Raises :class:`ConfigurationError`, with the
    name of the ConfigMap in the message, when the configuration is invalid, and :class:`ConfigurationUnavailable` if
    another name is not permitted.
    """
    try:
        config_map = await client.get(CONFIG_MAP, key, live=True)
    except Forbidden as error:
        if key.name == CONFIG_MAP_NAME:
            raise
        raise ConfigurationUnavailable(
            f"ConfigMap {key}: {error.message}; the manifests permit only {CONFIG_MAP_NAME}: bind a Role in namespace "
            f"{key.namespace} with get, list and watch of configmaps {key.name}, or run without --config"
        ) from error
    if config_map is None and key.name != CONFIG_MAP_NAME:
        raise ConfigurationError(
            f"ConfigMap {key}: does not exist; create it (cfo config default prints a document with the defaults), or "
            f"run without --config to use {CONFIG_MAP_NAME}"
        )
    if config_map is None:
        return None
    try:
        name, document = single_document(config_map.get("data") or {})
        parsed = parse(document)
    except ConfigurationError as error:
        raise error.within(f"ConfigMap {key}") from None
    warnings = [f"ConfigMap {key}: {name}: {warning}" for warning in parsed.warnings]
    return replace(parsed, warnings=warnings)


async def _require_namespace(client: Client, namespace: str) -> None:
    """Raise :class:`ConfigurationError` if ``namespace`` does not exist, as far as the operator is allowed to know."""
    with suppress(Forbidden):
        if await client.get(NAMESPACE, NamespacedName("", namespace), live=True) is None:
            raise ConfigurationError(
                f"the operator's namespace {namespace} does not exist; create it, or set NAMESPACE to another one"
            )


async def _warn_about_missing_namespaces(
    client: Client, configuration: OperatorConfiguration
) -> None:
    for setting, names in (await missing_namespaces(client, configuration)).items():
        _log.warning(
            "Namespaces in the configuration do not exist; correct or create them",
            setting=setting,
            namespaces=names[:_MAX_NAMED],
            missing=len(names),
        )


def _parse_default(document: str | None) -> ParsedConfiguration:
    """Return the configuration of an operator without a ConfigMap; ``document`` comes from the command line."""
    if document is None:
        return parse(default_document())
    try:
        return parse(document)
    except ConfigurationError as error:
        raise error.within("--default-config") from None


def _warn_about_enabled_webhooks(
    configuration: WebhookConfiguration, default: str | None, config_map: NamespacedName
) -> None:
    """Warn if an additional operator would serve webhooks: the first operator does, and it lacks the permissions.

    ``default`` is the document of ``--default-config``, which disables them in the manifests of additional operators.
    """
    if default is None or configuration.enabled is False:
        return
    if _parse_default(default).configuration.webhook.enabled is False:
        _log.warning(
            "The ConfigMap enables webhooks, which --default-config disables; without their permissions, this operator "
            "is never ready",
            configmap=str(config_map),
            remedy="if it is an additional operator, set webhook.enabled: false in the ConfigMap, and restart it",
        )


async def _create_configuration(client: Client, key: NamespacedName, document: str) -> None:
    """Create the ConfigMap ``key`` with the ``document`` that this operator uses."""
    data = {"config.yaml": document}
    try:
        await client.create(new_object(CONFIG_MAP, key.name, key.namespace, data=data))
    except AlreadyExists:
        return  # by another replica; ConfigurationWatch reports a difference
    _log.info("Created ConfigMap with default configuration", configmap=str(key))


def leader_election_options(
    target: ClientConfig,
    configuration: LeaderElection,
    namespace: str,
    webhook_url: WebhookURL | None = None,
) -> LeaderElectionOptions | None:
    """Return the leader election options for an operator in ``namespace``; ``None`` if leader election is disabled.

    If ``leaderElect`` is unset, leader election is enabled inside a cluster, because the operator can have replicas
    there. ``webhook_url`` becomes a part of the identity, so that the Lease proves which URL a living operator serves.
    """
    enabled = configuration.leader_elect
    if enabled is None:
        enabled = target.in_cluster
    if not enabled:
        return None
    return LeaderElectionOptions(
        name=configuration.resource_name,
        namespace=configuration.resource_namespace or namespace,
        identity=default_identity() + holder_suffix(webhook_url),
        lease_duration=configuration.lease_duration.total_seconds(),
        renew_deadline=configuration.renew_deadline.total_seconds(),
        retry_period=configuration.retry_period.total_seconds(),
        release_on_cancel=configuration.release_on_cancel,
    )


def _metrics_tls(configuration: MetricsConfiguration, namespace: str) -> MetricsTLS | None:
    if not configuration.secure_serving:
        return None
    service = f"{METRICS_SERVICE}.{namespace}.svc"
    names = (service, f"{service}.cluster.local", "localhost")
    return MetricsTLS(cert_dir=_path_or_none(configuration.cert_dir), names=names)


def _path_or_none(setting: str | None) -> Path | None:
    return Path(setting) if setting else None


def webhook_options(
    configuration: WebhookConfiguration,
    namespace: str,
    url: WebhookURL | None = None,
    election: LeaderElection | None = None,
) -> WebhookOptions:
    """Return the webhook options for an operator in ``namespace``; with ``url``, it runs outside the cluster.

    ``election`` names the Lease that proves that the operator is alive (default: the default Lease).
    """
    lease = _lease_of(election or LeaderElection(), namespace)
    certificates: RotatedCertificates | CertificateFiles
    if configuration.rotate_certificates:
        certificates = RotatedCertificates(
            secret=NamespacedName(namespace, WEBHOOK_SECRET_NAME),
            common_name="codeflare",
            organization="openshift.ai",
            key_algorithm="rsa",  # the only algorithm that the Go operator can read, for a rollback
        )
    else:
        certificates = CertificateFiles(directory=Path(configuration.cert_dir))
    return WebhookOptions(
        service=ServiceReference(namespace, configuration.service_name),
        certificates=certificates,
        mutating_configuration=configuration.mutating_configuration_name,
        validating_configuration=configuration.validating_configuration_name,
        bind_address=configuration.bind_address,
        url=url,
        reuse_port=url is not None,
        client_ca=_path_or_none(configuration.client_ca_file),
        drain=_DRAIN_SECONDS if url is None else _DRAIN_SECONDS_WITH_URL,
        lease=lease,
        controller_namespaces=[
            _KUBERNETES_NAMESPACE,
            *(configuration.controller_namespaces or _KUEUE_NAMESPACES),
        ],
    )


def webhook_configurations(
    namespace: str, configuration: OperatorConfiguration | None = None
) -> list[Object]:
    """Return the webhook configurations of an operator with ``configuration`` (default: all defaults) for manifests."""
    configuration = configuration or OperatorConfiguration()
    options = webhook_options(configuration.webhook, namespace)
    target = ClientConfig(server="https://localhost")
    manager = new_manager(target, configuration, namespace, options)
    found = []
    for kind, name in configuration.webhook.configurations:
        rendered = manager.webhooks.configuration(kind, name, options.service)
        if rendered is not None:
            found.append(rendered)
    return found


def _with_mounted_certificate(
    configuration: WebhookConfiguration, directory: Path
) -> WebhookConfiguration:
    """Return ``configuration`` with the certificate in ``directory`` and unmanaged webhook configurations.

    Another tool mounts the certificate and manages the webhook configurations.
    """
    return structs.replace(
        configuration,
        enabled=True,
        rotate_certificates=False,
        cert_dir=str(directory),
        mutating_configuration_name="",
        validating_configuration_name="",
    )


async def _should_serve_webhooks(
    target: ClientConfig,
    client: Client,
    configuration: WebhookConfiguration,
    url: WebhookURL | None,
) -> bool:
    """Return whether to serve webhooks.

    If ``enabled`` is unset, webhooks are served in a cluster, with ``url``, or if a webhook configuration of the
    operator exists.
    """
    if configuration.enabled is False and url is not None:
        _log.warning(
            "Not serving webhooks; --webhook-url is ignored", reason="webhook.enabled is false"
        )
    if configuration.enabled is not None:
        return configuration.enabled
    if target.in_cluster or url is not None:
        return True
    reason = "no webhook configuration exists"
    for kind, name in configuration.configurations:
        try:
            if await client.get(kind, NamespacedName("", name), live=True) is not None:
                return True
        except Forbidden as error:
            reason = f"it is unknown whether webhook configurations exist: {error}"
    _log.warning(
        "Not serving webhooks; no object is defaulted, injected or validated when it is created or changed",
        reason=f"not in a cluster, --webhook-url is not set, and {reason}",
    )
    return False


async def _check_webhook_owner(
    client: Client,
    options: WebhookOptions,
    config_map: NamespacedName,
    *,
    has_replicas: bool,
    is_serving: bool,
) -> Mapping[NamespacedName, str]:
    """Raise :class:`AddressInUse` if another operator serves the webhooks of our webhook configurations.

    A configuration has one address and one CA, so the webhooks of one of the two would never be called again. Another
    operator is recognized by its Lease; older versions renew none, and are recognized because they accept a connection,
    or, from outside the cluster, because their Service has ready pods. ``has_replicas``: pods of our own Service can be
    replicas of this process. ``is_serving``: this process serves the webhooks. Only administrators change these
    configurations, so no tenant can prevent the start of the operator. Returns the Leases that are
    known to have expired, with their ``renewTime`` (see :class:`.WebhookOptions`).
    """
    probe = OwnerProbe(client, SystemClock(), reads_endpoints=options.is_only)
    unserved = False
    for kind, name in options.configurations.items():
        try:
            stored = await client.get(kind, NamespacedName("", name), live=True)
        except Forbidden:
            continue  # the roles of older releases do not allow it
        if stored is None:
            # Who creates it, such as the administrator with --webhook-cert-dir, names our Service.
            is_single = options.is_only and not has_replicas
            unserved = unserved or (is_serving and is_single and options.url is None)
            continue
        other = await _living_owner(probe, stored, options)
        if (
            not other
            and options.is_only
            and not has_replicas
            and _names_own_service(stored, options)
        ):
            other = await _own_pods(client, options)
            unserved = unserved or not other
        if not other:
            other = await served_elsewhere(stored, options.address)
        if other:
            conflict = f"another operator serves the webhooks of {kind.kind} {name} at {other}"
            raise AddressInUse.of_webhooks(conflict, options, config_map)
    if unserved:
        _log.warning(
            "API servers call the webhooks at a Service, which does not lead out of the cluster; objects cannot be "
            "created or changed",
            service=f"{options.service.namespace}/{options.service.name}",
            remedy="--webhook-url https://HOST:PORT",
        )
    return dict(probe.expired)


def _check_addresses(
    configuration: OperatorConfiguration,
    webhook: WebhookOptions | None,
    config_map: NamespacedName,
    webhook_url: WebhookURL | None,
) -> None:
    """Raise :class:`AddressInUse` if a server could not listen on its address, before the ConfigMap is created."""
    servers: dict[str, str] = {
        "metrics": configuration.metrics.bind_address,
        "health": configuration.health.bind_address,
    }
    if webhook is not None:
        servers["webhook"] = (
            webhook.bind_address if webhook.url is None else webhook.url.bind_address
        )
    for name, bind_address in servers.items():
        address = parse_bind_address(bind_address)
        if address is None:
            continue
        reuse_port = name == "webhook" and webhook_url is not None
        try:
            bind_socket(address, reuse_port=reuse_port, server=name).close()
        except AddressUnavailable as error:
            raise AddressInUse.of_server(
                error, config_map, webhook_url, has_config_map=False
            ) from error


async def _living_owner(probe: OwnerProbe, configuration: Object, options: WebhookOptions) -> str:
    """Describe the living other operator that owns ``configuration``; empty if there is none."""
    own = address_of(options.address)
    lease_name = options.lease.name if options.lease is not None else ""
    owner = owner_of(configuration, own, lease_name)
    if owner is None or owner.address == own:
        return ""
    holder = await probe.living_holder(owner)
    return described_owner(owner, holder) if holder else ""


def _names_own_service(configuration: Object, options: WebhookOptions) -> bool:
    """Return whether API servers call the webhooks in ``configuration`` at our Service, and not at a URL."""
    own = address_of(options.address)
    owner = owner_of(configuration, own, "")
    return options.url is None and owner is not None and owner.address == own


async def _own_pods(client: Client, options: WebhookOptions) -> str:
    """Describe the pods at our own Service, which are another operator's; empty if there are none."""
    own = address_of(options.address)
    return f"{own}, which has ready pods" if await has_ready_pods(client, own) else ""


def new_manager(
    target: ClientConfig,
    configuration: OperatorConfiguration,
    namespace: str,
    webhook: WebhookOptions | None = None,
    clock: Clock | None = None,
) -> Manager:
    """Return a manager with all controllers that ``configuration`` enables, ready to run.

    ``namespace`` is the operator's namespace; ``webhook`` configures its webhook server (``None`` disables it).
    ``clock`` replaces the system's.
    """
    url = webhook.url if webhook is not None else None
    election = leader_election_options(target, configuration.leader_election, namespace, url)
    options = _manager_options(configuration, namespace, election, webhook)
    manager = Manager(target, options, clock=clock)
    build = Info(
        "cfo_build", "The version of the operator and of Python.", registry=manager.metrics.registry
    )
    build.info({"version": __version__, "python": platform.python_version()})
    manager.health.add_health_check(configuration.health.liveness_endpoint_name or "healthz", ping)
    manager.health.add_ready_check(configuration.health.readiness_endpoint_name or "readyz", ping)
    _setup_features(manager, configuration, namespace)
    return manager


def _manager_options(
    configuration: OperatorConfiguration,
    namespace: str,
    election: LeaderElectionOptions | None,
    webhook: WebhookOptions | None,
) -> ManagerOptions:
    selectors = {}
    field_managers: list[str] = []
    for kind in KINDS:
        field_managers += kind.field_managers
        if not kind.shared:
            selectors.update(dict.fromkeys(kind.gvks, configuration.label_selector))
    return ManagerOptions(
        field_manager=FIELD_MANAGER,
        field_managers=field_managers,
        namespaces=configuration.watch_namespaces or None,
        selectors=selectors,
        metrics_bind_address=configuration.metrics.bind_address,
        metrics_tls=_metrics_tls(configuration.metrics, namespace),
        health_bind_address=configuration.health.bind_address,
        debug_bind_address=configuration.debug.bind_address,
        namespace_bytes=_NAMESPACE_BYTES,
        qps=configuration.client_connection.qps,
        burst=configuration.client_connection.burst,
        leader_election=election,
        webhook=webhook,
    )


def _setup_features(manager: Manager, configuration: OperatorConfiguration, namespace: str) -> None:
    """Register the webhooks of all kinds, and add the controllers of enabled features."""
    enabled = [feature for feature in FEATURES if feature.is_enabled(configuration)]
    context = Context(
        manager=manager,
        configuration=configuration,
        namespace=namespace,
        serves_webhooks=manager.options.webhook is not None,
        kinds=[kind for kind in KINDS if kind in enabled],
    )
    for feature in FEATURES:
        if isinstance(feature, Kind) and context.serves_webhooks:
            feature.setup_webhooks(context)
        if feature in enabled:
            feature.setup(context)


def _is_only(
    target: ClientConfig, configuration: OperatorConfiguration, config_map: NamespacedName
) -> bool:
    """Return whether no other process may renew the Lease of this operator, if it has no leader election.

    That is so outside the cluster. The pods of a Deployment may overlap, so they only warn. An additional operator with
    a ConfigMap of another name can be in the namespace of the first one, and has the same Lease.
    """
    is_neighbour = _is_additional(configuration) and config_map.name != CONFIG_MAP_NAME
    return not target.in_cluster and not is_neighbour


def _is_additional(configuration: OperatorConfiguration) -> bool:
    """Return whether this operator reconciles only a part of the objects, so that other operators can run."""
    return bool(configuration.label_selector or configuration.watch_namespaces)


def _excludes_others(configuration: OperatorConfiguration) -> bool:
    """Return whether no other operator may run: this one reconciles all objects of a kind that no others share."""
    own = [kind for kind in KINDS if kind.is_enabled(configuration) and not kind.shared]
    return bool(own) and not _is_additional(configuration)


def _lease_of(configuration: LeaderElection, namespace: str) -> NamespacedName:
    """Return the Lease of an operator in ``namespace``."""
    return NamespacedName(
        configuration.resource_namespace or namespace, configuration.resource_name
    )


def _show_others(
    manager: Manager, target: ClientConfig, parsed: ParsedConfiguration, config_map: NamespacedName
) -> None:
    """Let other operators notice one that owns no webhook configuration, and this one notice them.

    It renews the Lease without leader election, and ends if another process renews it, or an operator is installed with
    webhooks. Without leader election, the replicas of one Deployment do not notice each other.
    """
    webhook = manager.options.webhook
    if manager.options.leader_election is not None:
        return
    if target.in_cluster:
        _log.info("Leader election is disabled, each replica reconciles; run only one")
    if webhook and webhook.configurations:
        return
    configuration = parsed.configuration
    if _is_only(target, configuration, config_map):
        lease = _lease_of(configuration.leader_election, config_map.namespace)
        heartbeat = Heartbeat(target, lease, None, manager.clock, is_only=True)
        manager.add(heartbeat, phase=heartbeat.phase)
        is_unset = webhook is None and configuration.webhook.enabled is None
        if is_unset and not _is_additional(configuration):
            configurations = configuration.webhook.configurations
            manager.add(WebhookConfigurationWatch(manager, configurations))
        return
    _log.warning(
        "Other operators cannot notice this one; two would overwrite each other's children",
        reason="no webhook configuration has its address, and without leader election it renews no Lease",
        remedy=f"set leaderElection.leaderElect: true in ConfigMap {config_map} and restart the operator; then "
        "operators with the same Lease, and other replicas, wait, and cfo doctor finds the Lease",
    )


async def run(
    target: ClientConfig,
    config_map: NamespacedName,
    *,
    webhook_url: WebhookURL | None = None,
    webhook_cert_dir: Path | None = None,
    default_configuration: str | None = None,
    configure_manager: Callable[[Manager], None] | None = None,
    handle_signals: bool = True,
    clock: Clock | None = None,
    task_status: TaskStatus[Manager] = TASK_STATUS_IGNORED,
) -> None:
    """Run the operator against ``target`` until it receives a signal or a component crashes.

    ``webhook_url``: the URL of the webhooks of an operator outside the cluster. ``webhook_cert_dir``: the directory in
    which cert-manager or OLM mounts the certificate of the webhooks; they also manage the CA bundle.
    ``default_configuration``: the YAML document with which a missing ConfigMap is created (``None``: all defaults).
    ``configure_manager`` is called with the manager before it starts; ``clock`` replaces the system's. Raises
    :class:`ConfigurationError`, :class:`ConfigurationUnavailable`, :class:`AddressInUse`, and the exceptions of
    :meth:`cfo.runtime.manager.manager.Manager.run`.
    """
    webhook: WebhookOptions | None = None
    try:
        async with Transport(target) as transport:
            mapper = RESTMapper(transport)
            client = Client(transport, mapper, field_manager=FIELD_MANAGER)
            stored = await read_configuration(client, config_map)
            if stored is None and not target.in_cluster:
                await _require_namespace(client, config_map.namespace)
            parsed = stored or _parse_default(default_configuration)
            settings = parsed.configuration.webhook
            _warn_about_enabled_webhooks(settings, default_configuration, config_map)
            if webhook_cert_dir is not None:
                settings = _with_mounted_certificate(settings, webhook_cert_dir)
            namespace = config_map.namespace
            election = parsed.configuration.leader_election
            is_only = _is_only(target, parsed.configuration, config_map)
            if await _should_serve_webhooks(target, client, settings, webhook_url):
                webhook = webhook_options(settings, namespace, webhook_url, election)
                webhook = replace(webhook, is_only=is_only)
            checked = webhook
            if is_only and _excludes_others(parsed.configuration):
                # Also if this operator does not serve or manage them: they show the operator that does.
                configured = parsed.configuration.webhook
                checked = webhook_options(configured, namespace, webhook_url, election)
                checked = replace(checked, is_only=True)
            if checked is not None:
                has_replicas = election.leader_elect is True
                expired = await _check_webhook_owner(
                    client,
                    checked,
                    config_map,
                    has_replicas=has_replicas,
                    is_serving=webhook is not None,
                )
                webhook = webhook and replace(webhook, expired=expired)
            roles = await enabled_roles(client, parsed.configuration)
            await warn_about_missing_roles(
                client, roles, parsed.configuration, config_map.namespace
            )
            await _warn_about_missing_namespaces(client, parsed.configuration)
            if stored is None:
                _check_addresses(parsed.configuration, webhook, config_map, webhook_url)
                await _create_configuration(client, config_map, parsed.text)
    except (TransportError, APIError) as error:
        where = f" ({target.source})" if target.source else ""
        raise ConfigurationUnavailable(
            f"cannot read the configuration from {target.server}{where}: {error}"
        ) from error
    for warning in parsed.warnings:
        _log.warning(warning)
    manager = new_manager(target, parsed.configuration, config_map.namespace, webhook, clock)
    manager.mapper.adopt(mapper)
    _show_others(manager, target, parsed, config_map)
    manager.add(ConfigurationWatch(manager, config_map, parsed))
    if configure_manager is not None:
        configure_manager(manager)
    task_status.started(manager)
    try:
        await manager.run(handle_signals=handle_signals)
    except RunnableFailed as error:
        cause = error.__cause__
        if isinstance(cause, AnotherHolder):
            raise AddressInUse.of_lease(str(cause)) from error
        if isinstance(cause, AnotherOperator) and webhook is not None:
            raise AddressInUse.of_webhooks(str(cause), webhook, config_map) from error
        if isinstance(cause, AnotherOperator):
            raise AddressInUse.of_operator(str(cause), config_map) from error
        if isinstance(cause, AddressUnavailable):
            raise AddressInUse.of_server(cause, config_map, webhook_url) from error
        raise
