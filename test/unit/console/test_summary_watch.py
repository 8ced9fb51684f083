"""What is printed while an overview changes: sentences, or a table that is replaced."""

from __future__ import annotations

import sys
from collections.abc import Callable

import anyio
import anyio.lowlevel
import click
import pytest

from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.console.summary_watch import can_replace_text, print_changes, replace_table
from cfo.summaries.changes import ChangeType, SummaryChange
from test.support.clocks import FakeClock
from test.support.summaries import StubOverview, summary

CLEAR = "\x1b[2J\x1b[1;1H"


class Printed:
    """What was printed so far."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.text = ""

    async def until(self, condition: Callable[[str], bool]) -> None:
        with anyio.fail_after(60):
            while not condition(self.text):
                await anyio.lowlevel.checkpoint()
                self.text += self._capsys.readouterr().out


async def test_each_visible_change_and_the_connection_are_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    overview, clock, printed = StubOverview([summary("a")]), FakeClock(), Printed(capsys)
    async with anyio.create_task_group() as tasks:

        async def print_all() -> None:
            await print_changes(overview.overview, clock=clock)

        tasks.start_soon(print_all)
        overview.send(
            SummaryChange(ChangeType.CHANGED, summary("a", created="2025-01-01T00:00:00Z"))
        )
        overview.send(SummaryChange(ChangeType.REMOVED, summary("a")))
        overview.send(SummaryChange(ChangeType.ADDED, summary("a", state="\x1b[2Jforged\nline")))
        await printed.until(lambda text: text.count("\n") == 3)
        overview.interruptions.put_nowait("watch pods: refused")
        overview.interruptions.put_nowait("")
        await printed.until(lambda text: "again" in text)
        tasks.cancel_scope.cancel()
    assert [line.partition(" ")[2] for line in printed.text.splitlines()] == [
        "✓ RayCluster ns/a is ready (1/2)",
        "– RayCluster ns/a was deleted",
        "✓ RayCluster ns/a is \\x1b[2Jforged\\nline (1/2)",
        "! Connection lost: watch pods: refused",
        "✓ Connected again",
    ]


async def test_only_objects_with_the_name_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    overview, printed = StubOverview([summary("a"), summary("b")]), Printed(capsys)
    async with anyio.create_task_group() as tasks:

        async def print_one() -> None:
            await print_changes(overview.overview, name="b", clock=FakeClock())

        tasks.start_soon(print_one)
        await printed.until(lambda text: "\n" in text)
        tasks.cancel_scope.cancel()
    assert "RayCluster ns/b" in printed.text
    assert "RayCluster ns/a" not in printed.text


async def test_changes_name_the_group_of_a_kind_that_several_groups_have(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = INFERENCE_STACKS
    stacks = [summary("a", gvk=first), summary("a", gvk=second)]
    overview, printed = StubOverview(stacks[:1]), Printed(capsys)
    async with anyio.create_task_group() as tasks:

        async def print_all() -> None:
            await print_changes(overview.overview, clock=FakeClock())

        tasks.start_soon(print_all)
        await printed.until(lambda text: "\n" in text)
        overview.send(SummaryChange(ChangeType.ADDED, stacks[1]))
        await printed.until(lambda text: text.count("\n") == 2)
        tasks.cancel_scope.cancel()
    assert [line.partition(" ")[2] for line in printed.text.splitlines()] == [
        "✓ InferenceStack ns/a is ready (1/2)",
        f"✓ InferenceStack.{second.group} ns/a is ready (1/2)",
    ]


async def test_table_replaces_the_one_before_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(click.utils.sys.stdout, "isatty", lambda: True)
    overview, printed = StubOverview([summary("a"), summary("b")]), Printed(capsys)
    async with anyio.create_task_group() as tasks:

        async def draw() -> None:
            await replace_table(
                overview.overview, name="a", notes=lambda: ["not read: Pod"], clock=FakeClock()
            )

        tasks.start_soon(draw)
        await printed.until(lambda text: "not read: Pod\n" in text)
        overview.send(SummaryChange(ChangeType.CHANGED, summary("a", state="\x1b[2Jforged\nline")))
        await printed.until(lambda text: "forged" in text)
        overview.interruptions.put_nowait("watch pods: refused")
        await printed.until(lambda text: "Connection lost: watch pods: refused\n" in text)
        tasks.cancel_scope.cancel()
    tables = printed.text.split(CLEAR)
    assert tables[0] == ""
    assert "\x1b" not in "".join(tables)
    lines = tables[-1].splitlines()
    assert lines[1].split() == ["NAMESPACE", "NAME", "STATUS", "READY", "AGE", "INFORMATION"]
    assert lines[2].startswith("✓  ns         a     \\x1b[2Jforged\\nline  1/2")
    assert lines[4].startswith("1 object: 1 ok in all namespaces at ")
    assert lines[5:] == ["not read: Pod", "! Connection lost: watch pods: refused"]


@pytest.mark.parametrize(
    ("is_terminal", "term", "expected"),
    [(True, "xterm", True), (True, "dumb", False), (True, "", False), (False, "xterm", False)],
)
def test_text_is_replaced_only_on_a_terminal_that_can(
    is_terminal: bool, term: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    monkeypatch.setenv("TERM", term)
    assert can_replace_text() is expected
