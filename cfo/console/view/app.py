"""The live view: a table with one row for each object, and the log below it.

It has the whole terminal, so nothing may be written to it from elsewhere while the view runs: :mod:`.show` sends the
log to a :class:`~cfo.console.view.log_buffer.LogBuffer`, of which this shows the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Print, Resize
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, RichLog, Static

from cfo.console.view.log_buffer import LogBuffer
from cfo.console.view.text import (
    MARKS,
    SORTS,
    age,
    cells_of,
    counts,
    crop,
    detail,
    is_match,
    sort_summaries,
    widths_for,
)
from cfo.summaries.overview import ChangeType, Overview
from cfo.summaries.summary import Level, Summary

_AGE_SECONDS: Final = 10.0
_LOG_LINES: Final = 1000
"""The number of lines that the pane shows; the buffer has more."""
_LOG_HEIGHTS: Final = ("30%", "70%", "0")
_MAX_EVENTS: Final = 200
_MIN_HEIGHT_OF_SEVERAL_LINES: Final = 12

_STYLES: Final[Mapping[Level, str]] = {
    Level.FAILED: "bold red",
    Level.WARNING: "yellow",
    Level.PROGRESSING: "cyan",
    Level.OK: "green",
    Level.WAITING: "dim",
}

_HELP: Final = """\
The table has one row for each object. Objects that need attention have the mark ✗ (error) or ! (warning);
… means that an object is being changed or waits, ✓ that it is well, and – that it is suspended.

Enter      everything about the selected object: what is wrong, what to do, facts, conditions, Events
/          filter by words that occur in kind, name, status or a problem; Escape removes the filter
s          sort by kind, by what needs attention, by name, or by age
p          show only objects with problems
e          Warning Events of all objects, the newest first
l          hide the log, show it, or show more of it
q, Ctrl-C  quit

Nothing can be changed here. After the end, the whole log is on the terminal, above the prompt."""


def _now() -> datetime:
    return datetime.now(UTC)


class TextScreen(Screen[None]):
    """A page of text that can be scrolled; ``content`` returns its lines, also after each change."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "app.pop_screen", "Back")]
    CSS = """
    TextScreen #title { height: 1; background: $boost; text-style: bold; padding: 0 1; }
    TextScreen #content { padding: 0 1; }
    TextScreen VerticalScroll { scrollbar-size-vertical: 1; }
    """

    def __init__(self, title: str, content: Callable[[], Iterable[str]]) -> None:
        super().__init__()
        self._title = title
        self._content = content

    def compose(self) -> ComposeResult:
        """Yield the widgets."""
        yield Static(Text(self._title), id="title")
        with VerticalScroll():
            yield Static(self._text(), id="content")
        yield Footer()

    def update_content(self) -> None:
        """Show the current content."""
        self.query_one("#content", Static).update(self._text())

    def _text(self) -> Text:
        # Text is not parsed: Textual would interpret [brackets] in a string as markup
        return Text("\n".join(self._content()))


class OverviewApp(App[None]):
    """Shows the summaries of ``overview`` until the user quits.

    ``log`` is shown in a pane below the table; without it, there is no pane. ``now`` is the clock of the ages.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: auto; max-height: 3; background: $boost; text-style: bold; padding: 0 1; }
    #filter { display: none; height: 1; border: none; padding: 0 1; }
    #filter.visible { display: block; }
    #table { height: 1fr; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; }
    #log { height: 30%; border-top: solid $primary; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c,ctrl+q", "quit", "Quit", show=False, priority=True),
        Binding("enter", "detail", "Detail"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "clear_filter", "Clear", show=False),
        Binding("s", "sort", "Sort"),
        Binding("p", "problems", "Problems"),
        Binding("e", "events", "Events"),
        Binding("l", "log", "Log"),
        Binding("question_mark,h", "help", "Help", key_display="?"),
    ]

    def __init__(
        self,
        overview: Overview,
        *,
        title: str,
        log: LogBuffer | None = None,
        now: Callable[[], datetime] = _now,
    ) -> None:
        super().__init__(ansi_color=None)
        self.title = title
        self._overview = overview
        self._buffer = log
        self._now = now
        self._summaries: dict[str, Summary] = {}
        self._window = self.size
        self._widths: dict[str, int] = {}
        self._shown: dict[str, tuple[str, ...]] = {}
        self._order = next(iter(SORTS))
        self._words = ""
        self._only_problems = False
        self._interruption = ""

    def compose(self) -> ComposeResult:
        """Yield the widgets."""
        yield Static("", id="head")
        yield Input(
            placeholder="filter: words of kind, name, status or problem", id="filter", compact=True
        )
        yield DataTable(id="table", cursor_type="row", show_row_labels=False)
        if self._buffer is not None:
            yield RichLog(id="log", max_lines=_LOG_LINES, wrap=True, min_width=20)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to follow the overview and the log."""
        self.query_one("#table", DataTable).focus()
        if self._buffer is not None:
            for line in self._buffer.lines[-_LOG_LINES:]:
                self._show_line(line)
            self._buffer.on_line = self._show_line
            self.begin_capture_print(self)
        self.run_worker(self._follow(), exit_on_error=True)
        self.run_worker(self._follow_connection(), exit_on_error=True)
        self.set_interval(_AGE_SECONDS, self._update_rows)

    def on_unmount(self) -> None:
        """Stop to follow the log; it is still kept."""
        if self._buffer is not None:
            self._buffer.on_line = None

    def on_print(self, event: Print) -> None:
        """Keep what a library prints."""
        if self._buffer is not None:
            self._buffer.write(event.text)

    def on_resize(self, event: Resize) -> None:
        """Fit the columns to the new width; ``self.size`` is still the old one."""
        self._window = event.size
        self._update_rows()

    # Data.

    async def _follow(self) -> None:
        with self._overview.subscribe() as subscription:
            async for changes in subscription:
                for change in changes:
                    if change.type is ChangeType.REMOVED:
                        self._summaries.pop(_row_key(change.summary), None)
                    else:
                        self._summaries[_row_key(change.summary)] = change.summary
                self._update_rows()
                for screen in self.screen_stack:
                    if isinstance(screen, TextScreen):
                        screen.update_content()

    async def _follow_connection(self) -> None:
        while True:
            self._interruption = await self._overview.next_interruption(self._interruption)
            self._update_rows()

    def _show_line(self, line: str) -> None:
        for pane in self.screen_stack[0].query("#log").results(RichLog):
            pane.write(Text.from_ansi(line))

    # The table.

    def _visible(self) -> list[Summary]:
        found = (
            each
            for each in self._summaries.values()
            if is_match(each, self._words, only_problems=self._only_problems)
        )
        return sort_summaries(found, self._order, self._overview.views)

    def _update_rows(self) -> None:
        """Show the current rows: changed cells if rows and columns are the same, otherwise all rows."""
        visible = self._visible()
        now = self._now()
        found = [cells_of(each, now) for each in visible]
        widths = widths_for(found, self._window.width - 1)
        rows = {
            _row_key(each): tuple(crop(cells[title], width) for title, width in widths.items())
            for each, cells in zip(visible, found, strict=True)
        }
        table = self._table()
        selected = self._selected_key()
        if widths != self._widths:
            self._widths, self._shown = widths, {}
            table.clear(columns=True)
            for position, (title, width) in enumerate(widths.items()):
                table.add_column(Text(title), width=width, key=str(position))
        if list(rows) == list(self._shown):
            for key, cells in rows.items():
                for position, (cell, before) in enumerate(
                    zip(cells, self._shown[key], strict=True)
                ):
                    if cell != before:
                        table.update_cell(
                            key, str(position), _cell(cell, position, self._summaries[key].level)
                        )
        else:
            offset = table.scroll_offset
            table.clear()
            for key, cells in rows.items():
                styled = (
                    _cell(cell, position, self._summaries[key].level)
                    for position, cell in enumerate(cells)
                )
                table.add_row(*styled, key=key)
            if selected in rows:
                table.move_cursor(row=table.get_row_index(selected), scroll=False)
                table.scroll_to(offset.x, offset.y, animate=False, immediate=True)
        self._shown = rows
        self._update_head(len(visible))

    def _update_head(self, visible: int) -> None:
        parts = [f"Connection lost: {self._interruption}"] if self._interruption else []
        parts.append(counts(self._summaries.values()))
        if visible != len(self._summaries):
            parts.append(f"{visible} shown")
        if self._order != next(iter(SORTS)):
            parts.append(f"by {self._order}")
        if self._words:
            parts.append(f"filter: {self._words}")
        if self._only_problems:
            parts.append("problems only")
        forbidden = dict.fromkeys(gvk.kind for gvk in self._overview.forbidden())
        if forbidden:
            parts.append(f"forbidden: {', '.join(forbidden)}")
        width = max(10, self._window.width - 2)
        title = self.title.splitlines()
        lines = [" | ".join([*parts, *title])]
        if len(lines[0]) > width and self._window.height >= _MIN_HEIGHT_OF_SEVERAL_LINES:
            # the address and the path in the title are only of use if they are complete
            lines = [" | ".join(parts), *title]
        style = _STYLES[Level.FAILED] if self._interruption else ""
        head = self.screen_stack[0].query_one("#head", Static)
        head.update(Text("\n".join(crop(line, width) for line in lines), style=style))

    def _table(self) -> DataTable[Any]:
        return self.screen_stack[0].query_one("#table", DataTable)

    def _selected_key(self) -> str:
        table = self._table()
        if not table.row_count or not table.is_valid_row_index(table.cursor_row):
            return ""
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)

    # Keys.

    def on_data_table_row_selected(self, _: DataTable.RowSelected) -> None:
        """Show everything about an object."""
        self.action_detail()

    def action_detail(self) -> None:
        """Show everything about the selected object."""
        key = self._selected_key()
        if key in self._summaries:
            self.push_screen(TextScreen(self._summaries[key].title, lambda: self._detail(key)))

    def _detail(self, key: str) -> Iterator[str]:
        summary = self._summaries.get(key)
        if summary is None:
            yield "The object was deleted."
        else:
            yield from detail(summary, self._now())

    def action_events(self) -> None:
        """Show the Warning Events of all objects."""
        self.push_screen(TextScreen("Warning Events, the newest first", self._events))

    def _events(self) -> Iterator[str]:
        now = self._now()
        found = sorted(
            (
                (warning, summary)
                for summary in self._summaries.values()
                for warning in summary.warnings
            ),
            key=lambda each: each[0].last,
            reverse=True,
        )
        for warning, summary in found[:_MAX_EVENTS]:
            times = f" (x{warning.count})" if warning.count > 1 else ""
            yield f"{age(warning.last, now):>4} ago  {MARKS[summary.level]} {summary.title}"
            yield f"          {warning.reason}: {warning.message}{times}"
        if not found:
            yield "There are none."

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(TextScreen("Help", lambda: [*_HELP.splitlines(), "", self.title]))

    def action_sort(self) -> None:
        """Sort by the next order."""
        orders = list(SORTS)
        self._order = orders[(orders.index(self._order) + 1) % len(orders)]
        self._update_rows()

    def action_problems(self) -> None:
        """Show only objects with problems, or all."""
        self._only_problems = not self._only_problems
        self._update_rows()

    def action_log(self) -> None:
        """Change the height of the log."""
        for pane in self.query("#log").results(RichLog):
            height = str(pane.styles.height)
            current = next((index for index, each in enumerate(_LOG_HEIGHTS) if each == height), 0)
            pane.styles.height = _LOG_HEIGHTS[(current + 1) % len(_LOG_HEIGHTS)]
            pane.display = _LOG_HEIGHTS[(current + 1) % len(_LOG_HEIGHTS)] != "0"

    def action_filter(self) -> None:
        """Enter a filter."""
        box = self.query_one("#filter", Input)
        box.add_class("visible")
        box.focus()

    def action_clear_filter(self) -> None:
        """Remove the filter."""
        box = self.query_one("#filter", Input)
        box.value = ""
        box.remove_class("visible")
        self._table().focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while the user types."""
        self._words = event.value
        self._update_rows()

    def on_input_submitted(self, _: Input.Submitted) -> None:
        """Return to the table with the filter."""
        self._table().focus()


def _row_key(summary: Summary) -> str:
    return f"{summary.gvk}/{summary.key}"


def _cell(text: str, position: int, level: Level) -> Text:
    """Return a cell; the mark has the color of its level. Text is not parsed for markup."""
    return Text(text, style=_STYLES[level] if position == 0 else "", no_wrap=True)
