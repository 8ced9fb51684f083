"""Create a ServiceAccount for each member of a Team, and delete the ServiceAccounts of former members."""

import sys

import anyio
import structlog

from cfo.runtime import (
    GVK,
    SERVICE_ACCOUNT,
    Builder,
    Client,
    ClientConfig,
    ConfigError,
    Manager,
    ManagerOptions,
    Object,
    Request,
    Result,
    is_controlled_by,
    is_deleting,
    key_of,
    load_config,
    logs,
    name_of,
    namespace_of,
    uid_of,
)
from cfo.runtime.client import Child, reconcile_children
from cfo.runtime.controller import RunnableFailed

TEAM = GVK("example.com", "v1", "Team")
TEAM_LABEL = "example.com/team"

log = structlog.get_logger("teams")


def desired_accounts(team: Object) -> list[Object]:
    """Return the ServiceAccounts of the members; each contains exactly the fields that we want to own."""
    return [
        {
            "apiVersion": SERVICE_ACCOUNT.api_version,
            "kind": SERVICE_ACCOUNT.kind,
            "metadata": {
                "namespace": namespace_of(team),
                "name": f"{name_of(team)}-{member}",
                "labels": {TEAM_LABEL: name_of(team)},
            },
        }
        for member in team["spec"]["members"]
    ]


class TeamReconciler:
    """Keeps the ServiceAccounts of a Team in sync with its list of members."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def reconcile(self, request: Request) -> Result:
        """Write the desired ServiceAccounts, then delete the surplus ones."""
        team = await self.client.get(TEAM, request)
        if team is None or is_deleting(team):
            # The garbage collector deletes the ServiceAccounts, because the Team owns them.
            return Result()
        desired = desired_accounts(team)
        children = [Child.present(account) for account in desired]
        results = await reconcile_children(self.client, team, children)
        # Read from the cache, which already contains the ServiceAccounts that were written above.
        accounts = await self.client.list(
            SERVICE_ACCOUNT,
            namespace=request.namespace,
            label_selector=f"{TEAM_LABEL}={request.name}",
        )
        owned = [account for account in accounts if is_controlled_by(account, team)]
        surplus = [account for account in owned if key_of(account) not in map(key_of, desired)]
        for account in surplus:
            await self.client.delete(SERVICE_ACCOUNT, key_of(account), uid=uid_of(account))
        log.info("Reconciled team", accounts=len(owned) - len(surplus), deleted=len(surplus))
        results.raise_errors()
        return Result(requeue_after=results.retry_after)  # a name is taken: check it again


def new_manager(config: ClientConfig) -> Manager:
    """Return a manager with the controller for Teams."""
    # Cache only the ServiceAccounts of teams, not the ServiceAccounts of all pods.
    options = ManagerOptions(field_manager="team-operator", selectors={SERVICE_ACCOUNT: TEAM_LABEL})
    manager = Manager(config, options)
    Builder(manager).for_(TEAM).owns(SERVICE_ACCOUNT).complete(TeamReconciler(manager.client))
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
