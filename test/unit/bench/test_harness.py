"""The harness: runs in processes of their own, what fails and what is skipped, spread, growth, its command line."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil
import pytest
from rich.console import Console

from test.bench.harness import REPOSITORY, Benchmark, Case, Goal, Outcome, Sample, load, measure, spread
from test.bench.results import Result, read
from test.bench.stage import eventually
from test.bench.table import growth, number, show, verbs

SCENARIOS = "test.unit.bench.scenarios"


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> dict[str, Benchmark]:
    """The small ones, here and in the processes that the harness starts."""
    monkeypatch.setattr("test.bench.harness.BENCHMARKS", {})
    for name in [name for name in sys.modules if name.startswith(SCENARIOS)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setenv("CFO_BENCH_SCENARIOS", SCENARIOS)
    monkeypatch.delenv("CFO_BENCH_GO", raising=False)
    return load()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "test.bench", *arguments],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "CFO_BENCH_SCENARIOS": SCENARIOS, "CFO_BENCH_GO": ""},
        timeout=60,
        check=False,
    )


def test_each_subject_is_measured_at_the_sizes_it_can_stand(benchmarks: dict[str, Benchmark]) -> None:
    cases = [(case.subject, case.size) for case in benchmarks["small"].cases(quick=False)]
    assert ("kopf", 100) in cases
    assert ("kopf", 1000) not in cases
    assert ("cfo", 1000) in cases
    assert {size for _, size in ((case.subject, case.size) for case in benchmarks["small"].cases(quick=True))} == {10}


async def test_each_run_is_a_process_of_its_own(benchmarks: dict[str, Benchmark], tmp_path: Path) -> None:
    outcome = await measure(benchmarks["small"], Case("cfo", 100), repeat=2, folder=tmp_path)
    assert (outcome.failed, outcome.skipped) == ("", "")
    assert [sample.values["cpu s"] for sample in outcome.samples] == [1.0, 1.0]
    assert len({sample.values["pid"] for sample in outcome.samples} | {os.getpid()}) == 3
    assert outcome.samples[0].requests == {"list pods": 1, "create pods -> 409": 2}


async def test_a_run_that_fails_says_why(benchmarks: dict[str, Benchmark], tmp_path: Path) -> None:
    outcome = await measure(benchmarks["broken"], Case("cfo", 0), repeat=3, folder=tmp_path)
    assert outcome.samples == []
    assert outcome.failed.startswith("RuntimeError: it broke [here] (see ")
    outcome = await measure(benchmarks["mute"], Case("cfo", 0), repeat=1, folder=tmp_path)
    assert outcome.failed.startswith("it gave no sample (see ")


async def test_what_does_not_end_is_given_up(benchmarks: dict[str, Benchmark], tmp_path: Path) -> None:
    outcome = await measure(benchmarks["endless"], Case("cfo", 0), repeat=3, folder=tmp_path, patience=0.01)
    assert outcome.failed == "not done after 0.01 s"


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def test_a_run_that_is_given_up_leaves_nothing_behind(
    benchmarks: dict[str, Benchmark], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "pid"
    monkeypatch.setenv("CFO_TEST_PID", str(told))
    running = asyncio.create_task(measure(benchmarks["endless"], Case("cfo", 0), repeat=3, folder=tmp_path))
    await eventually(lambda: told.exists() and told.read_text().endswith("\n"), "its start", 30)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await eventually(lambda: gone(int(told.read_text())), "the end of what it started", 10)


async def test_who_is_not_there_is_skipped(benchmarks: dict[str, Benchmark], tmp_path: Path) -> None:
    outcome = await measure(benchmarks["small"], Case("go", 10), repeat=3, folder=tmp_path)
    assert outcome == Outcome("small", "go", 10, skipped="CFO_BENCH_GO names no binary")


def outcome(size: int, *costs: float, subject: str = "cfo") -> Outcome:
    return Outcome("small", subject, size, [Sample({"cpu s": cost}, {"list pods": 2}) for cost in costs])


def test_spread_is_over_the_runs_that_have_the_value() -> None:
    some = outcome(1, 3.0, 1.0, 8.0)
    some.samples.append(Sample({"rss MB": 7.0}))
    assert spread(some, "cpu s") == (3.0, 1.0, 8.0)
    assert spread(some, "rss MB") == (7.0, 7.0, 7.0)


def test_growth_is_the_exponent_from_the_smallest_to_the_largest_size() -> None:
    assert growth([outcome(1000, 4.0), outcome(10, 0.04), outcome(100, 9.0)], "cpu s") == pytest.approx(1.0)
    assert growth([outcome(10, 1.0), outcome(1000, 10_000.0)], "cpu s") == pytest.approx(2.0)
    assert growth([outcome(10, 1.0)], "cpu s") is None
    assert growth([outcome(10, 0.0), outcome(100, 1.0)], "cpu s") is None
    assert growth([outcome(10, 1.0), outcome(100, 1.0)], "rss MB") is None


@pytest.mark.parametrize(
    ("value", "told"),
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
def test_three_digits_are_enough(value: float, told: str) -> None:
    assert number(value) == told


def test_requests_are_counted_by_verb() -> None:
    requests = {"list pods": 2, "list nodes": 1, "patch pods/status": 1200, "create pods -> 409": 1}
    assert verbs(Outcome("small", "cfo", 1, [Sample({}, requests)])) == "create 1, list 3, patch 1,200"
    assert verbs(Outcome("small", "cfo", 1)) == ""


def test_the_table_says_what_was_met_and_what_was_not(benchmarks: dict[str, Benchmark]) -> None:
    console = Console(width=160, record=True, file=io.StringIO())
    wanted = msgspec.structs.replace
    outcomes = [
        outcome(100, 1.5, 1.0, 2.5),
        Outcome("small", "cfo", 10, [Sample({"cpu s": 0.1, "writes": 3})]),
        wanted(outcome(10), subject="go", skipped="CFO_BENCH_GO names no binary"),
        wanted(outcome(10), subject="kopf", failed="RuntimeError: it broke [here]"),
    ]
    show(benchmarks["small"], outcomes, console)
    text = console.export_text()
    assert "small: nothing at all" in text
    assert "1.50 (1 - 2.50)" in text
    assert "goal cpu s <= 2 at 100: 1.50, met" in text
    assert "goal writes <= 0 at 10: 3, MISSED" in text
    assert "goal no such value <= 1: not measured" in text
    assert "go at 10 skipped: CFO_BENCH_GO names no binary" in text
    assert "kopf at 10 failed: RuntimeError: it broke [here]" in text
    assert "growth, cfo: cpu s ~ N^1.18" in text


def test_a_run_prints_its_tables_and_writes_its_samples(tmp_path: Path) -> None:
    file = tmp_path / "new" / "result.json"
    done = run("run", "sm*", "broken", "--quick", "--subject", "cfo", "--json", str(file))
    assert done.returncode == 1, done.stderr  # because one is broken
    assert "small: nothing at all" in done.stdout
    assert f"written to {file}" in done.stdout.replace("\n", " ")
    result = read(file)
    assert result.quick
    assert result.machine.cores > 0
    assert [each.name for each in result.benchmarks] == ["small", "broken"]
    assert result.benchmarks[0].goals[0] == Goal("cpu s", 2, 100)
    assert [(each.subject, each.size, len(each.samples)) for each in result.outcomes] == [("cfo", 10, 1), ("cfo", 0, 0)]
    assert msgspec.json.decode(msgspec.json.encode(result), type=Result) == result


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope*"], "'nope*' is no benchmark; there are small, broken, mute, endless"),
        (["small", "--subject", "ruby"], "--subject ruby: is in none of these benchmarks; there are cfo, kopf, go"),
        (["small", "--json", "/dev/null/x.json"], "--json /dev/null/x.json: /dev/null is no folder"),
    ],
)
def test_misuse_is_one_line(arguments: list[str], message: str) -> None:
    done = run("run", *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"Error: {message}\n")


def test_the_list_says_what_there_is() -> None:
    assert run("list").stdout.splitlines()[0] == f"{'small':28} nothing at all"
