"""Records which modules of ``cfo`` a run enters."""

from __future__ import annotations

import sys
from types import FrameType, TracebackType
from typing import Any, Self

import pytest

from hack import ways


class ModuleTrace:
    """Records the modules of ``cfo`` whose functions this thread calls in a block, in the order of their first calls.

    Modules of which only the import runs are not entered.
    """

    def __init__(self) -> None:
        self._entered: dict[str, None] = {}
        self._before: Any = None

    @property
    def modules(self) -> list[str]:
        """The modules that were entered."""
        return list(self._entered)

    def __enter__(self) -> Self:
        self._before = sys.getprofile()
        sys.setprofile(self._profile)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sys.setprofile(self._before)

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        module = str(frame.f_globals.get("__name__", ""))
        if event == "call" and module.startswith("cfo.") and frame.f_code.co_name != "<module>":
            self.observe(module, frame)

    def observe(self, module: str, frame: FrameType) -> None:
        """Record a call of a function in ``module``."""
        self._entered[module] = None


def compare_with_drawing(way: str, modules: list[str], config: pytest.Config) -> None:
    """Fail unless ``modules`` are the way that is drawn; with the option of :mod:`hack.trace`, record them instead."""
    if config.getoption(ways.WRITE_OPTION):
        ways.write(way, modules)
        return
    difference = ways.difference(way, modules, ways.read())
    assert not difference, difference
