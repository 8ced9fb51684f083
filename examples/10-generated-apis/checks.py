"""Execute the command of each Check in its own pod, with the APIs that kubernetes-asyncio generates."""

import sys

import anyio
import structlog
from kubernetes_asyncio.client import CoreV1Api, V1Container, V1ObjectMeta, V1Pod, V1PodSpec

from cfo.runtime import (
    GVK,
    POD,
    Builder,
    ClientConfig,
    ConfigError,
    Manager,
    ManagerOptions,
    Object,
    Request,
    Result,
    is_deleting,
    load_config,
    logs,
    name_of,
    namespace_of,
)
from cfo.runtime.client import Child, reconcile_children
from cfo.runtime.controller import RunnableFailed

CHECK = GVK("example.com", "v1", "Check")
CHECK_LABEL = "example.com/check"

log = structlog.get_logger("checks")


def desired_pod(check: Object) -> V1Pod:
    """Return the pod in which the command of a Check is executed."""
    container = V1Container(
        name="main", image="busybox:1.37", command=["sh", "-c", "echo started; exec sleep infinity"]
    )
    return V1Pod(
        api_version="v1",
        kind="Pod",
        metadata=V1ObjectMeta(
            name=name_of(check),
            namespace=namespace_of(check),
            labels={CHECK_LABEL: name_of(check)},
        ),
        spec=V1PodSpec(containers=[container]),
    )


class CheckReconciler:
    """Executes the command of a Check once for each generation, and writes what it printed into the status."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.client = manager.client

    async def reconcile(self, request: Request) -> Result:
        """Create the pod; when it runs, execute the command and read the last line of its log."""
        check = await self.client.get(CHECK, request)
        if check is None or is_deleting(check):
            return Result()
        results = await reconcile_children(self.client, check, [Child.present(desired_pod(check))])
        results.raise_errors()
        pod = results.stored(POD, request) or {}  # not the pod of another owner with this name
        generation = check["metadata"]["generation"]
        checked = (check.get("status") or {}).get("observedGeneration")
        is_running = (pod.get("status") or {}).get("phase") == "Running"
        if checked == generation or not is_running:
            # A change of the Check or of its pod starts the next reconcile.
            return Result(requeue_after=results.retry_after)
        pods = CoreV1Api(await self.manager.api_client())
        last_line = await pods.read_namespaced_pod_log(
            request.name, request.namespace, tail_lines=1
        )
        commands = CoreV1Api(await self.manager.api_client(websockets=True))
        output = await commands.connect_get_namespaced_pod_exec(
            request.name, request.namespace, command=check["spec"]["command"], stdout=True
        )
        status = {
            "observedGeneration": generation,
            "output": output.strip(),
            "log": last_line.strip(),
        }
        intent = {"apiVersion": CHECK.api_version, "kind": CHECK.kind, "status": status}
        metadata = {"name": request.name, "namespace": request.namespace}
        await self.client.apply({**intent, "metadata": metadata}, subresource="status")
        log.info("Executed command", output=status["output"])
        return Result()


def new_manager(config: ClientConfig) -> Manager:
    """Return a manager with the controller for Checks."""
    options = ManagerOptions(field_manager="checks", selectors={POD: CHECK_LABEL})
    manager = Manager(config, options)
    Builder(manager).for_(CHECK).owns(POD).complete(CheckReconciler(manager))
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
