"""The control plane for conformance specs: all controllers, two nodes, and endpoints of the Service ``kubernetes``.

:mod:`test.conformance.servers` plays the servers that specs run in pods.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from envtest import ControlPlane
from envtest.server.assembly import publish_address
from test.conformance.servers import run_servers

__all__ = ["run_cluster"]

NODES = [{"name": "node", "count": 2, "capacity": {"cpu": 8, "memory": "32Gi"}}]
ADDRESS = "192.0.2.1"
"""An address in the endpoints of the Service ``kubernetes``; as on kube-apiserver, loopback addresses have none."""


@asynccontextmanager
async def run_cluster() -> AsyncIterator[ControlPlane]:
    """Run the control plane until the block ends."""
    async with run_servers() as servers:
        scenario = {"nodes": NODES, "pods": servers.pods()}
        async with ControlPlane.embedded(controllers=("all",), scenario=scenario) as plane:
            assert plane._api_server is not None
            servers.cluster = plane
            publish_address(plane._api_server, ADDRESS)
            yield plane
