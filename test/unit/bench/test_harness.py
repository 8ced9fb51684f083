"""Tests of the benchmark harness: runs in separate processes, failed and skipped cases, tables and the command line."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import msgspec
import psutil
import pytest
from rich.console import Console

from test.bench.api_server import RequestCounts, run_concurrently
from test.bench.harness import (
    REPOSITORY,
    Benchmark,
    Case,
    Goal,
    Outcome,
    Sample,
    last_error,
    measure,
    spread,
)
from test.bench.processes import wait_until
from test.bench.results import Result, read_result
from test.bench.table import format_number, growth_exponent, print_table, requests_by_verb


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with the fake benchmarks."""
    return subprocess.run(
        [sys.executable, "-m", "test.bench", *arguments],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "CFO_BENCH_SCENARIOS": "test.unit.bench.scenarios", "CFO_BENCH_GO": ""},
        timeout=60,
        check=False,
    )


def test_each_subject_is_measured_at_the_sizes_up_to_its_limit(
    benchmarks: dict[str, Benchmark],
) -> None:
    cases = [(case.subject, case.size) for case in benchmarks["small"].cases(quick=False)]
    assert ("kopf", 100) in cases
    assert ("kopf", 1000) not in cases
    assert ("cfo", 1000) in cases
    assert {
        size
        for _, size in ((case.subject, case.size) for case in benchmarks["small"].cases(quick=True))
    } == {10}


async def test_each_run_has_its_own_process(
    benchmarks: dict[str, Benchmark], tmp_path: Path
) -> None:
    outcome = await measure(benchmarks["small"], Case("cfo", 100), repeat=2, folder=tmp_path)
    assert (outcome.failed, outcome.skipped) == ("", "")
    assert [sample.values["cpu s"] for sample in outcome.samples] == [1.0, 1.0]
    assert len({sample.values["pid"] for sample in outcome.samples} | {os.getpid()}) == 3
    assert outcome.samples[0].requests == {"list pods": 1, "create pods -> 409": 2}


async def test_failed_run_reports_the_reason(
    benchmarks: dict[str, Benchmark], tmp_path: Path
) -> None:
    outcome = await measure(benchmarks["failing"], Case("cfo", 0), repeat=3, folder=tmp_path)
    assert outcome.samples == []
    assert outcome.failed.startswith("RuntimeError: it broke [here] (see ")
    outcome = await measure(benchmarks["silent"], Case("cfo", 0), repeat=1, folder=tmp_path)
    assert outcome.failed.startswith("the run printed no sample (see ")


async def test_endless_run_times_out(benchmarks: dict[str, Benchmark], tmp_path: Path) -> None:
    outcome = await measure(
        benchmarks["endless"], Case("cfo", 0), repeat=3, folder=tmp_path, timeout=0.01
    )
    assert outcome.failed == "timed out after 0.01 s"


def has_exited(pid: int) -> bool:
    """Return whether a process does not exist or is a zombie."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def test_cancelled_run_leaves_no_processes(
    benchmarks: dict[str, Benchmark], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid_file = tmp_path / "pid"
    monkeypatch.setenv("CFO_TEST_PID", str(pid_file))
    running = asyncio.create_task(
        measure(benchmarks["endless"], Case("cfo", 0), repeat=3, folder=tmp_path)
    )
    await wait_until(
        lambda: pid_file.exists() and pid_file.read_text().endswith("\n"),
        "start of the child process",
        30,
    )
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await wait_until(lambda: has_exited(int(pid_file.read_text())), "end of the child process", 10)


async def test_unavailable_subject_is_skipped(
    benchmarks: dict[str, Benchmark], tmp_path: Path
) -> None:
    outcome = await measure(benchmarks["small"], Case("go", 10), repeat=3, folder=tmp_path)
    assert outcome == Outcome("small", "go", 10, skipped="CFO_BENCH_GO is not set")


def test_error_in_an_exception_group_is_reported_without_its_frame() -> None:
    log = "  + Exception Group Traceback:\n    | Traceback:\n    | ValueError: bad\n    +---------------\n\n"
    assert last_error(log) == "ValueError: bad"
    assert last_error("Traceback:\nValueError: bad\n") == "ValueError: bad"
    assert last_error("\n") == "no output"


def test_writes_are_successful_and_exclude_events_and_access_reviews() -> None:
    requests = {
        "get pods": 1,
        "create pods": 2,
        "create events": 4,
        "create subjectaccessreviews": 8,
        "patch pods/status -> 409": 16,
        "delete pods": 32,
    }
    counts = RequestCounts(requests, 0.0)
    assert (counts.total, counts.writes) == (63, 34)


async def test_concurrent_calls_are_limited() -> None:
    running: set[int] = set()
    maxima: list[int] = []

    async def call(number: int) -> None:
        running.add(number)
        maxima.append(len(running))
        await asyncio.sleep(0)
        running.remove(number)

    await run_concurrently((partial(call, number) for number in range(10)), limit=3)
    assert (len(maxima), max(maxima), running) == (10, 3, set())


def cpu_outcome(size: int, *costs: float, subject: str = "cfo") -> Outcome:
    return Outcome(
        "small", subject, size, [Sample({"cpu s": cost}, {"list pods": 2}) for cost in costs]
    )


def test_spread_uses_the_runs_that_measured_the_value() -> None:
    outcome = cpu_outcome(1, 3.0, 1.0, 8.0)
    outcome.samples.append(Sample({"rss MB": 7.0}))
    assert spread(outcome, "cpu s") == (3.0, 1.0, 8.0)
    assert spread(outcome, "rss MB") == (7.0, 7.0, 7.0)


def test_growth_is_the_exponent_between_the_smallest_and_the_largest_size() -> None:
    assert growth_exponent(
        [cpu_outcome(1000, 4.0), cpu_outcome(10, 0.04), cpu_outcome(100, 9.0)], "cpu s"
    ) == pytest.approx(1.0)
    assert growth_exponent(
        [cpu_outcome(10, 1.0), cpu_outcome(1000, 10_000.0)], "cpu s"
    ) == pytest.approx(2.0)
    assert growth_exponent([cpu_outcome(10, 1.0)], "cpu s") is None
    assert growth_exponent([cpu_outcome(10, 0.0), cpu_outcome(100, 1.0)], "cpu s") is None
    assert growth_exponent([cpu_outcome(10, 1.0), cpu_outcome(100, 1.0)], "rss MB") is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (7.0, "7"),
        (0.00123, "0.00123"),
        (0.123456, "0.123"),
        (1.2345, "1.23"),
        (12.345, "12.3"),
        (123.45, "123"),
        (1234.5, "1,234"),
        (20_000, "20,000"),
        (-1.5, "-1.50"),
    ],
)
def test_values_are_formatted_with_three_significant_digits(value: float, text: str) -> None:
    assert format_number(value) == text


def test_requests_are_counted_by_verb() -> None:
    requests = {"list pods": 2, "list nodes": 1, "patch pods/status": 1200, "create pods -> 409": 1}
    assert (
        requests_by_verb(Outcome("small", "cfo", 1, [Sample({}, requests)]))
        == "create 1, list 3, patch 1,200"
    )
    assert requests_by_verb(Outcome("small", "cfo", 1)) == ""


def test_table_shows_met_and_missed_goals_and_failures(benchmarks: dict[str, Benchmark]) -> None:
    console = Console(width=160, record=True, file=io.StringIO())
    replace = msgspec.structs.replace
    outcomes = [
        cpu_outcome(100, 1.5, 1.0, 2.5),
        Outcome("small", "cfo", 10, [Sample({"cpu s": 0.1, "writes": 3})]),
        replace(cpu_outcome(10), subject="go", skipped="CFO_BENCH_GO is not set"),
        replace(cpu_outcome(10), subject="kopf", failed="RuntimeError: it broke [here]"),
    ]
    print_table(benchmarks["small"], outcomes, console)
    text = console.export_text()
    assert "small: measures nothing" in text
    assert "1.50 (1 - 2.50)" in text
    assert "goal cpu s <= 2 at 100: 1.50, met" in text
    assert "goal writes <= 0 at 10: 3, MISSED" in text
    assert "goal no such value <= 1: not measured" in text
    assert "go at 10 skipped: CFO_BENCH_GO is not set" in text
    assert "kopf at 10 failed: RuntimeError: it broke [here]" in text
    assert "growth, cfo: cpu s ~ N^1.18" in text


def test_run_prints_tables_and_writes_samples(tmp_path: Path) -> None:
    file = tmp_path / "new" / "result.json"
    process = run_command(
        "run", "sm*", "failing", "--quick", "--subject", "cfo", "--json", str(file)
    )
    assert process.returncode == 1, process.stderr  # because one benchmark fails
    assert "small: measures nothing" in process.stdout
    assert f"Results written to {file}" in process.stdout.replace("\n", " ")
    result = read_result(file)
    assert result.quick
    assert result.machine.cores > 0
    assert [each.name for each in result.benchmarks] == ["small", "failing"]
    assert result.benchmarks[0].goals[0] == Goal("cpu s", 2, 100)
    assert [(each.subject, each.size, len(each.samples)) for each in result.outcomes] == [
        ("cfo", 10, 1),
        ("cfo", 0, 0),
    ]
    assert msgspec.json.decode(msgspec.json.encode(result), type=Result) == result


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope*"], "'nope*': no such benchmark; available: small, failing, silent, endless, gate"),
        (
            ["small", "--subject", "ruby"],
            "--subject ruby: not measured by these benchmarks; available: cfo, kopf, go",
        ),
        (
            ["small", "--json", "/dev/null/x.json"],
            "--json /dev/null/x.json: /dev/null is not a directory",
        ),
    ],
)
def test_invalid_arguments_are_reported_in_one_line(arguments: list[str], message: str) -> None:
    process = run_command("run", *arguments)
    assert (process.returncode, process.stdout, process.stderr) == (2, "", f"Error: {message}\n")


def test_list_shows_names_and_titles() -> None:
    assert run_command("list").stdout.splitlines()[0] == f"{'small':28} measures nothing"
