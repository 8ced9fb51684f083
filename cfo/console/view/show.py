"""Shows an overview: live on a terminal, otherwise as lines of text.

The live view has the terminal, so a buffer keeps the log meanwhile, and returns it to the terminal afterwards.
"""

from __future__ import annotations

import io
import os
import sys
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from typing import Final, TextIO, cast

import anyio

from cfo.console.summaries.overview import ChangeType, Overview
from cfo.console.view.text import change_text
from cfo.runtime import GVK, Clock, NamespacedName, SystemClock, logs

NOT_INSTALLED: Final = (
    "for the live view, install its extra; in a checkout, run: pip install '.[view]'; "
    "for a release on the package index: pip install 'codeflare-operator[view]'"
)


def is_interactive() -> bool:
    """Return whether the live view can run: input and outputs are a terminal that can position its cursor.

    Textual writes to stderr. If that is redirected, for the log, changes are printed as lines to stdout instead.
    """
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream is not None and stream.isatty() for stream in streams) and os.environ.get("TERM") not in (
        None,
        "",
        "dumb",
    )


def is_installed() -> bool:
    """Return whether the library of the live view is installed (the extra ``view``)."""
    return find_spec("textual") is not None


async def print_changes(overview: Overview, write: Callable[[str], None], clock: Clock | None = None) -> None:
    """Write one line for each change that is visible in it, until cancelled; the first ones are the objects that exist.

    A lost connection to the API server is one line as well, and so is its return.
    """
    clock = clock or SystemClock()
    texts: dict[tuple[GVK, NamespacedName], str] = {}

    def write_line(text: str) -> None:
        write(f"{clock.now().astimezone():%H:%M:%S} {text}")

    async def follow_connection() -> None:
        known = ""
        while True:
            known = await overview.next_interruption(known)
            write_line(f"! Connection lost: {known}" if known else "✓ Connected again")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow_connection)
        with overview.subscribe() as subscription:
            async for changes in subscription:
                for change in changes:
                    identity, text = (change.summary.gvk, change.summary.key), change_text(change)
                    if text != texts.get(identity):
                        write_line(text)
                    texts[identity] = text
                    if change.type is ChangeType.REMOVED:
                        del texts[identity]


async def show_live(overview: Overview, *, title: str, with_log: bool) -> None:
    """Show the live view until the user quits, or until cancelled.

    ``with_log``: show the log in the view. After its end, whatever was logged meanwhile is written to stderr, where it
    stays.
    """
    from cfo.console.view.app import OverviewApp

    buffer = LogBuffer()
    app = OverviewApp(overview, title=title, log=buffer if with_log else None)
    with ExitStack() as stack:
        stack.callback(buffer.replay, sys.stderr)
        stack.enter_context(logs.redirect(cast("TextIO", buffer)))
        async with anyio.create_task_group() as tasks:

            async def exit_when_cancelled() -> None:
                try:
                    await anyio.sleep_forever()
                finally:
                    app.exit()

            tasks.start_soon(exit_when_cancelled)
            # Textual restores the terminal only if it ends by itself
            with anyio.CancelScope(shield=True):
                # without the mouse, users can select and copy text
                await app.run_async(mouse=False)
            tasks.cancel_scope.cancel()


MAX_LINES: Final = 20_000
"""The number of lines that are kept; of more, the oldest are left out."""
_MAX_LINE: Final = 16 << 10


class LogBuffer(io.TextIOBase):
    """A text stream that keeps whole lines, and calls ``on_line`` for each.

    :meth:`replay` writes them to another stream, when the view has ended: no line is lost that is not older than
    :data:`MAX_LINES` lines, including those that were written while the view ended.
    """

    def __init__(self, max_lines: int = MAX_LINES) -> None:
        self.on_line: Callable[[str], None] | None = None
        self._lines: deque[str] = deque(maxlen=max_lines)
        self._written = 0
        self._partial = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines that are kept, the oldest first."""
        return tuple(self._lines)

    def writable(self) -> bool:
        """Return true."""
        return True

    def write(self, text: str) -> int:
        """Add ``text``; a line is complete with its line break."""
        *complete, self._partial = (self._partial + text).split("\n")
        for line in complete:
            self._lines.append(line[:_MAX_LINE])
            self._written += 1
            if self.on_line is not None:
                self.on_line(line[:_MAX_LINE])
        return len(text)

    def replay(self, stream: TextIO) -> None:
        """Write all lines to ``stream``, and forget them. Nothing is written if the terminal was closed."""
        if self._partial:
            self.write("\n")
        left_out = self._written - len(self._lines)
        with suppress(OSError):
            if left_out:
                stream.write(f"[{left_out} earlier lines of the log are left out]\n")
            stream.writelines(f"{line}\n" for line in self._lines)
            stream.flush()
        self._lines.clear()
        self._written = 0
