"""Keep the set of objects of each Environment: prune, clean up, summarize conditions, and wait for them."""

import argparse
import sys
from typing import Annotated

import anyio
from pydantic import Field

from cfo.runtime import (
    CONFIG_MAP,
    SERVICE_ACCOUNT,
    APIModel,
    Builder,
    Client,
    ClientConfig,
    ConditionList,
    Conditions,
    ConfigError,
    CustomResource,
    Finalizer,
    GenerationChanged,
    Manager,
    ManagerOptions,
    NamespacedName,
    Object,
    PrinterColumn,
    Request,
    Result,
    gvk_of,
    has_condition,
    key_of,
    load_config,
    logs,
    name_of,
    wait_for,
)
from cfo.runtime.cache import by_controller, controller_key
from cfo.runtime.client import Child, ChildResults, apply_status, connect, reconcile_children
from cfo.runtime.controller import RunnableFailed
from cfo.runtime.objects import list_map

FINALIZER = "example.com/receipt"
MEMBERS = (CONFIG_MAP, SERVICE_ACCOUNT)


class Component(APIModel):
    """A part of an environment."""

    name: str = Field(min_length=1, max_length=40, pattern="^[a-z][a-z0-9]*$")
    settings: dict[str, str] = Field(
        default_factory=dict, description="Without any, the component is not configured."
    )
    account: bool = Field(default=False, description="Whether the component gets a ServiceAccount.")


class EnvironmentSpec(APIModel):
    """The components."""

    components: Annotated[list[Component], list_map("name")] = Field(max_length=100)


class EnvironmentStatus(APIModel):
    """The conditions Applied, Configured, and Ready, their summary."""

    conditions: ConditionList = Field(default_factory=list)


class Environment(
    CustomResource,
    group="example.com",
    version="v1",
    short_names=["env"],
    printer_columns=[
        PrinterColumn("Ready", '.status.conditions[?(@.type=="Ready")].status', "string")
    ],
):
    """A set of components, each with a ConfigMap and, on request, a ServiceAccount."""

    spec: EnvironmentSpec
    status: EnvironmentStatus = Field(default_factory=EnvironmentStatus)


def desired_objects(environment: Environment) -> list[Object]:
    """Return all members of the set."""
    objects: list[Object] = []
    for component in environment.spec.components:
        metadata = {
            "namespace": environment.key.namespace,
            "name": f"{environment.key.name}-{component.name}",
        }
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": metadata,
                "data": component.settings,
            }
        )
        if component.account:
            objects.append({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    return objects


def receipt_of(environment: Environment, members: list[str]) -> Object:
    """Return the ConfigMap that remains after the deletion; it has no owner, so it is not deleted with one."""
    metadata = {"namespace": environment.key.namespace, "name": f"{environment.key.name}-receipt"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"members": "\n".join(members)},
    }


class EnvironmentReconciler:
    """Applies the set, reports conditions, and writes a receipt before the environment is deleted."""

    def __init__(self, manager: Manager) -> None:
        self.client = manager.client
        self.clock = manager.clock
        self.finalizer = Finalizer(manager.client, FINALIZER)
        self.readers = {
            kind: manager.cache.informer(kind).add_index("controller", by_controller).reader
            for kind in MEMBERS
        }

    def members(self, environment: Environment) -> list[Object]:
        """Return the objects that the environment controls."""
        owner = environment.metadata
        index = ("controller", controller_key(owner.namespace, owner.uid))
        return [member for reader in self.readers.values() for member in reader.list(index=index)]

    async def reconcile(self, request: Request) -> Result:
        """Apply or clean up: the finalizer is added before the first, and removed after the second."""
        environment = await self.client.get(Environment, request)
        if environment is None:
            return Result()
        return await self.finalizer.reconcile(environment, apply=self.apply, cleanup=self.clean_up)

    async def apply(self, environment: Environment) -> Result:
        """Apply the set and report the outcome; errors are raised afterwards, so that they are retried."""
        conditions = Conditions(environment, now=self.clock.now())
        results = await self.write(environment)
        if results.is_done():
            conditions.set("Applied", True, "AllApplied")
        else:  # an object of another owner has a name, or the API server refuses an object
            messages = [result.message for result in results if not result.is_done]
            conditions.set("Applied", False, "Refused", "; ".join(messages))
        missing = [
            component.name for component in environment.spec.components if not component.settings
        ]
        reason, message = (
            ("NoSettings", f"no settings: {', '.join(missing)}")
            if missing
            else ("AllConfigured", "")
        )
        conditions.set("Configured", not missing, reason, message)
        conditions.summarize(["Applied", "Configured"])
        status = EnvironmentStatus(conditions=conditions.as_models())
        await apply_status(self.client, environment, status)
        results.raise_errors()
        return Result(requeue_after=results.retry_after)

    async def write(self, environment: Environment) -> ChildResults:
        """Apply the members, then delete those that are no longer desired."""
        children = [Child.present(member) for member in desired_objects(environment)]
        existing = [(gvk_of(member), key_of(member)) for member in self.members(environment)]
        return await reconcile_children(self.client, environment, children, prune=existing)

    async def clean_up(self, environment: Environment) -> None:
        """Write the receipt; it can run again, for example after a crash, and then writes the same."""
        members = [f"{member['kind']}/{name_of(member)}" for member in self.members(environment)]
        # Without force, an apply does not replace values that another client wrote.
        await self.client.apply(receipt_of(environment, sorted(members)), force=False)


def new_manager(config: ClientConfig) -> Manager:
    """Return a manager with the controller for Environments."""
    manager = Manager(config, ManagerOptions(field_manager="environments"))
    (
        Builder(manager)
        .for_(Environment, GenerationChanged())
        .owns(CONFIG_MAP)
        .owns(SERVICE_ACCOUNT)
        .complete(EnvironmentReconciler(manager))
    )
    return manager


async def wait_until_ready(
    client: Client, key: NamespacedName, timeout: float
) -> Environment | None:
    """Return the Environment once it is ready for its current generation; raise TimeoutError after ``timeout`` s."""
    return await wait_for(client, Environment, key, has_condition("Ready"), timeout=timeout)


async def main() -> None:
    """Run until SIGTERM or SIGINT, or wait for one Environment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--wait", metavar="NAME", help="do not reconcile, but wait until this Environment is ready"
    )
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--timeout", type=float, default=30, help="seconds")
    args = parser.parse_args()
    logs.configure()
    config = await load_config()
    if args.wait is None:
        await new_manager(config).run(handle_signals=True)
        return
    async with connect(config, field_manager="environments") as client:
        try:
            await wait_until_ready(client, NamespacedName(args.namespace, args.wait), args.timeout)
        except TimeoutError as error:
            raise SystemExit(str(error)) from None


if __name__ == "__main__":
    try:
        anyio.run(main)
    except (ConfigError, RunnableFailed) as error:
        sys.exit(str(error))
