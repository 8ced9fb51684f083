"""The settings of an operator, with kopf's names. Setting one that has no meaning here logs a warning.

Fields that kopf does not have: ``background.max_daemons`` and ``background.max_daemon_threads``, the number of daemons
that run at the same time in the event loop and in threads.
"""

from __future__ import annotations

import logging
from typing import Any, ClassVar

import structlog

from cfo.runtime.handlers.progress_storage import ProgressStorage, SmartProgressStorage
from cfo.runtime.handlers.storage import AnnotationsDiffBaseStorage, DiffBaseStorage

_log = structlog.get_logger(__name__)


class _Group:
    """A group of settings. ``ignored``: for each setting without a meaning here, what replaces it."""

    group: ClassVar[str]
    ignored: ClassVar[dict[str, str]] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.ignored:
            _log.warning("Setting is ignored", setting=f"{self.group}.{name}", reason=self.ignored[name])
        elif not hasattr(type(self), name):
            raise AttributeError(f"settings.{self.group} has no setting {name!r}")
        object.__setattr__(self, name, value)


class ProcessSettings(_Group):
    """The process."""

    group = "process"
    ignored: ClassVar[dict[str, str]] = {
        "ultimate_exiting_timeout": "the grace period of the manager limits the time until the process stops"
    }


class PostingSettings(_Group):
    """Events about objects."""

    group = "posting"
    ignored: ClassVar[dict[str, str]] = {
        "loggers": "log messages are not written as Events",
        "reporting_instance": "the instance is the host name",
        "event_name_prefix": "Events are named after their object",
    }
    enabled: bool = True
    level: int = logging.INFO
    reporting_component: str = "kopf"


class PeeringSettings(_Group):
    """Several replicas: leader election with a Lease replaces peering."""

    group = "peering"
    _REASON = "leader election with a Lease replaces peering"
    ignored: ClassVar[dict[str, str]] = dict.fromkeys(
        ("stealth", "priority", "lifetime", "clusterwide", "namespaced"), _REASON
    )
    name: str = "default"
    mandatory: bool = False
    standalone: bool = False


class WatchingSettings(_Group):
    """Watches."""

    group = "watching"
    ignored: ClassVar[dict[str, str]] = dict.fromkeys(
        ("server_timeout", "client_timeout", "connect_timeout", "reconnect_backoff", "inactivity_timeout"),
        "informers choose the timeouts of watches",
    )


class QueueingSettings(_Group):
    """The queue. ``worker_limit``: the number of objects of a resource that are handled at the same time."""

    group = "queueing"
    ignored: ClassVar[dict[str, str]] = dict.fromkeys(
        ("idle_timeout", "exit_timeout", "error_delays", "batch_window"), "one queue serves all objects of a resource"
    )
    worker_limit: int = 128


class ScanningSettings(_Group):
    """Resources that are served later. ``disabled``: only the resources that are served at the start are handled."""

    group = "scanning"
    disabled: bool = False


class AdmissionSettings(_Group):
    """Admission webhooks: the address, and the name of the webhook configurations."""

    group = "admission"
    server: Any = None
    managed: str | None = None


class ExecutionSettings(_Group):
    """Calls of handlers. ``max_workers``: the number of threads of sync handlers."""

    group = "execution"
    ignored: ClassVar[dict[str, str]] = {"executor": "sync handlers run in threads of our own: set max_workers"}
    default_backoff: float = 60.0
    max_workers: int = 64


class BackgroundSettings(_Group):
    """Daemons and timers."""

    group = "background"
    ignored: ClassVar[dict[str, str]] = dict.fromkeys(
        ("cancellation_polling", "instant_exit_timeout", "instant_exit_zero_time_cycles"),
        "the end of a daemon is not polled, but reported",
    )
    max_daemons: int = 10_000
    max_daemon_threads: int = 256


class NetworkingSettings(_Group):
    """Requests."""

    group = "networking"
    ignored: ClassVar[dict[str, str]] = dict.fromkeys(
        ("request_timeout", "connect_timeout", "error_backoffs", "enforce_retry_after", "trust_env"),
        "the client of cfo.runtime has its own timeouts and retries",
    )


class PersistenceSettings(_Group):
    """Where the state of handling is stored."""

    group = "persistence"
    ignored: ClassVar[dict[str, str]] = {"consistency_timeout": "the cache contains our own writes immediately"}
    finalizer: str = "kopf.zalando.org/KopfFinalizerMarker"
    progress_storage: ProgressStorage = SmartProgressStorage()
    diffbase_storage: DiffBaseStorage = AnnotationsDiffBaseStorage()


class OperatorSettings:
    """All settings; startup handlers change them."""

    def __init__(self) -> None:
        self.process = ProcessSettings()
        self.posting = PostingSettings()
        self.peering = PeeringSettings()
        self.watching = WatchingSettings()
        self.queueing = self.batching = QueueingSettings()
        self.scanning = ScanningSettings()
        self.admission = AdmissionSettings()
        self.execution = ExecutionSettings()
        self.background = BackgroundSettings()
        self.networking = NetworkingSettings()
        self.persistence = PersistenceSettings()
