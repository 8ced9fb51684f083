"""Plain text: tables, details, lines of changes, and the columns of the live table."""

from __future__ import annotations

from datetime import UTC, datetime

import anyio
import anyio.lowlevel
import pytest

from cfo.api.flux.names import FLUX_JOB
from cfo.console.view.show import print_changes
from cfo.console.view.text import (
    age,
    cells_of,
    change_text,
    counts,
    detail,
    is_match,
    problem_lines,
    sort_summaries,
    table,
    widths_for,
)
from cfo.summaries.overview import Change, ChangeType
from cfo.summaries.summary import Condition, Level, WarningEvent
from test.support.clocks import FakeClock
from test.support.summaries import VIEWS, StubOverview, summary

NOW = datetime(2026, 1, 1, 0, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("created", "expected"),
    [
        ("2026-01-01T00:04:59Z", "1s"),
        ("2026-01-01T00:03:01Z", "119s"),
        ("2026-01-01T00:03:00Z", "2m"),
        ("2025-12-31T00:05:00Z", "24h"),
        ("2025-12-29T00:05:00Z", "3d"),
        ("2027-01-01T00:00:00Z", "0s"),
        ("no time", ""),
        ("2026-01-01T00:00:00", "5m"),
    ],
)
def test_age_has_one_unit(created: str, expected: str) -> None:
    assert age(created, NOW) == expected


def test_table_has_one_line_for_each_object() -> None:
    objects = [
        summary("a", problem="it is broken", level=Level.WARNING),
        summary("b", facts=(("dashboard", "http://b"), ("mTLS", "no"))),
        summary("j", gvk=FLUX_JOB, state="JobRunning", ready=""),
    ]
    assert list(table(objects, NOW)) == [
        "RayCluster",
        "   NAMESPACE  NAME  STATUS      READY  AGE  INFORMATION",
        "!  ns         a     ready       1/2    5m   it is broken",
        "✓  ns         b     ready       1/2    5m   http://b",
        "",
        "FluxJob",
        "   NAMESPACE  NAME  STATUS      READY  AGE  INFORMATION",
        "✓  ns         j     JobRunning  -      5m",
    ]
    assert list(table(objects[1:2], NOW, wide=True, namespaces=False))[2].endswith(
        "dashboard: http://b; mTLS: no"
    )
    assert list(table([], NOW)) == []
    assert list(problem_lines(objects)) == [
        "! RayCluster ns/a",
        "    it is broken",
        "      -> do something about it",
    ]
    assert counts(objects) == "3 objects: 1 warning, 2 ok"


def test_detail_has_everything_that_is_known() -> None:
    full = summary(
        "a",
        problem="it is broken",
        facts=(("mTLS", "no"),),
        conditions=(Condition("HeadPodReady", "False", "NotReady", "it waits", ""),),
        warnings=(WarningEvent("Failed", "why", "2026-01-01T00:04:00Z", 3),),
    )
    lines = list(detail(full, NOW))
    assert lines[0] == "✓ RayCluster ns/a: ready, 1/2 ready, ok"
    assert lines[2:] == [
        "",
        "Problems",
        "  it is broken",
        "    -> do something about it",
        "",
        "Facts",
        "  mTLS  no",
        "",
        "Conditions",
        "  HeadPodReady: False  NotReady: it waits",
        "",
        "Warning Events",
        "  60s ago  Failed (x3)  why",
    ]


def test_each_change_is_one_line() -> None:
    changed = Change(ChangeType.CHANGED, summary("a", problem="it is broken", level=Level.WARNING))
    assert change_text(changed) == "! RayCluster ns/a: ready 1/2, it is broken"
    assert change_text(Change(ChangeType.REMOVED, summary("a"))) == "– RayCluster ns/a: deleted"
    assert (
        change_text(Change(ChangeType.ADDED, summary("a", state="", ready="")))
        == "✓ RayCluster ns/a: no state"
    )


async def test_lines_are_printed_for_visible_changes_and_the_connection() -> None:
    overview, clock = StubOverview([summary("a")]), FakeClock()
    lines: list[str] = []
    enough = anyio.Event()

    def write(line: str) -> None:
        lines.append(line.partition(" ")[2])
        if len(lines) == 5:
            enough.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(print_changes, overview.overview, write, clock)
        overview.send(Change(ChangeType.CHANGED, summary("a", created="2025-01-01T00:00:00Z")))
        overview.send(
            Change(ChangeType.REMOVED, summary("a")), Change(ChangeType.ADDED, summary("a"))
        )
        with anyio.fail_after(120):
            while len(lines) < 3:
                await anyio.lowlevel.checkpoint()
            overview.interruptions.put_nowait("watch pods: refused")
            overview.interruptions.put_nowait("")
            await enough.wait()
        tasks.cancel_scope.cancel()
    assert lines == [
        "✓ RayCluster ns/a: ready 1/2",
        "– RayCluster ns/a: deleted",
        "✓ RayCluster ns/a: ready 1/2",
        "! Connection lost: watch pods: refused",
        "✓ Connected again",
    ]


@pytest.mark.parametrize("width", [20, 40, 60, 79, 80, 119, 120, 180, 400])
def test_rows_fill_the_width_and_no_more(width: int) -> None:
    widths = widths_for([cells_of(summary("n" * 253, problem="p" * 300), NOW)], width)
    assert sum(size + 2 for size in widths.values()) <= max(width, 37)
    assert {"", "NAME", "STATUS", "READY"} <= set(widths)


def test_nothing_is_cropped_while_there_is_space() -> None:
    url = "https://ray-dashboard-fine-tuning-data-science.apps.example.test"
    cells = [cells_of(summary("fine-tuning", facts=(("dashboard", url),)), NOW)]
    widths = widths_for(cells, 120)
    assert (widths["KIND"], widths["INFORMATION"]) == (len("RayCluster"), len(url))
    waiting = summary("n" * 33, state="JobWaitingForResources", facts=(("dashboard", url),))
    assert widths_for([*cells, cells_of(waiting, NOW)], 118)["KIND"] == len("RayCluster")
    long = f"{url}/{'x' * 60}"
    assert any(long in line for line in table([summary("a", facts=(("dashboard", long),))], NOW))


def test_number_and_noun_agree() -> None:
    assert counts([summary("a")]) == "1 object: 1 ok"


def test_filter_and_orders() -> None:
    well, broken, young = (
        summary("b"),
        summary("c", level=Level.FAILED),
        summary("a", created="2026-01-01T00:04:00Z"),
    )
    assert [
        each.key.name for each in sort_summaries([well, broken, young], "attention", VIEWS)
    ] == ["c", "a", "b"]
    assert [each.key.name for each in sort_summaries([well, broken, young], "name", VIEWS)] == [
        "a",
        "b",
        "c",
    ]
    assert [each.key.name for each in sort_summaries([well, broken, young], "age", VIEWS)] == [
        "a",
        "b",
        "c",
    ]
    assert is_match(broken, "raycluster FAILED")
    assert not is_match(broken, "raycluster ok")
    assert is_match(broken, "", only_problems=True)
    assert not is_match(well, "", only_problems=True)
