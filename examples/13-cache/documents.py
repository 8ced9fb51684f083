"""Cache only the needed part of Documents, and watch them only while their CRD exists."""

import anyio
import structlog

from cfo.runtime import (
    CONFIG_MAP,
    GVK,
    Builder,
    Client,
    ClientConfig,
    Manager,
    ManagerOptions,
    Object,
    Request,
    Result,
    is_deleting,
    load_config,
    logs,
)
from cfo.runtime.cache import drop_fields

DOCUMENT = GVK("example.com", "v1", "Document")
APPLIED = ("metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration")
log = structlog.get_logger()


def desired_card(document: Object) -> Object:
    """Return the ConfigMap with the title of a Document."""
    metadata = document["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": metadata["namespace"], "name": f"{metadata['name']}-card"},
        "data": {"title": document["spec"]["title"]},
    }


class CardReconciler:
    """Applies the card of each Document, for which it does not need the text."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def reconcile(self, request: Request) -> Result:
        """Apply the card of the Document named ``request``, which the cache contains without its text."""
        document = await self.client.get(DOCUMENT, request)
        if document is None or is_deleting(document):
            return Result()
        await self.client.apply(desired_card(document), owner=document)
        log.info("Applied the card", cached_fields=sorted(document["spec"]))
        return Result()


def set_up(manager: Manager) -> None:
    """Add the controller, because the API server serves Documents."""
    Builder(manager, "documents").for_(DOCUMENT).owns(CONFIG_MAP).complete(CardReconciler(manager.client))


async def tear_down(manager: Manager) -> None:
    """Remove the controller and its informers, because the CRD was deleted."""
    for controller in manager.controllers:
        await manager.remove_controller(controller)
    log.info("Stopped watching Documents", informers=[informer.gvk.kind for informer in manager.cache.informers])


def new_manager(config: ClientConfig) -> Manager:
    """Return a manager that follows the CRD of Documents."""
    options = ManagerOptions(
        field_manager="documents",
        transforms={DOCUMENT: drop_fields("spec.text", APPLIED)},
        watch_list=True,
    )
    manager = Manager(config, options)
    manager.when_available(DOCUMENT, set_up, teardown=tear_down)
    return manager


async def main() -> None:
    """Run until SIGTERM or SIGINT."""
    logs.configure()
    await new_manager(await load_config()).run(handle_signals=True)


if __name__ == "__main__":
    anyio.run(main)
