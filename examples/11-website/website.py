"""Serve the page of each Website with a ConfigMap, a Deployment and, if it is exposed, a Service."""

import sys

import anyio

from cfo.runtime import (
    CONFIG_MAP,
    DEPLOYMENT,
    GVK,
    SERVICE,
    Builder,
    ClientConfig,
    ConfigError,
    Manager,
    ManagerOptions,
    Object,
    Request,
    Result,
    is_deleting,
    key_of,
    load_config,
)
from cfo.runtime.client import Child, reconcile_children
from cfo.runtime.controller import RunnableFailed
from cfo.runtime.objects import new_object

WEBSITE = GVK("example.com", "v1", "Website")


def children_of(website: Object) -> list[Child]:
    """Return what should exist for a Website, and what should not; sends no request."""
    namespace, name = key_of(website)
    labels = {"website": name}
    volumes = [{"name": "page", "configMap": {"name": name}}]
    mounts = [{"name": "page", "mountPath": "/usr/share/nginx/html"}]
    nginx = {"name": "nginx", "image": "nginx:1.29", "volumeMounts": mounts}
    pods = {"metadata": {"labels": labels}, "spec": {"containers": [nginx], "volumes": volumes}}
    spec = {"selector": {"matchLabels": labels}, "template": pods}
    ports = {"selector": labels, "ports": [{"port": 80, "protocol": "TCP"}]}
    data = {"index.html": website["spec"]["html"]}
    config_map = new_object(CONFIG_MAP, name, namespace, data=data)
    deployment = new_object(DEPLOYMENT, name, namespace, spec=spec)
    page = Child.present(config_map, consequence="no page is served")
    server = Child.present(deployment, consequence="no page is served", requires=(page.id,))
    service = Child.absent(SERVICE, key_of(website))
    if website["spec"].get("exposed"):
        service = Child.present(new_object(SERVICE, name, namespace, spec=ports))
    return [page, server, service]


class WebsiteReconciler:
    """Keeps the children of a Website as :func:`children_of` returns them."""

    def __init__(self, manager: Manager) -> None:
        self.client = manager.client
        self.events = manager.events("website")

    async def reconcile(self, request: Request) -> Result:
        """Observe, decide, write."""
        website = await self.client.get(WEBSITE, request)
        if website is None or is_deleting(website):
            return Result()  # the garbage collector deletes the children
        children = children_of(website)
        results = await reconcile_children(self.client, website, children, events=self.events)
        results.raise_errors()
        return Result(requeue_after=results.retry_after)


def new_manager(config: ClientConfig) -> Manager:
    """Return a manager with the controller for Websites."""
    manager = Manager(config, ManagerOptions(field_manager="website-operator"))
    owned = Builder(manager).for_(WEBSITE).owns(CONFIG_MAP).owns(DEPLOYMENT).owns(SERVICE)
    owned.complete(WebsiteReconciler(manager))
    return manager


async def main() -> None:
    """Run until SIGTERM or SIGINT."""
    await new_manager(await load_config()).run(handle_signals=True)


if __name__ == "__main__":
    try:
        anyio.run(main)
    except (ConfigError, RunnableFailed) as error:
        sys.exit(str(error))
