"""The domain below which hosts are made."""

from __future__ import annotations

from cfo.api.raycluster.kinds import INGRESS_CONFIG
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster.platform import OptionalKind
from cfo.runtime.objects import NamespacedName
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
        settings = self._settings.informer.reader.get(_CLUSTER) or {}
        return str((settings.get("spec") or {}).get("domain") or "")
