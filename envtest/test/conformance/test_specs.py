"""The list of conformance specs, and the comparison with a report of the program ``e2e.test``."""

from __future__ import annotations

import json
import pkgutil
import re
from importlib import import_module
from pathlib import Path

import pytest

import test.conformance
from envtest import ControlPlane
from envtest.api_client import APIClient
from test.conformance.report import Outcome, outcomes, summary
from test.conformance.results import EMBEDDED, REAL, Result, compare, load, updated
from test.conformance.runner import pod_that_waits_for_a_node, read_ended, read_result, run
from test.conformance.specs import FILE, PLAYED, Spec, focus, parse, render, without_tags

LEASE = Spec("[sig-node] Lease lease API should be available", "passed", "not run")
PATCH = Spec("[sig-api-machinery] Namespaces should patch a Namespace", "passed", "passed")
PRE_STOP = Spec(
    "[sig-node] PreStop should call prestop when killing a pod",
    "needs pods that send each other requests",
    "needs nodes",
)
REPORT = Path(__file__).parent / "data" / "report.json"


def test_tests_send_the_requests_of_each_spec_that_passes() -> None:
    for module in pkgutil.iter_modules(test.conformance.__path__):
        if module.name.startswith("test_"):
            import_module(f"test.conformance.{module.name}")
    specs = parse(FILE.read_text())
    short_names = [spec.short_name for spec in specs]
    assert sorted(name for name in PLAYED if short_names.count(name) != 1) == []
    assert (
        sorted(spec.short_name for spec in specs if spec.passes and spec.short_name not in PLAYED)
        == []
    )


def test_list_has_the_results_of_all_specs_in_its_own_order() -> None:
    text = FILE.read_text()
    specs = parse(text)
    assert len(specs) == 446
    assert render(reversed(specs)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  [sig-node] A", "must be '[sig-...] NAME'"),
        ("passed", "must be 'RESULT / RESULT'"),
        ("passed / perhaps", "must be 'RESULT / RESULT'"),
        ("passed / passed\n  A", "must be '[sig-...] NAME'"),
        ("passed / passed\n  [sig-node] A [Slow]", "without tags"),
        ("passed / failed\n  [sig-node] A\nneeds b / passed\n  [sig-node] A", "twice"),
    ],
)
def test_invalid_lines_of_the_list_are_reported(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse(text)


def test_tags_do_not_matter() -> None:
    old = "[sig-api-machinery] Namespaces [Serial] should patch a Namespace [Conformance]"
    new = "[sig-api-machinery] Namespaces should patch a Namespace [Conformance] [Serial]"
    assert without_tags(old) == without_tags(new) == PATCH.name
    assert re.search(focus(PATCH), old)
    assert re.search(focus(PATCH), new)
    assert not re.search(focus(PATCH), f"{new} twice")


def test_report_is_compared_with_the_list() -> None:
    result = summary([LEASE, PATCH, PRE_STOP], outcomes(json.loads(REPORT.read_text())))
    mismatch = "Expected <string>: a to equal <string>: b"
    assert result.unexpected == [PATCH.name]
    assert result.lines == [
        f"FAILED {PATCH.name} [passed]\n    failed: {mismatch} (apimachinery/namespace.go:297)",
        f"FAILED {PRE_STOP.name} [{PRE_STOP.envtest}]\n    timedout: A suite timeout occurred",
        "PASSED [sig-network] Services should do what only a newer release can [not in the list]",
        "2 passed, 2 failed, 0 expected specs did not run",
    ]


def test_spec_that_did_not_run_is_reported() -> None:
    result = summary([LEASE, PATCH], [])
    assert result.unexpected == [PATCH.name, LEASE.name]
    assert result.lines[-1] == "0 passed, 0 failed, 2 expected specs did not run"


def test_suite_that_cannot_start_is_a_failure() -> None:
    failure = {
        "LeafNodeType": "SynchronizedBeforeSuite",
        "State": "failed",
        "Failure": {"Message": "no nodes"},
    }
    (outcome,) = outcomes([{"SpecReports": [failure]}])
    assert outcome == ("[SynchronizedBeforeSuite]", False, "failed: no nodes")


def test_result_of_one_spec_is_read_from_its_report(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    killed = Outcome(LEASE.name, False, "wrote no report before it was killed")
    assert read_result(LEASE, report) == killed
    report.write_text("[{")
    assert read_result(LEASE, report) == killed
    report.write_text(REPORT.read_text())
    result = read_result(PATCH, report)
    assert result is not None
    assert result.reason.startswith("failed: Expected")
    report.write_text("[]")
    assert read_result(PATCH, report) is None


def test_suite_that_cannot_start_fails_the_spec(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    failure = {
        "LeafNodeType": "SynchronizedBeforeSuite",
        "State": "failed",
        "Failure": {"Message": "no nodes"},
    }
    report.write_text(json.dumps([{"SpecReports": [failure]}]))
    assert read_result(PATCH, report) == (PATCH.name, False, "failed: no nodes")


def test_specs_of_a_batch_that_did_not_end_run_again(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert read_ended([PATCH], report) == {}
    report.write_text(REPORT.read_text())
    ended = read_ended([PATCH, PRE_STOP, LEASE], report)
    assert PATCH in ended
    assert PRE_STOP not in ended, "its time was over"


@pytest.mark.parametrize(
    ("outcome", "pod", "word"),
    [
        (None, "", "absent"),
        (Outcome(PATCH.name, True, ""), "", "passed"),
        (Outcome(PATCH.name, True, ""), "p", "passed"),
        (Outcome(PATCH.name, False, "failed: Expected"), "", "failed"),
        (Outcome(PATCH.name, False, "failed: no ready, schedulable nodes"), "", "needs nodes"),
        (Outcome(PATCH.name, False, "panicked: invalid argument to Intn"), "", "needs nodes"),
        (Outcome(PATCH.name, False, "timedout: A suite timeout occurred"), "", "timeout"),
        (Outcome(PATCH.name, False, "interrupted: by the user"), "p", "needs nodes"),
    ],
)
def test_result_is_one_word(outcome: Outcome | None, pod: str, word: str) -> None:
    assert Result.of(REAL, PATCH, outcome, 1.2, pod).word == word


def test_results_in_a_file_replace_those_of_the_list(tmp_path: Path) -> None:
    file = tmp_path / "results"
    assert load(file) == {}
    results = [
        Result(EMBEDDED, PATCH.name, "failed", "", 1),
        Result(EMBEDDED, PATCH.name, "timeout", "", 1),
        Result(REAL, LEASE.name, "passed", "", 1),
    ]
    file.write_text("".join(f"{result.line()}\n" for result in results))
    specs = updated([LEASE, PATCH, PRE_STOP], load(file))
    assert specs == [
        LEASE._replace(real="passed"),
        PATCH._replace(envtest="timeout"),
        PRE_STOP,
    ]
    assert parse(render(specs)) == specs


async def test_pod_without_a_node_is_found_by_a_watch() -> None:
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as client:
        pods = "/api/v1/namespaces/default/pods"
        account = {"metadata": {"name": "default"}}
        await client.post("/api/v1/namespaces/default/serviceaccounts", account)
        spec = {"containers": [{"name": "c", "image": "i"}]}
        async with client.watch("/api/v1/pods", {"fieldSelector": "spec.nodeName="}) as watch:
            for name in ("deleted", "waits"):
                created = await client.post(pods, {"metadata": {"name": name}, "spec": spec})
                assert created.code == 201, created.body
            await client.delete(f"{pods}/deleted", query={"gracePeriodSeconds": "0"})
            assert await pod_that_waits_for_a_node(watch, 0.1) == "waits"


def test_results_of_both_control_planes_are_compared() -> None:
    results = [
        Result(EMBEDDED, PATCH.name, "passed", "", 1),
        Result(REAL, PATCH.name, "passed", "", 1),
        Result(EMBEDDED, LEASE.name, "absent", "", 1),
    ]
    assert compare(results) == [
        "kube-apiserver  envtest      spec",
        f"passed          passed       {PATCH.name}",
        f"-               absent       {LEASE.name}",
        "kube-apiserver: 1 of 2 passed",
        "envtest: 1 of 2 passed",
    ]


async def test_each_spec_gets_a_result(tmp_path: Path) -> None:
    program = tmp_path / "e2e.test"
    runs = tmp_path / "runs"
    program.write_text(
        "#!/bin/sh\n"
        f"echo run >> {runs}\n"
        'for flag in "$@"; do case "$flag" in --ginkgo.json-report=*) report=${flag#*=};; esac; done\n'
        f'cp {REPORT} "$report"\n'
    )
    program.chmod(0o700)
    results: list[Result] = []
    await run(
        str(program),
        [PATCH, PRE_STOP],
        tmp_path,
        plane=EMBEDDED,
        processes=1,
        seconds=60,
        node_seconds=1,
        batch=2,
        record=results.append,
    )
    assert [(result.name, result.word) for result in results] == [
        (PATCH.name, "failed"),
        (PRE_STOP.name, "timeout"),
    ]
    assert runs.read_text().splitlines() == ["run", "run"], "the spec that was cut runs again"
