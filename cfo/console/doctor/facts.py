"""Reads the facts for the checks from a cluster. No request changes anything.

Each function sends the requests of one check and returns what it read; it does not decide whether that is good or bad.
They raise the errors of :class:`cfo.runtime.Client`, for example :class:`cfo.runtime.Forbidden`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple

import orjson
from msgspec import structs

from cfo import operator
from cfo.api.reading import number, path, time_of
from cfo.checks.components import parse_version, version_of
from cfo.config.document import ParsedConfiguration, parse, single_document
from cfo.config.endpoints import WebhookConfiguration
from cfo.config.model import LeaderElection, OperatorConfiguration
from cfo.config.section import ConfigurationError
from cfo.config.values import Selector
from cfo.console.doctor.arguments import (
    configuration_name,
    default_config,
    first_configuration,
    manager_container,
    option,
)
from cfo.console.lease_holder import living_holder
from cfo.console.namespaces import has_namespace
from cfo.manifests.names import DEPLOYMENT as DEPLOYMENT_NAME
from cfo.manifests.overlays import SCRAPER_LABEL, metrics_rule
from cfo.runtime import (
    CONFIG_MAP,
    DEPLOYMENT,
    GVK,
    NAMESPACE,
    NETWORK_POLICY,
    POD,
    SECRET,
    SERVICE,
    APIError,
    Client,
    Clock,
    Forbidden,
    LabelSelector,
    NamespacedName,
    Object,
    UnknownKind,
    is_deleting,
)
from cfo.runtime.client import APIRequest
from cfo.runtime.objects import LEASE
from cfo.runtime.webhook import gaps_of, mark_of, namespace_selector, owner_of, ready_endpoints
from cfo.version import CONFIG_MAP_NAME

_GO_GRACE_PERIOD: Final = 10
"""The terminationGracePeriodSeconds of the Go operator's manifests; this operator needs more time to stop."""


@dataclass(frozen=True, slots=True)
class Installation:
    """The operator in ``namespace``, which reads the ConfigMap ``config_name``.

    ``parsed`` is the configuration in the ConfigMap ``config_map``, or the error in it; without a ConfigMap, it is the
    one with which the Deployment creates it, ``None`` if there is neither.
    ``config_error`` and ``deployment_error``: why ConfigMap and Deployment were not read. ``pods`` are those of the
    Deployment that are not being deleted. ``lease`` is that of the
    leader election or the heartbeat, ``None`` also if it cannot be read. ``has_namespace``: the namespace exists, or
    cannot be read.
    """

    namespace: str
    config_map: Object | None = None
    parsed: ParsedConfiguration | ConfigurationError | None = None
    config_error: APIError | None = None
    deployment: Object | None = None
    deployment_error: APIError | None = None
    pods: tuple[Object, ...] = ()
    lease: Object | None = None
    has_namespace: bool = True
    config_name: str = CONFIG_MAP_NAME

    @property
    def configuration(self) -> OperatorConfiguration:
        """The valid configuration, or the defaults."""
        if isinstance(self.parsed, ParsedConfiguration):
            return self.parsed.configuration
        return OperatorConfiguration()

    @property
    def wanted_replicas(self) -> int:
        """The number of pods that the Deployment should have; 0 without one."""
        if self.deployment is None:
            return 0
        return int((self.deployment.get("spec") or {}).get("replicas", 1))

    @property
    def ready_replicas(self) -> int:
        """The number of ready pods of the Deployment."""
        return int(((self.deployment or {}).get("status") or {}).get("readyReplicas") or 0)

    @property
    def is_rolling_out(self) -> bool:
        """Whether pods of an older template of the Deployment still exist, or a new template was not seen yet."""
        deployment = self.deployment or {}
        status = deployment.get("status") or {}
        generation = number(path(deployment, "metadata", "generation"))
        observed = number(status.get("observedGeneration"))
        if 0 < observed < generation:
            return True
        return number(status.get("replicas")) > number(status.get("updatedReplicas"))

    def has_lost_configuration(self, now: datetime) -> bool:
        """Return whether the ConfigMap was deleted while the operator runs, which creates it when it starts."""
        if self.config_map is not None or self.config_error is not None:
            return False
        return self.ready_replicas > 0 or outside_operator(self, now) is not None

    @property
    def part(self) -> OperatorConfiguration | None:
        """The part of the objects that an additional operator reconciles; ``None`` for any other operator.

        Only the Deployment of an additional operator has the option ``--default-config`` with a document that disables
        the webhooks. This document names the part, also if the ConfigMap has been changed.
        """
        document = default_config(self.deployment)
        if document is None:
            return None
        with suppress(ConfigurationError):
            created = parse(document).configuration
            if created.webhook.enabled is not False:
                return None
            configuration = self.configuration
            has_part = configuration.watch_namespaces or configuration.label_selector
            return configuration if has_part else created
        return self.configuration

    @property
    def lost_part(self) -> OperatorConfiguration | None:
        """The part of an additional operator whose valid ConfigMap has none, so that it reconciles all objects."""
        part = self.part
        if part is None or not isinstance(self.parsed, ParsedConfiguration):
            return None
        configuration = self.parsed.configuration
        if configuration.watch_namespaces or configuration.label_selector:
            return None
        return part

    @property
    def with_part(self) -> Installation:
        """This installation, or with the part that its ConfigMap has lost, whose permissions it needs."""
        part = self.lost_part
        if part is None or not isinstance(self.parsed, ParsedConfiguration):
            return self
        configuration = structs.replace(
            self.parsed.configuration,
            watch_namespaces=part.watch_namespaces,
            label_selector=part.label_selector,
        )
        return replace(self, parsed=replace(self.parsed, configuration=configuration))

    @property
    def lacks_disabled_webhooks(self) -> bool:
        """Whether the valid ConfigMap of an additional operator does not disable the webhooks.

        It is not allowed to serve those of the first operator, so it is never ready.
        """
        if self.part is None or not isinstance(self.parsed, ParsedConfiguration):
            return False
        webhook = self.parsed.configuration.webhook
        has_own = webhook.configurations != WebhookConfiguration().configurations
        return webhook.enabled is not False and not has_own

    @property
    def with_disabled_webhooks(self) -> Installation:
        """This installation, or with the webhooks disabled that its ConfigMap has to disable."""
        if not self.lacks_disabled_webhooks or not isinstance(self.parsed, ParsedConfiguration):
            return self
        webhook = structs.replace(self.parsed.configuration.webhook, enabled=False)
        configuration = structs.replace(self.parsed.configuration, webhook=webhook)
        return replace(self, parsed=replace(self.parsed, configuration=configuration))


class OutsideOperator(NamedTuple):
    """The operator that runs outside the Deployment: the holder of the Lease, and since when it has the Lease."""

    holder: str
    since: datetime | None


def outside_operator(installation: Installation, now: datetime) -> OutsideOperator | None:
    """Return the operator that renews the Lease although no pod of the Deployment is ready; ``None`` if none does.

    Its pods cannot become ready while the one outside serves the webhooks.
    """
    if installation.wanted_replicas > 0 and installation.ready_replicas > 0:
        return None
    if installation.lease is None:
        return None
    holder = living_holder(installation.lease, now)
    if not holder or holder.startswith(f"{DEPLOYMENT_NAME}-"):  # a pod whose Lease has not expired
        return None
    return OutsideOperator(holder, time_of(path(installation.lease, "spec", "acquireTime")))


class NarrowedWebhook(NamedTuple):
    """A webhook that objects bypass, because of a ``setting`` that the manifests do not have so, for a ``reason``.

    ``is_stored``: the manifests do not name the setting, so to apply them leaves it as it is. ``is_fixed``: it is a
    choice of namespaces that no tenant can change. ``wanted``: what the manifests have; ``None`` for nothing.
    """

    name: str
    setting: str
    reason: str
    is_stored: bool
    is_fixed: bool = False
    wanted: Any = None


@dataclass(frozen=True, slots=True)
class WebhookConfigurationFacts:
    """One webhook configuration of a ``kind``: its webhooks by name, the missing ones, and those that objects bypass.

    ``services`` maps the Services of the webhooks to the number of ready endpoints, ``None`` if the Service does not
    exist; ``deleted_namespaces`` are the namespaces of Services that do not exist either. ``urls`` are the addresses of
    webhooks outside the cluster; ``bundles`` are the CA bundles (PEM). ``lease`` is the Lease of the operator that
    registered ``urls``: empty if it does not exist, ``None`` if it is unknown. ``lease_namespace`` is its namespace,
    empty if it is unknown. ``is_marked``: this operator, not the Go operator, has served the webhooks.
    """

    name: str
    exists: bool
    missing: tuple[str, ...] = ()
    narrowed: tuple[NarrowedWebhook, ...] = ()
    kind: str = ""
    services: Mapping[NamespacedName, int | None] = field(default_factory=dict)
    deleted_namespaces: frozenset[str] = frozenset()
    urls: tuple[str, ...] = ()
    bundles: tuple[bytes, ...] = ()
    lease: Object | None = None
    lease_namespace: str = ""
    is_marked: bool = False

    def is_abandoned(self, now: datetime) -> bool:
        """Return whether the operator that registered ``urls`` does not renew its Lease any more."""
        return bool(self.urls) and self.lease is not None and not living_holder(self.lease, now)


def runs_outside(
    installation: Installation, webhooks: Iterable[WebhookConfigurationFacts], now: datetime
) -> bool:
    """Return whether the operator runs outside the cluster, by its Lease, or by the URL of ``webhooks``."""
    if outside_operator(installation, now) is not None:
        return True
    if installation.deployment is not None or installation.deployment_error is not None:
        return False
    election = installation.configuration.leader_election
    own_leases = {"", election.resource_namespace or installation.namespace}
    return any(
        fact.urls and fact.lease_namespace in own_leases and not fact.is_abandoned(now)
        for fact in webhooks
    )


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The version of an API server, whether it is that of envtest, and its clock compared with ours in seconds.

    ``skew`` is ``None`` if it is unknown.
    """

    version: str
    is_embedded: bool
    skew: float | None


async def read_server(client: Client, clock: Clock) -> ServerFacts:
    """Return what an API server says about itself; the header ``Date`` has a precision of 1 s."""
    before = clock.now()
    request = APIRequest("GET", "/version", verb="get", resource="version")
    response = await client.transport.request(request)
    after = clock.now()
    document = orjson.loads(response.body)
    version = str(document.get("gitVersion") or "")
    is_embedded = document.get("gitCommit") == "embedded"
    try:
        date = parsedate_to_datetime(response.headers.get("Date", "")).astimezone(UTC)
    except ValueError:
        return ServerFacts(version, is_embedded, None)
    return ServerFacts(version, is_embedded, _clock_skew(date, before, after))


def _clock_skew(date: datetime, before: datetime, after: datetime) -> float:
    """Return the seconds by which a server's clock is ahead; 0 if the difference is within the precision.

    ``date`` is the time of the response, cut to whole seconds, so that the server responded within the second after it.
    By our clock, the request was sent at ``before`` and the response arrived at ``after``.
    """
    duration = after - before
    ours = before + duration / 2
    difference = (date - ours).total_seconds() + 0.5
    precision = 0.5 + duration.total_seconds() / 2
    return difference if abs(difference) > precision else 0.0


async def find_namespace(client: Client) -> str:
    """Return the namespace of the operator that serves the webhooks; empty if none is known.

    A namespace that does not exist, which has no operator, is ignored. It is that of their Service, or, if an operator
    outside the cluster serves them at a URL, that of the Lease in its mark. Only cluster-scoped objects are read: any
    user can create a Deployment or a ConfigMap with the operator's name in a namespace of its own, and who follows a
    command with that namespace installs the operator there.
    """
    for gvk, name in WebhookConfiguration().configurations:
        with suppress(APIError):
            configuration = await client.get(gvk, NamespacedName("", name), live=True)
            for namespace in _namespaces_of(configuration or {}):
                if await has_namespace(client, namespace):
                    return namespace
    return ""


def _namespaces_of(configuration: Object) -> Sequence[str]:
    """Return the namespaces of the operators in a webhook configuration, each once; that of the mark is the last."""
    found: dict[str, None] = {}
    for webhook in configuration.get("webhooks") or ():
        service = (webhook.get("clientConfig") or {}).get("service") or {}
        if service.get("namespace"):
            found[str(service["namespace"])] = None
    owner = owner_of(configuration, "", "")
    if owner is not None and owner.lease is not None:
        found[owner.lease.namespace] = None
    return list(found)


async def read_installation(
    client: Client, namespace: str, config_name: str | None = None
) -> Installation:
    """Read the Deployment with its pods, the ConfigMap, and the Lease.

    ``config_name``: the name of the ConfigMap; by default that which the Deployment's arguments name.
    """
    deployment = None
    deployment_error = None
    pods: list[Object] = []
    try:
        key = NamespacedName(namespace, DEPLOYMENT_NAME)
        deployment = await client.get(DEPLOYMENT, key, live=True)
        if deployment is not None:
            selector = str(LabelSelector.of(deployment["spec"].get("selector") or {}))
            pods = await client.list(POD, namespace=namespace, label_selector=selector, live=True)
    except APIError as error:
        deployment_error = error
    config_name = config_name or configuration_name(deployment)
    parsed: ParsedConfiguration | ConfigurationError | None = None
    config_map = None
    config_error = None
    try:
        config_map = await client.get(CONFIG_MAP, NamespacedName(namespace, config_name), live=True)
        if config_map is not None:
            _, document = single_document(config_map.get("data") or {})
            parsed = parse(document)
    except APIError as error:
        config_error = error
    except ConfigurationError as error:
        parsed = error
    if config_map is None and config_error is None and deployment is not None:
        with suppress(ConfigurationError):
            parsed = first_configuration(deployment)
    election = LeaderElection()
    if isinstance(parsed, ParsedConfiguration):
        election = parsed.configuration.leader_election
    lease_key = NamespacedName(election.resource_namespace or namespace, election.resource_name)
    lease = None
    with suppress(APIError):
        lease = await client.get(LEASE, lease_key, live=True)
    return Installation(
        namespace=namespace,
        has_namespace=deployment is not None or await has_namespace(client, namespace),
        config_map=config_map,
        parsed=parsed,
        config_error=config_error,
        deployment=deployment,
        deployment_error=deployment_error,
        pods=tuple(pod for pod in pods if not is_deleting(pod)),
        lease=lease,
        config_name=config_name,
    )


async def read_webhooks(
    client: Client, installation: Installation
) -> list[WebhookConfigurationFacts]:
    """Read the webhook configurations, and the endpoints of their Services."""
    expected: dict[str, dict[str, Object]] = {}
    manifests = operator.webhook_configurations(installation.namespace, installation.configuration)
    for manifest in manifests:
        expected[manifest["kind"]] = {webhook["name"]: webhook for webhook in manifest["webhooks"]}
    found: list[WebhookConfigurationFacts] = []
    for kind, name in installation.configuration.webhook.configurations:
        obj = await client.get(kind, NamespacedName("", name), live=True)
        if obj is None:
            found.append(WebhookConfigurationFacts(name, exists=False))
            continue
        webhooks = obj.get("webhooks") or []
        names = {str(webhook.get("name")) for webhook in webhooks}
        wanted = expected.get(kind.kind, {})
        missing = wanted.keys() - names
        narrowed: list[NarrowedWebhook] = []
        keys: set[NamespacedName] = set()
        urls: set[str] = set()
        bundles: dict[bytes, None] = {}
        for webhook in webhooks:
            if webhook["name"] in wanted:
                narrowed += narrowed_settings(webhook, wanted[webhook["name"]])
            config = webhook.get("clientConfig") or {}
            service = config.get("service")
            if service:
                keys.add(NamespacedName(str(service.get("namespace")), str(service.get("name"))))
            if config.get("url"):
                urls.add(str(config["url"]))
            bundles[base64.b64decode(str(config.get("caBundle") or ""))] = None
        owner = owner_of(obj, "", "")
        lease = owner.lease if owner is not None else None
        services = {key: await _ready_endpoints(client, key) for key in sorted(keys)}
        unserved = {key.namespace for key, ready in services.items() if ready is None}
        found.append(
            WebhookConfigurationFacts(
                name,
                exists=True,
                missing=tuple(sorted(missing)),
                narrowed=tuple(narrowed),
                kind=kind.kind,
                services=services,
                deleted_namespaces=frozenset(
                    [each for each in unserved if not await has_namespace(client, each)]
                ),
                urls=tuple(sorted(urls)),
                bundles=tuple(bundles),
                lease=await _read_lease(client, lease),
                lease_namespace=lease.namespace if lease is not None else "",
                is_marked=mark_of(obj) is not None,
            )
        )
    return found


def narrowed_settings(webhook: Object, wanted: Object) -> Iterator[NarrowedWebhook]:
    """Yield the settings with which objects bypass ``webhook``, which is ``wanted`` in the manifests."""
    name = str(webhook["name"])
    settings: set[str] = set()
    for gap in gaps_of(webhook, wanted):
        settings.add(gap.setting)
        is_stored = gap.setting not in wanted
        wanted_value = wanted.get(gap.setting)
        yield NarrowedWebhook(name, gap.setting, gap.reason, is_stored, wanted=wanted_value)
    if webhook.get("namespaceSelector") and "namespaceSelector" not in settings:
        reason = (
            f"its namespaceSelector selects only the namespaces with {namespace_selector(webhook)}"
        )
        yield NarrowedWebhook(name, "namespaceSelector", reason, is_stored=True, is_fixed=True)


async def _read_lease(client: Client, lease: NamespacedName | None) -> Object | None:
    """Return the Lease that the mark of a webhook configuration names, as :class:`WebhookConfigurationFacts` has it."""
    if lease is None:
        return None
    try:
        return await client.get(LEASE, lease, live=True) or {}
    except APIError:
        return None


async def _ready_endpoints(client: Client, service: NamespacedName) -> int | None:
    if await client.get(SERVICE, service, live=True) is None:
        return None
    return await ready_endpoints(client, service)


async def read_certificate(
    client: Client, installation: Installation
) -> tuple[NamespacedName, bytes | None]:
    """Return the Secret of the webhooks and its serving certificate as PEM (``None`` if missing), without the key."""
    secret = NamespacedName(installation.namespace, certificate_secret(installation))
    obj = await client.get(SECRET, secret, live=True)
    encoded = ((obj or {}).get("data") or {}).get("tls.crt")
    if not encoded:
        return secret, None
    return secret, base64.b64decode(encoded)


def certificate_secret(installation: Installation) -> str:
    """Return the name of the Secret: the one that is mounted for ``--webhook-cert-dir``, or the operator's own."""
    folder = option(installation.deployment, "--webhook-cert-dir")
    template = path(installation.deployment or {}, "spec", "template") or {}
    secrets: dict[str, str] = {}
    for volume in (template.get("spec") or {}).get("volumes") or ():
        if volume.get("secret"):
            secrets[volume["name"]] = str(volume["secret"]["secretName"])
    for mount in manager_container(template).get("volumeMounts") or ():
        if mount.get("mountPath") == folder and mount["name"] in secrets:
            return secrets[mount["name"]]
    return operator.WEBHOOK_SECRET_NAME


def image_of(template: Mapping[str, Any]) -> str:
    """Return the image of the first container of a pod or pod template."""
    return str(manager_container(template).get("image") or "")


def is_go_deployment(deployment: Object | None, version: str) -> bool:
    """Return whether a Deployment is that of the Go operator, by its fields and by the ``version`` of this program.

    Names, labels and the entry point are the same, but the Go operator's container has no port for its health checks,
    and its grace period is shorter. After a rollback the port can remain, because another field manager owns it. An
    image of this operator in the Deployment of the Go operator is only known by the tag ``version``. The mark in the
    webhook configurations shows nothing, because it stays after a rollback.
    """
    if deployment is None:
        return False
    template = path(deployment, "spec", "template") or {}
    ports = {each.get("name") for each in manager_container(template).get("ports") or ()}
    grace_period = path(template, "spec", "terminationGracePeriodSeconds")
    has_go_fields = "health" not in ports or grace_period == _GO_GRACE_PERIOD
    return has_go_fields and version_of(image_of(template)) != parse_version(version)


def for_all_objects(configuration: OperatorConfiguration) -> OperatorConfiguration:
    """Return ``configuration`` without the part of the objects that it selects, which the Go operator ignores."""
    return structs.replace(configuration, watch_namespaces=[], label_selector=Selector(""))


async def is_served(client: Client, gvk: GVK) -> bool:
    """Return whether the API server serves a kind."""
    try:
        await client.mapper.resource(gvk)
    except UnknownKind:
        return False
    return True


async def admits_no_scraper(client: Client, namespace: str) -> bool:
    """Return whether the NetworkPolicy of the manifests admits no namespace to the metrics, as far as it is known.

    An administrator may have changed the policy, which then admits others.
    """
    try:
        key = NamespacedName(namespace, DEPLOYMENT_NAME)
        policy = await client.get(NETWORK_POLICY, key, live=True)
        if policy is None or metrics_rule() not in (path(policy, "spec", "ingress") or []):
            return False
        label = ",".join(f"{name}={value}" for name, value in SCRAPER_LABEL.items())
        return not await client.list(NAMESPACE, label_selector=label, live=True)
    except Forbidden:
        return False


def started_at(pod: Object) -> datetime | None:
    """Return when the first container of ``pod`` was started; ``None`` if it does not run."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        running = (status.get("state") or {}).get("running") or {}
        if running.get("startedAt"):
            return time_of(running["startedAt"])
    return None
