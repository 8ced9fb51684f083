"""Runs conformance specs of Kubernetes on envtest: ``python -m test.conformance E2E_TEST``, in the folder ``envtest``.

``E2E_TEST`` is the program ``e2e.test`` of a Kubernetes release. It runs the specs that the list expects to pass, or
with ``--all`` all specs of the list. Each of several processes has a control plane of its own, with all controllers and
two nodes, and runs one spec after the other; each result is printed when it is known. With ``--real``, the specs run on
the programs in ``KUBEBUILDER_ASSETS``, too, which have no nodes. With ``--report FILE``, the command reads an existing
JSON report instead. Exits with 1 if a spec that should pass fails on envtest or did not run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from test.conformance.report import Outcome, outcomes, summary
from test.conformance.runner import REAL, compare, run
from test.conformance.specs import FILE, Spec, parse

SECONDS = 300
"""Seconds that a spec may take by default; some wait for minutes by design."""


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be at least 1")
    return number


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m test.conformance", description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("program", nargs="?", metavar="E2E_TEST")
    source.add_argument("--report", type=Path)
    parser.add_argument(
        "--all", action="store_true", help="also the specs that are not expected to pass"
    )
    parser.add_argument("--focus", default="", help="only specs whose names contain this text")
    parser.add_argument(
        "--processes", type=_positive, default=2, help="specs that run at the same time (default 2)"
    )
    parser.add_argument(
        "--seconds",
        type=_positive,
        default=SECONDS,
        help=f"seconds that a spec may take (default {SECONDS})",
    )
    parser.add_argument(
        "--real", action="store_true", help="also on the programs in KUBEBUILDER_ASSETS"
    )
    return parser.parse_args()


def _run(options: argparse.Namespace, specs: Sequence[Spec]) -> list[Outcome]:
    """Run the specs, print each result, and return the outcomes on envtest."""
    with tempfile.TemporaryDirectory() as folder:
        results = asyncio.run(
            run(
                options.program,
                specs,
                Path(folder),
                processes=options.processes,
                seconds=options.seconds,
                with_real=options.real,
            )
        )
    if options.real:
        print("\n".join(compare(results)))
    return [result.outcome for result in results if result.plane != REAL and result.outcome]


def main() -> None:
    """Run the command."""
    options = _arguments()
    specs = parse(FILE.read_text())
    selected = [
        spec for spec in specs if (options.all or spec.passes) and options.focus in spec.name
    ]
    if options.report:
        found = outcomes(json.loads(options.report.read_text()))
        selected = specs
    else:
        found = _run(options, selected)
    result = summary(selected, found)
    print("\n".join(result.lines))
    sys.exit(1 if result.unexpected else 0)


if __name__ == "__main__":
    main()
