"""``cfo dashboard``: serve the page on the loopback interface, with the permissions of a kubeconfig."""

from __future__ import annotations

import signal
import webbrowser
from typing import Final
from urllib.parse import urlsplit

import anyio
import click
from anyio.abc import TaskStatus

from cfo.console.errors import (
    ClusterUnreadable,
    CommandFailed,
    InvalidInput,
    one_line,
    run_async,
)
from cfo.console.execution import cluster_errors, command_transport, kubeconfig_option
from cfo.console.namespaces import check_name, require_namespace
from cfo.dashboard.feed import PageFeed
from cfo.dashboard.in_cluster import client_source
from cfo.dashboard.site import LoopbackServer
from cfo.features import all_views
from cfo.runtime import (
    POD,
    Client,
    RESTMapper,
    SystemClock,
    Transport,
    load_config,
)
from cfo.runtime.process import AddressUnavailable
from cfo.version import __version__

_TIMEOUT: Final = 30.0
"""Seconds in which the API server must answer at the start."""


@click.command("dashboard")
@click.option(
    "--namespace",
    "-n",
    metavar="NAMESPACE",
    help="Namespace to show; by default that of the kubeconfig.",
)
@click.option("--all-namespaces", "-A", is_flag=True, help="Show all namespaces.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="Port of the loopback interface to listen on; by default a free one.",
)
@click.option(
    "--context", metavar="NAME", help="Context of the kubeconfig; by default its current context."
)
@kubeconfig_option()
@click.option("--open", "open_browser", is_flag=True, help="Open the page in a browser.")
def command(
    namespace: str | None,
    all_namespaces: bool,
    port: int,
    context: str | None,
    kubeconfig: str | None,
    open_browser: bool,
) -> None:
    """Show a live page with RayClusters, queues, AppWrappers, InferenceStacks, certificates and Events.

    The page only reads, with the permissions of the kubeconfig, and only while it is open in a browser. It is served on
    the loopback interface until SIGINT or SIGTERM. The printed address contains a token: do not share it.
    """
    if namespace and all_namespaces:
        raise InvalidInput("--namespace and --all-namespaces cannot be used together")
    if namespace is not None:
        check_name(namespace, "--namespace")
    from cfo.runtime import logs

    async def serve() -> None:
        config = await load_config(kubeconfig, context=context)
        chosen = "" if all_namespaces else namespace or config.namespace
        server_name = urlsplit(config.server).netloc.rpartition("@")[2]
        scope = {"server": server_name, "namespace": chosen, "version": __version__}
        async with command_transport(config) as transport:
            mapper = RESTMapper(transport)
            await _check_reachable(mapper, config.server)
            if namespace is not None:
                client = Client(transport, mapper, field_manager="cfo-dashboard")
                await require_namespace(client, namespace, "--namespace")
            await show(transport, mapper, scope)

    async def show(transport: Transport, mapper: RESTMapper, scope: dict[str, str]) -> None:
        async with anyio.create_task_group() as tasks:
            source = client_source(transport, mapper, all_views(), scope["namespace"])
            server = LoopbackServer(PageFeed(source, SystemClock(), scope), port)
            await tasks.start(_stop_on_signal, tasks.cancel_scope)
            await tasks.start(server.run)
            click.echo(f"dashboard: {server.url}")
            if open_browser and not webbrowser.open(server.url):
                click.echo("no browser was found; open the address", err=True)

    logs.configure("console", "error")  # the page shows what is forbidden, or cannot be read
    try:
        with cluster_errors(reads_only=True):
            run_async(serve)
    except AddressUnavailable as error:
        raise CommandFailed(
            f"--port: {error.strerror}; choose another one, or 0 for a free one"
        ) from None
    except OSError as error:
        raise CommandFailed(one_line(error)) from None


async def _check_reachable(mapper: RESTMapper, server: str) -> None:
    """Read which kinds the server has, which the page needs as well.

    Raises :class:`ClusterUnreadable` if it does not answer in time, and the errors of the client.
    """
    with anyio.move_on_after(_TIMEOUT) as scope:
        await mapper.resource(POD)
    if scope.cancelled_caught:
        raise ClusterUnreadable(f"{server} does not answer within {_TIMEOUT:g} s")


async def _stop_on_signal(scope: anyio.CancelScope, *, task_status: TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            scope.cancel()
