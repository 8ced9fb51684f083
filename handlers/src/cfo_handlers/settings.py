"""The settings of an operator, with kopf's names. Setting one that has no meaning here logs a warning.

Fields that kopf does not have: ``background.max_daemons`` and ``background.max_daemon_threads``, the number of daemons
that run at the same time in the event loop and in threads.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import structlog

from cfo.runtime.objects import is_label_value
from cfo.runtime.process import require_qualified_name
from cfo_handlers.storage import (
    AnnotationsDiffBaseStorage,
    DiffBaseStorage,
    ProgressStorage,
    SmartProgressStorage,
)

_log = structlog.get_logger(__name__)

_IGNORED: Final = {
    "process": {
        "ultimate_exiting_timeout": "the grace period of the manager limits the time until the process stops"
    },
    "posting": {
        "loggers": "log messages are not written as Events",
        "reporting_instance": "the instance is the host name",
        "event_name_prefix": "Events are named after their object",
        "default_backoffs": "the recorder of cfo.runtime sends Events",
        "logging_backoffs": "the recorder of cfo.runtime sends Events",
        "worker_limit": "the recorder of cfo.runtime sends Events",
        "idle_timeout": "the recorder of cfo.runtime sends Events",
    },
    "peering": dict.fromkeys(
        ("stealth", "priority", "lifetime", "clusterwide", "namespaced"),
        "leader election with a Lease replaces peering",
    ),
    "watching": dict.fromkeys(
        (
            "server_timeout",
            "client_timeout",
            "connect_timeout",
            "reconnect_backoff",
            "inactivity_timeout",
            "chunk_size",
            "initial_streaming",
        ),
        "informers choose how they list and watch",
    ),
    "queueing": dict.fromkeys(
        ("idle_timeout", "exit_timeout", "error_delays", "batch_window"),
        "one queue serves all objects of a resource",
    ),
    "execution": {"executor": "sync handlers run in threads of our own: set max_workers"},
    "background": dict.fromkeys(
        ("cancellation_polling", "instant_exit_timeout", "instant_exit_zero_time_cycles"),
        "the end of a daemon is not polled, but reported",
    ),
    "networking": dict.fromkeys(
        (
            "request_timeout",
            "connect_timeout",
            "error_backoffs",
            "enforce_retry_after",
            "trust_env",
        ),
        "the client of cfo.runtime has its own timeouts and retries",
    ),
    "persistence": {"consistency_timeout": "the cache contains our own writes immediately"},
}
"""For each group the settings without a meaning here, and what replaces them."""

_MISSING: Final = {
    "watching": dict.fromkeys(
        ("label_selectors", "field_selectors", "shard_selectors"),
        "not supported: limit the objects by filters of the handlers, such as labels=",
    )
}
"""For each group the settings whose absence changes what is handled, and what to use instead."""


class Settings:
    """A group of settings. Those of type ``Any`` without a value are ignored (:data:`_IGNORED`)."""

    def __init__(self, group: str) -> None:
        object.__setattr__(self, "_group", group)

    if not TYPE_CHECKING:  # a type checker that sees these functions accepts any name

        def __setattr__(self, name: str, value: Any) -> None:
            group = self.__dict__["_group"]
            ignored = _IGNORED.get(group, {})
            if name in ignored:
                _log.warning("Setting is ignored", setting=f"{group}.{name}", reason=ignored[name])
            elif not hasattr(type(self), name):
                raise _unknown(group, name)
            object.__setattr__(self, name, value)

        def __getattr__(self, name: str) -> Any:
            raise _unknown(self.__dict__.get("_group", ""), name)  # absent while copy creates it


def _unknown(group: str, name: str) -> AttributeError:
    """Return the error for a setting that has no value."""
    missing = _MISSING.get(group, {}).get(name)
    if missing:
        return AttributeError(f"settings.{group}.{name}: {missing}")
    ignored = _IGNORED.get(group, {}).get(name)
    if ignored:
        return AttributeError(f"settings.{group}.{name}: has no value: {ignored}")
    return AttributeError(f"settings.{group} has no setting {name!r}")


class ProcessSettings(Settings):
    """The process."""

    ultimate_exiting_timeout: Any


class WatchingSettings(Settings):
    """Watches."""

    server_timeout: Any
    client_timeout: Any
    connect_timeout: Any
    reconnect_backoff: Any
    inactivity_timeout: Any
    chunk_size: Any
    initial_streaming: Any


class NetworkingSettings(Settings):
    """Requests."""

    request_timeout: Any
    connect_timeout: Any
    error_backoffs: Any
    enforce_retry_after: Any
    trust_env: Any


class PostingSettings(Settings):
    """Events about objects."""

    enabled: bool = True
    level: int = logging.INFO
    reporting_component: str = "kopf"
    loggers: Any
    reporting_instance: Any
    event_name_prefix: Any
    default_backoffs: Any
    logging_backoffs: Any
    worker_limit: Any
    idle_timeout: Any


class PeeringSettings(Settings):
    """Several replicas: leader election with a Lease replaces peering."""

    name: str = "default"
    mandatory: bool = False
    standalone: bool = False
    stealth: Any
    priority: Any
    lifetime: Any
    clusterwide: Any
    namespaced: Any


class QueueingSettings(Settings):
    """The queue. ``worker_limit``: the number of objects of a resource that are handled at the same time."""

    worker_limit: int = 128
    idle_timeout: Any
    exit_timeout: Any
    error_delays: Any
    batch_window: Any


class ScanningSettings(Settings):
    """Resources that are served later. ``disabled``: only the resources that are served at the start are handled."""

    disabled: bool = False


class AdmissionSettings(Settings):
    """Admission webhooks: the address, and the name of the webhook configurations."""

    server: Any = None
    managed: str | None = None


class ExecutionSettings(Settings):
    """Calls of handlers. ``max_workers``: the number of threads of sync handlers."""

    default_backoff: float = 60.0
    max_workers: int = 64
    executor: Any


class BackgroundSettings(Settings):
    """Daemons and timers."""

    max_daemons: int = 10_000
    max_daemon_threads: int = 256
    cancellation_polling: Any
    instant_exit_timeout: Any
    instant_exit_zero_time_cycles: Any


class PersistenceSettings(Settings):
    """Where the state of handling is stored.

    Setting a ``finalizer`` that API servers reject raises :class:`ValueError`, or :class:`TypeError`.
    """

    finalizer: str = "kopf.zalando.org/KopfFinalizerMarker"
    progress_storage: ProgressStorage = SmartProgressStorage()
    diffbase_storage: DiffBaseStorage = AnnotationsDiffBaseStorage()
    consistency_timeout: Any

    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            if name == "finalizer":
                _check_finalizer(value)
            super().__setattr__(name, value)


def _check_finalizer(value: object) -> None:
    setting = "settings.persistence.finalizer"
    if not isinstance(value, str):
        raise TypeError(f"{setting}: {value!r:.200}: must be a string")
    if not is_label_value(value):  # custom resources may have finalizers without a domain
        require_qualified_name(setting, value)


class OperatorSettings:
    """All settings; startup handlers change them."""

    def __init__(self) -> None:
        self.process = ProcessSettings("process")
        self.posting = PostingSettings("posting")
        self.peering = PeeringSettings("peering")
        self.watching = WatchingSettings("watching")
        self.queueing = QueueingSettings("queueing")
        self.batching = self.queueing
        self.scanning = ScanningSettings("scanning")
        self.admission = AdmissionSettings("admission")
        self.execution = ExecutionSettings("execution")
        self.background = BackgroundSettings("background")
        self.networking = NetworkingSettings("networking")
        self.persistence = PersistenceSettings("persistence")
