"""Prints the changes of an overview: a table that replaces the one before it, or one line for each change.

Both wait for events of the watches, and end when they are cancelled.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable

import anyio
import click

from cfo.console.errors import echo
from cfo.console.summary_text import change_text, listing
from cfo.runtime import GVK, Clock, NamespacedName, SystemClock
from cfo.summaries.changes import ChangeType
from cfo.summaries.overview import Overview


def can_replace_text() -> bool:
    """Return whether stdout is a terminal on which printed text can be replaced."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def print_line(text: str, clock: Clock) -> None:
    """Print a line that begins with the time of day."""
    echo(f"{clock.now().astimezone():%H:%M:%S} {text}")


async def print_changes(overview: Overview, *, name: str = "", clock: Clock | None = None) -> None:
    """Print one line for each change that is visible in it; the first ones are the objects that exist.

    A lost connection to the API server is one line as well, and so is its return. With ``name``, only objects with this
    name are printed.
    """
    clock = clock or SystemClock()
    texts: dict[tuple[GVK, NamespacedName], str] = {}

    async def follow_connection() -> None:
        problem = ""
        while True:
            problem = await overview.next_interruption(problem)
            text = f"! Connection lost: {problem}" if problem else "✓ Connected again"
            print_line(text, clock)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow_connection)
        with overview.subscribe() as subscription:
            async for changes in subscription:
                kinds = overview.kind_names(change.summary.gvk for change in changes)
                for change in changes:
                    summary = change.summary
                    if name and summary.key.name != name:
                        continue
                    identity = (summary.gvk, summary.key)
                    text = change_text(change, kinds)
                    if text != texts.get(identity):
                        print_line(text, clock)
                    if change.type is ChangeType.REMOVED:
                        texts.pop(identity, None)
                    else:
                        texts[identity] = text


async def replace_table(
    overview: Overview,
    *,
    namespace: str | None = None,
    name: str = "",
    notes: Callable[[], Iterable[str]] = tuple,
    clock: Clock | None = None,
) -> None:
    """Print the table of all objects, and again in its place after each change.

    ``notes`` returns lines to print below it; while the connection to the API server is lost, the last line says so.
    Ages are those at the time of the last change. With ``name``, only objects with this name are printed.
    """
    clock = clock or SystemClock()
    problem = ""

    async def draw() -> None:
        summaries = await overview.snapshot()
        if name:
            summaries = [summary for summary in summaries if summary.key.name == name]
        now = clock.now()
        lines = list(listing(summaries, now, namespace))
        lines[-1] += f" at {now.astimezone():%H:%M:%S}"
        lines += notes()
        if problem:
            lines.append(f"! Connection lost: {problem}")
        click.clear()
        for line in lines:
            echo(line)

    async def follow_connection() -> None:
        nonlocal problem
        while True:
            problem = await overview.next_interruption(problem)
            await draw()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow_connection)
        with overview.subscribe() as subscription:
            await draw()
            async for _ in subscription:
                await draw()
