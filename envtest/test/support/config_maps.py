"""ConfigMaps for tests, and the path of their collection in the namespace ``default``."""

from __future__ import annotations

from typing import Any

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    obj: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
    }
    if data is not None:
        obj["data"] = data
    return obj
