"""The pages of the live view that show text: details, Events and help."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static

__all__ = ["HELP", "TextScreen"]

HELP = """\
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
