"""``cfo handlers run FILE...``: run an operator that was written with the decorators of kopf."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click


@click.group("handlers", context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "KOPF"})
def command() -> None:
    """Run operators written with kopf's decorators."""


@command.command()
@click.option("-v", "--verbose", is_flag=True, help="Log debug messages.")
@click.option("-d", "--debug", is_flag=True, help="Log debug messages.")
@click.option("-q", "--quiet", is_flag=True, help="Log only warnings and errors.")
@click.option("--log-format", type=click.Choice(["full", "plain", "json"]), default="full", help="Log format.")
@click.option("-A", "--all-namespaces", "clusterwide", is_flag=True, help="Handle objects in all namespaces.")
@click.option("-n", "--namespace", "namespaces", multiple=True, metavar="NAME", help="Handle objects in NAME.")
@click.option("--standalone", is_flag=True, default=None, help="Do not take part in leader election.")
@click.option("--dev", is_flag=True, help="The same as --standalone.")
@click.option("-L", "--liveness", metavar="URL", help="Serve probes at URL, such as http://0.0.0.0:8080/healthz.")
@click.option("-P", "--peering", metavar="NAME", help="Take part in leader election with the Lease NAME.")
@click.option("-p", "--priority", type=int, help="Ignored: the replica that holds the Lease is the leader.")
@click.option("-m", "--module", "modules", multiple=True, metavar="MODULE", help="Import MODULE.")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def run(
    paths: tuple[Path, ...],
    modules: tuple[str, ...],
    clusterwide: bool,
    namespaces: tuple[str, ...],
    standalone: bool | None,
    dev: bool,
    liveness: str | None,
    peering: str | None,
    **logging: Any,
) -> None:
    """Run the handlers that are declared in the files PATHS and in modules."""
    from cfo.runtime.handlers.program import configure
    from cfo.runtime.handlers.program import run as run_operator

    logging.pop("priority")
    configure(**logging)
    load(paths, modules)
    run_operator(
        clusterwide=clusterwide,
        namespaces=namespaces,
        standalone=standalone or dev,
        peering_name=peering,
        liveness_endpoint=liveness,
    )


def load(paths: Iterable[Path], modules: Iterable[str] = ()) -> None:
    """Import files and modules, whose decorators declare handlers."""
    for number, path in enumerate(paths):
        folder = str(path.resolve().parent)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        name = f"__cfo_handlers_{number}_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise click.BadParameter(f"{path}: must be a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    for name in modules:
        importlib.import_module(name)
