"""Publish each Announcement of the local cluster as a ConfigMap in all clusters whose kubeconfigs are in Secrets."""

from collections.abc import Iterable

import anyio
import structlog

from cfo.runtime import (
    CONFIG_MAP,
    GVK,
    READ,
    Builder,
    ClientConfig,
    Cluster,
    ClusterScope,
    EngagedClusters,
    EnqueueForEachCluster,
    EnqueueRequestForObject,
    KubeconfigSecrets,
    Manager,
    ManagerOptions,
    Object,
    Request,
    Result,
    Rule,
    TerminalError,
    is_deleting,
    labels_of,
    load_config,
    logs,
)

log = structlog.get_logger("clusters")

ANNOUNCEMENT = GVK("example.com", "v1", "Announcement")
LABEL = "example.com/announcement"


def desired_config_map(request: Request, announcement: Object) -> Object:
    """Return the ConfigMap of an Announcement; the label, not an owner reference, relates it to the Announcement."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": request.namespace, "name": request.name, "labels": {LABEL: request.name}},
        "data": {"text": announcement["spec"]["text"]},
    }


class AnnouncementReconciler:
    """Keeps the ConfigMap of one Announcement in one cluster up to date."""

    rules = (Rule("example.com", "announcements", READ),)

    def __init__(self, manager: Manager) -> None:
        self.manager = manager

    async def reconcile(self, request: Request) -> Result:
        """Reconcile the Announcement named ``request`` in the cluster ``request.cluster``."""
        announcement = await self.manager.client.get(ANNOUNCEMENT, request)  # in the local cluster
        client = self.manager.cluster(request.cluster).client
        published = await client.get(CONFIG_MAP, request)
        if published is not None and labels_of(published).get(LABEL) != request.name:
            raise TerminalError(f"ConfigMap {request} exists and is not a published Announcement")
        if announcement is not None and not is_deleting(announcement):
            await client.apply(desired_config_map(request, announcement))
            log.info("Published", cluster=request.cluster, name=request.name)
        elif published is not None:
            await client.delete(CONFIG_MAP, request)
            log.info("Withdrawn", cluster=request.cluster, name=request.name)
        return Result()


def new_manager(config: ClientConfig, namespace: str = "default") -> Manager:
    """Return a manager that finds clusters by the Secrets in ``namespace``."""
    manager = Manager(config, ManagerOptions(field_manager="announcements"))
    manager.clusters.add_provider(KubeconfigSecrets(namespace))
    announcements = manager.cache.informer(ANNOUNCEMENT)

    def all_announcements(_: Cluster) -> Iterable[Request]:
        return [entry.key for entry in announcements.reader.entries()]

    (
        Builder(manager, "announcement")
        .watches(ANNOUNCEMENT, EnqueueForEachCluster(manager.clusters))
        .watches_source(EngagedClusters(manager.clusters, all_announcements))
        .watches(CONFIG_MAP, EnqueueRequestForObject(), clusters=ClusterScope.PROVIDED, label_selector=LABEL)
        .with_options(reconcile_timeout=30)
        .complete(AnnouncementReconciler(manager))
    )
    return manager


async def main() -> None:
    """Run until SIGTERM or SIGINT."""
    logs.configure()
    await new_manager(await load_config()).run(handle_signals=True)


if __name__ == "__main__":
    anyio.run(main)
