"""The command ``cfo-handlers run FILE...``: runs operators that are written with the decorators."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import click

from cfo.runtime import ConfigError
from cfo.runtime.controller import GracePeriodExceeded, RunnableFailed
from cfo_handlers.activities import ActivityError
from cfo_handlers.declarations import get_default_registry
from cfo_handlers.errors import InvalidParameter, InvalidProgram, LoginError
from cfo_handlers.program import configure, run

_FAILURES: Final = (
    ConfigError,
    LoginError,
    ActivityError,
    InvalidProgram,
    RunnableFailed,
    GracePeriodExceeded,
)
"""The errors that are one line, because their text is all that helps."""


class _InvalidArguments(click.ClickException):
    """Wrong arguments, which are reported in one line."""

    exit_code = 2

    def __init__(self, error: click.UsageError) -> None:
        text = " ".join(error.format_message().split()).removesuffix(".")
        if error.ctx is not None:
            text += f" (see {error.ctx.command_path} --help)"
        super().__init__(text)


class _Group(click.Group):
    """A group that reports wrong arguments, also those of its subcommands, in one line."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            raise _InvalidArguments(error) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise _InvalidArguments(error) from None


@click.group(
    "cfo-handlers",
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "KOPF"},
)
def command() -> None:
    """Run operators written with kopf's decorators."""


@command.command("run")
@click.option("-v", "--verbose", is_flag=True, help="Log debug messages.")
@click.option("-d", "--debug", is_flag=True, help="Log debug messages.")
@click.option("-q", "--quiet", is_flag=True, help="Log only warnings and errors.")
@click.option(
    "--log-format", type=click.Choice(["full", "plain", "json"]), default="full", help="Log format."
)
@click.option(
    "-A", "--all-namespaces", "clusterwide", is_flag=True, help="Handle objects in all namespaces."
)
@click.option(
    "-n", "--namespace", "namespaces", multiple=True, metavar="NAME", help="Handle objects in NAME."
)
@click.option(
    "--standalone", "--dev", "standalone", is_flag=True, help="Do not take part in leader election."
)
@click.option(
    "-L",
    "--liveness",
    "liveness_endpoint",
    metavar="URL",
    help="Serve probes at URL, as http://0.0.0.0:8080/healthz.",
)
@click.option(
    "-P",
    "--peering",
    "peering_name",
    metavar="NAME",
    help="Take part in leader election: Lease NAME.",
)
@click.option(
    "-p", "--priority", type=int, help="Ignored: the replica that holds the Lease is the leader."
)
@click.option("-m", "--module", "modules", multiple=True, metavar="MODULE", help="Import MODULE.")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def run_command(
    paths: tuple[Path, ...],
    modules: tuple[str, ...],
    verbose: bool,
    debug: bool,
    quiet: bool,
    log_format: str,
    priority: int | None,
    **options: Any,
) -> None:
    """Run the handlers that are declared in the files PATHS and in modules."""
    configure(verbose=verbose, debug=debug, quiet=quiet, log_format=log_format)
    try:
        load(paths, modules)
    except click.UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - shown without the frames of this command
        traceback.print_exception(error.with_traceback(_frames_of_program(error)))
        raise SystemExit(1) from None
    if not get_default_registry():
        raise click.UsageError(
            "no handlers are declared; name the file that declares them: cfo-handlers run -A operator.py"
        )
    try:
        run(**options)
    except _FAILURES as error:
        raise click.ClickException(" ".join(str(error).split())) from None
    except InvalidParameter as error:
        raise click.UsageError(str(error)) from None


def _frames_of_program(error: Exception) -> TracebackType | None:
    """Return the frames of an error without the outer ones: this module and the import system."""
    own = (__file__, importlib.__file__, "<frozen")
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(own):
        frames = frames.tb_next
    return frames


def load(paths: Iterable[Path], modules: Iterable[str] = ()) -> None:
    """Import files and modules, whose decorators declare handlers."""
    for number, path in enumerate(paths):
        folder = str(path.resolve().parent)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        name = f"__cfo_handlers_{number}_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise click.UsageError(f"{path}: must be a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    for name in modules:
        importlib.import_module(name)


def main() -> None:
    """Run the console script ``cfo-handlers``."""
    command(prog_name="cfo-handlers")
