"""Restart a Deployment whenever a Secret changes: a Reloader lists the Secrets that the Deployment uses."""

import sys

import anyio
import structlog

from cfo.runtime import (
    DEPLOYMENT,
    GVK,
    SECRET,
    Builder,
    Client,
    ClientConfig,
    ConfigError,
    EnqueueRequestsFromMapFunc,
    Entry,
    GenerationChanged,
    Manager,
    ManagerOptions,
    NamespacedName,
    Reader,
    Request,
    Result,
    is_deleting,
    load_config,
    logs,
    uid_of,
)
from cfo.runtime.controller import RunnableFailed, from_functions
from cfo.runtime.manager import SelectionKeywords

RELOADER = GVK("example.com", "v1", "Reloader")
ANNOTATION = "example.com/secret-versions"
# Only the metadata of labeled Secrets is watched: no secret data is sent to this process.
SECRETS: SelectionKeywords = {"label_selector": "example.com/reload", "metadata_only": True}

log = structlog.get_logger("reloader")


def secrets_of(reloader: Entry) -> list[str]:
    """Return the Secrets that the Reloader lists (an index function)."""
    return [f"{reloader.namespace}/{name}" for name in reloader.object()["spec"]["secrets"]]


def deployment_of(reloader: Entry) -> list[str]:
    """Return the Deployment of the Reloader (an index function)."""
    return [f"{reloader.namespace}/{reloader.object()['spec']['deployment']}"]


class ReloaderReconciler:
    """Writes the versions of the Secrets into the pod template: a change of the template restarts the pods."""

    def __init__(self, client: Client, secrets: Reader) -> None:
        self.client = client
        self.secrets = secrets

    async def reconcile(self, request: Request) -> Result:
        """Annotate the pod template, unless the Deployment or a Secret does not exist yet."""
        reloader = await self.client.get(RELOADER, request)
        if reloader is None or is_deleting(reloader):
            return Result()
        versions = {}
        for name in reloader["spec"]["secrets"]:
            secret = self.secrets.meta(NamespacedName(request.namespace, name))
            if secret is None:
                log.info("Waiting for Secret", secret=name)
                return Result()  # its creation enqueues this request again
            versions[name] = secret.resource_version
        key = NamespacedName(request.namespace, reloader["spec"]["deployment"])
        deployment = await self.client.get(DEPLOYMENT, key)
        if deployment is None:
            return Result()
        annotation = ",".join(f"{name}={version}" for name, version in sorted(versions.items()))
        await self.client.apply(
            {
                "apiVersion": DEPLOYMENT.api_version,
                "kind": DEPLOYMENT.kind,
                # With the uid the apply fails, instead of creating a Deployment, if the Deployment was deleted.
                "metadata": {
                    "namespace": key.namespace,
                    "name": key.name,
                    "uid": uid_of(deployment),
                },
                "spec": {"template": {"metadata": {"annotations": {ANNOTATION: annotation}}}},
            }
        )
        return Result()


def new_manager(config: ClientConfig) -> Manager:
    """Return a manager with the controller for Reloaders."""
    manager = Manager(config, ManagerOptions(field_manager="reloader"))
    reloaders = manager.cache.informer(RELOADER)
    reloaders.add_index("secret", secrets_of).add_index("deployment", deployment_of)

    def reloaders_by(index: str) -> EnqueueRequestsFromMapFunc:
        return EnqueueRequestsFromMapFunc(
            lambda entry: reloaders.reader.keys(index, str(entry.key))
        )

    (
        Builder(manager)
        .for_(RELOADER, GenerationChanged())
        # A deleted Secret must not restart pods, which could not start without it.
        .watches(
            SECRET, reloaders_by("secret"), from_functions(delete=lambda secret: False), **SECRETS
        )
        # The status of a Deployment changes often and is irrelevant here.
        .watches(DEPLOYMENT, reloaders_by("deployment"), GenerationChanged())
        .complete(
            ReloaderReconciler(manager.client, manager.cache.informer(SECRET, **SECRETS).reader)
        )
    )
    return manager


async def main() -> None:
    """Run until SIGTERM or SIGINT."""
    logs.configure()
    await new_manager(await load_config()).run(handle_signals=True)


if __name__ == "__main__":
    try:
        anyio.run(main)
    except (ConfigError, RunnableFailed) as error:
        sys.exit(str(error))
