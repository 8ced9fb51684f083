"""Runs specs with ``e2e.test``: several processes at a time, one spec in each, on control planes of their own."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from envtest import ControlPlane
from envtest.configuration.controller_names import KUBE_CONTROLLERS
from test.conformance.cluster import run_cluster
from test.conformance.report import Outcome, outcomes
from test.conformance.specs import Spec, focus

__all__ = ["EMBEDDED", "REAL", "Result", "compare", "read_result", "run"]

EMBEDDED = "envtest"
REAL = "kube-apiserver"
STOP_SECONDS = 30.0
"""Seconds in which ``e2e.test`` must clean up after the time of a spec is over, before it is killed."""


class Result(NamedTuple):
    """What happened to a spec on a control plane; ``outcome`` is ``None`` if the program does not contain it."""

    plane: str
    spec: Spec
    outcome: Outcome | None
    seconds: float

    @property
    def word(self) -> str:
        """The result in one word."""
        if self.outcome is None:
            return "absent"
        return "passed" if self.outcome.passed else "failed"


@asynccontextmanager
async def _run_real() -> AsyncIterator[ControlPlane]:
    async with ControlPlane.real(controllers=tuple(KUBE_CONTROLLERS)) as plane:
        yield plane


def _control_plane(name: str) -> AbstractAsyncContextManager[ControlPlane]:
    return _run_real() if name == REAL else run_cluster()


async def run(
    program: str,
    specs: Sequence[Spec],
    folder: Path,
    *,
    processes: int,
    seconds: int,
    with_real: bool,
) -> list[Result]:
    """Run each spec on envtest, and with ``with_real`` on the real control plane; print and return the results.

    ``processes`` specs run at the same time, each for at most ``seconds``; ``folder`` gets their reports.
    """
    results: list[Result] = []
    planes = [EMBEDDED, REAL] if with_real else [EMBEDDED]
    for name in planes:
        waiting = iter(specs)
        async with asyncio.TaskGroup() as group:
            for number in range(min(processes, len(specs))):
                files = folder / f"{name}-{number}"
                files.mkdir()
                group.create_task(_work(program, name, waiting, files, seconds, results))
    return results


async def _work(
    program: str,
    name: str,
    waiting: Iterator[Spec],
    folder: Path,
    seconds: int,
    results: list[Result],
) -> None:
    """Run the specs that no other process has begun, one after the other, on one control plane."""
    kubeconfig = folder / "kubeconfig"
    async with _control_plane(name) as plane:
        plane.kubeconfig(kubeconfig)
        for spec in waiting:
            started = time.monotonic()
            report = folder / "report.json"
            report.unlink(missing_ok=True)
            await _run_spec(_command(program, spec, kubeconfig, report, seconds), seconds)
            took = time.monotonic() - started
            result = Result(name, spec, read_result(spec, report), took)
            results.append(result)
            print(f"{result.word} on {name} in {took:.0f} s: {spec.name}", flush=True)


def _command(program: str, spec: Spec, kubeconfig: Path, report: Path, seconds: int) -> list[str]:
    return [
        program,
        f"--kubeconfig={kubeconfig}",
        "--provider=skeleton",
        "--allowed-not-ready-nodes=-1",
        "--num-nodes=1",
        f"--ginkgo.json-report={report}",
        f"--ginkgo.timeout={seconds}s",
        "--ginkgo.no-color",
        f"--ginkgo.focus={focus(spec)}",
    ]


async def _run_spec(command: Sequence[str], seconds: float) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await asyncio.wait_for(process.wait(), seconds + STOP_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()


def read_result(spec: Spec, report: Path) -> Outcome | None:
    """Return the outcome of a spec by its report; ``None`` if the program does not contain it."""
    if not report.exists():
        return Outcome(spec.name, False, "wrote no report before it was killed")
    found = outcomes(json.loads(report.read_text()))
    own = [outcome for outcome in found if outcome.name == spec.name]
    failed = [outcome for outcome in found if not outcome.passed]
    if own:
        return own[0]
    return failed[0]._replace(name=spec.name) if failed else None


def compare(results: Iterable[Result]) -> list[str]:
    """Return the lines of a table with the results on both control planes."""
    words: dict[str, dict[str, str]] = {}
    for result in results:
        words.setdefault(result.spec.name, {})[result.plane] = result.word
    lines = [f"{REAL:14}  {EMBEDDED:8}  spec"]
    for name, on in sorted(words.items()):
        lines.append(f"{on.get(REAL, '-'):14}  {on.get(EMBEDDED, '-'):8}  {name}")
    for plane in (REAL, EMBEDDED):
        passed = sum(on.get(plane) == "passed" for on in words.values())
        lines.append(f"{plane}: {passed} of {len(words)} passed")
    return lines
