"""Waits for kinds that API servers serve in one of several versions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from cfo.runtime import GVK, Manager


def when_first_available(
    manager: Manager, gvks: Iterable[GVK], start: Callable[[GVK], None]
) -> None:
    """Call ``start`` once, with the first of ``gvks`` that is served."""
    started: list[GVK] = []

    def start_once(gvk: GVK, _: Manager) -> None:
        if not started:
            started.append(gvk)
            start(gvk)

    for gvk in gvks:
        manager.when_available(gvk, partial(start_once, gvk))
