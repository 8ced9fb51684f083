"""``cfo uninstall``: takes the operator away, in the right order."""

from __future__ import annotations

import anyio
import click

from cfo.manifests.names import DEFAULT_NAMESPACE

__all__ = ["command"]


@click.command("uninstall", short_help="Remove the operator from a cluster.")
@click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Where the operator lives.")
@click.option("--kubeconfig", type=click.Path(dir_okay=False), metavar="FILE", help="Credentials of an administrator.")
@click.option("--crds", is_flag=True, help="Remove the AppWrapper definition, and with it every AppWrapper.")
@click.option(
    "--patience",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="How long AppWrappers and the operator's pods may take to go.",
)
def command(namespace: str, kubeconfig: str | None, crds: bool, patience: float) -> None:
    """Remove the operator so that nothing hangs on its webhooks or finalizers. RayClusters stay as they are."""
    from cfo.manifests.removal import uninstall
    from cfo.runtime.client.client import Client
    from cfo.runtime.client.config import ConfigError, load_config
    from cfo.runtime.client.errors import APIError, TransportError
    from cfo.runtime.client.transport import Transport
    from cfo.runtime.discovery import RESTMapper

    async def work() -> None:
        async with Transport(await load_config(kubeconfig)) as transport:
            client = Client(transport, RESTMapper(transport), field_manager="cfo-uninstall")
            await uninstall(client, namespace, click.echo, definitions=crds, patience=patience)

    try:
        anyio.run(work)
    except (ConfigError, APIError, TransportError) as error:
        raise click.ClickException(" ".join(str(error).split())) from None
