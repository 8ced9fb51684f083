"""Notices that the ConfigMap has changed since the operator read it at its start.

The operator applies a change only when it restarts: most settings decide which controllers and servers exist. Until
then the metric ``cfo_configuration_changed`` is 1, the log has one line for each change, and the leader records one
Event on the ConfigMap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio
import structlog
from anyio.abc import TaskStatus
from prometheus_client import Gauge

from cfo.config.document import ParsedConfiguration, parse, single_document
from cfo.config.model import OperatorConfiguration, changed_settings
from cfo.config.section import ConfigurationError
from cfo.runtime import CONFIG_MAP, Cache, Event, EventType, Manager, NamespacedName, Object, Rule

_MAX_BYTES: Final = 1536 * 1024  # more than the 1 MiB of a ConfigMap
_MAX_DOCUMENT: Final = 64 * 1024
"""The maximum size of a document in characters that is parsed while the operator runs: 1 MiB would take seconds."""
_MAX_NAMED: Final = 10

_log = structlog.get_logger(__name__)


def configuration_watch_rules(name: str, namespace: str) -> list[Rule]:
    """Return the rules to watch the ConfigMap ``name`` in ``namespace``, and no other one."""
    return [Rule("", "configmaps", ("list", "watch"), [name], namespace=namespace)]


@dataclass(frozen=True, slots=True)
class ConfigurationChange:
    """How the ConfigMap differs from the configuration in use.

    ``reason``: the reason of the Event; empty if nothing differs. ``message``: what a user should know and do.
    ``settings``: the paths of the settings that differ.
    """

    reason: str = ""
    message: str = ""
    settings: tuple[str, ...] = ()


def compare_configuration(
    used: ParsedConfiguration, data: Mapping[str, Any] | None
) -> ConfigurationChange:
    """Compare the configuration in use with the ``data`` of the ConfigMap; ``None``: it was deleted."""
    if data is None:
        return ConfigurationChange(
            "ConfigurationDeleted",
            "The ConfigMap was deleted. The operator keeps its configuration until it restarts.",
        )
    if list(data.values()) == [used.text]:  # as at each start: it was just parsed
        return ConfigurationChange()
    try:
        found = _parse(data)
    except ConfigurationError as error:
        return ConfigurationChange(
            "ConfigurationInvalid",
            f"The operator keeps its configuration, and cannot use the new one: {error}",
        )
    settings = changed_settings(used.configuration, found)
    if not settings:
        return ConfigurationChange()
    more = f" and {len(settings) - _MAX_NAMED} more" if len(settings) > _MAX_NAMED else ""
    return ConfigurationChange(
        "ConfigurationChanged",
        f"Restart the operator to apply the new values of {', '.join(settings[:_MAX_NAMED])}{more}.",
        tuple(settings),
    )


def _parse(data: Mapping[str, Any]) -> OperatorConfiguration:
    name, document = single_document(data)
    if len(document) > _MAX_DOCUMENT:
        raise ConfigurationError(f"{name}: is larger than {_MAX_DOCUMENT // 1024} KiB")
    return parse(document).configuration


class ConfigurationWatch:
    """Watches the ConfigMap ``key``, and compares it with the configuration ``used``.

    The watch selects this one ConfigMap by name, so the operator does not need to read any other. It has a cache of its
    own, because the manager's cache can be restricted to other namespaces, and because the operator is also ready if it
    is not allowed to watch the ConfigMap (as with the Go operator's roles, or a ConfigMap of another name).
    """

    name = "configuration watch"
    needs_leader = False

    def __init__(self, manager: Manager, key: NamespacedName, used: ParsedConfiguration) -> None:
        self._manager = manager
        self._key = key
        self._used = used
        self._last = ConfigurationChange()
        self._events = manager.events("codeflare-operator")
        self._changed = Gauge(
            "cfo_configuration_changed",
            "1 if the ConfigMap differs from the configuration that the operator read when it started, otherwise 0",
            registry=manager.metrics.registry,
        )

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Watch until cancelled."""
        cache = Cache(self._manager.transport, self._manager.mapper, clock=self._manager.clock)
        informer = cache.informer(
            CONFIG_MAP,
            field_selector=f"metadata.name={self._key.name}",
            namespace=self._key.namespace,
            max_bytes=_MAX_BYTES,
        )
        informer.add_handler(self._handle)
        await cache.run(task_status=task_status)

    def _handle(self, event: Event) -> None:
        config_map: Object | None = event.new.object() if event.new is not None else None
        data = None if config_map is None else (config_map.get("data") or {})
        change = compare_configuration(self._used, data)
        self._changed.set(int(bool(change.reason)))
        if change == self._last:
            return
        self._last = change
        if not change.reason:
            _log.info("Configuration is again the one in use", configmap=str(self._key))
            return
        kind: EventType
        if change.settings:
            kind = "Normal"
            _log.warning(
                "Configuration changed, restart to apply",
                configmap=str(self._key),
                settings=list(change.settings),
            )
        else:
            kind = "Warning"
            _log.warning(
                "Configuration cannot be applied",
                configmap=str(self._key),
                error=change.message,
            )
        if config_map is not None and self._manager.is_leader:
            self._events.event(
                config_map, kind, change.reason, change.message, action="ReadConfiguration"
            )
