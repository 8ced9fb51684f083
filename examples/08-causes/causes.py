"""Sum up the ConfigMaps of each Inventory, and show why each reconcile runs: in logs and at /debug."""

import argparse
import sys
from collections.abc import Iterable

import anyio
import structlog
from pydantic import Field

from cfo.runtime import (
    CONFIG_MAP,
    APIModel,
    Builder,
    ClientConfig,
    ConfigError,
    CustomResource,
    EnqueueRequestsFromMapFunc,
    Entry,
    GenerationChanged,
    Int32,
    Int64,
    Manager,
    ManagerOptions,
    NamespacedName,
    PrinterColumn,
    Request,
    Result,
    load_config,
    logs,
)
from cfo.runtime.client import apply_status
from cfo.runtime.controller import RunnableFailed

LABEL = "example.com/inventory"

log = structlog.get_logger("inventory")


class InventorySpec(APIModel):
    """When to sum up, in addition to each change."""

    refresh_seconds: Int32 = Field(default=300, ge=1)


class InventoryStatus(APIModel):
    """The sums."""

    items: Int64 = 0
    values: Int64 = 0


class Inventory(
    CustomResource,
    group="example.com",
    version="v1",
    printer_columns=[
        PrinterColumn("Items", ".status.items", "integer"),
        PrinterColumn("Values", ".status.values", "integer"),
    ],
):
    """The ConfigMaps with the label example.com/inventory of its name."""

    spec: InventorySpec
    status: InventoryStatus = Field(default_factory=InventoryStatus)


def inventory_of(config_map: Entry) -> Iterable[Request]:
    """Return the Inventory that the label of a ConfigMap names."""
    return [NamespacedName(config_map.namespace, config_map.meta.labels[LABEL])]


class InventoryReconciler:
    """Writes the sums into the status."""

    def __init__(self, manager: Manager) -> None:
        self.client = manager.client

    async def reconcile(self, request: Request) -> Result:
        """Sum up the ConfigMaps of the Inventory named ``request``."""
        inventory = await self.client.get(Inventory, request)
        if inventory is None or inventory.is_deleting:
            return Result()
        selector = f"{LABEL}={request.name}"
        found = await self.client.list(
            CONFIG_MAP, namespace=request.namespace, label_selector=selector
        )
        status = InventoryStatus(
            items=len(found), values=sum(len(item.get("data") or {}) for item in found)
        )
        log.info("Summed up the ConfigMaps", items=status.items, values=status.values)
        await apply_status(self.client, inventory, status)
        return Result(requeue_after=inventory.spec.refresh_seconds)


def new_manager(config: ClientConfig, *, debug: str = "127.0.0.1:0") -> Manager:
    """Return a manager that serves ``/debug`` on the loopback address ``debug``."""
    manager = Manager(config, ManagerOptions(field_manager="inventory", debug_bind_address=debug))
    (
        Builder(manager)
        .for_(Inventory, GenerationChanged())
        .watches(CONFIG_MAP, EnqueueRequestsFromMapFunc(inventory_of), label_selector=LABEL)
        .complete(InventoryReconciler(manager))
    )
    return manager


async def main() -> None:
    """Run until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--debug", default="127.0.0.1:6060", help="loopback address of /debug")
    args = parser.parse_args()
    logs.configure()
    await new_manager(await load_config(), debug=args.debug).run(handle_signals=True)


if __name__ == "__main__":
    try:
        anyio.run(main)
    except (ConfigError, RunnableFailed) as error:
        sys.exit(str(error))
