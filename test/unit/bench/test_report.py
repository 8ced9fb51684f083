"""From results to the page and its plots: merging, verdicts, markers, the same bytes again, what cannot be read."""

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
from click.testing import Result as Answer

from test.bench.charts import RECORDED, Bars, Lines, Strips, charts
from test.bench.harness import Goal, Outcome, Sample, load
from test.bench.page import END, START, put, section
from test.bench.report import command
from test.bench.results import Described, Machine, Result, Unreadable, merge
from test.bench.targets import RATIOS, TARGETS, Target, compared, judged, ordered

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
START_UP = Described("start", "from exec to ready", "", [Goal("ready s", 1.2), Goal("rss MB", 75)])
SYNC = Described("sync", "from exec until synced", "objects", [Goal("cpu s", 2.0, 5000)])
LATENCY = Described("latency", "from event to reconcile", "events/s", [])


def case(benchmark: str, subject: str, size: int, *samples: dict[str, float], **fields: str) -> Outcome:
    return Outcome(benchmark, subject, size, [Sample(each, {"list pods": 3}) for each in samples], **fields)


def result(*outcomes: Outcome, day: int = 1, **changes: Any) -> Result:
    machine = msgspec.structs.replace(MACHINE, **changes)
    return Result(datetime(2026, 1, day, 10, 30, tzinfo=UTC), False, machine, [START_UP, SYNC, LATENCY], list(outcomes))


def full() -> Result:
    """Something of everything that is drawn and told."""
    return result(
        case(
            "start",
            "cfo",
            0,
            {"ready s": 1.0, "rss MB": 80, "cpu s": 0.7},
            {"ready s": 1.1, "rss MB": 82, "cpu s": 0.8},
        ),
        case("start", "kopf", 0, {"ready s": 2.0, "rss MB": 99, "cpu s": 1.5}),
        case("start", "go", 0, skipped="CFO_BENCH_GO names no binary"),
        case("sync", "cfo", 1000, {"cpu s": 0.5, "rss MB": 60}),
        case("sync", "cfo", 5000, {"cpu s": 0.9, "rss MB": 70}),
        case("sync", "kopf", 1000, {"cpu s": 3.0, "rss MB": 100}),
        case("sync", "kopf", 5000, {"cpu s": 18.0, "rss MB": 200}),
        case("sync", "kopf-index", 1000, {"cpu s": 10.0, "rss MB": 100}),
        case("sync", "kopf-index", 5000, failed="TimeoutError: no | end (see /tmp/x/kopf.log)"),
        case("latency", "cfo", 10, {"p50 ms": 1, "p99 ms": 2}),
        case("latency", "cfo", 100, {"p50 ms": 1.5, "p99 ms": 4}),
    )


def told(*results: Result) -> str:
    benchmarks, outcomes = merge(results)
    return section(results, benchmarks, outcomes, charts(benchmarks, outcomes))


def test_the_samples_of_all_runs_are_of_one_case() -> None:
    one = result(case("sync", "cfo", 5000, {"cpu s": 1}), case("sync", "cfo", 1000, {"cpu s": 2}), day=2)
    other = result(case("sync", "kopf", 1000, {"cpu s": 3}), case("sync", "cfo", 1000, {"cpu s": 4}), day=1)
    _, outcomes = merge([one, other])
    assert [(each.subject, each.size, [sample.values["cpu s"] for sample in each.samples]) for each in outcomes] == [
        ("kopf", 1000, [3]),
        ("cfo", 1000, [4, 2]),
        ("cfo", 5000, [1]),
    ]


def test_what_one_run_measured_is_not_skipped_and_a_failure_stays_told() -> None:
    skipped = result(case("start", "go", 0, skipped="not there"), case("sync", "go", 0, skipped="not there"))
    good = result(case("start", "go", 0, {"ready s": 3}), case("start", "cfo", 0, {"ready s": 1}))
    failed = result(case("start", "cfo", 0, failed="broke"))
    _, outcomes = merge([good, failed, skipped])
    found = {(each.benchmark, each.subject): (len(each.samples), each.failed, each.skipped) for each in outcomes}
    assert found[("start", "go")] == (1, "", "")
    assert found[("start", "cfo")] == (1, "broke", "")
    assert found[("sync", "go")] == (0, "", "not there")


def test_machines_are_not_mixed() -> None:
    some = case("start", "cfo", 0, {"ready s": 1})
    with pytest.raises(Unreadable, match="different machines: 2 x A CPU and 2 x Another"):
        merge([result(some), result(some, cpu="Another")])
    merge([result(some), result(some, python="3.11.0", commit="fff")])


def test_targets_are_met_or_missed_or_were_not_measured() -> None:
    benchmarks, outcomes = merge([full()])
    targets = [
        Target("ready", "start", "ready s"),
        Target("idle", "start", "rss MB"),
        Target("sync", "sync", "cpu s", 5000),
        Target("no goal of this name", "sync", "rss MB", 5000),
        Target("a benchmark that was not run", "storm", "cpu s", 5000),
    ]
    assert [(each.target.what, each.met) for each in judged(benchmarks, outcomes, targets)] == [
        ("ready", True),
        ("idle", False),
        ("sync", True),
    ]
    without = [outcome for outcome in outcomes if outcome.size != 5000]
    assert [each.met for each in judged(benchmarks, without, targets[2:3])] == [None]


def test_ratios_are_of_the_same_size() -> None:
    benchmarks, outcomes = merge([full()])
    alone, indexed = compared(benchmarks, outcomes)
    assert (alone.ratio.peer, alone.times, alone.met) == ("kopf", pytest.approx(20), True)
    assert (indexed.ratio.peer, indexed.times, indexed.met) == ("kopf-index", None, None)
    dear = [replace(ratio, at_least=21) for ratio in RATIOS]
    assert [each.met for each in compared(benchmarks, outcomes, dear)] == [False, None]
    assert list(compared({"start": START_UP}, outcomes)) == []


def test_each_target_is_the_goal_of_a_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CFO_BENCH_SCENARIOS", raising=False)
    benchmarks = load()
    for target in TARGETS:
        goals = {(goal.value, goal.size) for goal in benchmarks[target.benchmark].goals}
        assert (target.value, target.size) in goals, target
    for ratio in RATIOS:
        cases = [(case.subject, case.size) for case in benchmarks[ratio.benchmark].cases(quick=False)]
        assert (ratio.peer, ratio.size) in cases, ratio
        assert ("cfo", ratio.size) in cases, ratio


def test_what_has_targets_comes_first() -> None:
    benchmarks = {each.name: each for each in (LATENCY, SYNC, START_UP)}
    assert list(ordered(benchmarks)) == ["start", "sync", "latency"]


def test_the_page_tells_all() -> None:
    text = told(full())
    assert "| exec to ready | 3.7 s | ≤ 1.2 s | 1.05 (1 – 1.10) s | 2 s | met |" in text
    assert (
        "| idle RSS, all controllers on, empty cluster | 43 – 52 MB | ≤ 75 MB | 81 (80 – 82) MB | 99 MB | **missed** |"
        in text
    )
    assert "20 × (18 : 0.900 s) |  | met |" in text
    assert "go: not measured, CFO_BENCH_GO names no binary." in text
    assert "kopf-index at 5,000: failed, TimeoutError: no | end." in text
    assert "| cfo | 1,000 | 0.500 | 60 | list 3 | 1 |" in text
    assert "cfo: cpu s ~ N^0.37, rss MB ~ N^0.10; kopf: cpu s ~ N^1.11" in text
    assert (
        "2026-01-01 10:30 UTC | `abc1234` | 2 × A CPU, 8 GB, Linux 6, load 0.1 | Python 3.13.1, aiohttp 3.14.0 |"
        in text
    )
    assert "](images/performance/growth-sync.svg)" in text
    assert "/tmp/" not in text


def test_what_is_drawn() -> None:
    benchmarks, outcomes = merge([full()])
    drawn = {chart.name: chart for chart in charts(benchmarks, outcomes)}
    assert list(drawn) == ["targets", "spread", "growth-sync", "latency-latency"]
    bars = [panel for panel in drawn["targets"].panels if isinstance(panel, Bars)]
    assert [bar.subject for bar in bars[0].bars] == ["cfo", "kopf", RECORDED]
    assert [panel.title for panel in bars][1:] == [
        "exec to ready (s)",
        "cold sync of 5,000 RayClusters:\nCPU, from exec to synced (s)",
    ]
    cpu, _ = drawn["growth-sync"].panels
    assert isinstance(cpu, Lines)
    assert [(series.subject, len(series.points)) for series in cpu.series] == [
        ("cfo", 2),
        ("kopf", 2),
        ("kopf-index", 1),
    ]
    (strips,) = drawn["spread"].panels
    assert isinstance(strips, Strips)
    assert [(label, subject, len(shares)) for label, subject, shares in strips.rows] == [("start", "cfo", 2)]
    (latency,) = drawn["latency-latency"].panels
    assert isinstance(latency, Lines)
    assert [series.label for series in latency.series] == ["p50", "p99"]


def test_the_generated_part_is_replaced_and_the_rest_stays() -> None:
    page = f"# Title\n\n{START}\nold\n{END}\n\nThe end.\n"
    once = put(page, "new")
    assert once == f"# Title\n\n{START}\n\nnew\n\n{END}\n\nThe end.\n"
    assert put(once, "new") == once


@pytest.mark.parametrize("page", ["", START, END, f"{END}\n{START}", f"{START}\n{START}\n{END}"])
def test_a_page_without_markers_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="there must be one line"):
        put(page, "new")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    file = tmp_path / "docs" / "performance.md"
    file.parent.mkdir()
    file.write_text(f"# Title\n{START}\n{END}\n")
    return file


def report(page: Path, *arguments: object) -> Answer:
    return CliRunner().invoke(command, [*map(str, arguments), "--docs", str(page)])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        ("nothing", "is no result of `python -m test.bench run --json`: JSON is malformed"),
        ("{}", "is no result of `python -m test.bench run --json`: Object missing required field `began`"),
        ('{"format": "other/2"}', "is no result of `python -m test.bench run --json`: "),
    ],
)
def test_what_is_no_result_is_one_line(page: Path, tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "result.json"
    if content is not None:
        file.write_text(content)
    before = page.read_text()
    done = report(page, file)
    assert done.exit_code == 2
    assert done.output.startswith(f"Error: {file}: {message}")
    assert done.output.count("\n") == 1
    assert page.read_text() == before


def test_another_format_is_refused(page: Path, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_bytes(msgspec.json.encode(full()).replace(b"cfo-bench/1", b"cfo-bench/2"))
    done = report(page, file)
    assert done.exit_code == 2
    assert "Invalid enum value 'cfo-bench/2' - at `$.format`" in done.output


def test_results_of_nothing_are_refused(page: Path, tmp_path: Path) -> None:
    result().write(tmp_path / "result.json")
    done = report(page, tmp_path / "result.json")
    assert (done.exit_code, done.output) == (2, "Error: nothing was measured in these results\n")


def test_runs_of_several_commits_are_noted(page: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, of the extra `bench`, is not installed")
    some = case("start", "cfo", 0, {"ready s": 1})
    result(some).write(tmp_path / "one.json")
    result(some, commit="fff").write(tmp_path / "other.json")
    done = report(page, tmp_path / "one.json", tmp_path / "other.json")
    assert done.exit_code == 0, done.output
    assert done.stderr == "note: these runs are of several commits: abc1234, fff\n"
    assert "| cfo | 1 | list 3 | 2 |" in page.read_text()


def test_a_page_that_is_not_there_or_has_no_markers_is_one_line(page: Path, tmp_path: Path) -> None:
    full().write(tmp_path / "result.json")
    page.write_text("# Title\n")
    done = report(page, tmp_path / "result.json")
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert done.output.startswith(f"Error: {page}: there must be one line `{START}`")
    page.unlink()
    done = report(page, tmp_path / "result.json")
    assert (done.exit_code, done.output) == (2, f"Error: {page}: No such file or directory\n")


def test_without_matplotlib_the_way_to_it_is_told(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "test.bench.plots", raising=False)
    full().write(tmp_path / "result.json")
    done = report(page, tmp_path / "result.json")
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert "pip install -e '.[bench]'" in done.output


@pytest.mark.filterwarnings("default::RuntimeWarning")
def test_page_and_plots_are_the_same_again(page: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, of the extra `bench`, is not installed")
    full().write(tmp_path / "result.json")
    folder = page.parent / "images" / "performance"
    folder.mkdir(parents=True)
    (folder / "of-a-benchmark-that-is-gone.svg").touch()
    done = report(page, tmp_path / "result.json", "--check")
    assert done.exit_code == 1
    assert len(done.output.splitlines()) == 6
    done = report(page, tmp_path / "result.json")
    assert done.exit_code == 0, done.output
    assert {file.name for file in folder.iterdir()} == {
        "targets.svg",
        "spread.svg",
        "growth-sync.svg",
        "latency-latency.svg",
    }
    before = {file: file.read_bytes() for file in folder.iterdir()}
    for file in before:
        file.unlink()
    assert report(page, tmp_path / "result.json").exit_code == 0
    assert {file: file.read_bytes() for file in folder.iterdir()} == before
    assert (report(page, tmp_path / "result.json", "--check").output, page.read_text().count(START)) == ("", 1)
    for content in before.values():
        ElementTree.fromstring(content)
        assert len(content) < 100_000
        assert b">cfo</text>" in content or b">p50</text>" in content
        assert b"prefers-color-scheme: dark" in content
        assert b"<dc:date>" not in content


def test_a_chart_with_one_point_can_be_drawn() -> None:
    plots = pytest.importorskip("test.bench.plots", reason="matplotlib, of the extra `bench`, is not installed")
    benchmarks, outcomes = merge([full()])
    for chart in charts(benchmarks, outcomes):
        for panel in chart.panels:
            if isinstance(panel, Lines):
                short = tuple(replace(series, points=series.points[:1]) for series in panel.series)
                drawn = plots.svg(replace(chart, title="a < b & c", panels=(replace(panel, series=short),)))
                assert (ElementTree.fromstring(drawn)[0].text, drawn.count(b"<path") > 0) == ("a < b & c", True)
