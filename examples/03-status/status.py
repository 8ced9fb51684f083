"""Request the URL of each Probe periodically and report in the status whether it responds."""

import sys

import aiohttp
import anyio

from cfo.runtime import (
    GVK,
    Builder,
    ClientConfig,
    Conditions,
    ConfigError,
    GenerationChanged,
    Manager,
    ManagerOptions,
    Object,
    ReconcileError,
    Request,
    Result,
    TerminalError,
    find_condition,
    is_deleting,
    load_config,
    logs,
)
from cfo.runtime.client import ExponentialRateLimiter
from cfo.runtime.controller import ControllerOptions, RunnableFailed

PROBE = GVK("example.com", "v1", "Probe")
TIMEOUT = aiohttp.ClientTimeout(total=5)


class Unreachable(ReconcileError):
    """Raised if the URL does not respond: retried, and logged without a stack trace."""


class ProbeReconciler:
    """Sets the condition Reachable of a Probe and records an Event when it changes."""

    def __init__(self, manager: Manager) -> None:
        self.client = manager.client
        self.clock = manager.clock
        self.events = manager.events("probe")

    async def reconcile(self, request: Request) -> Result:
        """Request the URL once; the result determines the time of the next reconcile."""
        probe = await self.client.get(PROBE, request)
        if probe is None or is_deleting(probe):
            return Result()
        url = probe["spec"]["url"]
        if not url.startswith(("http://", "https://")):
            await self.report(
                probe, False, "InvalidURL", "The URL must start with http:// or https://."
            )
            raise TerminalError(
                f"spec.url: {url!r}: must start with http:// or https://"
            )  # no retry until it changes
        try:
            async with (
                aiohttp.ClientSession(timeout=TIMEOUT) as session,
                session.get(url) as response,
            ):
                code = response.status
        except (aiohttp.ClientError, TimeoutError) as error:
            await self.report(probe, False, "Unreachable", f"The URL does not respond: {error}")
            raise Unreachable(f"{url}: {error}") from None  # any exception is retried with back-off
        reason = "Responded" if code < 400 else "ErrorResponse"
        await self.report(probe, code < 400, reason, f"The URL responded with status {code}.")
        return Result(requeue_after=probe["spec"]["intervalSeconds"])

    async def report(self, probe: Object, reachable: bool, reason: str, message: str) -> None:
        """Write the status, which sends no request if it is unchanged, and record an Event if the reason changes."""
        conditions = Conditions(probe, now=self.clock.now())
        before = find_condition(conditions.as_list(), "Reachable") or {}
        conditions.set("Reachable", reachable, reason, message)
        # With the uid the apply fails, instead of writing to another object, if the Probe was deleted and recreated.
        identity = {key: probe["metadata"][key] for key in ("namespace", "name", "uid")}
        await self.client.apply(
            {
                "apiVersion": PROBE.api_version,
                "kind": PROBE.kind,
                "metadata": identity,
                "status": {
                    "observedGeneration": probe["metadata"]["generation"],
                    "conditions": conditions.as_list(),
                },
            },
            subresource="status",
        )
        if before.get("reason") != reason:
            self.events.event(probe, "Normal" if reachable else "Warning", reason, message)


def new_manager(config: ClientConfig) -> Manager:
    """Return a manager with the controller for Probes."""
    manager = Manager(config, ManagerOptions(field_manager="probe-operator"))
    (
        Builder(manager)
        .for_(PROBE, GenerationChanged())  # our own status writes do not cause another reconcile
        # Retry after 0.1 s, 0.2 s, ..., 10 s.
        .with_options(ControllerOptions(rate_limiter=ExponentialRateLimiter(0.1, 10.0)))
        .complete(ProbeReconciler(manager))
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
