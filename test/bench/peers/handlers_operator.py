"""One operator for two libraries: kopf, and :mod:`cfo_handlers`, which has the same decorators.

It handles RayClusters that are created, updated or found at the start, and has an index of them. The handler does
nothing, so that the figures are those of the libraries.

Usage: ``python -m test.bench.peers.handlers_operator LIBRARY HEALTH_PORT``, where LIBRARY is ``cfo`` or ``kopf``.
"""

from __future__ import annotations

import importlib
import logging
import sys
from typing import Any

MODULES = {"cfo": "cfo_handlers", "kopf": "kopf"}


def register_handlers(kopf: Any) -> None:
    """Register the handlers with a library."""

    @kopf.index("ray.io", "v1", "rayclusters", id="by_namespace")
    def by_namespace(namespace: str, name: str, **_: Any) -> dict[str, str]:
        return {namespace: name}

    @kopf.on.resume("ray.io", "v1", "rayclusters", id="handle")
    @kopf.on.create("ray.io", "v1", "rayclusters", id="handle")
    @kopf.on.update("ray.io", "v1", "rayclusters", id="handle")
    async def handle(**_: Any) -> None:
        return None


def main() -> None:
    """Run the operator."""
    library, port = sys.argv[1:]
    kopf = importlib.import_module(MODULES[library])
    kopf.configure(log_format=kopf.LogFormat.JSON)
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    register_handlers(kopf)
    kopf.run(
        clusterwide=True, standalone=True, liveness_endpoint=f"http://127.0.0.1:{port}/healthz"
    )


if __name__ == "__main__":
    main()
