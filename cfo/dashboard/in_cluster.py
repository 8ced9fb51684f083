"""The dashboard of an operator in a cluster: routes of its metrics server, which authenticates and authorizes clients.

Enabled with ``metrics.dashboard``. The page shows all objects that the operator watches, of all namespaces, whatever
the user can read. A user therefore needs the permission to ``get`` the paths below ``/dashboard/``, which the
ClusterRole ``codeflare-operator-dashboard-viewer`` grants. The files of the page are served to everyone; they contain
no data.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
from prometheus_client import Counter, Gauge, Histogram

from cfo.api.kueue import LOCAL_QUEUES
from cfo.dashboard.feed import PageFeed, Source
from cfo.dashboard.site import LoopbackServer, Site
from cfo.runtime import POD, READ, Cache, Manager, RESTMapper, Rule, StartPhase, Transport
from cfo.runtime.controller import Metrics
from cfo.runtime.objects import CORE_EVENT
from cfo.summaries.kind_view import KindView, related_kinds
from cfo.summaries.overview import Overview
from cfo.version import __version__

PREFIX: Final = "/dashboard"

RULES: Final = (Rule(CORE_EVENT.group, "events", READ),)
"""The additional RBAC rules of an operator with a dashboard."""

_NAMESPACE_BYTES: Final = 16 << 20
"""How many bytes the page's own informers hold for one namespace: thousands of Events.

It is a budget of its own, so that an open page leaves to the controllers what they need.
"""

_TOTAL_BYTES: Final = 64 << 20
"""The same for all namespaces together, an eighth of the Deployment's memory limit."""

_PAUSE_SHARE: Final = 4.0
"""The page takes at most a fifth of the time from controllers and webhooks."""


def setup(manager: Manager, views: Collection[KindView]) -> None:
    """Add the dashboard of ``views`` to the metrics server of ``manager``.

    Raises :class:`RuntimeError` if this server does not authorize clients.
    """
    feed = _feed(manager, manager_source(manager, views))
    site = Site(feed, PREFIX)
    manager.add_metrics_server_routes(site.routes(), public_paths=site.public_paths | {PREFIX})
    manager.add(feed.run, phase=StartPhase.ALL_REPLICAS)


def manager_server(manager: Manager, overview: Overview, port: int = 0) -> LoopbackServer:
    """Return a server on the loopback interface that shows ``overview``; add it to ``manager``."""
    return LoopbackServer(_feed(manager, lambda: nullcontext(overview)), port)


def _feed(manager: Manager, source: Source) -> PageFeed:
    scope = {
        "server": urlsplit(manager.transport.config.server).netloc.rpartition("@")[2],
        "namespace": ", ".join(manager.options.namespaces or ()),
        "version": __version__,
    }
    return PageFeed(source, manager.clock, scope, lambda: _controller_numbers(manager.metrics))


def _controller_numbers(metrics: Metrics) -> Sequence[Mapping[str, Any]]:
    """Return for each controller: reconciles, errors, queued and running requests, and the mean time in seconds."""
    total = _sums(metrics.reconcile_total, "_total", "controller")
    errors = _sums(metrics.reconcile_errors, "_total", "controller")
    active = _sums(metrics.active_workers, "", "controller")
    seconds = _sums(metrics.reconcile_time, "_sum", "controller")
    depth = _sums(metrics.queue_depth, "", "name")
    return [
        {
            "name": name,
            "total": int(count),
            "errors": int(errors.get(name, 0)),
            "depth": int(depth.get(name, 0)),
            "active": int(active.get(name, 0)),
            "mean": round(seconds.get(name, 0.0) / count, 6) if count else 0.0,
        }
        for name, count in sorted(total.items())
    ]


def _sums(metric: Counter | Gauge | Histogram, suffix: str, label: str) -> dict[str, float]:
    """Return the sum of the samples whose name ends with ``suffix``, by the value of ``label``."""
    found: dict[str, float] = {}
    for family in metric.collect():
        for sample in family.samples:
            if sample.name == family.name + suffix:
                name = sample.labels[label]
                found[name] = found.get(name, 0.0) + sample.value
    return found


def client_source(
    transport: Transport, mapper: RESTMapper, views: Collection[KindView], namespace: str
) -> Source:
    """Return the source of a process that only shows objects, of ``namespace`` (empty: of all namespaces)."""

    @asynccontextmanager
    async def watch() -> AsyncIterator[Overview]:
        namespaces = (namespace,) if namespace else None
        cache = Cache(transport, mapper, namespaces=namespaces)
        overview = Overview(cache, views, related=related_kinds(views))
        async with _running(cache, overview):
            yield overview

    return watch


def manager_source(manager: Manager, views: Collection[KindView]) -> Source:
    """Return the source of a process with controllers: their informers are shared, and no other pods are read.

    A cache of its own has the other informers, so that they can be stopped without consequences for controllers.
    """

    @asynccontextmanager
    async def watch() -> AsyncIterator[Overview]:
        options = manager.options
        shared = manager.cache.informers
        cache = Cache(
            manager.transport,
            manager.mapper,
            namespaces=options.namespaces,
            selectors=options.selectors,
            clock=manager.clock,
            namespace_bytes=_NAMESPACE_BYTES,
            total_bytes=_TOTAL_BYTES,
        )
        known = {informer.gvk for informer in shared}
        pods = {str(each.selection.label_selector) for each in shared if each.gvk == POD}
        shown = [view if view.pod_label in pods else replace(view, pod_label="") for view in views]
        related = [gvk for gvk in related_kinds(views) if gvk == CORE_EVENT or gvk in known]
        # Controllers watch LocalQueues as soon as one version is served.
        if known.isdisjoint(LOCAL_QUEUES):
            related += LOCAL_QUEUES
        overview = Overview(
            cache,
            shown,
            related=related,
            shared=shared,
            clock=manager.clock,
            pause_share=_PAUSE_SHARE,
        )
        async with _running(cache, overview):
            yield overview

    return watch


@asynccontextmanager
async def _running(cache: Cache, overview: Overview) -> AsyncIterator[None]:
    """Run the informers of ``cache`` in the block, and close ``overview`` at its end."""
    async with anyio.create_task_group() as tasks:
        try:
            await tasks.start(cache.run)
            yield
        finally:
            overview.close()
            tasks.cancel_scope.cancel()
