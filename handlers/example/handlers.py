"""Keep a ConfigMap with the menu of each Bakery, with the decorators of kopf."""

from collections.abc import Mapping
from typing import Any

import cfo_handlers as kopf
from cfo.runtime import CONFIG_MAP, Client, NamespacedName


def menu_of(spec: kopf.Spec, name: str) -> dict[str, Any]:
    """Return the ConfigMap of a bakery; ``kopf.adopt`` adds namespace, owner and labels."""
    lines = [f"{bread}: {price}" for bread, price in sorted(spec.get("prices", {}).items())]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-menu"},
        "data": {"menu": "\n".join(lines)},
    }


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Change settings before anything else happens."""
    settings.execution.default_backoff = 5


@kopf.index("bakeries")
def by_city(spec: kopf.Spec, name: str, **_: Any) -> dict[str, str]:
    """Index the names of bakeries by their city."""
    return {spec["city"]: name}


@kopf.on.resume("bakeries")
@kopf.on.create("bakeries")
@kopf.on.update("bakeries", field="spec.prices")
async def write_menu(spec: kopf.Spec, name: str, client: Client, **_: Any) -> dict[str, int]:
    """Apply the ConfigMap; the client sends nothing if that would change nothing."""
    menu = menu_of(spec, name)
    kopf.adopt(menu)
    await client.apply(menu)
    return {"breads": len(spec.get("prices", {}))}


@kopf.on.field("bakeries", field="spec.city")
def announce(
    old: str | None,
    new: str,
    body: kopf.Body,
    patch: kopf.Patch,
    indices: Mapping[str, kopf.Index[str, str]],
    **_: Any,
) -> None:
    """Run in a thread when the city is set or changed."""
    by_city = indices["by_city"]  # also the keyword by_city, which pyright accepts, but not mypy
    kopf.info(
        body, reason="Opened" if old is None else "Moved", message=f"The bakery is now in {new}."
    )
    patch.status["neighbors"] = len(by_city.get(new, ())) - 1


@kopf.on.delete("bakeries")
def close(
    namespace: str, name: str, client: kopf.SyncClient, logger: kopf.Logger, **_: Any
) -> None:
    """Run before the bakery is deleted; a sync function gets a sync client."""
    menu = client.get(CONFIG_MAP, NamespacedName(namespace, f"{name}-menu"))
    logger.info("Last menu: %s", menu["data"]["menu"] if menu else "none")


@kopf.timer("bakeries", interval=1, when=lambda spec, **_: spec.get("open"))
def bake(patch: kopf.Patch, memo: kopf.Memo, **_: Any) -> None:
    """Run every second for each open bakery."""
    memo["baked"] = memo.get("baked", 0) + 1
    patch.status["baked"] = memo["baked"]


if __name__ == "__main__":
    kopf.configure()
    kopf.run(clusterwide=True)
