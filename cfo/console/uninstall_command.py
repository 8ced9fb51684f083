"""``cfo uninstall``: remove an installation of the operator."""

from __future__ import annotations

import sys

import anyio
import click

from cfo.console.errors import cluster_failure
from cfo.manifests.names import DEFAULT_NAMESPACE

__all__ = ["command"]


@click.command("uninstall", short_help="Uninstall the operator from a cluster.")
@click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Namespace of the operator.")
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Path of a kubeconfig with cluster-admin permissions.",
)
@click.option(
    "--crds", is_flag=True, help="Also delete our CRDs, and with them all AppWrappers, FluxJobs and MiniClusters."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Time to wait until the objects of each of our CRDs are deleted, and then until the operator's pods are.",
)
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would be removed.")
@click.option("--leftovers", is_flag=True, help="Continue if the operator itself is not in the namespace any more.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation on a terminal.")
def command(
    namespace: str, kubeconfig: str | None, crds: bool, timeout: float, dry_run: bool, leftovers: bool, yes: bool
) -> None:
    """Uninstall the operator.

    Removes its webhook configurations and finalizers, so that they cannot block writes or deletions. RayClusters are
    kept. Changes nothing if the namespace has no operator.
    """
    from cfo.console.uninstall import NotInstalled, check_installation, uninstall
    from cfo.runtime import APIError, Client, ConfigError, RESTMapper, Transport, TransportError, load_config

    async def check() -> str:
        async with Transport(await load_config(kubeconfig)) as transport:
            client = Client(transport, RESTMapper(transport), field_manager="cfo-uninstall")
            await check_installation(client, namespace, leftovers=leftovers)
            return transport.config.server

    async def work() -> None:
        async with Transport(await load_config(kubeconfig)) as transport:
            client = Client(transport, RESTMapper(transport), field_manager="cfo-uninstall")
            await uninstall(client, namespace, click.echo, delete_crds=crds, dry_run=dry_run, timeout=timeout)

    try:
        server = anyio.run(check)
        if sys.stdin.isatty() and not yes and not dry_run:
            what = "the operator, its CRDs and all AppWrappers, FluxJobs and MiniClusters" if crds else "the operator"
            click.confirm(f"Remove {what} in namespace {namespace} from {server}?", abort=True)
        anyio.run(work)
    except (ConfigError, APIError, TransportError, NotInstalled) as error:
        raise cluster_failure(error) from None
