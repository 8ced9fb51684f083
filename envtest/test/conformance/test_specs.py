"""The list of conformance specs, and the comparison with a report of the program ``e2e.test``."""

from __future__ import annotations

import json
import pkgutil
import re
from importlib import import_module
from pathlib import Path

import pytest

import test.conformance
from test.conformance.report import Outcome, outcomes, summary
from test.conformance.runner import EMBEDDED, REAL, Result, compare, read_result, run
from test.conformance.specs import FILE, PLAYED, Spec, focus, parse, without_tags

LEASE = Spec("[sig-node] Lease lease API should be available", "passes")
PATCH = Spec("[sig-api-machinery] Namespaces should patch a Namespace", "passes")
PRE_STOP = Spec(
    "[sig-node] PreStop should call prestop when killing a pod",
    "needs pods that send each other requests",
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
    assert (
        sorted(
            spec.name
            for spec in specs
            if spec.state.startswith("not yet") and spec.short_name in PLAYED
        )
        == []
    )


def test_states_are_known_and_have_reasons() -> None:
    specs = parse(FILE.read_text())
    assert {spec.state.split(" ")[0] for spec in specs} <= {"passes", "needs", "not"}
    assert len(specs) == 446


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  [sig-node] A", "must be '[sig-...] NAME'"),
        ("passes\n  A", "must be '[sig-...] NAME'"),
        ("passes\n  [sig-node] A [Slow]", "without tags"),
        ("passes\n  [sig-node] A\nneeds b\n  [sig-node] A", "twice"),
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
        f"FAILED {PATCH.name} [passes]\n    failed: {mismatch} (apimachinery/namespace.go:297)",
        f"FAILED {PRE_STOP.name} [{PRE_STOP.state}]\n    timedout: A suite timeout occurred",
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
    killed = read_result(LEASE, report)
    assert killed is not None
    assert not killed.passed
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


def test_results_of_both_control_planes_are_compared() -> None:
    passed = Outcome(PATCH.name, True, "")
    results = [
        Result(EMBEDDED, PATCH, passed, 1.0),
        Result(REAL, PATCH, passed, 1.0),
        Result(EMBEDDED, LEASE, None, 1.0),
    ]
    assert compare(results) == [
        "kube-apiserver  envtest   spec",
        f"passed          passed    {PATCH.name}",
        f"-               absent    {LEASE.name}",
        "kube-apiserver: 1 of 2 passed",
        "envtest: 1 of 2 passed",
    ]


async def test_each_spec_gets_a_process_and_a_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "e2e.test"
    program.write_text(
        "#!/bin/sh\n"
        'for flag in "$@"; do case "$flag" in --ginkgo.json-report=*) report=${flag#*=};; esac; done\n'
        f'cp {REPORT} "$report"\n'
    )
    program.chmod(0o700)
    specs = [PATCH, PRE_STOP]
    results = await run(str(program), specs, tmp_path, processes=2, seconds=60, with_real=False)
    assert sorted((result.spec.name, result.word) for result in results) == [
        (PATCH.name, "failed"),
        (PRE_STOP.name, "failed"),
    ]
    printed = capsys.readouterr().out.splitlines()
    assert sorted(line.partition(" s: ")[2] for line in printed) == sorted(
        [PATCH.name, PRE_STOP.name]
    )
    assert all(line.startswith("failed on envtest in ") for line in printed)
