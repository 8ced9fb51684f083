"""The dashboard of an operator in a cluster: routes of its metrics server, which authenticates and authorizes clients.

Enabled with ``metrics.dashboard``. The page shows all objects that the operator watches, of all namespaces, whatever
the user can read. A user therefore needs the permission to ``get`` the paths below ``/dashboard/``, which the
ClusterRole ``codeflare-operator-dashboard-viewer`` grants. The files of the page are served to everyone; they contain
no data.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from cfo.console.dashboard.controllers import controller_numbers
from cfo.console.dashboard.feed import Feed
from cfo.console.dashboard.loopback import LoopbackServer
from cfo.console.dashboard.site import Site
from cfo.console.dashboard.sources import manager_source
from cfo.runtime import GVK, READ, Manager, Phase, Rule
from cfo.runtime.objects import CORE_EVENT
from cfo.version import __version__

__all__ = ["PREFIX", "manager_server", "rules", "setup"]

PREFIX: Final = "/dashboard"


def rules() -> list[Rule]:
    """Return the additional RBAC rules of an operator with a dashboard."""
    return [Rule(CORE_EVENT.group, "events", READ)]


def setup(manager: Manager, kinds: Collection[GVK]) -> None:
    """Add the dashboard of ``kinds`` to the metrics server of ``manager``.

    Raises :class:`RuntimeError` if this server does not authorize clients.
    """
    feed = _feed(manager, kinds)
    site = Site(feed, PREFIX)
    manager.add_metrics_server_routes(site.routes(), public_paths=site.public_paths | {PREFIX})
    manager.add(feed.run, phase=Phase.ALL_REPLICAS)


def manager_server(manager: Manager, kinds: Collection[GVK], port: int = 0) -> LoopbackServer:
    """Return a server on the loopback interface for a process with controllers; add it to ``manager``."""
    return LoopbackServer(_feed(manager, kinds), port)


def _feed(manager: Manager, kinds: Collection[GVK]) -> Feed:
    scope = {
        "server": urlsplit(manager.transport.config.server).netloc.rpartition("@")[2],
        "namespace": ", ".join(manager.options.namespaces or ()),
        "version": __version__,
    }
    return Feed(manager_source(manager, kinds), manager.clock, scope, lambda: controller_numbers(manager.metrics))
