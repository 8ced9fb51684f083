"""``cfo dev -- COMMAND``: run a program, and restart it when its source changes."""

from __future__ import annotations

from pathlib import Path

import click

from cfo.console.errors import CommandFailed, run_async


@click.command(
    "dev",
    short_help="Run a program, and restart it when its source changes.",
    context_settings={"ignore_unknown_options": True},
)
@click.option(
    "--watch",
    "folders",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    metavar="PATH",
    help="Folder or file to watch; by default the current folder. Repeatable.",
)
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def command(folders: tuple[Path, ...], program: tuple[str, ...]) -> None:
    """Run a program, and restart it when its source changes, for example: cfo dev -- python my_operator.py.

    Several files that are saved together cause one restart. While a file has a syntax error, the running program is
    kept. Ctrl-C ends both.
    """
    from cfo.console.dev.supervisor import Supervisor

    supervisor = Supervisor(program, folders or (Path.cwd(),), report)
    try:
        run_async(supervisor.run)
    except OSError as error:
        raise CommandFailed(f"cannot run {program[0]}: {error.strerror or error}") from None


def report(line: str) -> None:
    """Print a line of the supervisor."""
    click.secho(f"dev: {line}", err=True, fg="cyan")
