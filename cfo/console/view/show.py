"""Shows an overview: live on a terminal, otherwise as lines of text.

The live view has the terminal, so a buffer keeps the log meanwhile, and returns it to the terminal afterwards.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Final, TextIO, cast

import anyio

from cfo.console.view.log_buffer import LogBuffer
from cfo.console.view.text import change_text
from cfo.runtime import GVK, Clock, NamespacedName, SystemClock, logs
from cfo.summaries.overview import ChangeType, Overview

NOT_INSTALLED: Final = (
    "for the live view, install its extra; in a checkout, run: pip install '.[view]'; "
    "for a release on the package index: pip install 'codeflare-operator[view]'"
)


def is_interactive() -> bool:
    """Return whether the live view can run: input and outputs are a terminal that can position its cursor.

    Textual writes to stderr. If that is redirected, for the log, changes are printed as lines to stdout instead.
    """
    streams = (sys.stdin, sys.stdout, sys.stderr)
    has_terminal = all(stream is not None and stream.isatty() for stream in streams)
    return has_terminal and os.environ.get("TERM", "") not in ("", "dumb")


def is_installed() -> bool:
    """Return whether the library of the live view is installed (the extra ``view``)."""
    return find_spec("textual") is not None


async def print_changes(
    overview: Overview, write: Callable[[str], None], clock: Clock | None = None
) -> None:
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
