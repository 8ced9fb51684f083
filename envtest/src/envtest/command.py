"""The command ``envtest``: serves the embedded control plane until interrupted; writes programs; checks manifests.

Only click is imported at import time, so that ``cfo`` can list its commands quickly.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import click

from envtest.apimachinery.file_errors import reason_of
from envtest.configuration.controller_names import missing_controllers
from envtest.configuration.controllers_option import controller_names, controllers_option
from envtest.configuration.kubernetes_version import LATEST, SUPPORTED
from envtest.configuration.option_types import PORT, PathOption
from envtest.version import __version__

if TYPE_CHECKING:
    from envtest.planes.plane import ControlPlane

__all__ = ["command", "main"]


class _InvalidArguments(click.ClickException):
    """Wrong arguments, which are reported in one line."""

    exit_code = 2

    def __init__(self, error: click.UsageError) -> None:
        help_of = f" (see {error.ctx.command_path} --help)" if error.ctx is not None else ""
        super().__init__(" ".join(error.format_message().split()).removesuffix(".") + help_of)


class _Group(click.Group):
    """Imports subcommands when they run; their short help is duplicated here."""

    lazy_commands: ClassVar[dict[str, tuple[str, str, str]]] = {
        "chaos": (
            "envtest.chaos.command",
            "chaos",
            "Run an operator with faults, and report where it does not converge.",
        ),
        "validate": ("envtest.manifest_check.command", "command", "Check manifest files offline."),
    }

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            raise _InvalidArguments(error) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:  # of a subcommand
            raise _InvalidArguments(error) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in self.list_commands(ctx) or name.startswith("-"):
            return super().resolve_command(ctx, args)
        raise click.UsageError(
            f"No such command {name!r}; without a command, {ctx.command_path} serves", ctx
        )

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *self.lazy_commands])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy_commands:
            return super().get_command(ctx, cmd_name)
        module, attribute, _ = self.lazy_commands[cmd_name]
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = {name: command.get_short_help_str() for name, command in self.commands.items()}
        rows |= {name: text for name, (_, _, text) in self.lazy_commands.items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted(rows.items()))


@click.group(
    "envtest",
    cls=_Group,
    short_help="Serve an embedded control plane.",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="%(version)s")
@click.option(
    "--port",
    type=PORT,
    default=0,
    show_default=True,
    help="0 selects a free port.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--kubeconfig",
    type=PathOption(dir_okay=False),
    help="Write a kubeconfig to this file.",
)
@click.option("--token", help="Bearer token of user admin (random by default).")
@click.option(
    "--token-auth-file",
    type=PathOption(exists=True, dir_okay=False),
    help='More users: CSV lines token,user,uid[,"group1,group2"].',
)
@click.option(
    "--audit-log",
    type=PathOption(dir_okay=False),
    help="Write audit events to this file.",
)
@click.option(
    "--crds",
    multiple=True,
    type=PathOption(exists=True),
    help="CRDs to install: file or folder.",
)
@click.option(
    "--data-dir",
    type=PathOption(file_okay=False),
    help="Keep objects, CA and tokens in this folder between runs, also if envtest is killed. The disk is not "
    "flushed: the last changes can be lost with the power of the machine.",
)
@controllers_option
@click.option(
    "--service-cluster-ip-range",
    default="10.0.0.0/24",
    show_default=True,
    help="IPv4 network of the cluster IPs of Services.",
)
@click.option(
    "--kubernetes-version",
    default=LATEST.release,
    show_default=True,
    help=f"Version to behave like: {', '.join(SUPPORTED)}.",
)
@click.option(
    "--feature-gates",
    default="",
    help="NAME=true,...: feature gates to switch (ShardedListAndWatch).",
)
@click.option(
    "--scenario",
    type=PathOption(exists=True, dir_okay=False),
    help="Nodes and behavior of pods (YAML or JSON): simulates scheduler and kubelets.",
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
    kubernetes_version: str,
    feature_gates: str,
    scenario: Path | None,
) -> None:
    """Serve the Kubernetes API from this process, for development and tests, until interrupted."""
    if context.invoked_subcommand is not None:
        return
    if kubeconfig is not None and not kubeconfig.resolve().parent.is_dir():
        _fail(ValueError(f"--kubeconfig {kubeconfig}: must be a file in a folder that exists"))
    is_usable = kubeconfig is not None or token is not None or token_auth_file is not None
    from envtest.configuration.feature_gates import parse_feature_gates
    from envtest.planes.plane import ControlPlane

    try:
        plane = ControlPlane.embedded(
            port=port,
            host=host,
            crds=crds,
            controllers=controller_names(controllers),
            token=token,
            token_auth_file=token_auth_file,
            audit_log=audit_log,
            data_dir=data_dir,
            service_cluster_ip_range=service_cluster_ip_range,
            kubernetes_version=kubernetes_version,
            feature_gates=parse_feature_gates(filter(None, feature_gates.split(","))),
            scenario=scenario,
        )
        asyncio.run(_serve(plane, kubeconfig, is_usable=is_usable))
    except OSError as error:
        _fail(_listen_problem(error, host, port) or _file_problem(error))
    except ValueError as error:
        _fail(_option_problem(error))


@command.command("assets", short_help="Print a value for KUBEBUILDER_ASSETS.")
@click.option(
    "--folder",
    type=PathOption(file_okay=False),
    help="Write the programs to this folder instead of one in the cache folder.",
)
@click.option(
    "--kubernetes-version",
    default=LATEST.release,
    show_default=True,
    help=f"Version that kube-apiserver behaves like: {', '.join(SUPPORTED)}.",
)
def assets(folder: Path | None, kubernetes_version: str) -> None:
    """Write programs kube-apiserver and etcd, and print their folder.

    Set KUBEBUILDER_ASSETS to it, so that tests in Go, Java and Rust run on this API server instead of the real one.
    """
    from envtest.configuration.kubernetes_version import parse_version
    from envtest.programs.folder import write_programs

    try:
        click.echo(write_programs(folder, parse_version(kubernetes_version)))
    except OSError as error:
        if folder is None:
            _fail(error)
        reason = error.strerror or error
        _fail(ValueError(f"--folder {folder}: cannot be written: {reason}"))
    except ValueError as error:
        _fail(error)


def _listen_problem(error: OSError, host: str, port: int) -> ValueError | None:
    """Return the error of the option that prevents the server from listening; ``None`` for another failure."""
    if error.errno == errno.EADDRINUSE:
        return ValueError(
            f"--port {port}: is in use on {host}; set another port, or 0 for a free one"
        )
    if error.errno in (errno.EACCES, errno.EPERM) and error.filename is None:
        return ValueError(f"--port {port}: this user is not allowed to listen on it")
    return None


def _file_problem(error: OSError) -> OSError:
    """Return an error of a file without its number."""
    if not error.filename:
        return error
    return OSError(f"{error.filename}: {reason_of(error)}")


def _option_problem(error: ValueError) -> ValueError:
    """Return the error of an argument of :class:`ControlPlane` as that of the option with this name."""
    argument, separator, problem = str(error).partition(": ")
    option = f"--{argument.replace('_', '-')}"
    if separator and any(option in parameter.opts for parameter in command.params):
        return ValueError(f"{option}: {problem}")
    return error


def _fail(error: Exception) -> NoReturn:
    """Exit with one line: with code 2 for invalid input, such as a port in use, and 1 for all other failures."""
    click.echo(f"Error: {error}", err=True)
    code = 2 if isinstance(error, ValueError) else 1
    sys.exit(code)


def _write_kubeconfig(plane: ControlPlane, path: Path) -> str:
    """Write the kubeconfig and return it. Raises ValueError if that is not possible."""
    try:
        return plane.kubeconfig(path)
    except FileExistsError as error:
        raise ValueError(f"--kubeconfig {error}") from None
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(f"--kubeconfig {path}: cannot be written: {reason}") from None


def _controllers(plane: ControlPlane) -> str:
    """Return which controllers run, and how to get the others if a Deployment would have no pods."""
    running = ", ".join(plane.running_controllers) or "none"
    missing = missing_controllers("apps/v1", "Deployment", plane.running_controllers)
    if not missing:
        return running
    return f"{running}; --controllers all runs all others, such as {' and '.join(missing)}"


async def _serve(plane: ControlPlane, kubeconfig: Path | None, *, is_usable: bool) -> None:
    """Serve until a signal arrives. ``is_usable`` says whether the user knows a token."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
            loop.add_signal_handler(number, stop.set)
    async with plane:
        written = None
        if kubeconfig is not None:
            written = _write_kubeconfig(plane, kubeconfig)
        click.echo(f"Serving on {plane.url}")
        if kubeconfig is not None:
            click.echo(f"export KUBECONFIG={kubeconfig.resolve()}")
        elif not is_usable:
            click.echo(
                "The token of user admin is random and not shown: set --kubeconfig FILE, or --token TOKEN",
                err=True,
            )
        click.echo(f"Controllers: {_controllers(plane)}")
        try:
            await stop.wait()
        finally:
            # The server has stopped; another control plane may have replaced the file.
            if (
                kubeconfig is not None
                and kubeconfig.is_file()
                and kubeconfig.read_text() == written
            ):
                kubeconfig.unlink(missing_ok=True)


def main() -> None:
    """Run the console script ``envtest``."""
    command(prog_name="envtest")
