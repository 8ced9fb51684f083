"""The domain below which hosts are made."""

from __future__ import annotations

from cfo.api.raycluster.kinds import INGRESS_CONFIG
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster.platform import OptionalKind
from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import UnknownKind
from cfo.runtime.objects import NamespacedName, Object
from cfo.runtime.reconcile import READ, Rule

__all__ = ["IngressDomain"]

_CLUSTER = NamespacedName("", "cluster")


class IngressDomain:
    """The configured domain, else that of OpenShift's ``ingresses.config.openshift.io/cluster``.

    ``settings`` follows that one object.
    """

    rules = (Rule(INGRESS_CONFIG.group, "ingresses", READ),)

    def __init__(self, config: KubeRayConfiguration, settings: OptionalKind) -> None:
        self._configured = config.ingress_domain
        self._settings = settings

    def current(self) -> str:
        """The domain, without a leading dot; empty when nobody has said one."""
        if self._configured or self._settings.informer is None:
            return self._configured
        return _domain_in(self._settings.informer.reader.get(_CLUSTER))

    async def read(self, client: Client) -> str:
        """The same, also while the settings are not followed yet: then ``client`` asks for them, and raises what that
        raises."""
        informer = self._settings.informer
        if self._configured or (informer is not None and informer.has_synced):
            return self.current()
        try:
            return _domain_in(await client.get(INGRESS_CONFIG, _CLUSTER, live=True))
        except UnknownKind:
            return ""


def _domain_in(settings: Object | None) -> str:
    return str(((settings or {}).get("spec") or {}).get("domain") or "")
