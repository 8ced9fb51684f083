"""Each alert fires when what it describes happens, and not before: evaluated by Prometheus's own engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
from msgspec import structs
from prometheus_client import generate_latest

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.flux.names import FLUX_SETUP
from cfo.api.raycluster.certificates import CA_LIFETIME, RENEWAL_ANNOTATION
from cfo.api.raycluster.cluster import CERTIFICATE_CONTAINER, TLS_VARIABLE
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.config.document import ParsedConfiguration
from cfo.config.model import OperatorConfiguration
from cfo.config.watch import ConfigurationWatch
from cfo.controllers.appwrapper.metrics import PhaseMetrics
from cfo.controllers.flux.metrics import FluxSetupMetrics
from cfo.controllers.inferencestack.metrics import ClaimMetrics, StackMetrics
from cfo.controllers.raycluster.metrics import RayClusterMetrics
from cfo.operator import new_manager
from cfo.runtime.cache.entry import Entry, EntryDecoder
from cfo.runtime.cache.store import Event
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.objects.kinds import CONFIG_MAP
from cfo.runtime.objects.unstructured import NamespacedName, Object
from cfo.runtime.webhook.metrics import CertificateMetrics, OverwriteMetrics, WebhookMetrics
from test.support.manifests import ALERTS_NAMESPACE, alerts
from test.support.prometheus import Change, firing_alerts, needs_promtool
from test.support.ray_clusters import ray_cluster

pytestmark = needs_promtool

DAY = 24 * 3600.0
NAMESPACES = {"namespace": "team"}


class Objects:
    """Replaces the reader of a cache that contains ``objects``."""

    def __init__(self, *objects: Object, metadata_only: bool = False) -> None:
        self.objects = list(objects)
        self._metadata_only = metadata_only

    def entries(self) -> Iterator[Entry]:
        yield from map(self._entry, self.objects)

    def entry(self, key: NamespacedName) -> Entry | None:
        return next((entry for entry in self.entries() if entry.key == key), None)

    def _entry(self, obj: Object) -> Entry:
        decoder = EntryDecoder(RAY_CLUSTER, metadata_only=self._metadata_only)
        return decoder.decode(orjson.dumps(obj))


def stored(obj: Object, **metadata: Any) -> Object:
    return {
        **obj,
        "metadata": {
            **obj["metadata"],
            "namespace": "team",
            "uid": "u",
            "resourceVersion": "1",
            **metadata,
        },
    }


class Operator:
    """The metrics of an operator with all features, whose caches are empty."""

    def __init__(self) -> None:
        config = OperatorConfiguration.from_document({"appwrapper": {"enabled": True}})
        self.manager = new_manager(ClientConfig(server="https://localhost"), config, "ns")
        registry = self.manager.metrics.registry
        self.manager.metrics.leader_election_status.labels("lease").set(1)
        self.clusters, self.secrets, self.setups = Objects(), Objects(metadata_only=True), Objects()
        self.stacks, self.wrappers = Objects(), Objects()
        kuberay = structs.replace(config.kuberay, mtls_enabled=True)
        RayClusterMetrics(registry, kuberay, self.clusters, self.secrets)  # type: ignore[arg-type]
        PhaseMetrics(registry, self.wrappers)  # type: ignore[arg-type]
        FluxSetupMetrics(registry, self.setups)  # type: ignore[arg-type]
        StackMetrics(registry).readers.append(self.stacks)  # type: ignore[arg-type]
        self.claims = ClaimMetrics(registry)
        self.webhooks, self.certificate = WebhookMetrics(registry), CertificateMetrics(registry)
        self.webhooks.expect("/validate")
        self.controller = self.manager.metrics.controller("mine", 1)
        self.overwrites = self.manager.metrics.child_overwrites.labels("Ingress")
        self.overwrites.inc()  # a single report, which fires nothing
        self.webhook_overwrites = OverwriteMetrics(registry)
        self.webhook_overwrites.count("MutatingWebhookConfiguration", "mutating")
        self.configuration = ConfigurationWatch(
            self.manager, NamespacedName("ns", "config"), ParsedConfiguration(config)
        )

    def scrape(self) -> str:
        return generate_latest(self.manager.metrics.registry).decode()


def without_mtls(operator: Operator) -> None:
    operator.clusters.objects = [stored(ray_cluster())]


def expiring_ca(operator: Operator) -> None:
    ray = {"name": "ray-head", "image": "ray", "env": [TLS_VARIABLE]}
    cluster = stored(
        ray_cluster(head={"initContainers": [{"name": CERTIFICATE_CONTAINER}], "containers": [ray]})
    )
    operator.clusters.objects = [cluster]
    renewal = time.time() + 20 * DAY - (CA_LIFETIME / 3).total_seconds()
    annotations = {RENEWAL_ANNOTATION: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(renewal))}
    owner = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "name": "rc",
        "uid": "u",
        "controller": True,
    }
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ca-secret-rc"}}
    operator.secrets.objects = [
        stored(secret, annotations=annotations, ownerReferences=[owner], uid="s")
    ]


def flux_setup(status: dict[str, Any]) -> Callable[[Operator], None]:
    def add(operator: Operator) -> None:
        setup = {
            "apiVersion": FLUX_SETUP.api_version,
            "kind": FLUX_SETUP.kind,
            "metadata": {"name": "queue"},
        }
        operator.setups.objects = [stored({**setup, "spec": {"max-size": 10}, "status": status})]

    return add


def failing_application(operator: Operator) -> None:
    stack = {"apiVersion": "example.com/v1", "kind": "InferenceStack", "metadata": {"name": "s"}}
    operator.stacks.objects = [stored({**stack, "status": {"applications": [{"state": "Failed"}]}})]


def changed_configuration(operator: Operator) -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config"}}
    changed = stored(
        {**config_map, "data": {"config.yaml": "kuberay: {ingressDomain: other.example.com}"}}
    )
    entry = EntryDecoder(CONFIG_MAP).decode(orjson.dumps(changed))
    operator.configuration._handle(Event("ADDED", entry.key, None, entry))


def failing_reviews(operator: Operator) -> None:
    operator.webhooks.record_review("/validate", 500)


def slow_reviews(operator: Operator) -> None:
    for _ in range(100):
        operator.webhooks.observe("/validate", 200, 5.0)


def expiring_certificate(operator: Operator) -> None:
    operator.certificate.expires.set(time.time() + 3 * DAY)


def failing_reconciles(operator: Operator) -> None:
    for _ in range(10):
        operator.controller.errors.inc()
        operator.controller.error.inc()


def growing_queue(operator: Operator) -> None:
    operator.manager.metrics.queue("mine").depth[0].set(101)


def lost_leadership(operator: Operator) -> None:
    operator.manager.metrics.leader_election_status.labels("lease").set(0)


def unsynced_informer(operator: Operator) -> None:
    operator.manager.cache.informer(CONFIG_MAP)  # never started, as without the permission to list


def left_out_namespace(operator: Operator) -> None:
    operator.manager.cache.unavailable.replace(operator, {"team": "configmaps: list, watch"})


def overwritten_children(operator: Operator) -> None:
    operator.overwrites.inc()


def overwritten_webhooks(operator: Operator) -> None:
    operator.webhook_overwrites.count("MutatingWebhookConfiguration", "mutating")


def blocked_loop(operator: Operator) -> None:
    operator.manager.metrics.event_loop_lag.observe(3.0)


def failed_wrapper(operator: Operator) -> None:
    wrapper = {
        "apiVersion": APPWRAPPER.api_version,
        "kind": APPWRAPPER.kind,
        "metadata": {"name": "w"},
    }
    operator.wrappers.objects = [stored({**wrapper, "status": {"phase": "Failed"}})]


def unclaimed_stack(operator: Operator) -> None:
    operator.claims.set(APPWRAPPER, NamespacedName("team", "s"), "Unclaimed")


CASES: dict[str, tuple[Callable[[Operator], None], dict[str, str]]] = {
    "RayClustersWithoutMTLS": (without_mtls, NAMESPACES),
    "RayClusterCAExpires": (expiring_ca, NAMESPACES),
    "AppWrappersFail": (failed_wrapper, NAMESPACES),
    "CodeFlareOperatorConfigurationChanged": (changed_configuration, {}),
    "CodeFlareOperatorChildrenOverwritten": (overwritten_children, {"kind": "Ingress"}),
    "CodeFlareOperatorWebhooksOverwritten": (overwritten_webhooks, {"configuration": "mutating"}),
    "CodeFlareOperatorInformerNotSynced": (unsynced_informer, {"kind": "ConfigMap"}),
    "CodeFlareOperatorNamespaceLeftOut": (left_out_namespace, {}),
    "CodeFlareOperatorFluxQueueBlocked": (
        flux_setup({"pendingWorkloads": 2}),
        {**NAMESPACES, "fluxsetup": "queue"},
    ),
    "CodeFlareOperatorFluxSetupInvalid": (
        flux_setup(
            {"conditions": [{"type": "Active", "status": "False", "reason": "InvalidSelector"}]}
        ),
        {**NAMESPACES, "reason": "InvalidSelector"},
    ),
    "InferenceStackApplicationsFail": (failing_application, {"state": "Failed"}),
    "InferenceStackUnclaimed": (unclaimed_stack, {"reason": "Unclaimed"}),
    "CodeFlareOperatorWebhookErrors": (failing_reviews, {"webhook": "/validate"}),
    "CodeFlareOperatorWebhookSlow": (slow_reviews, {"webhook": "/validate"}),
    "CodeFlareOperatorWebhookCertificateExpires": (expiring_certificate, {}),
    "CodeFlareOperatorReconcileErrors": (failing_reconciles, {"controller": "mine"}),
    "CodeFlareOperatorQueueBacklog": (growing_queue, {"name": "mine"}),
    "CodeFlareOperatorEventLoopBlocked": (blocked_loop, {"pod": "operator-0"}),
    "CodeFlareOperatorHasNoLeader": (lost_leadership, {}),
}
"""By alert: what breaks, and labels of the alert."""

OF_ALL_OPERATORS = ("InferenceStackApplicationsFail", "InferenceStackUnclaimed")
"""Alerts without a namespace: they sum the objects of all operators."""


def test_each_alert_has_a_case() -> None:
    assert {alert["alert"] for alert in alerts()} == {*CASES, "CodeFlareOperatorAbsent"}


@pytest.fixture(scope="module")
def fired(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[dict[str, str]]]]:
    """Return the alerts that fire after each of :data:`CASES`, and after a few other changes."""
    changes = {}
    for name, (break_it, _) in CASES.items():
        operator = Operator()
        healthy = operator.scrape()
        break_it(operator)
        replicas = 2 if name == "CodeFlareOperatorHasNoLeader" else 1
        changes[name] = Change(healthy, operator.scrape(), now=time.time(), replicas=replicas)
    operator = Operator()
    changes["missing"] = Change(operator.scrape(), "")
    operator.clusters.objects = [stored(ray_cluster(managedBy="kueue.x-k8s.io/multikueue"))]
    changes["healthy"] = Change(operator.scrape(), operator.scrape(), now=time.time())
    return firing_alerts(tmp_path_factory.mktemp("alerts"), changes)


@pytest.mark.parametrize("name", CASES)
def test_alert_fires_when_something_breaks(
    fired: dict[str, dict[str, list[dict[str, str]]]], name: str
) -> None:
    _, labels = CASES[name]
    assert list(fired[name]) == [name]
    (found,) = fired[name][name]
    assert labels.items() <= found.items()
    if name not in OF_ALL_OPERATORS:
        assert found["namespace"] == labels.get("namespace", ALERTS_NAMESPACE)


def test_missing_operator_fires_only_its_own_alert(
    fired: dict[str, dict[str, list[dict[str, str]]]],
) -> None:
    assert list(fired["missing"]) == ["CodeFlareOperatorAbsent"]
    (found,) = fired["missing"]["CodeFlareOperatorAbsent"]
    assert found["namespace"] == ALERTS_NAMESPACE


def test_healthy_operator_fires_nothing(fired: dict[str, dict[str, list[dict[str, str]]]]) -> None:
    assert fired["healthy"] == {}
