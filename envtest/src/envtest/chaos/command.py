"""The command ``envtest chaos``. Only click is imported at import time."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from envtest.configuration.controllers_option import controller_names, controllers_option
from envtest.configuration.option_types import Integer, Number, PathOption

if TYPE_CHECKING:
    from envtest.chaos.report import Report

__all__ = ["chaos"]

_EXISTING: Final = PathOption(exists=True)
_INCOMPLETE: Final = 3
_INTERRUPTED: Final = 130


@click.command(
    "chaos", short_help="Run an operator with faults, and report where it does not converge."
)
@click.option("--steps", type=_EXISTING, help="Steps: a file, or a folder of manifests.")
@click.option("--crds", multiple=True, type=_EXISTING, help="CRDs to install: file or folder.")
@click.option(
    "--apply",
    "manifests",
    multiple=True,
    type=_EXISTING,
    help="Manifests to apply before: file or folder.",
)
@click.option(
    "--explore",
    default="all",
    show_default=True,
    help="Kinds of faults, comma-separated, all or none.",
)
@click.option("--only", multiple=True, metavar="ID", help="Run only this fault of a report.")
@click.option(
    "--seed",
    type=Integer(0),
    default=0,
    show_default=True,
    help="Shuffle the faults, unless 0.",
)
@click.option(
    "--timeout",
    type=Number(0.1),
    default=30.0,
    show_default=True,
    help="Seconds for each step.",
)
@click.option(
    "--budget",
    type=Number(1),
    default=600.0,
    show_default=True,
    help="Seconds for all runs.",
)
@click.option(
    "--quiet",
    type=Number(0.1),
    default=1.0,
    show_default=True,
    help="Seconds without writes that end a step",
)
@click.option(
    "--rest",
    type=Number(0),
    default=3.0,
    show_default=True,
    help="Seconds in which the operator must not write after the last step.",
)
@click.option(
    "--startup",
    type=Number(0.1),
    default=60.0,
    show_default=True,
    help="Seconds in which the operator must be ready after each start.",
)
@click.option(
    "--ready", default="", help="URL that responds, or seconds; by default the first requests."
)
@click.option(
    "--jobs",
    type=Integer(1, 64),
    default=1,
    show_default=True,
    help="Runs at the same time.",
)
@controllers_option
@click.option(
    "--ignore", multiple=True, metavar="RESOURCE", help="Resource that is no part of the state."
)
@click.option("--ignore-field", multiple=True, metavar="FIELD", help="Field that is not compared.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format.",
)
@click.argument("command", nargs=-1, required=True)
def chaos(output: str, command: tuple[str, ...], **options: Any) -> None:
    """Run COMMAND, an operator, on a control plane: without faults, and then with one fault after another.

    The command gets $KUBECONFIG. Exit code: 0 without findings, 1 with findings, 2 if the operator does not run, 3 if
    there are no findings, but the budget was too short for all faults, no fault was reached, not all
    of --only, or a run had a problem without its fault.
    """
    try:
        report = asyncio.run(_explore(command, options))
    except (OSError, ValueError, RuntimeError) as error:
        click.echo(f"envtest chaos: {error}", err=True)
        sys.exit(2)
    except asyncio.CancelledError:
        sys.exit(_INTERRUPTED)
    shown = json.dumps(report.json(), indent=2) if output == "json" else report.text()
    click.echo(shown)
    if report.findings:
        sys.exit(1)
    if not report.passed:
        sys.exit(_INCOMPLETE)
    sys.exit(0)


async def _explore(command: tuple[str, ...], options: dict[str, Any]) -> Report:
    from envtest.chaos import KINDS, Scenario, Timing, explore

    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    chosen = {"all": ",".join(KINDS), "none": ""}.get(options["explore"], options["explore"])
    report = await explore(
        command,
        options["steps"] or Scenario(),
        crds=options["crds"],
        apply=options["manifests"],
        controllers=controller_names(options["controllers"]),
        kinds=[kind.strip() for kind in chosen.split(",") if kind.strip()],
        only=options["only"],
        seed=options["seed"],
        budget=options["budget"],
        jobs=options["jobs"],
        timing=Timing(options["quiet"], options["timeout"], options["rest"], options["startup"]),
        ready=options["ready"],
        ignore=options["ignore"],
        ignore_fields=options["ignore_field"],
    )
    report.command = (_repeated_options(options), command)
    return report


_NOT_REPEATED: Final = frozenset({"explore", "only", "seed", "budget", "jobs"})


def _repeated_options(options: dict[str, Any]) -> list[str]:
    """Return the options that differ from their defaults, as words of a command line."""
    words: list[str] = []
    for parameter in chaos.params:
        if (
            not isinstance(parameter, click.Option)
            or parameter.name in _NOT_REPEATED
            or parameter.name not in options
        ):
            continue
        value = options[parameter.name]
        if value in (None, (), parameter.default):
            continue
        values = value if isinstance(value, tuple) else (value,)
        for each in values:
            words.append(parameter.opts[-1])
            words.append(f"{each:g}" if isinstance(each, float) else str(each))
    return words
