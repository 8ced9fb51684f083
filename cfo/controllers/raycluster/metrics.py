"""The metrics of RayClusters: by state, without mutual TLS, and when their CAs expire."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cfo.api.raycluster.certificates import CA_LIFETIME, recorded_renewal
from cfo.api.raycluster.facts import Actor, Concern, RayClusterFacts
from cfo.api.raycluster.names import names_of
from cfo.config.kuberay import KubeRayConfiguration
from cfo.controllers.cached_fields import field_reader
from cfo.runtime import Entry, NamespacedName, Object, Reader

_STATES = frozenset({"", "ready", "failed", "suspended"})
"""The values of ``status.state`` in KubeRay 1.7; others could be any string that a user wrote to the status."""


class _Status(msgspec.Struct, gc=False):
    state: str = ""


class _Template(msgspec.Struct, gc=False):
    spec: dict[str, Any] | None = None


class _Head(msgspec.Struct, gc=False):
    template: _Template | None = None


class _Spec(msgspec.Struct, gc=False):
    headGroupSpec: _Head | None = None  # noqa: N815 (the API's spelling)
    managedBy: Any = None  # noqa: N815
    tlsOptions: dict[str, Any] | None = None  # noqa: N815


class _Cluster(msgspec.Struct, gc=False):
    spec: _Spec | None = None
    status: _Status | None = None


_decoder = msgspec.json.Decoder(_Cluster)
_status_of = field_reader("status", kind=_Status, default=_Status())
_MAX_DECODED: Final = 128 << 10


class RayClusterMetrics(Collector):
    """Registers the metrics in ``registry``.

    ``clusters`` reads all RayClusters, and ``secrets`` the metadata of the Secrets with the label of one.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        config: KubeRayConfiguration,
        clusters: Reader,
        secrets: Reader,
    ) -> None:
        self._config = config
        self._clusters = clusters
        self._secrets = secrets
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the numbers of RayClusters by namespace, and the earliest expiry of a CA in each namespace."""
        states: Count[tuple[str, str]] = Count()
        without: Count[tuple[str]] = Count()
        expiry: dict[tuple[str], float] = {}
        for entry in self._clusters.entries():
            cluster = _decode(entry)
            namespace = entry.key.namespace
            state = (cluster.status or _Status()).state
            if state not in _STATES:
                state = "other"
            states[namespace, state] += 1
            is_small = len(entry.raw) <= _MAX_DECODED
            if is_small and self._config.mtls_enabled and self._lacks_mtls(entry, cluster):
                without[(namespace,)] += 1
            expires = self._ca_expiry(entry)
            if expires is not None:
                expiry[(namespace,)] = min(expires, expiry.get((namespace,), expires))
        yield _gauge(
            "cfo_rayclusters",
            "The number of RayClusters by the state that KubeRay reports.",
            ("state",),
            states,
        )
        yield _gauge(
            "cfo_rayclusters_without_mtls",
            "The number of RayClusters without mutual TLS although the configuration enables it.",
            (),
            without,
        )
        yield _gauge(
            "cfo_raycluster_ca_expiration_timestamp_seconds",
            "When the first CA of a RayCluster in a namespace expires, in seconds since the epoch.",
            (),
            expiry,
        )

    def _ca_expiry(self, cluster: Entry) -> float | None:
        """Return when the CA of a cluster expires; ``None`` if it has none of its own, or this is not recorded."""
        identity = {
            "namespace": cluster.key.namespace,
            "name": cluster.key.name,
            "annotations": cluster.annotations,
        }
        name = names_of({"metadata": identity}).ca_secret
        secret = self._secrets.entry(NamespacedName(cluster.key.namespace, name))
        if secret is None:
            return None
        if all(owner.uid != cluster.meta.uid for owner in secret.meta.owner_references):
            return None
        renewal = recorded_renewal({"metadata": {"annotations": dict(secret.annotations)}})
        if renewal is None:
            return None
        end = renewal + CA_LIFETIME / 3  # it is renewed when a third of its lifetime remains
        return end.timestamp()

    def _lacks_mtls(self, entry: Entry, cluster: _Cluster) -> bool:
        spec = cluster.spec or _Spec()
        head = spec.headGroupSpec.template if spec.headGroupSpec is not None else None
        relevant: Object = {
            "metadata": {"annotations": dict(entry.annotations)},
            "spec": {
                "managedBy": spec.managedBy,
                "tlsOptions": spec.tlsOptions,
                "headGroupSpec": {"template": {"spec": head.spec if head is not None else None}},
            },
        }
        facts = RayClusterFacts(relevant)
        is_ours = facts.actor(Concern.MTLS, self._config.kuberay_features) is Actor.OPERATOR
        return is_ours and not facts.has_injected_tls


def _decode(entry: Entry) -> _Cluster:
    """Return the fields that count; none if they have other types, which a CRD without a schema accepts.

    Of a large RayCluster only the status counts, because a scrape decodes all of them at once.
    """
    if len(entry.raw) > _MAX_DECODED:
        return _Cluster(status=_status_of(entry))
    try:
        return _decoder.decode(entry.raw)
    except msgspec.ValidationError:
        return _Cluster()


def _gauge(
    name: str, help_: str, labels: tuple[str, ...], values: dict[Any, float] | Count[Any]
) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(name, help_, labels=("namespace", *labels))
    for key, value in sorted(values.items()):
        gauge.add_metric(key, value)
    return gauge
