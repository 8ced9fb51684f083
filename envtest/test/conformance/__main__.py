"""Runs conformance specs of Kubernetes on envtest: ``python -m test.conformance E2E_TEST``, in the folder ``envtest``.

``E2E_TEST`` is the program ``e2e.test`` of a Kubernetes release. It runs the specs of the list that envtest can run.
Each of several processes has a control plane of its own, with all controllers and two nodes, and runs one batch after
the other; each result is printed when it is known. With ``--real``, the specs run on the programs in
``KUBEBUILDER_ASSETS``, too, which have no nodes: a spec whose pod waits for one ends with this result. A later run
continues the results in a file (``--results``). With ``--write``, they replace those in ``specs.txt``; then run
``make manifests``. With ``--report FILE``, the command reads an existing JSON report instead. Exits with 1 if a spec
that passed before fails on envtest or did not run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from test.conformance.report import outcomes, summary
from test.conformance.results import EMBEDDED, REAL, Result, Results, compare, load, updated
from test.conformance.runner import NODE_SECONDS, run
from test.conformance.specs import FILE, Spec, parse, render

SECONDS = 900
"""Seconds that a spec may take by default: one waits for ten minutes until etcd compacts."""


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be at least 1")
    return number


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m test.conformance", description=__doc__)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("program", nargs="?", metavar="E2E_TEST")
    source.add_argument("--report", type=Path)
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
    parser.add_argument(
        "--batch",
        type=_positive,
        default=1,
        help="specs that a process runs on envtest (default 1)",
    )
    parser.add_argument("--only-real", action="store_true", help="only on these programs")
    parser.add_argument(
        "--node-seconds",
        type=_positive,
        default=NODE_SECONDS,
        help=f"seconds that a pod may wait for a node there (default {NODE_SECONDS})",
    )
    parser.add_argument(
        "--results", type=Path, help="continue the results in this file, a JSON object a line"
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="write the results to specs.txt; run nothing without E2E_TEST",
    )
    options = parser.parse_args()
    if options.write and not options.results:
        parser.error("--write needs --results FILE")
    if not options.program and not options.report and not options.write:
        parser.error("E2E_TEST is missing")
    return options


def _run(options: argparse.Namespace, specs: Sequence[Spec]) -> Results:
    """Run the specs that have no result yet, print each result, and return all results of the specs."""
    known = load(options.results) if options.results else {}

    def record(result: Result) -> None:
        known[result.plane, result.name] = result
        print(f"{result.word} on {result.plane} in {result.seconds} s: {result.name}", flush=True)
        if options.results:
            with options.results.open("a") as file:
                file.write(f"{result.line()}\n")

    planes = [EMBEDDED, REAL] if options.real else [EMBEDDED]
    if options.only_real:
        planes = [REAL]
    if not options.program:
        planes = []
    for plane in planes:
        waiting = [spec for spec in specs if (plane, spec.name) not in known]
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(
                run(
                    options.program,
                    waiting,
                    Path(folder),
                    plane=plane,
                    processes=options.processes,
                    seconds=options.seconds,
                    node_seconds=options.node_seconds,
                    batch=1 if plane == REAL else options.batch,
                    record=record,
                )
            )
    names = {spec.name for spec in specs}
    return {key: result for key, result in known.items() if result.name in names}


def main() -> None:
    """Run the command."""
    options = _arguments()
    specs = parse(FILE.read_text())
    selected = [spec for spec in specs if spec.can_run and options.focus in spec.name]
    if options.report:
        found = outcomes(json.loads(options.report.read_text()))
        selected = specs
    else:
        results = _run(options, selected)
        found = [
            result.outcome()
            for result in results.values()
            if result.plane == EMBEDDED and result.word != "absent"
        ]
        if options.real or options.only_real:
            print("\n".join(compare(results.values())))
        if options.write:
            FILE.write_text(render(updated(specs, results)))
    if options.only_real:
        return
    result = summary(selected, found)
    print("\n".join(result.lines))
    sys.exit(1 if result.unexpected else 0)


if __name__ == "__main__":
    main()
