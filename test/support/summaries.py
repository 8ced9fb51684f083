"""Summaries, and an overview that contains given ones, for tests of what shows them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.features import all_views
from cfo.runtime import GVK, NamespacedName
from cfo.summaries.changes import ChangeType, SummaryChange
from cfo.summaries.overview import Overview
from cfo.summaries.summary import Level, Problem, Summary, kind_names

__all__ = ["VIEWS", "StubOverview", "summary"]

VIEWS = {view.gvk: view for view in all_views()}


def summary(
    name: str, *, gvk: GVK = RAY_CLUSTER, level: Level = Level.OK, problem: str = "", **fields: Any
) -> Summary:
    """Return a summary in the namespace ``ns``."""
    return Summary(
        gvk=gvk,
        key=NamespacedName("ns", name),
        uid=f"uid-{name}",
        level=level,
        **{
            "state": "ready",
            "ready": "1/2",
            "created": "2026-01-01T00:00:00Z",
            "problems": (Problem(problem, "do something about it"),) if problem else (),
            **fields,
        },
    )


class StubOverview:
    """Streams the summaries that it is given, instead of those of a cluster."""

    views = VIEWS

    def __init__(self, summaries: Sequence[Summary] = ()) -> None:
        self._changes: asyncio.Queue[list[SummaryChange]] = asyncio.Queue()
        self._summaries: dict[tuple[GVK, NamespacedName], Summary] = {}
        self.interruptions: asyncio.Queue[str] = asyncio.Queue()
        self.send(*(SummaryChange(ChangeType.ADDED, each) for each in summaries))

    @property
    def overview(self) -> Overview:
        """Itself, with the type that its readers expect."""
        return cast("Overview", self)

    def send(self, *changes: SummaryChange) -> None:
        """Deliver changes."""
        for change in changes:
            self._summaries[change.summary.gvk, change.summary.key] = change.summary
        self._changes.put_nowait(list(changes))

    def kind_names(self, kinds: Iterable[GVK]) -> dict[GVK, str]:
        """Return the names of kinds."""
        return kind_names((*kinds, *(gvk for gvk, _ in self._summaries)))

    async def next_interruption(self, known: str = "") -> str:
        """Return the next one of ``interruptions``."""
        return await self.interruptions.get()

    async def snapshot(self) -> list[Summary]:
        """Return the last summary of each object."""
        return list(self._summaries.values())

    @contextmanager
    def subscribe(self) -> Iterator[AsyncIterator[list[SummaryChange]]]:
        """Yield the changes."""
        yield self._stream()

    async def _stream(self) -> AsyncIterator[list[SummaryChange]]:
        while True:
            yield await self._changes.get()
