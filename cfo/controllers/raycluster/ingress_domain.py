"""The domain of the hosts of RayClusters."""

from __future__ import annotations

import structlog

from cfo.api.raycluster.kinds import INGRESS_CONFIG
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster.platform import OptionalKind
from cfo.runtime import (
    READ,
    Client,
    Clock,
    Controller,
    EventHandler,
    Forbidden,
    NamespacedName,
    Object,
    Rule,
    UnknownKind,
)

__all__ = ["IngressDomain", "missing_domain_message"]

_CLUSTER = NamespacedName("", "cluster")
_CACHE_SECONDS = 300.0

_log = structlog.get_logger("cfo.controllers.raycluster")


class IngressDomain:
    """The configured domain or, if unset, the domain in OpenShift's ``ingresses.config.openshift.io/cluster``.

    ``settings`` watches that one object. If the operator is not allowed to watch it (the Go operator's role only allows
    ``get``) or the kind is not served yet (``settings`` notices when it is), the object is read when the domain is
    needed, and the result is cached for five minutes. If ``get`` is forbidden as well, the domain is treated as
    unset.
    """

    rules = (Rule(INGRESS_CONFIG.group, "ingresses", READ),)

    def __init__(self, config: KubeRayConfiguration, settings: OptionalKind, clock: Clock) -> None:
        self._configured = config.ingress_domain
        self._settings = settings
        self._clock = clock
        self._cached = ""
        self._cached_until = 0.0
        self._warned = False

    def subscribe(self, controller: Controller, handler: EventHandler) -> None:
        """Feed ``controller`` with the events of OpenShift's setting."""
        self._settings.subscribe(controller, handler)

    def current(self) -> str:
        """Return the domain, without a leading dot, if it is known without a request; otherwise an empty string."""
        informer = self._settings.informer
        if self._configured or informer is None:
            return self._configured
        return _domain_in(informer.reader.get(_CLUSTER)) if informer.has_synced else self._cached

    async def read(self, client: Client) -> str:
        """Return the domain; read OpenShift's setting with ``client`` if it is not watched.

        Raises the errors of the read, except :class:`~cfo.runtime.client.errors.Forbidden`.
        """
        informer = self._settings.informer
        if self._configured or (informer is not None and informer.has_synced):
            return self.current()
        is_unwatched = informer is None or informer.is_forbidden
        if is_unwatched and self._clock.monotonic() < self._cached_until:
            return self._cached
        domain = await self._fetch(client)
        if is_unwatched:
            self._cached, self._cached_until = domain, self._clock.monotonic() + _CACHE_SECONDS
        return domain

    async def _fetch(self, client: Client) -> str:
        try:
            return _domain_in(await client.get(INGRESS_CONFIG, _CLUSTER, live=True))
        except UnknownKind:
            return ""
        except Forbidden as error:
            if not self._warned:
                _log.warning(
                    "Permission denied, cannot read the ingress domain; set kuberay.ingressDomain",
                    missing_rule=f'{{apiGroups: ["{INGRESS_CONFIG.group}"], resources: ["ingresses"], verbs: ["get"]}}',
                    cause=error.message,
                )
                self._warned = True
            return ""


def missing_domain_message(kind: str) -> str:
    """Return the message of the Event that no object of this kind is created, because its domain is unknown."""
    return (
        f"No {kind} is created, because kuberay.ingressDomain is not set in the operator's configuration, "
        "and ingresses.config.openshift.io/cluster does not define a domain"
    )


def _domain_in(settings: Object | None) -> str:
    return str(((settings or {}).get("spec") or {}).get("domain") or "")
