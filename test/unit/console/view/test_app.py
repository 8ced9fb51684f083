"""The live view at several sizes, driven by keys as a user would."""

from __future__ import annotations

import io
import sys
from datetime import UTC, datetime

import anyio
import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable

from cfo.console.view.app import OverviewApp, TextScreen
from cfo.console.view.log_buffer import LogBuffer
from cfo.console.view.show import show_live
from cfo.summaries.overview import Change, ChangeType
from cfo.summaries.summary import Level
from test.support.summaries import StubOverview, summary

NOW = datetime(2026, 1, 1, 0, 5, tzinfo=UTC)
PROBLEM = "Pod head cannot be scheduled: 0/3 nodes are available: insufficient nvidia.com/gpu"


def objects() -> list:
    return [
        summary("b-is-well"),
        summary(
            "a-has-a-long-name-that-does-not-fit-everywhere", level=Level.WARNING, problem=PROBLEM
        ),
        summary(
            "c-failed",
            level=Level.FAILED,
            state="failed",
            problem="KubeRay reports: [bold]quota[/bold]",
        ),
        summary("d-idle", level=Level.WAITING, state="suspended"),
    ]


def screen_lines(pilot: Pilot) -> list[str]:
    """Return the lines that the terminal shows."""
    width, height = pilot.app.size
    strips = pilot.app.screen._compositor.render_strips(pilot.app.size)
    assert len(strips) == height
    assert all(strip.cell_length == width for strip in strips)
    return [strip.text.rstrip() for strip in strips]


async def settled(pilot: Pilot, rows: int) -> None:
    with anyio.fail_after(120):
        while pilot.app.screen_stack[0].query_one(DataTable).row_count != rows:
            await pilot.pause(0.01)
    await pilot.pause()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 24), (180, 50)])
async def test_each_object_has_one_row_that_fits(width: int, height: int) -> None:
    log = LogBuffer()
    app = OverviewApp(
        StubOverview(objects()).overview, title="https://plane", log=log, now=lambda: NOW
    )
    async with app.run_test(size=(width, height)) as pilot:
        await settled(pilot, 4)
        log.write("12:00:00 [error] Reconcile failed name=c-failed\n")
        await pilot.pause()
        lines = screen_lines(pilot)
        assert lines[0].startswith(" 4 objects: 1 failed, 1 warning, 1 waiting, 1 ok")
        assert [
            next(line for line in lines if name in line)[1]
            for name in ("b-is", "a-has", "c-fai", "d-idle")
        ] == [
            "✓",
            "!",
            "✗",
            "–",
        ]
        assert sum("a-has-a-long" in line for line in lines) == 1
        assert any("suspended" in line for line in lines)
        assert any("Reconcile failed" in line for line in lines)
        assert ("cannot be scheduled: 0/3 nodes" in "\n".join(lines)) is (width == 180)
        assert ("KubeRay reports: [bold]" in "\n".join(lines)) is (width == 180)


async def test_columns_follow_the_width_of_the_window() -> None:
    app = OverviewApp(StubOverview(objects()).overview, title="plane", now=lambda: NOW)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, 4)
        assert PROBLEM not in "\n".join(screen_lines(pilot))
        for width in (200, 60, 180):
            await pilot.resize_terminal(width, 24)
            with anyio.fail_after(120):
                while (PROBLEM in "\n".join(screen_lines(pilot))) != (width > 100):
                    await pilot.pause(0.01)
            header = next(line for line in screen_lines(pilot) if "STATUS" in line)
            row = next(line for line in screen_lines(pilot) if "✗" in line)
            assert row.index(" failed ") + 1 == header.index("STATUS")


async def test_keys_filter_sort_and_open_pages() -> None:
    overview = StubOverview(objects())
    app = OverviewApp(overview.overview, title="plane", now=lambda: NOW)
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot, 4)
        await pilot.press("p")
        await settled(pilot, 2)
        await pilot.press("s")
        await settled(pilot, 2)
        first = next(line for line in screen_lines(pilot) if "c-failed" in line or "a-has" in line)
        assert "c-failed" in first
        await pilot.press("p", "slash", *"waiting")
        await settled(pilot, 1)
        await pilot.press("escape")
        await settled(pilot, 4)
        await pilot.press("ctrl+home", "enter")
        await pilot.pause()
        assert isinstance(app.screen, TextScreen)
        lines = screen_lines(pilot)
        assert any("KubeRay reports: [bold]quota[/bold]" in line for line in lines)
        assert any("-> do something about it" in line for line in lines)
        overview.send(Change(ChangeType.REMOVED, objects()[2]))
        with anyio.fail_after(120):
            while "The object was deleted." not in "\n".join(screen_lines(pilot)):
                await pilot.pause(0.01)
        await pilot.press("escape", "question_mark")
        await pilot.pause()
        assert any("Warning Events of all objects" in line for line in screen_lines(pilot))


async def test_a_change_keeps_the_selected_row() -> None:
    overview = StubOverview(objects())
    app = OverviewApp(overview.overview, title="plane", now=lambda: NOW)
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot, 4)
        await pilot.press("down", "down")
        selected = app._selected_key()
        assert selected.endswith("c-failed")
        overview.send(Change(ChangeType.ADDED, summary("aa-new")))
        await settled(pilot, 5)
        assert app._selected_key() == selected
        overview.send(Change(ChangeType.CHANGED, summary("d-idle", state="again")))
        with anyio.fail_after(120):
            while "again" not in "\n".join(screen_lines(pilot)):
                await pilot.pause(0.01)
        assert app._selected_key() == selected


@pytest.mark.parametrize(("width", "height", "line"), [(180, 24, 0), (80, 24, 1)])
async def test_the_address_in_the_title_is_complete(width: int, height: int, line: int) -> None:
    address = "dashboard: http://127.0.0.1:40361/#token=9JrYEVbtaxi6cUahZsXyyHQzgAXGsV50"
    app = OverviewApp(StubOverview(objects()).overview, title=address, now=lambda: NOW)
    async with app.run_test(size=(width, height)) as pilot:
        await settled(pilot, 4)
        assert address in screen_lines(pilot)[line]


@pytest.mark.parametrize(("width", "first"), [(180, 0), (80, 1)])
async def test_each_line_of_the_title_is_complete(width: int, first: int) -> None:
    title = "dashboard: http://127.0.0.1:40361/#token=9JrYEVbtaxi6cUahZsXyyHQzgAXGsV50\nexport KUBECONFIG=/tmp/a"
    app = OverviewApp(StubOverview(objects()).overview, title=title, now=lambda: NOW)
    async with app.run_test(size=(width, 24)) as pilot:
        await settled(pilot, 4)
        for number, line in enumerate(title.splitlines()):
            assert line in screen_lines(pilot)[first and first + number]
        await pilot.press("question_mark")
        await pilot.pause()
        assert set(title.splitlines()) <= {line.strip() for line in screen_lines(pilot)}


async def test_a_lost_connection_is_shown_until_it_returns() -> None:
    overview = StubOverview(objects())
    app = OverviewApp(overview.overview, title="plane", now=lambda: NOW)
    async with app.run_test(size=(80, 10)) as pilot:
        await settled(pilot, 4)
        for reason, start in (
            ("watch rayclusters: refused", " Connection lost: watch ray"),
            ("", " 4 objects"),
        ):
            overview.interruptions.put_nowait(reason)
            with anyio.fail_after(120):
                while not screen_lines(pilot)[0].startswith(start):
                    await pilot.pause(0.01)


async def test_a_thousand_objects_are_cropped_to_the_window() -> None:
    many = [summary(f"rc-{number:04}") for number in range(1000)]
    app = OverviewApp(StubOverview(many).overview, title="plane", log=LogBuffer(), now=lambda: NOW)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, 1000)
        assert sum("rc-0" in line for line in screen_lines(pilot)) < 24


def test_lines_of_the_log_survive_the_view() -> None:
    log = LogBuffer(max_lines=3)
    shown: list[str] = []
    log.on_line = shown.append
    log.write("one\ntwo\nthr")
    log.write("ee\nfour\nfi")
    assert shown == ["one", "two", "three", "four"]
    out = io.StringIO()
    log.replay(out)
    assert out.getvalue() == "[2 earlier lines of the log are left out]\nthree\nfour\nfi\n"
    assert log.lines == ()


async def test_the_log_is_on_stderr_after_the_view_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    from cfo.runtime import logs

    stderr = io.StringIO()
    output = logs._Output(sys.stderr)
    monkeypatch.setattr(logs, "_output", output)
    monkeypatch.setattr(sys, "stderr", stderr)

    async def run_async(self: OverviewApp, **_: object) -> None:
        output.write("logged while the view runs\n")
        assert stderr.getvalue() == ""
        while not self._exit:  # noqa: ASYNC110 (Textual sets it)
            await anyio.sleep(0.001)
        output.write("stopping\n")

    monkeypatch.setattr(OverviewApp, "run_async", run_async)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: show_live(StubOverview().overview, title="x", with_log=True))
        await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    assert stderr.getvalue() == "logged while the view runs\nstopping\n"
