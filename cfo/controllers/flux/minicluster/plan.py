"""Reads the spec of a MiniCluster, with all defaults filled in, and names its objects.

The defaults are those of the Go operator's schema and of its reconciler. They are filled in here as well, because the
API server only fills in defaults of the CRD that is installed. Names that users see are identical to the Go operator's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import orjson

from cfo.api.flux.facts import FOLLOWED_FIELDS, queue_of, runners, size_of
from cfo.api.flux.names import SUSPEND_ANNOTATION
from cfo.runtime import Object, annotations_of, name_of, namespace_of

INDEX_LABEL: Final = "job-index"
"""Label of each pod of the Job: its index; of the service pod: ``services``."""

JOB_NAME_LABEL: Final = "job-name"
"""Label with the Job's name, which the Job controller sets on the Job's pods; the headless Service selects by it."""

JOB_LABELS_ANNOTATION: Final = "flux-framework.org/job-labels"
"""Annotation of the Job: the keys of ``spec.jobLabels`` that it has, joined by commas; others are not removed."""

SPEC_HASH_ANNOTATION: Final = "flux-framework.org/spec-hash"
"""Annotation of the Job: the hash of the part of the MiniCluster's spec that a Job cannot change once it exists."""

MAXIMUM_SIZE_ANNOTATION: Final = "flux-framework.org/maximum-size"
"""Annotation of the Job: the number of hosts that its brokers know, which is the limit of scaling.

Tenants can edit it, so the status of the MiniCluster has the number as well, and the smaller one counts.
"""

SCRIPTS_HASH_ANNOTATION: Final = "flux-framework.org/scripts-hash"
"""Annotation of the Job: the hash of the scripts with which it was created, for as many pods as its maximum size."""

SCRIPTS_PATH: Final = "/flux_operator/"
"""The directory in which all containers find the scripts and the certificate."""

CERTIFICATE_KEY: Final = "curve.cert"
"""The key of the certificate in the Secret, and its file name in :data:`SCRIPTS_PATH`."""

BROKER_PORT: Final = 8050
"""The port on which the brokers listen."""

DEFAULT_BACKOFF_LIMIT: Final = 100
DEFAULT_DEADLINE_SECONDS: Final = 31_500_000
_LOG_LEVEL = 6
_CONNECT_TIMEOUT = "5s"


def config_map_name(name: str) -> str:
    """Return the name of the ConfigMap with the scripts; the volume in the pods has the same name."""
    return f"{name}-entrypoint"


def secret_name(name: str) -> str:
    """Return the name of the Secret with the certificate."""
    return f"{name}-curve"


def service_pod_name(name: str) -> str:
    """Return the name of the pod that runs ``spec.services``."""
    return f"{name}-services"


def lead_host(name: str) -> str:
    """Return the host name of the lead broker's pod."""
    return f"{name}-0"


@dataclass(frozen=True)
class Plan:
    """A MiniCluster, to be rendered for ``size`` pods.

    ``maximum`` is the number of hosts that the brokers know. ``service`` is the name of the Service that gives the pods
    their DNS names; it differs from ``spec.network.headlessName`` if another object has that name.
    """

    cluster: Object
    size: int
    maximum: int
    service: str

    @classmethod
    def of(cls, cluster: Object, *, size: int = 0, maximum: int = 0, service: str = "") -> Plan:
        """Return the plan of a MiniCluster; what is not given (0 or empty) follows from the spec."""
        spec = cluster.get("spec") or {}
        size = size or size_of(spec)
        maximum = maximum or max(size, spec.get("maxSize") or 0)
        headless_name = (spec.get("network") or {}).get("headlessName")
        service = service or headless_name or name_of(cluster)
        return cls(cluster, size, maximum, service)

    @property
    def name(self) -> str:
        """The name of the MiniCluster."""
        return name_of(self.cluster)

    @property
    def namespace(self) -> str:
        """The namespace of the MiniCluster."""
        return namespace_of(self.cluster)

    @cached_property
    def spec(self) -> Mapping[str, Any]:
        """The spec of the MiniCluster."""
        return self.cluster.get("spec") or {}

    @cached_property
    def pod(self) -> Mapping[str, Any]:
        """``spec.pod``."""
        return self.spec.get("pod") or {}

    @cached_property
    def flux(self) -> Mapping[str, Any]:
        """``spec.flux``."""
        return self.spec.get("flux") or {}

    @cached_property
    def view(self) -> Mapping[str, Any]:
        """``spec.flux.container``: the init container that provides Flux."""
        return self.flux.get("container") or {}

    @cached_property
    def logging(self) -> Mapping[str, Any]:
        """``spec.logging``."""
        return self.spec.get("logging") or {}

    @property
    def view_name(self) -> str:
        """The name of the init container, its volume and its script."""
        return self.view.get("name") or "flux-view"

    @property
    def mount_path(self) -> str:
        """The directory in all containers that contains Flux and its configuration, without a slash at the end."""
        return (self.view.get("mountPath") or "/mnt/flux").rstrip("/")

    @property
    def config_root(self) -> str:
        """The directory with the configuration and the state of the broker."""
        return f"{self.mount_path}/config"

    @property
    def socket_path(self) -> str:
        """The local socket of the broker in each pod."""
        return f"{self.config_root}/run/flux/local"

    @property
    def copies_view(self) -> bool:
        """Whether the init container provides Flux; otherwise the image of the container that runs Flux has it."""
        return not self.view.get("disable")

    @property
    def log_level(self) -> int:
        """The level of the messages that the brokers write to the log of their pods."""
        if self.logging.get("quiet"):
            return 0
        level = self.flux.get("logLevel")
        return _LOG_LEVEL if level is None else int(level)

    @property
    def connect_timeout(self) -> str:
        """The time that brokers wait for a connection, before they try again; empty: no limit."""
        timeout = self.flux.get("connectTimeout")
        return _CONNECT_TIMEOUT if timeout is None else str(timeout)

    @property
    def retries_command(self) -> bool:
        """Whether a command that failed is run again: if the spec sets ``backoffLimit`` or ``logging.strict``.

        Otherwise a command runs once, as in the Go operator, where its failure looks like success.
        """
        return bool(self.spec.get("backoffLimit") or self.logging.get("strict"))

    @property
    def tasks(self) -> int:
        """The number of tasks of the command; 0: Flux decides."""
        tasks = self.spec.get("tasks")
        return 1 if tasks is None else int(tasks)

    @cached_property
    def containers(self) -> list[Mapping[str, Any]]:
        """``spec.containers``."""
        return list(self.spec.get("containers") or ())

    @cached_property
    def services(self) -> list[Mapping[str, Any]]:
        """``spec.services``: the containers of the service pod."""
        return list(self.spec.get("services") or ())

    @cached_property
    def runner(self) -> int:
        """The index of the container that runs Flux; a valid MiniCluster has exactly one."""
        return runners(self.containers)[0]

    @property
    def sidecars(self) -> list[Mapping[str, Any]]:
        """The containers that do not run Flux."""
        return [item for index, item in enumerate(self.containers) if index != self.runner]


def wanted_suspend(cluster: Mapping[str, Any]) -> bool | None:
    """Return whether the Job must be suspended; ``None``: another client decides.

    ``spec.suspend`` counts, and without it (upstream's CRD has no such field) an annotation. Kueue's decision is never
    overruled.
    """
    if queue_of(cluster):
        return None
    suspend = (cluster.get("spec") or {}).get("suspend")
    if suspend is not None:
        return bool(suspend)
    text = annotations_of(cluster).get(SUSPEND_ANNOTATION)
    return None if text is None else text == "true"


def spec_hash(cluster: Mapping[str, Any]) -> str:
    """Return a hash of the part of the spec that an existing Job cannot follow.

    Empty values and ``false`` count as absent, so a default that a newer CRD adds changes nothing.
    """
    spec = {
        key: value
        for key, value in (cluster.get("spec") or {}).items()
        if key not in FOLLOWED_FIELDS
    }
    encoded = orjson.dumps(_without_empty(spec), option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(encoded, digest_size=16).hexdigest()


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        reduced = {key: _without_empty(item) for key, item in value.items()}
        return {key: item for key, item in reduced.items() if item not in (None, False, "", {})}
    if isinstance(value, list):
        return [_without_empty(item) for item in value]
    return value
