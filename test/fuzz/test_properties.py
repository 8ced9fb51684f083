"""The properties can fail: with one function replaced by a worse one, and with a clock on which everything is slow."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any
from unittest import mock

import click
import pytest

from cfo.api.appwrapper import inference
from cfo.api.appwrapper.names import ANNOTATION_PREFIX
from cfo.config import appwrapper_settings
from cfo.config.section import ConfigurationError
from cfo.controllers.appwrapper import completion, component_deletion, transition
from test.fuzz.checks import (
    appwrapper_controller,
    appwrapper_quota,
    configuration,
    console,
    flux,
    handlers,
    inferencestack,
)
from test.fuzz.checks.console import check_doctor, check_migration, check_obstacles
from test.fuzz.checks.flux import FULL_JOB, check_flux_job, check_minicluster
from test.fuzz.checks.handlers import BODY, check_diff_base, check_progress
from test.fuzz.checks.inferencestack import FULL, check_stack
from test.fuzz.mutations import HOSTILE
from test.fuzz.stored_objects import as_stored
from test.support.flux_environment import mini_cluster
from test.support.migration import injected, user_cluster
from test.support.quota_world import PropertyViolated

CLUSTER = mini_cluster(maxSize=4)
RAY_CLUSTER = injected(user_cluster("rc"))
TEMPLATE = {"spec": {"containers": [{"image": "x:v1.0.0"}]}}
DEPLOYMENT = {
    "metadata": {"name": "d", "namespace": "ns"},
    "spec": {"replicas": 1, "template": TEMPLATE},
}
LEASE = {"metadata": {"name": "l", "namespace": "ns"}, "spec": {"holderIdentity": "x"}}
CONFIG_MAP = {"metadata": {"name": "c"}, "data": {"config.yaml": ""}}

CHECKS: dict[str, Callable[[], None]] = {
    "minicluster": lambda: check_minicluster(CLUSTER, has_job=True),
    "flux job": lambda: check_flux_job(FULL_JOB),
    "settings": lambda: appwrapper_controller.check_settings(
        {f"{ANNOTATION_PREFIX}terminalExitCodes": "1,x"}
    ),
    "stack": lambda: check_stack(FULL),
    "configuration": lambda: configuration.check("kuberay: {}"),
    "obstacles": lambda: check_obstacles([DEPLOYMENT], [LEASE]),
    "migration": lambda: check_migration(RAY_CLUSTER),
    "doctor": lambda: check_doctor(DEPLOYMENT, [TEMPLATE], CONFIG_MAP, "v1.0.0"),
    "progress": lambda: check_progress(BODY, "{}"),
    "diff base": lambda: check_diff_base(BODY, "{}"),
}

_LONG = "x" * 10_000_000


def _raise(*_: Any, **__: Any) -> Any:
    raise KeyError("mutant")


class _TwoLines(ConfigurationError):
    def __str__(self) -> str:
        return "two\nlines"


def _raise_two_lines(_: str) -> Any:
    raise _TwoLines


def _constant(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


MUTANTS: list[tuple[str, Any, str, Callable[..., Any]]] = [
    ("minicluster", flux, "validate_minicluster", _raise),
    ("minicluster", flux, "desired_config_map", _constant({"data": _LONG})),
    ("minicluster", flux, "notices", _constant([("Normal", "R", "\u202e")])),
    ("minicluster", flux, "desired_status", lambda cluster, *_: {**cluster["status"], "size": "x"}),
    (
        "minicluster",
        flux,
        "minicluster_warnings",
        lambda cluster: cluster["spec"].update(size=1) or [],
    ),
    ("flux job", flux, "validate_flux_job", _raise),
    ("flux job", flux, "decide_step", _raise),
    ("flux job", flux, "desired_minicluster", _constant({"spec": _LONG})),
    ("settings", appwrapper_settings, "parse_integer", _raise),
    ("settings", appwrapper_settings, "printable", _constant("\x1b")),
    ("stack", inferencestack, "validate", _raise),
    ("stack", inferencestack, "render", _constant([_LONG])),
    ("stack", inferencestack, "stack_status", _constant({"conditions": [_LONG]})),
    ("configuration", configuration, "parse", _raise),
    ("configuration", configuration, "parse", _raise_two_lines),
    ("obstacles", console, "find_obstacles", _raise),
    ("obstacles", console, "echo", lambda line: click.echo(f"{line}\x1b[2J")),
    ("obstacles", console, "echo", lambda line: click.echo(f"{line}\ntwo")),
    ("migration", console, "plan_safely", _raise),
    ("migration", console, "plan_lines", _constant([_LONG] * 30)),
    ("doctor", console, "check_kueue", _raise),
    ("doctor", console, "lines", _constant([_LONG] * 30)),
    ("progress", handlers.AnnotationsProgressStorage, "fetch", _raise),
    ("progress", handlers.HandlerState, "delay", _constant(1e300)),
    ("progress", handlers.HandlerState, "record", _constant({"message": _LONG})),
    ("diff base", handlers, "compute_diff", _raise),
    ("diff base", handlers.DiffBaseStorage, "build", _constant({"spec": 1, "status": 1})),
]


@pytest.mark.parametrize("name", CHECKS)
def test_check_passes_for_a_valid_object(name: str) -> None:
    CHECKS[name]()


@pytest.mark.parametrize("name", CHECKS)
def test_check_fails_if_a_computation_is_slow(name: str) -> None:
    slow_clock = mock.patch("test.fuzz.bounds.time.thread_time", side_effect=itertools.count(0, 10))
    with slow_clock, pytest.raises(AssertionError, match="took 10"):
        CHECKS[name]()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant[0]}-{mutant[2]}")
def test_check_fails_with_a_worse_function(
    mutant: tuple[str, Any, str, Callable[..., Any]],
) -> None:
    name, target, attribute, replacement = mutant
    with (
        mock.patch.object(target, attribute, replacement),
        pytest.raises((AssertionError, KeyError, ValueError)),
    ):
        CHECKS[name]()


Action = tuple[int, int]
JOB, MPI_JOB, RAY_CLUSTER_KIND, DEPLOYMENT_KIND, IDLE_DEPLOYMENT = range(5)

QUOTA_MUTANTS: list[tuple[int, list[Action], Any, str, Callable[..., Any], str]] = [
    (
        RAY_CLUSTER_KIND,
        [(6, 2), (2, 0)],
        inference,
        "_has_autoscaler",
        _constant(False),
        "3 pods of RayCluster on a quota for 2",
    ),
    (
        MPI_JOB,
        [],
        transition,
        "success_message",
        lambda _, completed, unfinished: "done" if completed and not unfinished else "",
        "hold resources",
    ),
    (JOB, [(5, 0)], transition, "_retried_pods", _constant([]), "the controllers of all failed"),
    (MPI_JOB, [], transition, "MPI_JOBS", (), "the AppWrapper is stuck in the phase Running"),
    (
        DEPLOYMENT_KIND,
        [(6, 3), (2, 0), (9, 10), (9, 25), (9, 26)],
        transition,
        "excess_message",
        _constant(""),
        "more pods than were admitted are tolerated forever",
    ),
    (
        DEPLOYMENT_KIND,
        [(6, 6), (2, 0), (1, 0), (9, 0), (9, 0)],
        component_deletion,
        "unadmitted_pods_message",
        _constant(""),
        "pods run without quota for minutes while Suspending",
    ),
    (IDLE_DEPLOYMENT, [(6, 1), (2, 0)], transition, "_is_revived", _constant(False), "run without"),
    (
        RAY_CLUSTER_KIND,
        [(4, 0), (4, 0)],
        completion,
        "SERVICES",
        frozenset(),
        "quota is released while RayCluster creates pods",
    ),
]
"""Kind, schedule and message that Hypothesis finds if a function is replaced: the rule is taken out."""


@pytest.mark.parametrize("mutant", QUOTA_MUTANTS, ids=lambda mutant: mutant[3])
def test_quota_is_exceeded_without_each_rule(
    mutant: tuple[int, list[Action], Any, str, Callable[..., Any], str],
) -> None:
    kind, schedule, target, attribute, replacement, message = mutant
    appwrapper_quota.check_schedule([kind], schedule)
    with (
        mock.patch.object(target, attribute, replacement),
        pytest.raises(PropertyViolated, match=message),
    ):
        appwrapper_quota.check_schedule([kind], schedule)


def test_valid_objects_are_stored_and_each_hostile_string_is_in_use() -> None:
    for obj in (CLUSTER, FULL_JOB, FULL, RAY_CLUSTER):
        assert as_stored(obj) is not None
    for text in HOSTILE:
        labelled = {**CLUSTER, "metadata": {"annotations": {"a": text}}}
        assert as_stored(labelled) is not None
        check_minicluster({**CLUSTER, "spec": {**CLUSTER["spec"], "flux": {"optionFlags": text}}})
        check_progress(BODY, text)
        check_diff_base(BODY, text)


def test_configuration_with_many_levels_is_stored() -> None:
    check_diff_base({**BODY, "spec": json.loads("[" * 500 + "]" * 500)}, "{}")
