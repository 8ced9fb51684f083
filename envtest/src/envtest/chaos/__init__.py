"""Chaos: runs an operator with crashes, stale caches and errors, and reports where it does not converge.

:func:`explore` runs any operator on copies of a prepared control plane: first without faults, then once for each place
in its work at which a fault can happen. :func:`run` does the same for synchronous programs.

The core is pure: ``points`` (the plan of the faults), ``names``, ``normal_form``, ``comparison`` (end states),
``activity`` (loops and writes at rest), ``steps``, ``report``. The rest executes it: ``operators`` (processes),
``run_clock`` (time), ``injection`` (faults in one control plane), ``session``, ``execution``, ``exploration``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from envtest.apimachinery.errors import StatusError
from envtest.apimachinery.string_lists import checked_strings
from envtest.chaos.execution import Problem, Timing
from envtest.chaos.exploration import Settings, explore_plane
from envtest.chaos.injection import IGNORED
from envtest.chaos.operators import (
    Connection,
    Operator,
    OperatorCommand,
    OperatorFunction,
    StartError,
)
from envtest.chaos.points import KINDS, FaultPoint, parse_point
from envtest.chaos.readiness import parse_readiness
from envtest.chaos.report import Finding, Report
from envtest.chaos.session import OperatorExited
from envtest.chaos.steps import (
    Scenario,
    ScenarioError,
    apply_objects,
    load_scenario,
    parse_scenario,
)
from envtest.formats.manifests import CRD, Manifests, read_manifests
from envtest.planes.embedded import EmbeddedServer

__all__ = [
    "KINDS",
    "Connection",
    "FaultPoint",
    "Finding",
    "OperatorCommand",
    "OperatorExited",
    "OperatorFunction",
    "Problem",
    "Report",
    "Scenario",
    "ScenarioError",
    "StartError",
    "Timing",
    "explore",
    "parse_point",
    "run",
]

AnyOperator = Operator | Sequence[str] | Callable[[Connection], Any]
"""A command, a coroutine function that runs until it is cancelled, or an object that starts instances."""


async def explore(
    operator: AnyOperator,
    scenario: Scenario | Path | str | Sequence[Any] = (),
    *,
    plane: EmbeddedServer | None = None,
    crds: Iterable[Manifests] = (),
    apply: Iterable[Manifests] = (),
    controllers: Sequence[str] = ("gc", "namespace", "serviceaccount"),
    kinds: Iterable[str] = KINDS,
    only: Iterable[str] = (),
    seed: int = 0,
    budget: float = 600.0,
    jobs: int = 1,
    timing: Timing | None = None,
    ready: str = "",
    ignore: Collection[str] = (),
    ignore_fields: Collection[str] = (),
) -> Report:
    """Run ``operator`` without faults, and then with each fault, and report where it does not converge.

    ``scenario`` is a file, a folder, or a list of steps as in a file. ``plane`` is a running control plane with the
    prepared state, which is not changed; otherwise one is started with ``controllers``, ``crds`` and the manifests
    ``apply``. ``ready`` is a URL or a number of seconds; by default the operator is ready when its first requests
    pause. ``ignore`` names resources that are no part of the state, in addition to Events and Leases. The other
    parameters are those of :class:`envtest.chaos.exploration.Settings`.

    Raises ScenarioError, TypeError, ValueError or OSError for invalid input; StartError or OperatorExited if the
    operator does not run even without faults.
    """
    settings = Settings(
        kinds=_checked_kinds(kinds),
        only=[parse_point(each) for each in checked_strings("only", only)],
        seed=seed,
        budget=budget,
        jobs=max(1, jobs),
        timing=timing or Timing(),
        readiness=parse_readiness(ready),
        ignored=IGNORED | set(checked_strings("ignore", ignore)),
        ignored_fields=checked_strings("ignore_fields", ignore_fields),
    )
    steps = _scenario(scenario)
    if plane is not None:
        await _prepare(plane, crds, apply)
        return await explore_plane(plane, _operator(operator), steps, settings)
    from envtest.planes.plane import ControlPlane

    async with ControlPlane.embedded(controllers=controllers) as started:
        await _prepare(started, crds, apply)
        return await explore_plane(started, _operator(operator), steps, settings)


def run(
    operator: AnyOperator, scenario: Scenario | Path | str | Sequence[Any] = (), **options: Any
) -> Report:
    """Do what :func:`explore` does, on an event loop of its own in another thread. Must not be called on a loop."""
    with ThreadPoolExecutor(1, thread_name_prefix="envtest-chaos") as executor:
        return executor.submit(lambda: asyncio.run(explore(operator, scenario, **options))).result()


def _checked_kinds(kinds: Iterable[str]) -> tuple[str, ...]:
    found = checked_strings("kinds", kinds)
    for kind in found:
        if kind not in KINDS:
            raise ValueError(f"kind of fault {kind!r}: must be one of {', '.join(KINDS)}")
    return found


def _scenario(scenario: Scenario | Path | str | Sequence[Any]) -> Scenario:
    if isinstance(scenario, Scenario):
        return scenario
    if isinstance(scenario, Path | str):
        return load_scenario(Path(scenario))
    return parse_scenario({"steps": list(scenario)}, Path())


def _operator(operator: AnyOperator) -> Operator:
    if isinstance(operator, Sequence):
        return OperatorCommand(operator)
    return OperatorFunction(operator) if callable(operator) else operator


async def _prepare(
    plane: EmbeddedServer, crds: Iterable[Manifests], apply: Iterable[Manifests]
) -> None:
    """Install CRDs, and apply manifests, in the order of their files. Raises ScenarioError, ValueError, OSError."""
    objects = [
        obj
        for source in apply
        for obj in (
            read_manifests(Path(source), objects_only=True)
            if isinstance(source, Path | str)
            else [dict(source)]
        )
    ]
    definitions = [*crds, *(obj for obj in objects if obj["kind"] == CRD)]
    if definitions:
        await plane.install_crds(*definitions)
    try:
        await apply_objects(plane, (obj for obj in objects if obj["kind"] != CRD))
    except StatusError as error:
        raise ScenarioError(f"apply: {error.message}") from error
    except LookupError as error:
        raise ScenarioError(f"apply: {error}") from error
