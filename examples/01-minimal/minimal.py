"""Log every Greeting: the smallest complete program."""

import sys

import anyio
import structlog

from cfo.runtime import (
    GVK,
    Builder,
    Client,
    ConfigError,
    Manager,
    Request,
    Result,
    load_config,
    logs,
)
from cfo.runtime.controller import RunnableFailed

GREETING = GVK("example.com", "v1", "Greeting")

log = structlog.get_logger("greeter")


class GreetingReconciler:
    """Logs a Greeting whenever it changes."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def reconcile(self, request: Request) -> Result:
        """Log the current state of the Greeting named ``request``."""
        greeting = await self.client.get(GREETING, request)
        if greeting is None:
            log.info("Greeting was deleted")
        else:
            log.info("Hello", to=greeting["spec"]["to"])
        return Result()


async def main() -> None:
    """Run until SIGTERM or SIGINT."""
    logs.configure()
    manager = Manager(await load_config())
    Builder(manager).for_(GREETING).complete(GreetingReconciler(manager.client))
    await manager.run(handle_signals=True)


if __name__ == "__main__":
    try:
        anyio.run(main)
    except (ConfigError, RunnableFailed) as error:
        sys.exit(str(error))
