"""Assign each Ticket to the replica that reconciles it; all replicas are active, and share the namespaces."""

import argparse

import anyio
import structlog

from cfo.runtime import (
    GVK,
    Builder,
    Client,
    ClientConfig,
    LeaderElectionOptions,
    Manager,
    ManagerOptions,
    Partition,
    Request,
    Result,
    ShardingOptions,
    load_config,
    logs,
)

TICKET = GVK("example.com", "v1", "Ticket")
NAME = "ticket-operator"
SHARDS = 16

log = structlog.get_logger("tickets")


class TicketReconciler:
    """Writes the name of this replica, and the shard of the Ticket, into the status."""

    def __init__(self, client: Client, agent: str) -> None:
        self.client = client
        self.agent = agent

    async def reconcile(self, request: Request) -> Result:
        """Apply the status; only one replica at a time reconciles the objects of a namespace."""
        ticket = await self.client.get(TICKET, request)
        if ticket is None:
            return Result()
        shard = Partition(SHARDS, frozenset()).shard_of(request.namespace, request.name)
        await self.client.apply(
            {
                "apiVersion": TICKET.api_version,
                "kind": TICKET.kind,
                "metadata": {"namespace": request.namespace, "name": request.name},
                "status": {"agent": self.agent, "shard": shard},
            },
            subresource="status",
        )
        log.info("Assigned", ticket=str(request), shard=shard)
        return Result()


async def report_leadership() -> None:
    """Log that this replica owns shard 0: such functions run once in all replicas."""
    log.info("This replica is the leader")


def new_manager(config: ClientConfig, agent: str, lease_seconds: float = 15.0) -> Manager:
    """Return a manager whose replicas share the Tickets; ``agent`` is the name of this replica."""
    election = LeaderElectionOptions(
        name=NAME,
        namespace=config.namespace,
        lease_duration=lease_seconds,
        renew_deadline=lease_seconds * 2 / 3,
        retry_period=lease_seconds / 8,
    )
    options = ManagerOptions(field_manager=NAME, leader_election=election, sharding=ShardingOptions(shards=SHARDS))
    manager = Manager(config, options)
    Builder(manager).for_(TICKET).complete(TicketReconciler(manager.client, agent))
    manager.add(report_leadership)
    return manager


async def main() -> None:
    """Run until SIGTERM or SIGINT: the shards are given away before the program ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agent", required=True, help="the name of this replica")
    parser.add_argument("--lease-seconds", type=float, default=15.0, help="how long the shards of a dead replica stay")
    args = parser.parse_args()
    logs.configure()
    await new_manager(await load_config(), args.agent, args.lease_seconds).run(handle_signals=True)


if __name__ == "__main__":
    anyio.run(main)
