"""Runs specs with ``e2e.test``: several processes at a time, one spec in each, on control planes of their own."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import islice
from pathlib import Path

from envtest import ControlPlane
from envtest.api_client import APIClient, Watch
from envtest.configuration.controller_names import KUBE_CONTROLLERS
from test.conformance.cluster import run_cluster
from test.conformance.report import Outcome, outcomes
from test.conformance.results import CUT, REAL, Result
from test.conformance.specs import Spec, focus

__all__ = ["NODE_SECONDS", "pod_that_waits_for_a_node", "read_ended", "read_result", "run"]

STOP_SECONDS = 30.0
"""Seconds in which ``e2e.test`` must clean up after the time of a spec is over, before it is killed."""
NODE_SECONDS = 45
"""Seconds that a pod may wait for a node on the real control plane, which has none.

Specs that need no node delete such pods earlier: those of the garbage collector wait for 30 seconds.
"""


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
    plane: str,
    processes: int,
    seconds: int,
    node_seconds: float,
    batch: int,
    record: Callable[[Result], None],
) -> None:
    """Run each spec on the control plane ``plane``, and pass each result to ``record`` when it is known.

    ``processes`` specs run at the same time, each for at most ``seconds``; ``folder`` gets their reports. A process
    runs ``batch`` specs; those that did not end in the time of all of them run again alone. Without nodes, a spec ends
    when its pod has waited for one for ``node_seconds``.
    """
    waiting = iter(specs)
    async with asyncio.TaskGroup() as group:
        for number in range(min(processes, len(specs))):
            files = folder / f"{plane}-{number}"
            files.mkdir()
            group.create_task(
                _work(program, plane, waiting, files, seconds, node_seconds, batch, record)
            )


async def _work(
    program: str,
    name: str,
    waiting: Iterator[Spec],
    folder: Path,
    seconds: int,
    node_seconds: float,
    batch: int,
    record: Callable[[Result], None],
) -> None:
    """Run the specs that no other process has begun, one batch after the other, on one control plane."""
    kubeconfig = folder / "kubeconfig"
    report = folder / "report.json"
    async with _control_plane(name) as plane:
        plane.kubeconfig(kubeconfig)
        while specs := list(islice(waiting, batch)):
            if len(specs) > 1:
                limit = seconds * len(specs)
                report.unlink(missing_ok=True)
                started = time.monotonic()
                await _run_specs(_command(program, specs, kubeconfig, report, limit), limit)
                took = (time.monotonic() - started) / len(specs)
                ended = read_ended(specs, report)
                for spec, outcome in ended.items():
                    record(Result.of(name, spec, outcome, took))
                specs = [spec for spec in specs if spec not in ended]
            for spec in specs:
                report.unlink(missing_ok=True)
                started = time.monotonic()
                command = _command(program, [spec], kubeconfig, report, seconds)
                pod = ""
                if name == REAL:
                    pod = await _run_without_nodes(command, seconds, plane, node_seconds)
                else:
                    await _run_specs(command, seconds)
                took = time.monotonic() - started
                record(Result.of(name, spec, read_result(spec, report), took, pod))


def _command(
    program: str, specs: Sequence[Spec], kubeconfig: Path, report: Path, seconds: int
) -> list[str]:
    return [
        program,
        f"--kubeconfig={kubeconfig}",
        "--provider=skeleton",
        "--allowed-not-ready-nodes=-1",
        "--num-nodes=1",
        f"--ginkgo.json-report={report}",
        f"--ginkgo.timeout={seconds}s",
        "--ginkgo.grace-period=10s",
        "--ginkgo.no-color",
        f"--ginkgo.focus={'|'.join(map(focus, specs))}",
    ]


async def _run_specs(command: Sequence[str], seconds: float) -> None:
    """Run ``e2e.test`` until it ends; if this is cancelled, interrupt it, so that it deletes its objects."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await asyncio.wait_for(process.wait(), seconds + STOP_SECONDS)
    except asyncio.CancelledError:
        process.send_signal(signal.SIGINT)
        await _end(process)
        raise
    except TimeoutError:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    try:
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()


async def _run_without_nodes(
    command: Sequence[str], seconds: float, plane: ControlPlane, node_seconds: float
) -> str:
    """Run a spec until it ends, or a pod has waited for a node; return the name of that pod."""
    async with APIClient(plane) as client:
        current = await client.get("/api/v1/pods", {"limit": "1"})
        options = {
            "resourceVersion": current.body["metadata"]["resourceVersion"],
            "fieldSelector": "spec.nodeName=",
        }
        async with client.watch("/api/v1/pods", options) as pods:
            pending = asyncio.create_task(pod_that_waits_for_a_node(pods, node_seconds))
            running = asyncio.create_task(_run_specs(command, seconds))
            await asyncio.wait({pending, running}, return_when=asyncio.FIRST_COMPLETED)
            for task in (pending, running):
                task.cancel()
            await asyncio.wait({pending, running})
            return "" if pending.cancelled() else pending.result()


async def pod_that_waits_for_a_node(pods: Watch, seconds: float) -> str:
    """Return the name of the first pod of a watch that has had no node for ``seconds``."""
    created: dict[str, tuple[float, str]] = {}
    while True:
        now = time.monotonic()
        oldest = min(created.values(), default=(now, ""))
        remaining = oldest[0] + seconds - now
        if created and remaining <= 0:
            return oldest[1]
        try:
            event = await pods.event(remaining if created else 1e6)
        except TimeoutError:
            continue
        metadata = event["object"]["metadata"]
        if event["type"] == "DELETED":
            created.pop(metadata["uid"], None)
        elif event["type"] == "ADDED":
            created[metadata["uid"]] = (time.monotonic(), metadata["name"])


def _read_report(report: Path) -> list[Outcome] | None:
    """Return the outcomes of a report; ``None`` if the program was killed before it had written the whole report."""
    try:
        return outcomes(json.loads(report.read_text()))
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def read_ended(specs: Sequence[Spec], report: Path) -> dict[Spec, Outcome]:
    """Return the outcomes of the specs that ended, by the report of a process that ran several."""
    found = {outcome.name: outcome for outcome in _read_report(report) or ()}
    ended = {spec: found[spec.name] for spec in specs if spec.name in found}
    return {spec: outcome for spec, outcome in ended.items() if not outcome.reason.startswith(CUT)}


def read_result(spec: Spec, report: Path) -> Outcome | None:
    """Return the outcome of a spec by its report; ``None`` if the program does not contain it."""
    found = _read_report(report)
    if found is None:
        return Outcome(spec.name, False, "wrote no report before it was killed")
    own = [outcome for outcome in found if outcome.name == spec.name]
    failed = [outcome for outcome in found if not outcome.passed]
    if own:
        return own[0]
    return failed[0]._replace(name=spec.name) if failed else None
