"""Command line of the fault campaign, ``python -m test.faults``; ``make faults`` calls it.

Exit codes: 0 if all promises were kept, 1 if one was not, 2 without the programs of a control plane.
"""

from __future__ import annotations

import asyncio
import fnmatch
import logging
import os
import tempfile
from pathlib import Path

import click
import structlog
from rich.console import Console
from rich.table import Table

from test.bench.gate import GateError, default_base, install_commit, resolve_commit
from test.bench.harness import REPOSITORY
from test.faults.campaign import Fault, Outcome, Scale, real_plane, run_faults
from test.faults.scenarios import FAULTS, rolling_update

_SCALE = Scale(tenants=5, storm_seconds=6.0, down_seconds=3.0, quiet_seconds=3.0)


class CommandLineError(click.ClickException):
    """An invalid command line, reported as one line with exit code 2."""

    exit_code = 2


def _select(patterns: tuple[str, ...], faults: list[Fault]) -> list[Fault]:
    names = [fault.name for fault in faults]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise CommandLineError(f"{pattern!r}: no such fault; available: {', '.join(names)}")
    return [
        fault
        for fault in faults
        if any(fnmatch.fnmatch(fault.name, pattern) for pattern in patterns or ("*",))
    ]


def _print(outcomes: list[Outcome], console: Console) -> None:
    table = Table("fault", "promise", "seen", "pass", show_lines=True)
    for outcome in outcomes:
        seen = [f"complete after {outcome.seconds:.1f} s (at most {outcome.fault.bound:g} s)"]
        seen += outcome.facts
        verdict = "yes" if outcome.passed else "NO"
        table.add_row(
            outcome.fault.name,
            outcome.fault.promise,
            "\n".join([*seen, *outcome.problems]),
            verdict,
        )
    console.print(table)


@click.command()
@click.argument("patterns", nargs=-1)
@click.option(
    "--previous",
    metavar="REVISION",
    help="The version that is updated: a tag or commit (default: where the branch left origin/main).",
)
def main(patterns: tuple[str, ...], previous: str | None) -> None:
    """Cause the faults that match PATTERNS (all) on the programs in $KUBEBUILDER_ASSETS, and print a table."""
    if not os.environ.get("KUBEBUILDER_ASSETS"):
        raise CommandLineError(
            "set KUBEBUILDER_ASSETS to the folder of etcd, kube-apiserver and kube-controller-manager"
        )
    console = Console()
    if not console.is_terminal:
        console.width = 170
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="cfo-faults-") as folder:
        try:
            commit = resolve_commit(previous) if previous else default_base()
            executable = REPOSITORY / "build" / "faults" / commit / "venv" / "bin" / "cfo"
            faults = _select(patterns, [*FAULTS, rolling_update(executable, commit[:8])])
            if any(fault.name == "two versions" for fault in faults):
                install_commit(commit, REPOSITORY / "build" / "faults")
        except GateError as error:
            raise CommandLineError(str(error)) from None
        for number, fault in enumerate(faults):
            home = Path(folder) / str(number)
            home.mkdir()
            (outcome,) = asyncio.run(run_faults([fault], real_plane, home, _SCALE))
            verdict = "pass" if outcome.passed else "FAIL"
            console.print(f"{verdict} {fault.name}: {'; '.join(outcome.problems or outcome.facts)}")
            outcomes.append(outcome)
    _print(outcomes, console)
    if not all(outcome.passed for outcome in outcomes):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
