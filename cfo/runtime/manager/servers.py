"""The servers of a manager for metrics, health and debug reports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from cfo.runtime.client.client import Client
from cfo.runtime.controller.metrics import Metrics
from cfo.runtime.process.clock import Clock
from cfo.runtime.process.endpoint import Endpoint
from cfo.runtime.process.health import Health

if TYPE_CHECKING:
    from aiohttp.web import RouteDef

    from cfo.runtime.manager.debug import DebugReports
    from cfo.runtime.manager.manager import ManagerOptions


class Servers:
    """The endpoints that every replica serves from the start.

    ``reports`` creates the debug reports, if they are enabled. ``api_reader`` reviews the permissions of the clients of
    metrics.
    """

    def __init__(
        self,
        options: ManagerOptions,
        metrics: Metrics,
        health: Health,
        reports: Callable[[], DebugReports],
        api_reader: Client,
        clock: Clock,
    ) -> None:
        self.debug: Endpoint | None = None
        """The debug server on a loopback address; the metrics server can serve the reports instead."""
        debug_routes: list[RouteDef] = []
        debug_address, metrics_tls = options.debug_bind_address, options.metrics_tls
        if debug_address not in ("", "0"):
            from cfo.runtime.manager.debug import METRICS_SERVER, loopback_endpoint  # lazily: disabled by default

            if debug_address != METRICS_SERVER:
                self.debug = loopback_endpoint(debug_address, reports())
            elif metrics_tls is None:
                raise ValueError(
                    f"debug_bind_address: {debug_address!r}: requires metrics_tls, which authenticates clients"
                )
            else:
                debug_routes = reports().routes()
        self.metrics: Endpoint
        if metrics_tls is None:
            self.metrics = metrics.endpoint(options.metrics_bind_address)
        else:
            # Imported lazily: only needed with TLS, and loads cryptography.
            from cfo.runtime.manager.metrics_server import MetricsAuthorizer, SecureMetricsEndpoint

            authorizer = MetricsAuthorizer(api_reader, clock)
            routes = [*metrics.routes(), *debug_routes]
            address = options.metrics_bind_address
            self.metrics = endpoint = SecureMetricsEndpoint(address, routes, metrics_tls, authorizer, clock)
            if metrics_tls.cert_dir is not None:
                health.add_ready_check("metrics-certificate", endpoint.check)
        self.health = health.endpoint(options.health_bind_address)

    @property
    def endpoints(self) -> list[Endpoint]:
        """All servers, in the order of their start."""
        return [self.metrics, self.health, *([self.debug] if self.debug is not None else [])]

    def add_metrics_routes(self, routes: Iterable[RouteDef], public_paths: Collection[str]) -> None:
        """Serve more routes with the metrics; see :meth:`Manager.add_metrics_server_routes`."""
        add_public_paths = getattr(self.metrics, "add_public_paths", None)
        if add_public_paths is None:
            raise RuntimeError("the metrics server does not authorize clients: set ManagerOptions.metrics_tls")
        self.metrics.add_routes(routes)
        add_public_paths(public_paths)
