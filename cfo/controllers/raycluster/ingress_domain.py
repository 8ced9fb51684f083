"""The domain below which hosts are made."""

from __future__ import annotations

import structlog

from cfo.api.raycluster.kinds import INGRESS_CONFIG
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster.platform import OptionalKind
from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import Forbidden, UnknownKind
from cfo.runtime.clock import Clock
from cfo.runtime.objects import NamespacedName, Object
from cfo.runtime.reconcile import READ, Rule

__all__ = ["IngressDomain"]

_CLUSTER = NamespacedName("", "cluster")
_KEPT_SECONDS = 300.0

_log = structlog.get_logger("cfo.controllers.raycluster")


class IngressDomain:
    """The configured domain, else that of OpenShift's ``ingresses.config.openshift.io/cluster``.

    ``settings`` follows that one object. Where it may not be followed (the Go operator's role lets us get it alone) or
    does not exist (then ``settings`` tells when it does) it is read when the domain is needed, and what was read is
    good for five minutes; where it may not be read either, nobody has said a domain.
    """

    rules = (Rule(INGRESS_CONFIG.group, "ingresses", READ),)

    def __init__(self, config: KubeRayConfiguration, settings: OptionalKind, clock: Clock) -> None:
        self._configured = config.ingress_domain
        self._settings = settings
        self._clock = clock
        self._kept = ""
        self._kept_until = 0.0
        self._warned = False

    def current(self) -> str:
        """The domain, without a leading dot, as far as it is known without asking; empty when nobody has said one."""
        informer = self._settings.informer
        if self._configured or informer is None:
            return self._configured
        return _domain_in(informer.reader.get(_CLUSTER)) if informer.has_synced else self._kept

    async def read(self, client: Client) -> str:
        """The same, also while the settings are not followed: then ``client`` asks for them, and raises what that
        raises, but for a missing right."""
        informer = self._settings.informer
        if self._configured or (informer is not None and informer.has_synced):
            return self.current()
        nobody_tells = informer is None or informer.is_forbidden
        if nobody_tells and self._clock.monotonic() < self._kept_until:
            return self._kept
        domain = await self._ask(client)
        if nobody_tells:
            self._kept, self._kept_until = domain, self._clock.monotonic() + _KEPT_SECONDS
        return domain

    async def _ask(self, client: Client) -> str:
        try:
            return _domain_in(await client.get(INGRESS_CONFIG, _CLUSTER, live=True))
        except UnknownKind:
            return ""
        except Forbidden as error:
            if not self._warned:
                _log.warning(
                    "a right is missing: the domain of hosts cannot be found out, set kuberay.ingressDomain",
                    missing_rule=f'{{apiGroups: ["{INGRESS_CONFIG.group}"], resources: ["ingresses"], verbs: ["get"]}}',
                    cause=error.message,
                )
                self._warned = True
            return ""


def _domain_in(settings: Object | None) -> str:
    return str(((settings or {}).get("spec") or {}).get("domain") or "")
