"""The command ``envtest``: serves the embedded control plane until interrupted, or writes programs for other tests.

Only click is imported at import time, so that ``cfo`` can list its commands quickly.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from envtest.controller_names import DEFAULT
from envtest.version import __version__

if TYPE_CHECKING:
    from envtest.plane import ControlPlane

__all__ = ["command", "main"]


def _controllers(text: str) -> tuple[str, ...]:
    if text == "none":
        return ()
    return tuple(name.strip() for name in text.split(",") if name.strip())


@click.group(
    "envtest",
    short_help="Serve an embedded control plane.",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="%(version)s")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="0 selects a free port.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Write a kubeconfig to this file.")
@click.option("--token", help="Bearer token of user admin (random by default).")
@click.option(
    "--token-auth-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='More users: CSV lines token,user,uid[,"group1,group2"].',
)
@click.option("--audit-log", type=click.Path(dir_okay=False, path_type=Path), help="Write audit events to this file.")
@click.option(
    "--crds", multiple=True, type=click.Path(exists=True, path_type=Path), help="CRDs to install: file or folder."
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep objects, CA and tokens in this folder between runs.",
)
@click.option(
    "--controllers",
    default=",".join(DEFAULT),
    show_default=True,
    help="Controllers to run, comma-separated, or none.",
)
@click.option(
    "--service-cluster-ip-range",
    default="10.0.0.0/24",
    show_default=True,
    help="IPv4 network of the cluster IPs of Services.",
)
@click.pass_context
def command(
    context: click.Context,
    port: int,
    host: str,
    kubeconfig: Path | None,
    token: str | None,
    token_auth_file: Path | None,
    audit_log: Path | None,
    crds: tuple[Path, ...],
    data_dir: Path | None,
    controllers: str,
    service_cluster_ip_range: str,
) -> None:
    """Serve the Kubernetes API from this process, for development and tests, until interrupted."""
    if context.invoked_subcommand is not None:
        return
    from envtest.plane import ControlPlane

    try:
        plane = ControlPlane.embedded(
            port=port,
            host=host,
            crds=crds,
            controllers=_controllers(controllers),
            token=token,
            token_auth_file=token_auth_file,
            audit_log=audit_log,
            data_dir=data_dir,
            service_cluster_ip_range=service_cluster_ip_range,
        )
        asyncio.run(_serve(plane, kubeconfig))
    except (OSError, ValueError) as error:
        _fail(error)


@command.command("assets", short_help="Print a value for KUBEBUILDER_ASSETS.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the programs to this folder instead of one in the cache folder.",
)
def assets(folder: Path | None) -> None:
    """Write programs kube-apiserver and etcd, and print their folder.

    Set KUBEBUILDER_ASSETS to it, so that tests in Go, Java and Rust run on this API server instead of the real one.
    """
    from envtest.programs.folder import write_programs

    try:
        click.echo(write_programs(folder))
    except OSError as error:
        _fail(error)


def _fail(error: Exception) -> NoReturn:
    click.echo(f"{click.get_current_context().command_path}: {error}", err=True)
    sys.exit(2)


async def _serve(plane: ControlPlane, kubeconfig: Path | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
            loop.add_signal_handler(number, stop.set)
    async with plane:
        click.echo(f"Serving on {plane.url}")
        if kubeconfig is not None:
            plane.kubeconfig(kubeconfig)
            click.echo(f"export KUBECONFIG={kubeconfig.resolve()}")
        await stop.wait()


def main() -> None:
    """Run the console script ``envtest``."""
    command(prog_name="envtest")
