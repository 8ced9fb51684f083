"""Tests of the report: merging of results, targets, the generated page and plots, unreadable files."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from click.testing import CliRunner
from click.testing import Result as CommandResult

from test.bench.charts import RECORDED, BarPanel, LinePanel, StripPanel, charts
from test.bench.harness import Goal, Outcome, Sample, load_benchmarks
from test.bench.page import END, START, render_section, replace_section
from test.bench.report import command
from test.bench.results import BenchmarkDescription, Machine, Result, ResultError, merge
from test.bench.targets import (
    RATIO_TARGETS,
    TARGETS,
    Target,
    check_ratios,
    check_targets,
    order_by_targets,
)

MACHINE = Machine(
    cpu="A CPU",
    cores=2,
    memory_gb=8,
    load=0.1,
    system="Linux 6",
    python="3.13.1",
    packages={"aiohttp": "3.14.0"},
    commit="abc1234",
)
STARTUP = BenchmarkDescription(
    "start", "from exec to ready", "", [Goal("ready s", 1.2), Goal("rss MB", 75)]
)
SYNC = BenchmarkDescription("sync", "from exec until synced", "objects", [Goal("cpu s", 2.0, 5000)])
ENVTEST = BenchmarkDescription("envtest-start", "start of envtest", "", [])
LATENCY = BenchmarkDescription("latency", "from event to reconcile", "events/s", [])


def outcome(
    benchmark: str, subject: str, size: int, *samples: dict[str, float], **fields: str
) -> Outcome:
    return Outcome(
        benchmark, subject, size, [Sample(each, {"list pods": 3}) for each in samples], **fields
    )


def result(*outcomes: Outcome, day: int = 1, **changes: Any) -> Result:
    machine = msgspec.structs.replace(MACHINE, **changes)
    return Result(
        datetime(2026, 1, day, 10, 30, tzinfo=UTC),
        False,
        machine,
        [STARTUP, SYNC, LATENCY, ENVTEST],
        list(outcomes),
    )


def full_result() -> Result:
    """Return a result with data for every kind of table and chart."""
    return result(
        outcome(
            "start",
            "cfo",
            0,
            {"ready s": 1.0, "rss MB": 80, "cpu s": 0.7},
            {"ready s": 1.1, "rss MB": 82, "cpu s": 0.8},
        ),
        outcome("start", "kopf", 0, {"ready s": 2.0, "rss MB": 99, "cpu s": 1.5}),
        outcome("start", "go", 0, skipped="CFO_BENCH_GO is not set"),
        outcome("sync", "cfo", 1000, {"cpu s": 0.5, "rss MB": 60}),
        outcome("sync", "cfo", 5000, {"cpu s": 0.9, "rss MB": 70}),
        outcome("sync", "kopf", 1000, {"cpu s": 3.0, "rss MB": 100}),
        outcome("sync", "kopf", 5000, {"cpu s": 18.0, "rss MB": 200}),
        outcome("sync", "kopf-index", 1000, {"cpu s": 10.0, "rss MB": 100}),
        outcome("sync", "kopf-index", 5000, failed="TimeoutError: no | end (see /tmp/x/kopf.log)"),
        outcome("latency", "cfo", 10, {"p50 ms": 1, "p99 ms": 2}),
        outcome("latency", "cfo", 100, {"p50 ms": 1.5, "p99 ms": 4}),
    )


def render(*results: Result) -> str:
    """Return the generated part of the page."""
    benchmarks, outcomes = merge(results)
    return render_section(results, benchmarks, outcomes, charts(benchmarks, outcomes))


def test_merged_outcomes_contain_the_samples_of_all_runs() -> None:
    one = result(
        outcome("sync", "cfo", 5000, {"cpu s": 1}),
        outcome("sync", "cfo", 1000, {"cpu s": 2}),
        day=2,
    )
    other = result(
        outcome("sync", "kopf", 1000, {"cpu s": 3}),
        outcome("sync", "cfo", 1000, {"cpu s": 4}),
        day=1,
    )
    _, outcomes = merge([one, other])
    assert [
        (each.subject, each.size, [sample.values["cpu s"] for sample in each.samples])
        for each in outcomes
    ] == [
        ("kopf", 1000, [3]),
        ("cfo", 1000, [4, 2]),
        ("cfo", 5000, [1]),
    ]


def test_merged_case_is_measured_if_any_run_measured_it_and_failed_if_any_run_failed() -> None:
    skipped = result(
        outcome("start", "go", 0, skipped="not there"),
        outcome("sync", "go", 0, skipped="not there"),
    )
    good = result(
        outcome("start", "go", 0, {"ready s": 3}), outcome("start", "cfo", 0, {"ready s": 1})
    )
    failed = result(outcome("start", "cfo", 0, failed="broke"))
    _, outcomes = merge([good, failed, skipped])
    cases = {
        (each.benchmark, each.subject): (len(each.samples), each.failed, each.skipped)
        for each in outcomes
    }
    assert cases[("start", "go")] == (1, "", "")
    assert cases[("start", "cfo")] == (1, "broke", "")
    assert cases[("sync", "go")] == (0, "", "not there")


def test_results_of_different_machines_are_rejected() -> None:
    measured = outcome("start", "cfo", 0, {"ready s": 1})
    with pytest.raises(ResultError, match="different machines: 2 x A CPU and 2 x Another"):
        merge([result(measured), result(measured, cpu="Another")])
    merge([result(measured), result(measured, python="3.11.0", commit="fff")])


def test_targets_are_met_missed_or_not_measured() -> None:
    benchmarks, outcomes = merge([full_result()])
    targets = [
        Target("ready", "start", "ready s"),
        Target("idle", "start", "rss MB"),
        Target("sync", "sync", "cpu s", 5000),
        Target("no goal of this name", "sync", "rss MB", 5000),
        Target("a benchmark that was not run", "storm", "cpu s", 5000),
    ]
    assert [
        (each.target.title, each.met) for each in check_targets(benchmarks, outcomes, targets)
    ] == [
        ("ready", True),
        ("idle", False),
        ("sync", True),
    ]
    other_sizes = [each for each in outcomes if each.size != 5000]
    assert [each.met for each in check_targets(benchmarks, other_sizes, targets[2:3])] == [None]


def test_ratios_compare_cases_of_the_same_size() -> None:
    benchmarks, outcomes = merge([full_result()])
    without_index, with_index = check_ratios(benchmarks, outcomes)
    assert (without_index.target.peer, without_index.factor, without_index.met) == (
        "kopf",
        pytest.approx(20),
        True,
    )
    assert (with_index.target.peer, with_index.factor, with_index.met) == ("kopf-index", None, None)
    stricter = [replace(target, at_least=21) for target in RATIO_TARGETS]
    assert [each.met for each in check_ratios(benchmarks, outcomes, stricter)] == [False, None]
    assert list(check_ratios({"start": STARTUP}, outcomes)) == []


def test_each_target_is_a_goal_of_a_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CFO_BENCH_SCENARIOS", raising=False)
    benchmarks = load_benchmarks()
    for target in TARGETS:
        goals = {(goal.value, goal.size) for goal in benchmarks[target.benchmark].goals}
        assert (target.value, target.size) in goals, target
    for ratio in RATIO_TARGETS:
        cases = [
            (case.subject, case.size) for case in benchmarks[ratio.benchmark].cases(quick=False)
        ]
        assert (ratio.peer, ratio.size) in cases, ratio
        assert ("cfo", ratio.size) in cases, ratio


def test_benchmarks_with_targets_come_first() -> None:
    benchmarks = {each.name: each for each in (LATENCY, SYNC, STARTUP)}
    assert list(order_by_targets(benchmarks)) == ["start", "sync", "latency"]


def test_page_contains_targets_tables_and_runs() -> None:
    text = render(full_result())
    assert "|exec to ready, s|3.7|≤ 1.2|1.05 (1–1.10)|2|met|" in text
    assert (
        "|idle RSS, all controllers enabled, empty cluster, MB|43–52|≤ 75|81 (80–82)|99|**missed**|"
    ) in text
    assert "All targets are met." not in text
    assert "20 × (18 : 0.900 s)||met|" in text
    assert text.count("go: not measured, CFO_BENCH_GO is not set.") == 1
    assert "kopf-index at 5,000: failed, TimeoutError: no | end." in text
    assert "|cfo|1,000|0.500|60|" in text
    assert "From exec until synced. 1 run." in text
    assert "From exec to ready.\n" in text  # the cases have two runs and one
    assert "Growth: cfo cpu s 0.37, rss MB 0.10; kopf cpu s 1.11" in text
    assert (
        "2026-01-01 10:30 UTC|1|`abc1234`|2 × A CPU, 8 GB, Linux 6, load 0.1|Python 3.13.1, aiohttp 3.14.0|"
        in text
    )
    assert "](images/performance/growth-sync.svg)" in text
    assert "/tmp/" not in text


def test_columns_that_add_nothing_are_left_out() -> None:
    same, other = {"rss MB": 80, "peak MB": 80}, {"rss MB": 80, "peak MB": 90}
    assert "||rss MB|\n|---|--:|\n|cfo|80|\n|kopf|80|" in render(
        result(outcome("start", "cfo", 0, same), outcome("start", "kopf", 0, same))
    )
    assert "|objects|rss MB|peak MB|\n|--:|--:|--:|\n|1,000|80|90|" in render(
        result(outcome("sync", "cfo", 1000, other))
    )


def test_charts_contain_targets_spread_growth_and_latency() -> None:
    benchmarks, outcomes = merge([full_result()])
    chart_by_name = {chart.name: chart for chart in charts(benchmarks, outcomes)}
    assert list(chart_by_name) == ["targets", "spread", "growth-sync", "latency-latency"]
    bars = [panel for panel in chart_by_name["targets"].panels if isinstance(panel, BarPanel)]
    assert [bar.subject for bar in bars[0].bars] == ["cfo", "kopf", RECORDED]
    assert [panel.title for panel in bars][1:] == [
        "exec to ready (s)",
        "cold sync of 5,000 RayClusters:\nCPU from exec to synced (s)",
    ]
    cpu, _ = chart_by_name["growth-sync"].panels
    assert isinstance(cpu, LinePanel)
    assert [(series.subject, len(series.points)) for series in cpu.series] == [
        ("cfo", 2),
        ("kopf", 2),
        ("kopf-index", 1),
    ]
    (strips,) = chart_by_name["spread"].panels
    assert isinstance(strips, StripPanel)
    assert [(label, subject, len(shares)) for label, subject, shares in strips.rows] == [
        ("start", "cfo", 2)
    ]
    (latency,) = chart_by_name["latency-latency"].panels
    assert isinstance(latency, LinePanel)
    assert [series.label for series in latency.series] == ["p50", "p99"]


def test_only_the_generated_part_of_the_page_is_replaced() -> None:
    page = f"# Title\n\n{START}\nold\n{END}\n\nThe end.\n"
    updated = replace_section(page, "new")
    assert updated == f"# Title\n\n{START}\n\nnew\n\n{END}\n\nThe end.\n"
    assert replace_section(updated, "new") == updated


@pytest.mark.parametrize("page", ["", START, END, f"{END}\n{START}", f"{START}\n{START}\n{END}"])
def test_page_without_markers_is_rejected(page: str) -> None:
    with pytest.raises(ValueError, match="expected one line"):
        replace_section(page, "new")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Create a page with an empty generated part."""
    file = tmp_path / "docs" / "performance.md"
    file.parent.mkdir()
    file.write_text(f"# Title\n{START}\n{END}\n")
    return file


def run_report(page: Path, *arguments: object) -> CommandResult:
    """Run ``hack/bench_report.py`` on ``page``."""
    return CliRunner().invoke(command, [*map(str, arguments), "--docs", str(page)])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        ("nothing", "not a result of `python -m test.bench run --json`: JSON is malformed"),
        (
            "{}",
            "not a result of `python -m test.bench run --json`: Object missing required field `began`",
        ),
        ('{"format": "other/2"}', "not a result of `python -m test.bench run --json`: "),
    ],
)
def test_invalid_result_file_is_reported_in_one_line(
    page: Path, tmp_path: Path, content: str | None, message: str
) -> None:
    file = tmp_path / "result.json"
    if content is not None:
        file.write_text(content)
    before = page.read_text()
    completed = run_report(page, file)
    assert completed.exit_code == 2
    assert completed.output.startswith(f"Error: {file}: {message}")
    assert completed.output.count("\n") == 1
    assert page.read_text() == before


def test_other_file_format_is_rejected(page: Path, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_bytes(msgspec.json.encode(full_result()).replace(b"cfo-bench/1", b"cfo-bench/2"))
    completed = run_report(page, file)
    assert completed.exit_code == 2
    assert "Invalid enum value 'cfo-bench/2' - at `$.format`" in completed.output


def test_results_without_samples_are_rejected(page: Path, tmp_path: Path) -> None:
    result().write(tmp_path / "result.json")
    completed = run_report(page, tmp_path / "result.json")
    assert (completed.exit_code, completed.output) == (2, "Error: the results contain no samples\n")


def test_runs_of_different_commits_are_reported(page: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, of the extra `bench`, is not installed")
    measured = outcome("start", "cfo", 0, {"ready s": 1})
    result(measured).write(tmp_path / "one.json")
    result(measured, commit="fff").write(tmp_path / "other.json")
    completed = run_report(page, tmp_path / "one.json", tmp_path / "other.json")
    assert completed.exit_code == 0, completed.output
    assert completed.stderr == "note: these runs are from different commits: abc1234, fff\n"
    assert "2 runs.\n\n|ready s|\n|--:|\n|1|" in page.read_text()


def test_benchmarks_of_envtest_are_not_on_the_page(page: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, of the extra `bench`, is not installed")
    measured = (
        outcome("start", "cfo", 0, {"ready s": 1}),
        outcome("envtest-start", "cfo", 0, {"first s": 1}),
    )
    result(*measured).write(tmp_path / "result.json")
    assert run_report(page, tmp_path / "result.json").exit_code == 0
    assert "### start" in page.read_text()
    assert "envtest" not in page.read_text()


def test_missing_page_and_missing_markers_are_reported_in_one_line(
    page: Path, tmp_path: Path
) -> None:
    full_result().write(tmp_path / "result.json")
    page.write_text("# Title\n")
    completed = run_report(page, tmp_path / "result.json")
    assert (completed.exit_code, completed.output.count("\n")) == (2, 1)
    assert completed.output.startswith(f"Error: {page}: expected one line `{START}`")
    page.unlink()
    completed = run_report(page, tmp_path / "result.json")
    assert (completed.exit_code, completed.output) == (
        2,
        f"Error: {page}: No such file or directory\n",
    )


def test_missing_matplotlib_is_reported_with_the_command_that_installs_it(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "test.bench.plots", raising=False)
    full_result().write(tmp_path / "result.json")
    completed = run_report(page, tmp_path / "result.json")
    assert (completed.exit_code, completed.output.count("\n")) == (2, 1)
    assert "pip install -e '.[bench]'" in completed.output


@pytest.mark.filterwarnings("default::RuntimeWarning")
def test_page_and_plots_are_reproducible(page: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, of the extra `bench`, is not installed")
    full_result().write(tmp_path / "result.json")
    folder = page.parent / "images" / "performance"
    folder.mkdir(parents=True)
    (folder / "removed-benchmark.svg").touch()
    completed = run_report(page, tmp_path / "result.json", "--check")
    assert completed.exit_code == 1
    assert len(completed.output.splitlines()) == 6
    completed = run_report(page, tmp_path / "result.json")
    assert completed.exit_code == 0, completed.output
    assert {file.name for file in folder.iterdir()} == {
        "targets.svg",
        "spread.svg",
        "growth-sync.svg",
        "latency-latency.svg",
    }
    before = {file: file.read_bytes() for file in folder.iterdir()}
    for file in before:
        file.unlink()
    assert run_report(page, tmp_path / "result.json").exit_code == 0
    assert {file: file.read_bytes() for file in folder.iterdir()} == before
    assert (
        run_report(page, tmp_path / "result.json", "--check").output,
        page.read_text().count(START),
    ) == ("", 1)
    for content in before.values():
        ElementTree.fromstring(content)
        assert len(content) < 100_000
        assert b">cfo</text>" in content or b">p50</text>" in content
        assert b"prefers-color-scheme: dark" in content
        assert b"<dc:date>" not in content


def test_chart_with_one_point_can_be_drawn() -> None:
    plots = pytest.importorskip(
        "test.bench.plots", reason="matplotlib, of the extra `bench`, is not installed"
    )
    benchmarks, outcomes = merge([full_result()])
    for chart in charts(benchmarks, outcomes):
        for panel in chart.panels:
            if isinstance(panel, LinePanel):
                short = tuple(replace(series, points=series.points[:1]) for series in panel.series)
                drawn = plots.svg(
                    replace(chart, title="a < b & c", panels=(replace(panel, series=short),))
                )
                assert (ElementTree.fromstring(drawn)[0].text, drawn.count(b"<path") > 0) == (
                    "a < b & c",
                    True,
                )
