"""Runs conformance specs of Kubernetes on envtest: ``python -m test.conformance E2E_TEST``, in the folder ``envtest``.

``E2E_TEST`` is the program ``e2e.test`` of a Kubernetes release. It runs the specs that the list expects to pass, or
with ``--all`` all specs of the list, on a control plane with all controllers and two nodes. With ``--report FILE``, it
reads an existing JSON report instead. Exits with 1 if a spec that should pass fails or did not run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from test.conformance.cluster import run_cluster
from test.conformance.report import outcomes, summary
from test.conformance.specs import FILE, Spec, focus, parse


def arguments(specs: Sequence[Spec], kubeconfig: Path, report: Path) -> list[str]:
    """Return the flags of ``e2e.test`` for these specs."""
    return [
        f"--kubeconfig={kubeconfig}",
        "--provider=skeleton",
        f"--ginkgo.json-report={report}",
        "--ginkgo.timeout=4h",
        "--ginkgo.no-color",
        *(f"--ginkgo.focus={focus(spec)}" for spec in specs),
    ]


async def run(program: str, specs: Sequence[Spec], folder: Path) -> Path:
    """Run the specs on a control plane, and return the report."""
    report, kubeconfig = folder / "report.json", folder / "kubeconfig"
    async with run_cluster() as plane:
        plane.kubeconfig(kubeconfig)
        process = await asyncio.create_subprocess_exec(
            program, *arguments(specs, kubeconfig, report)
        )
        await process.wait()
    if not report.exists():
        sys.exit(f"{program}: wrote no report; it exited with {process.returncode}")
    return report


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m test.conformance", description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("program", nargs="?", metavar="E2E_TEST")
    source.add_argument("--report", type=Path)
    parser.add_argument(
        "--all", action="store_true", help="also the specs that are not expected to pass"
    )
    options = parser.parse_args()
    specs = parse(FILE.read_text())
    selected = [spec for spec in specs if options.all or spec.passes]
    with tempfile.TemporaryDirectory() as folder:
        report = options.report or asyncio.run(run(options.program, selected, Path(folder)))
        result = summary(specs, outcomes(json.loads(report.read_text())))
    print("\n".join(result.lines))
    sys.exit(1 if result.unexpected else 0)


if __name__ == "__main__":
    main()
